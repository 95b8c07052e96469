"""Errors over HTTP: problem+json as RFC 9457 describes it, with the facts of our errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from midturn.errors import (
    Conflict,
    InDoubt,
    InvalidArgument,
    LeaseLost,
    MidturnError,
    NotFound,
    ReplayDiverged,
    SessionBusy,
    SessionDeleted,
    StoreFull,
    StoreUnavailable,
    TurnFailed,
    TurnTimeout,
)
from midturn.history.json_view import error_json
from midturn.serve.cases import Forbidden, TooManyStreams
from midturn.stores.secrets import hidden

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"

STATUS: dict[type[MidturnError], int] = {
    InvalidArgument: 422,
    NotFound: 404,
    SessionDeleted: 410,
    SessionBusy: 409,
    LeaseLost: 409,
    Conflict: 409,
    InDoubt: 409,
    ReplayDiverged: 409,
    TurnFailed: 500,
    TurnTimeout: 504,
    StoreFull: 507,
    StoreUnavailable: 503,
}
"""The status of each kind of error. Every other kind has the status 500."""
RETRIED = (LeaseLost, StoreUnavailable, TooManyStreams)
"""Errors after which the same request may succeed soon."""
SOON = "1"
"""Seconds after which a client may try again."""


class Problem(HTTPException):
    """An error of the request itself, such as a missing token."""

    def __init__(self, status: int, title: str, detail: str, **headers: str) -> None:
        super().__init__(status, detail, {name.replace("_", "-"): value for name, value in headers.items()})
        self.title = title


def status_of(error: MidturnError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, Conflict) and error.key is not None:
        return 422  # the draft on Idempotency-Key wants that
    return next((status for known, status in STATUS.items() if isinstance(error, known)), 500)


def problem_of(error: Exception) -> dict[str, Any]:
    """Return an error as an object of problem+json."""
    match error:
        case MidturnError():
            found = error_json(error)
            kind, detail = found.pop("type"), found.pop("message")
            status = status_of(error)
        case HTTPException():
            status, detail, found = error.status_code, error.detail, {}
            kind = error.title if isinstance(error, Problem) else HTTPStatus(status).phrase.replace(" ", "")
        case Forbidden():
            kind, detail, status, found = "Forbidden", str(error), 403, {}
        case TooManyStreams():
            kind, detail, status, found = "TooManyStreams", str(error), 429, {}
        case _:
            kind, detail, status, found = "ServerError", "the server failed; its log has the error", 500, {}
    detail = hidden(detail)  # a URL in it may carry a password
    about = {"type": f"urn:midturn:error:{kind}", "title": kind, "status": status, "detail": detail}
    return about | found | {"error": {"type": kind, "message": detail}}  # some SDKs show error.message


async def problem(request: Request, error: Exception) -> Response:  # noqa: ARG001 - the signature is Starlette's
    """Return the response to a request that failed."""
    found = problem_of(error)
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    busy = isinstance(error, SessionBusy) and error.owner != SessionBusy.A_HUMAN
    if busy or isinstance(error, RETRIED):
        headers["Retry-After"] = SOON
    return JSONResponse(found, found["status"], headers, MEDIA_TYPE)


async def invalid(request: Request, error: Exception) -> Response:
    """Return the response to a request whose body or query is not what the route takes."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - the app registers it for that
    found = [InvalidArgument(each["msg"], path=".".join(map(str, each["loc"]))) for each in error.errors()]
    return await problem(request, InvalidArgument.gathered(found))
