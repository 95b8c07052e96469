"""Errors as pages, for browsers; everybody else gets problem+json."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi.exceptions import RequestValidationError

from midturn.errors import MidturnError
from midturn.serve.problems import Problem, invalid, problem, problem_of
from midturn.serve.web.rendering import page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

KINDS = {
    "Forbidden": "This is not allowed",
    "StateInvalid": "The record is damaged",
    "Tampered": "The record is damaged",
    "SessionBusy": "Somebody is at it",
    "Taken": "The id is taken",
}
TITLES = {
    401: "Who are you?",
    403: "This is not allowed",
    404: "It is not there",
    409: "Somebody was faster",
    410: "It was deleted",
    421: "Another host name",
    422: "This does not fit",
    429: "Too much at once",
    503: "The store cannot be reached",
}


async def error_page(request: Request, error: Exception) -> Response:
    """Return the response to a request that failed: a page for a browser, else problem+json."""
    answer = await (invalid if isinstance(error, RequestValidationError) else problem)(request, error)
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    wanted = "text/html" in request.headers.get("accept", "")
    if not wanted or path.startswith(("/api/", "/static/")) or path.endswith(".json"):
        return answer
    found = problem_of(error)
    status = answer.status_code
    detail = found["detail"]
    if isinstance(error, RequestValidationError):
        detail = "the address is not complete"
    elif status == HTTPStatus.NOT_FOUND and not isinstance(error, MidturnError | Problem):
        detail = "there is no such page"
    made = await page(
        request,
        "error.html",
        status=status,
        waiting=0,  # the store may be what failed
        title=KINDS.get(found["title"]) or TITLES.get(status, "Something went wrong"),
        kind=found["title"],
        detail=detail,
        code=status,
        after=_after_login(request),
    )
    for name in ("WWW-Authenticate", "Retry-After", "Connection"):
        if name in answer.headers:
            made.headers[name] = answer.headers[name]
    return made


def _after_login(request: Request) -> str:
    """Return the path of the page that a login leads to: this one, or for a form the one that has sent it."""
    root = request.scope.get("root_path", "")
    path = str(request.scope["path"])
    if request.method != "GET":
        host, _, path = request.headers.get("referer", "").partition("://")[2].partition("/")
        path = "/" + path.partition("?")[0] if host == request.headers.get("host") else f"{root}/"
    return f"{root}/" if path.startswith(f"{root}/static/") else path
