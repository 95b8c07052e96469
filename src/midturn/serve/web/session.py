"""One session: its conversation, and what each turn did."""

from __future__ import annotations

import secrets
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from midturn.errors import NotFound, StateInvalid, UnknownVersion
from midturn.history.json_view import session_json, whole_turn_json
from midturn.serve.paths import SESSION, segment
from midturn.serve.requests import Mine
from midturn.serve.streams import EventStream
from midturn.serve.web.acts import ACTS, acts_for
from midturn.serve.web.commands import command
from midturn.serve.web.forms import Form, fields_of, text_of
from midturn.serve.web.live import looked, sent
from midturn.serve.web.rendering import page, part
from midturn.serve.web.views import turn_view

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from midturn.history.session_info import SessionInfo
    from midturn.history.turns import StoredTurn
    from midturn.questions import Decision
    from midturn.serve.cases import Cases

router = APIRouter()

PAGE = 50
"""Turns in a page."""


@router.get(f"/s/{SESSION}")
@router.get(f"/s/{SESSION}.json")
async def session(
    session: str,
    request: Request,
    cases: Mine,
    *,
    before: int | None = None,
    answered: int | None = None,
    turn: int = 0,
    did: str = "",
) -> Response:
    """Show a session: its latest turns, or those before one."""
    return await session_page(session, request, cases, before=before, answered=answered, turn=turn, did=did)


async def session_page(
    session: str,
    request: Request,
    cases: Cases,
    *,
    before: int | None = None,
    answered: int | None = None,
    turn: int = 0,
    did: str = "",
) -> Response:
    """Return the page of a session. ``answered`` is the number of a decision of a ``turn`` that was made just now."""
    info = await cases.info(session)
    turns, problem = await read_turns(cases, info, before)

    def data() -> Any:
        return session_json(info) | {"history": [whole_turn_json(each) for each in turns]}

    earlier = turns[0].number if turns and turns[0].number > info.first_turn else None
    return await page(
        request,
        "session.html",
        data=data,
        **await live_values(cases, info, turns),
        problem=problem,
        before=before,
        earlier=earlier,
        later=_later(before, info),
        answered=None if answered is None else await _answered(cases, session, turn, answered),
        fresh=secrets.token_hex(8),
        did=ACTS[did].done if did in ACTS else "",
    )


async def live_values(cases: Cases, info: SessionInfo, turns: Sequence[StoredTurn]) -> dict[str, Any]:
    """Return what the live parts of the page show."""
    latest = info.turns if info.status != "deleted" else 0
    views = [turn_view(each, latest=each.number == latest) for each in turns]
    questions = [question for view in views for question in view.questions]
    return {
        "info": info,
        "turns": views,
        "fields": {question.id: fields_of(question) for question in questions},
        "runs": info.blueprint in cases.blueprints,
        "acts": acts_for(info, runs=info.blueprint in cases.blueprints),
        "resume": command("resume", "APP", info.id),
    }


async def read_turns(
    cases: Cases, info: SessionInfo, before: int | None = None, last: int = PAGE
) -> tuple[list[StoredTurn], str]:
    """Return turns with their calls, the open one with its questions, and what is wrong with the record, if it is."""
    if info.status == "deleted" or not info.turns:
        return [], ""
    reader = await cases.reader(info.id)
    turns: list[StoredTurn] = []
    problem = ""
    for calls in (True, False):
        try:
            turns = [turn async for turn in reader.history(last=last, before=before, calls=calls)]
            if info.status == "waiting" and turns and turns[-1].status != "done":
                opened = await reader.open_turn()
                if opened is not None and opened.number == turns[-1].number:
                    turns[-1] = opened
            break
        except (StateInvalid, UnknownVersion) as error:  # perhaps only the calls of a turn are damaged
            problem = problem or str(error).partition("\n")[0]
    return turns, problem


def _later(before: int | None, info: SessionInfo) -> int | None:
    """Return the ``before`` of the page after this one; 0 for the latest page, ``None`` if this is the latest."""
    if before is None or before > info.turns:
        return None
    return before + PAGE if before + PAGE <= info.turns else 0


async def _answered(cases: Cases, session: str, turn: int, number: int) -> Decision | None:
    """Return the decision with this number of a turn, as the record has it; ``None`` if there is none."""
    try:
        found = (await (await cases.reader(session)).turn(turn)).decisions
    except NotFound:
        return None
    return found[number] if 0 <= number < len(found) else None


@router.get(f"/s/{SESSION}/turns/{{number}}")
@router.get(f"/s/{SESSION}/turns/{{number}}.json")
async def one_turn(session: str, number: int, request: Request, cases: Mine) -> Response:
    """Show one turn, whole."""
    info = await cases.info(session)
    reader = await cases.reader(session)
    found = await reader.turn(number)
    if found.status == "waiting" and (opened := await reader.open_turn()) is not None and opened.number == number:
        found = opened
    return await page(
        request,
        "turn.html",
        data=lambda: whole_turn_json(found),
        info=info,
        view=turn_view(found, whole=True),
        runs=False,
    )


@router.get(f"/s/{SESSION}/live")
async def live(session: str, request: Request, cases: Mine) -> Response:
    """Send the turns of a session that change, to those who look at it."""
    info = await cases.info(session)
    shown = {"from": info.turns, "seq": -1}

    async def look() -> Any:
        found = await cases.info(session)
        return found.seq, found.status

    async def events() -> AsyncGenerator[str, None]:
        async with aclosing(looked(look)) as changes:
            async for _ in changes:
                now = await cases.info(session)
                last = max(now.turns - shown["from"] + 1, 1)
                turns, _ = await read_turns(cases, now, last=min(last, PAGE))
                values = await live_values(cases, now, turns)
                new = [turn.number for turn in turns if turn.number > shown["from"]]
                yield part(request, "session_live.html", **values, new=new)
                shown["from"] = max(now.turns, shown["from"])

    return EventStream(sent(events()))


@router.post(f"/s/{SESSION}/say")
async def say(session: str, request: Request, cases: Mine, form: Form) -> Response:
    """Take what somebody says to a session: a new turn, or the answer that an agent waits for."""
    await cases.info(session, "run")  # a session is begun on the list, and not by a wrong address
    case = await cases.runnable(session)
    run = await case.start_say(text_of(form, "text"), key=text_of(form, "key") or None, by=cases.principal.name)
    root = request.scope.get("root_path", "")
    return RedirectResponse(f"{root}/s/{segment(session)}#turn-{run.turn}", 303)
