"""The inbox: all questions to people, the oldest first, with what led to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from midturn.errors import MidturnError
from midturn.history.json_view import session_json, whole_turn_json
from midturn.history.listing import Listing
from midturn.serve.requests import Mine
from midturn.serve.streams import EventStream
from midturn.serve.web.forms import fields_of
from midturn.serve.web.live import looked, sent
from midturn.serve.web.rendering import page, part
from midturn.serve.web.views import TurnView, turn_view

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from midturn.history.session_info import SessionInfo
    from midturn.history.turns import StoredTurn
    from midturn.serve.cases import Cases
    from midturn.serve.web.forms import Field

router = APIRouter()

PAGE = 25
"""Sessions in a page of the inbox: each is shown with all that people need to decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A session that waits, with its open turn."""

    info: SessionInfo
    turn: StoredTurn | None
    view: TurnView | None
    fields: dict[str, list[Field]]
    problem: str = ""


@router.get("/inbox")
@router.get("/inbox.json")
async def inbox(request: Request, cases: Mine, after: str = "", label: str = "") -> Response:
    """Show the open questions, the oldest first."""
    listing = _listing(after, label)
    infos = [info async for info in cases.sessions(listing)]
    asked = [await _asked(cases, info) for info in infos]
    asked = [each for each in asked if each.problem or each.turn is not None]

    def data() -> Any:
        return {"waiting": [_json(each) for each in asked], "next": infos[-1].cursor if len(infos) == PAGE else None}

    return await page(
        request,
        "inbox.html",
        data=data,
        asked=asked,
        count=sum(len(each.turn.questions) for each in asked if each.turn is not None),
        more=infos[-1].cursor if len(infos) == PAGE else None,
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
        return [(info.id, info.seq) async for info in cases.sessions(_listing(after, label))]

    async def events() -> AsyncGenerator[str, None]:
        async for _ in looked(look):
            infos = [info async for info in cases.sessions(_listing(after, label))]
            ids = {info.id for info in infos}
            gone = [await _gone(cases, id_) for id_ in sorted(before - ids)]
            yield part(request, "inbox_live.html", new=len(ids - before), gone=gone, count=len(ids))

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


async def _asked(cases: Cases, info: SessionInfo) -> Asked:
    try:
        turn = await (await cases.reader(info.id)).open_turn()
    except MidturnError as error:  # a damaged session must not hide the others
        return Asked(info=info, turn=None, view=None, fields={}, problem=str(error).partition("\n")[0])
    if turn is None or not turn.questions:  # somebody has just answered
        return Asked(info=info, turn=None, view=None, fields={})
    fields = {question.id: fields_of(question) for question in turn.questions}
    return Asked(info=info, turn=turn, view=turn_view(turn), fields=fields)


def _json(asked: Asked) -> dict[str, Any]:
    found: dict[str, Any] = {**session_json(asked.info), "problem": asked.problem or None}
    if asked.turn is None:
        return found
    turn = whole_turn_json(asked.turn)
    return found | {"questions": turn["questions"], "open_turn": turn}
