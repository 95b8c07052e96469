"""AutoGen's FastAPI sample, made durable: a team with a human in it, who talks over a websocket.

MIDTURN_URL=sqlite:///chats.db uvicorn team_websocket:app

As in the sample, nothing ends the team's run: the whole conversation is one turn, which waits whenever the human is to
speak. A connection that is cut, a page that is closed for days, or a server that is killed change nothing.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from fastapi import FastAPI, WebSocket
from fastapi.responses import HTMLResponse

import midturn
from midturn.testing import ScriptedModel

DELAY = float(os.environ.get("MODEL_SECONDS", "0.3"))


def build() -> RoundRobinGroupChat:
    # Scripted models, which need no key; put your own here.
    assistant = ScriptedModel(lambda messages: f"This is my answer after {len(messages)} messages.", delay=DELAY)
    critic = ScriptedModel({"": "Well answered."}, delay=DELAY)
    members = [
        AssistantAgent("assistant", assistant, model_client_stream=True),
        AssistantAgent("critic", critic),
        UserProxyAgent("user", input_func=midturn.human),
    ]
    return RoundRobinGroupChat(members)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[dict[str, Any]]:
    async with midturn.open() as store:
        yield {"store": store}


app = FastAPI(lifespan=lifespan)
PAGE = Path(__file__).with_name("team_websocket.html")


@app.get("/")
async def page() -> HTMLResponse:
    return HTMLResponse(PAGE.read_text())


@app.websocket("/chats/{chat}")
async def talk(socket: WebSocket, chat: str) -> None:
    """Send the events of the conversation, from the first one, and take what the human says."""
    await socket.accept()
    case = socket.state.store.session(chat, build)
    after = 0
    with suppress(midturn.NotFound):  # a new chat
        after = await show(socket, case, await case.follow(), after)
    async for said in socket.iter_json():
        try:
            run = await case.start_say(said["text"], key=said["key"], by=chat)
            after = await show(socket, case, run, after)
        except midturn.MidturnError as error:
            await socket.send_json({"type": "error", "content": str(error)})


async def show(socket: WebSocket, case: Any, run: midturn.Run[Any, Any], after: int) -> int:
    """Send the events after number ``after``, then the status. If the worker of the turn has died, finish it here."""
    while True:
        async for event in run.events(after=after):
            await socket.send_text(event.event.model_dump_json())
            after = event.number
        if run.status != "interrupted":
            await socket.send_json({"type": "status", "content": run.status})
            return after
        run = await case.start_resume() or run
