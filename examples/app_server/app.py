"""Durable conversations over HTTP. Run as many instances as you like on one store: any of them serves any session.

MIDTURN_URL=postgresql://user:password@host/database uvicorn app:app
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from autogen_agentchat.agents import AssistantAgent
from fastapi import Depends, FastAPI, HTTPException, Path, Request
from fastapi.responses import JSONResponse
from model import Clerk
from pydantic import BaseModel, Field

import midturn

log = logging.getLogger(__name__)
model = Clerk()  # answers by rule, without a key; put your own here: OpenAIChatCompletionClient(model="gpt-4o-mini")
support = midturn.Blueprint("support", lambda: AssistantAgent("support_agent", model))

STATUS = {
    midturn.SessionBusy: 409,
    midturn.LeaseLost: 409,
    midturn.Conflict: 409,  # the key was used before, for another task
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


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[dict[str, Any]]:
    async with midturn.open() as store:
        yield {"store": store}


app = FastAPI(lifespan=lifespan)


def opened(request: Request) -> midturn.OpenStore:
    return request.state.store


Store = Annotated[midturn.OpenStore, Depends(opened)]
SessionId = Annotated[str, Path(max_length=200)]


@app.post("/sessions/{session}/turns")
async def run(session: SessionId, turn: Turn, store: Store) -> dict[str, Any]:
    result = await store.session(session, support, timeout=10).run(turn.task, key=turn.key)
    return {"turn": result.turn, "reply": result.messages[-1].to_text()}


@app.get("/sessions/{session}")
async def history(session: SessionId, store: Store) -> dict[str, Any]:
    turns = [
        {
            "turn": turn.number,
            "key": turn.key,
            "task": turn.task[0]["content"],
            "reply": turn.messages[-1]["content"] if turn.messages else None,
            "status": turn.status,
        }
        async for turn in store.session(session).history()
    ]
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
