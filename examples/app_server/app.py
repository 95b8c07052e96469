"""Durable conversations over HTTP. Run as many instances as you like on one store: any of them serves any session.

MIDTURN_URL=postgresql://user:password@host/database uvicorn app:app
"""

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from autogen_agentchat.agents import AssistantAgent
from fastapi import Depends, FastAPI, Header, HTTPException, Path, WebSocket
from fastapi.requests import HTTPConnection, Request
from fastapi.responses import JSONResponse, StreamingResponse
from model import clerk
from pydantic import BaseModel, Field

import midturn

log = logging.getLogger(__name__)
model = clerk()  # answers by rule, without a key; put your own here: OpenAIChatCompletionClient(model="gpt-4o-mini")
support = midturn.Blueprint("support", lambda: AssistantAgent("support_agent", model, model_client_stream=True))

STATUS = {
    midturn.SessionBusy: 409,
    midturn.LeaseLost: 409,
    midturn.Conflict: 409,  # the key was used before, for another task
    midturn.NotFound: 404,
    midturn.InvalidArgument: 422,
    midturn.SessionDeleted: 410,
    midturn.TurnFailed: 502,
    midturn.TurnTimeout: 504,
    midturn.StoreUnavailable: 503,
    midturn.StoreFull: 503,
}
RETRY = (midturn.SessionBusy, midturn.LeaseLost, midturn.StoreUnavailable, midturn.StoreFull)


class Turn(BaseModel):
    """A task, and the caller's own key for this request. The same key gets the same answer."""

    task: str
    key: str = Field(min_length=1, max_length=500)


class Words(BaseModel):
    """The words of a user: the answer to an open question, or the task of a new turn."""

    text: str
    key: str = Field(min_length=1, max_length=500)


class Place(BaseModel):
    """A place in the events of a turn, from which a client that was cut off continues."""

    turn: int
    after: int = 0


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[dict[str, Any]]:
    async with midturn.open() as store:
        yield {"store": store}


app = FastAPI(lifespan=lifespan)
Case = midturn.Session[Any, midturn.TurnResult]


def opened(connection: HTTPConnection) -> midturn.OpenStore:
    return connection.state.store


Store = Annotated[midturn.OpenStore, Depends(opened)]
SessionId = Annotated[str, Path(max_length=200)]


@app.post("/sessions/{session}/turns")
async def run(session: SessionId, turn: Turn, store: Store) -> dict[str, Any]:
    result = await store.session(session, support, timeout=10).run(turn.task, key=turn.key)
    return {"turn": result.turn, "reply": result.messages[-1].to_text()}


@app.post("/sessions/{session}/messages", status_code=202)
async def say(session: SessionId, words: Words, store: Store) -> dict[str, Any]:
    """Take what a user says, and return while the turn runs. Its events are at the address in ``events``."""
    run = await store.session(session, support, timeout=10).start_say(words.text, key=words.key)
    return {"turn": run.turn, "events": f"/sessions/{session}/turns/{run.turn}/events"}


@app.get("/sessions/{session}/turns/{turn}/events")
async def events(
    session: SessionId, turn: int, store: Store, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    """Stream the events of a turn. After a cut, a browser's EventSource sends the id of the last event that it has."""
    place = Place(turn=turn, after=int((last_event_id or "0").rpartition(".")[2]))
    case = store.session(session, support)
    await case.follow(turn)  # 404 before the stream begins, if there is no such turn

    async def stream() -> AsyncGenerator[str]:
        async for kind, name, data in followed(case, place):
            yield f"event: {kind}\nid: {name}\ndata: {data}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@app.websocket("/sessions/{session}/socket")
async def talk(socket: WebSocket, session: SessionId, store: Store) -> None:
    """Talk over a websocket: the client sends ``Words``, or a ``Place`` when it comes back after a cut."""
    await socket.accept()
    case = store.session(session, support)
    async for received in socket.iter_json():
        try:
            if "text" in received:
                words = Words(**received)
                run = await case.start_say(words.text, key=words.key)
                place = Place(turn=run.turn)
            else:
                place = Place(**received)
            async for kind, name, data in followed(case, place):
                await socket.send_text(f'{{"kind": "{kind}", "id": "{name}", "data": {data}}}')
        except (midturn.MidturnError, ValueError) as error:
            await socket.send_json({"kind": "error", "data": {"error": type(error).__name__, "detail": str(error)}})


async def followed(case: Case, place: Place) -> AsyncGenerator[tuple[str, str, str]]:
    """Yield the kind, id and JSON of each event of a turn, wherever it runs. If its worker has died, finish it here."""
    after = place.after
    while True:
        run = await case.follow(place.turn)
        async for event in run.events(after=after):
            after = event.number
            yield type(event.event).__name__, event.id, event.event.model_dump_json()
        if run.status != "interrupted":
            break
        await case.start_resume()
    waiting = await case.waiting() if run.status == "waiting" else None
    end = {"status": run.status, "questions": [each.question for each in waiting.questions] if waiting else []}
    yield "end", f"{place.turn}.{after}", json.dumps(end)


@app.get("/sessions/{session}")
async def history(session: SessionId, store: Store) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    async for turn in store.session(session).history():
        task = turn.task[0].to_text() if turn.task else None
        reply = turn.messages[-1].to_text() if turn.messages else None
        turns.append({"turn": turn.number, "key": turn.key, "task": task, "reply": reply, "status": turn.status})
    if not turns:
        raise HTTPException(404, f"there is no session {session!r}")
    return {"session": session, "turns": turns}


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.exception_handler(midturn.MidturnError)
async def refused(_: Request, error: midturn.MidturnError) -> JSONResponse:
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
    if status >= 500:  # noqa: PLR2004 - our problem, not the caller's
        log.error("%s", error, exc_info=error)
    headers = {"Retry-After": "1"} if isinstance(error, RETRY) else {}
    return JSONResponse({"error": type(error).__name__, "detail": str(error)}, status, headers)
