"""Routes to the turns of a session: run one, follow it, and answer what it asks."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from midturn.history.json_view import calls_json, questions_json, turn_json
from midturn.serve.paths import SESSION, segment
from midturn.serve.requests import Mine
from midturn.serve.streams import EventStream, run_events

router = APIRouter(tags=["turns"])

MOST = 200
"""Number of turns in a page, at most."""


class Body(BaseModel):
    """A body of a request. A key that is not known is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NewTurn(Body):
    """A task for a session."""

    task: str
    blueprint: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)


@router.get(f"/sessions/{SESSION}/turns")
async def list_turns(session: str, cases: Mine, *, last: Annotated[int, Query(ge=1, le=MOST)] = 50) -> dict[str, Any]:
    """Return the latest turns of a session, the oldest of them first."""
    reader = await cases.reader(session)
    return {"session": session, "turns": [turn_json(turn) async for turn in reader.history(last=last)]}


@router.get(f"/sessions/{SESSION}/turns/{{turn}}")
async def get_turn(session: str, turn: int, cases: Mine) -> dict[str, Any]:
    """Return one turn with its calls, and its questions if it waits."""
    reader = await cases.reader(session)
    found = await reader.turn(turn)
    if found.status != "done":
        open_turn = await reader.open_turn()
        found = open_turn if open_turn is not None and open_turn.number == turn else found
    return turn_json(found) | {"calls": calls_json(found.calls), "questions": questions_json(found.questions)}


@router.post(f"/sessions/{SESSION}/turns", status_code=201)
async def run_turn(
    session: str,
    new: NewTurn,
    cases: Mine,
    *,
    idempotency_key: Annotated[str | None, Header()] = None,
    prefer: Annotated[str, Header()] = "",
    accept: Annotated[str, Header()] = "",
) -> Response:
    """Run a turn. It belongs to the server: it continues when the client goes away."""
    case = await cases.runnable(session, blueprint=new.blueprint, labels=new.labels)
    run = await case.start(new.task, key=idempotency_key)
    where = {"Location": f"/api/sessions/{segment(session)}/turns/{run.turn}"}
    if "text/event-stream" in accept:
        return EventStream(run_events(run), 201)
    if "respond-async" in prefer:
        return JSONResponse({"session": session, "turn": run.turn, "status": run.status}, 202, where)
    await run.result()
    return JSONResponse(await get_turn(session, run.turn, cases), 201, where)


@router.get(f"/sessions/{SESSION}/turns/{{turn}}/events")
async def follow_turn(
    session: str, turn: int, cases: Mine, *, last_event_id: Annotated[str, Header()] = "0"
) -> Response:
    """Follow a turn, also one of another process. `Last-Event-ID` continues after an event."""
    case = await cases.case(session, "read")
    run = await case.follow(turn)
    _, _, number = last_event_id.rpartition(".")
    return EventStream(run_events(run, int(number) if number.isdecimal() else 0))
