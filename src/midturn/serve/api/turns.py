"""Routes to the turns of a session: run one, follow it, answer what it asks, and read what happened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body, Query
from starlette.responses import Response

from midturn.errors import NotFound
from midturn.history.json_view import (
    ReplayJson,
    WholeTurnJson,
    questions_json,
    replay_json,
    turn_json,
    whole_turn_json,
)
from midturn.serve.api.models import (
    UNCHANGED,
    Answer,
    Cancelled,
    Id,
    NewTurn,
    OfTurn,
    Open,
    Resume,
    Started,
    Turn,
    TurnPage,
    Words,
    ok,
)
from midturn.serve.cases import Cases
from midturn.serve.paths import SESSION, segment
from midturn.serve.problems import SOON, Problem
from midturn.serve.replies import IfMatch, IfNoneMatch, as_seen, reply, tag_of, unchanged
from midturn.serve.requests import Key, Mine, Wanted, Wants
from midturn.serve.streams import EventStream, run_events

if TYPE_CHECKING:
    from midturn.serve.cases import Case
    from midturn.sessions.reader import SessionReader
    from midturn.sessions.runs import Run

router = APIRouter(tags=["turns"])

PAGE, MOST = 50, 200
"""Number of turns in a page: by default, and at most."""

_STREAM: dict[str, Any] = {
    "schema": {"type": "string"},
    "example": 'id: 1.1\nevent: message\ndata: {"turn": 1, "type": "TextMessage", "content": "Noted."}\n\n'
    'event: end\ndata: {"session": "case-42", "turn": 1, "status": "done"}\n\n',
}
RUN: dict[int | str, dict[str, Any]] = {
    200: {
        "model": WholeTurnJson,
        "description": "The turn has a result, or waits for people. Or a stream of its events.",
        "content": {"text/event-stream": _STREAM},
    },
    **ok(Started, "The turn runs.", status=202),
}


@router.get(
    f"/sessions/{SESSION}/turns",
    response_model=None,
    responses={**ok(TurnPage), **UNCHANGED},
)
async def list_turns(
    session: Id,
    cases: Mine,
    *,
    last: Annotated[int, Query(ge=1, le=MOST, description="The number of turns.")] = PAGE,
    before: Annotated[int | None, Query(ge=1, description="Only turns before this one.")] = None,
    if_none_match: IfNoneMatch = "",
) -> Response:
    """Return the latest turns of a session, or the latest before another turn, without their calls."""
    info, reader = await cases.look(session)
    if (same := unchanged(if_none_match, tag_of(info))) is not None:
        return same
    found = [turn async for turn in reader.history(last=last, before=before)]
    earlier = found[0].number if found and found[0].number > info.first_turn else None
    page = {"session": session, "turns": [turn_json(turn) for turn in found], "before": earlier}
    return reply(page, tag=tag_of(info))


@router.get(
    f"/sessions/{SESSION}/turns/{{turn}}",
    response_model=None,
    responses={**ok(WholeTurnJson), **UNCHANGED},
)
async def get_turn(session: Id, turn: Turn, cases: Mine, if_none_match: IfNoneMatch = "") -> Response:
    """Return one turn with its calls, and its questions if it waits."""
    info, reader = await cases.look(session)
    if (same := unchanged(if_none_match, tag_of(info))) is not None:
        return same
    return reply(await _whole(reader, turn), tag=tag_of(info))


@router.get(
    f"/sessions/{SESSION}/questions",
    response_model=None,
    responses={**ok(Open), **UNCHANGED},
)
async def get_questions(session: Id, cases: Mine, if_none_match: IfNoneMatch = "") -> Response:
    """Return the open questions of a session."""
    info, reader = await cases.look(session)
    if (same := unchanged(if_none_match, tag_of(info))) is not None:
        return same
    waiting = await reader.waiting()
    questions = () if waiting is None else waiting.questions
    found = {"session": session, "turn": info.turns if questions else None, "questions": questions_json(questions)}
    return reply(found, tag=tag_of(info))


@router.post(f"/sessions/{SESSION}/turns", response_model=None, responses=RUN)
async def run_turn(session: Id, new: NewTurn, cases: Mine, wanted: Wants, key: Key) -> Response:
    """Run a turn. It belongs to the server: it continues when the client goes away.

    The answer comes when the turn has a result or waits for people, unless the request prefers otherwise.
    """
    case = await cases.runnable(session, blueprint=new.blueprint, labels=new.labels)
    repeated = await _is_under_way(case, key)
    run = await case.start(new.task, key=key)
    return await _outcome(cases, run, wanted, repeated=repeated)


@router.post(f"/sessions/{SESSION}/say", response_model=None, responses=RUN)
async def say(session: Id, said: Words, cases: Mine, wanted: Wants, key: Key) -> Response:
    """Take what a user said, whatever the session is doing: the answer to a question, or the task of a turn."""
    case = await cases.runnable(session, blueprint=said.blueprint, labels=said.labels)
    repeated = await _is_under_way(case, key)
    run = await case.start_say(said.text, key=key, by=cases.principal.name)
    return await _outcome(cases, run, wanted, repeated=repeated)


@router.post(
    f"/sessions/{SESSION}/resume",
    response_model=None,
    responses={**RUN, 200: {**RUN[200], "model": WholeTurnJson | OfTurn}},
)
async def resume(
    session: Id, cases: Mine, wanted: Wants, how: Annotated[Resume, Body(default_factory=Resume)]
) -> Response:
    """Continue an interrupted turn, or try a failed or cancelled one again. `turn` is null if no turn is open."""
    if (await cases.info(session, "run")).status == "idle":
        return reply({"session": session, "turn": None})
    case = await cases.runnable(session)
    run = await case.start_resume(diverged=how.diverged, by=cases.principal.name)
    if run is None:
        return reply({"session": session, "turn": None})
    return await _outcome(cases, run, wanted)


@router.post(f"/sessions/{SESSION}/answer", response_model=None, responses=RUN)
async def answer(session: Id, given: Answer, cases: Mine, wanted: Wants, *, if_match: IfMatch = "") -> Response:
    """Answer a question of the open turn and continue the turn.

    If this server does not run the session's blueprint, the answer is recorded, and another worker continues.
    """
    case = await cases.case(session, "answer")
    question = given.question
    waiting = await case.waiting() if if_match else None  # of the seq that is checked next: the answer is for that
    if question is None and waiting is not None and len(waiting.questions) == 1:
        question = waiting.id
    about: dict[str, Any] = {
        "question": question,
        "arguments": given.arguments,
        "by": cases.principal.name,
        "diverged": given.diverged,
    }
    async with as_seen(cases, session, if_match):
        info, reader = await cases.look(session)
        if not cases.runs(info):
            await case.answer(given.answer, **about)
            info = await cases.info(session)
            return reply(await _whole(reader, info.turns), tag=tag_of(info))
        run = await case.start_answer(given.answer, **about)
    return await _outcome(cases, run, wanted)


@router.post(f"/sessions/{SESSION}/discard", response_model=None, responses=ok(OfTurn))
async def discard(session: Id, cases: Mine, if_match: IfMatch = "") -> Response:
    """Give up the open turn. What it did to the world stays done. `turn` is null if no turn was open."""
    case = await cases.case(session, "discard")
    info = await cases.info(session)
    async with as_seen(cases, session, if_match) as seq:
        given_up = await case.discard(by=cases.principal.name, seq=seq)
    return reply({"session": session, "turn": info.turns if given_up else None})


@router.post(f"/sessions/{SESSION}/turns/{{turn}}/cancel", response_model=None, responses=ok(Cancelled))
async def cancel(session: Id, turn: Turn, cases: Mine) -> Response:
    """Cancel a turn that this server runs, and wait until that is recorded."""
    case = await cases.case(session, "run")
    run = await case.follow(turn)
    return reply({"session": session, "turn": turn, "cancelled": await run.cancel()})


@router.post(f"/sessions/{SESSION}/turns/{{turn}}/replay", response_model=None, responses=ok(ReplayJson))
async def replay(session: Id, turn: Turn, cases: Mine) -> Response:
    """Run a finished turn again from its record, and compare. Nothing is called and nothing is written."""
    case = await cases.case(session, "run")
    found = await case.replay(turn)
    return reply(replay_json(session, turn, differences=found.differences, notes=found.notes, messages=found.messages))


@router.get(
    f"/sessions/{SESSION}/turns/{{turn}}/events",
    response_model=None,
    responses={200: {"description": "The events of the turn.", "content": {"text/event-stream": _STREAM}}},
)
async def follow_turn(session: Id, turn: Turn, cases: Mine, wanted: Wants) -> Response:
    """Follow a turn, also one of another process. `Last-Event-ID` continues after an event."""
    case = await cases.case(session, "read")
    run = await case.follow(turn)
    return EventStream(run_events(run, wanted.after(turn)), session=session)


async def _is_under_way(case: Case, key: str | None) -> bool:
    """Return whether a turn with this key runs already, here or elsewhere."""
    if key is None:
        return False
    try:
        return (await case.follow(key=key)).status == "running"
    except NotFound:
        return False


async def _outcome(cases: Cases, run: Run[Any, Any], wanted: Wanted, *, repeated: bool = False) -> Response:
    """Return what a client wants to know of its turn. ``repeated``: the same request is being served already.

    Raises:
        Problem: the request was repeated, and the client waits for the outcome: it has to come back.
    """
    where = {"Location": f"{wanted.root}/api/sessions/{segment(run.session)}/turns/{run.turn}"}
    if wanted.stream:
        return EventStream(run_events(run, wanted.after(run.turn)), session=run.session)
    if wanted.wait is None and repeated and run.status == "running":
        detail = f"turn {run.turn} of session {run.session!r} has this key, and is under way"
        raise Problem(409, "UnderWay", detail, Retry_After=SOON, **where)
    if wanted.wait is None:
        await run.result()
    else:
        try:
            async with asyncio.timeout(wanted.wait):
                await run.result()
        except TimeoutError:
            return reply({"session": run.session, "turn": run.turn, "status": run.status}, 202, headers=where)
    info, reader = await cases.look(run.session)
    return reply(await _whole(reader, run.turn), tag=tag_of(info), headers=where)


async def _whole(reader: SessionReader, turn: int) -> WholeTurnJson:
    """Return a turn with its calls and its questions."""
    found = await reader.turn(turn)
    if found.status != "done":
        opened = await reader.open_turn()
        found = opened if opened is not None and opened.number == turn else found
    return whole_turn_json(found)
