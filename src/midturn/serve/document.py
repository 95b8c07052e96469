"""The OpenAPI document of the API, with what all routes have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI
    from fastapi.routing import APIRoute

PROBLEM: dict[str, Any] = {
    "title": "Problem",
    "description": "An error, as RFC 9457 describes it, with the facts of the error.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "error"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string", "description": "The name of the error in Python."},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "session": {"type": "string"},
        "turn": {"type": "integer"},
        "owner": {"type": "string", "description": "Who holds a session that is busy."},
        "differences": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "message"],
                "properties": {"path": {"type": "string"}, "message": {"type": "string"}},
            },
        },
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
    },
}
EXAMPLE = {
    "type": "urn:midturn:error:NotFound",
    "title": "NotFound",
    "status": 404,
    "detail": "there is no session 'case-42'",
    "session": "case-42",
    "error": {"type": "NotFound", "message": "there is no session 'case-42'"},
}
ERROR = {
    "description": "An error.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}, "example": EXAMPLE}},
}
ABOUT = """Sessions of midturn over HTTP. A turn belongs to the server: it continues when the client goes away.

Every answer has an `ETag`. A request that repeats it as `If-None-Match` gets a 304 if nothing has changed. Errors are
problem+json."""


def name_of(route: APIRoute) -> str:
    """Return the operation id of a route."""
    return route.name


def document(app: FastAPI, examples: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document, with ``examples`` by the name of their schema."""
    found = get_openapi(
        title=app.title, version=app.version, openapi_version=app.openapi_version, description=ABOUT, routes=app.routes
    )
    components = found.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = PROBLEM
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    found["security"] = [{"token": []}]
    for operations in found["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = ERROR
            for answer in operation["responses"].values():
                content = answer.get("content", {})
                if len(content) > 1 and content.get("application/json") == {"schema": {}}:
                    del content["application/json"]  # the route answers with a stream only
    for name, example in examples.items():
        components["schemas"][name]["examples"] = [example]
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)
    return found
