"""The inbox: all questions to people, the oldest first, with what led to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from midturn.errors import MidturnError
from midturn.history.json_view import session_json, whole_turn_json
from midturn.history.listing import Listing
from midturn.serve.cases import Waiting
from midturn.serve.requests import Mine
from midturn.serve.streams import EventStream
from midturn.serve.web.forms import fields_of
from midturn.serve.web.live import looked, sent
from midturn.serve.web.rendering import page, part, waiting_for
from midturn.serve.web.views import turn_view

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from midturn.serve.cases import Cases

router = APIRouter()

PAGE = 25
"""Sessions in a page of the inbox: each is shown with all that people need to decide."""


@router.get("/inbox")
@router.get("/inbox.json")
async def inbox(request: Request, cases: Mine, after: str = "", label: str = "") -> Response:
    """Show the open questions, the oldest first."""
    asked = [each async for each in cases.waiting(_listing(after, label))]
    turns = {each.info.id: each.turn for each in asked if each.turn is not None}
    more = asked[-1].info.cursor if len(asked) == PAGE else None

    def data() -> Any:
        return {"waiting": [_json(each) for each in asked], "next": more}

    return await page(
        request,
        "inbox.html",
        data=data,
        asked=asked,
        views={session: turn_view(turn) for session, turn in turns.items()},
        fields={session: {asked.id: fields_of(asked) for asked in turn.questions} for session, turn in turns.items()},
        count=sum(len(turn.questions) for turn in turns.values()),
        more=more,
        after=after,
        label=label,
        blueprints=cases.blueprints,
    )


@router.get("/inbox/live")
async def live(
    request: Request,
    cases: Mine,
    after: str = "",
    label: str = "",
    shown: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI copies it
) -> Response:
    """Tell those who look at the inbox which of the ``shown`` questions were answered, and that there are more.

    Forms stay as they are.
    """
    before = set(shown)

    async def look() -> Any:
        shown = [(info.id, info.seq) async for info in cases.sessions(_listing(after, label))]
        return await waiting_for(cases), shown

    async def events() -> AsyncGenerator[str, None]:
        async for _ in looked(look):
            infos = [info async for info in cases.sessions(_listing(after, label))]
            ids = {info.id for info in infos}
            gone = [await _gone(cases, id_) for id_ in sorted(before - ids)]
            yield part(request, "inbox_live.html", new=len(ids - before), gone=gone, waiting=await waiting_for(cases))

    return EventStream(sent(events()))


async def _gone(cases: Cases, session: str) -> dict[str, Any]:
    try:
        return {"id": session, "status": (await cases.info(session)).status}
    except MidturnError:
        return {"id": session, "status": "deleted"}


def _listing(after: str, label: str) -> Listing:
    name, _, value = label.partition("=")
    labels = {name: value} if name else {}
    return Listing.of(status="waiting", order="updated", reverse=True, labels=labels, after=after, limit=PAGE)


def _json(asked: Waiting) -> dict[str, Any]:
    found: dict[str, Any] = {**session_json(asked.info), "problem": asked.problem}
    if asked.turn is None:
        return found
    turn = whole_turn_json(asked.turn)
    return found | {"questions": turn["questions"], "open_turn": turn}
