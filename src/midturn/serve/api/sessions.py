"""Routes to sessions: lists of them, and one of them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from midturn.history.json_view import session_json
from midturn.history.listing import Listing
from midturn.history.session_info import SessionStatus
from midturn.serve.paths import SESSION
from midturn.serve.requests import Mine
from midturn.store import ListOrder

router = APIRouter(tags=["sessions"])

PAGE = 50
MOST = 200
"""Number of sessions in a page: by default, and at most."""


@router.get("/sessions")
async def list_sessions(
    cases: Mine,
    *,
    status: Annotated[list[SessionStatus] | None, Query()] = None,
    prefix: str = "",
    order: ListOrder = "updated",
    reverse: bool = False,
    after: str = "",
    limit: Annotated[int, Query(ge=1, le=MOST)] = PAGE,
) -> dict[str, Any]:
    """List sessions, page by page. For the next page, repeat the request with `after` = `next`."""
    listing = Listing.of(status=status, prefix=prefix, order=order, reverse=reverse, after=after, limit=limit)
    found = [info async for info in cases.sessions(listing)]
    return {
        "sessions": [session_json(info) for info in found],
        "next": found[-1].cursor if len(found) == limit else None,
    }


@router.get("/counts")
async def count_sessions(cases: Mine) -> dict[SessionStatus, int]:
    """Return the number of sessions with each status."""
    return await cases.counts()


@router.get(f"/sessions/{SESSION}")
async def get_session(session: str, cases: Mine, request: Request, response: Response) -> Any:
    """Return the status and the facts of a session. The `ETag` changes with every write of the session."""
    info = await cases.info(session)
    tag = f'"{info.seq}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return session_json(info)
