"""OpenAI Agents: its runner, and its sessions in SQLite, Postgres (SQLAlchemy) and Redis."""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

from agents import (
    Agent,
    Model,
    ModelResponse,
    Runner,
    TResponseInputItem,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.extensions.memory import AsyncSQLiteSession, RedisSession, SQLAlchemySession
from agents.memory import SessionABC
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.peers.shared import SESSION, data_url, database, require_full
from benchmarks.workload import AGENTS, Shape, Turn


class Instant(Model):
    """Answers from the turn for its agent, after a call of the tool."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.turn: Turn

    async def get_response(self, *_: Any, **request: Any) -> ModelResponse:
        call = self.turn.call
        output: ResponseFunctionToolCall | ResponseOutputMessage
        if call and request["input"][-1].get("type") != "function_call_output":
            output = ResponseFunctionToolCall(
                id=f"fc_{uuid4().hex}",
                type="function_call",
                name=call.tool,
                arguments=json.dumps(call.arguments),
                call_id=call.id,
                status="completed",
            )
        else:
            text = ResponseOutputText(type="output_text", text=self.turn.answers[self._number], annotations=[])
            output = ResponseOutputMessage(
                id=f"msg_{uuid4().hex}", type="message", role="assistant", status="completed", content=[text]
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise AssertionError("no benchmark streams; the base class requires the method")


class OpenAIAgents:
    def __init__(self, address: str, shape: Shape, *, store: str, name: str = SESSION) -> None:
        set_tracing_disabled(True)
        self._address = address
        self._shape = shape
        self._store = store
        self._name = name
        self._models = [Instant(number) for number in range(len(AGENTS) if shape == "team" else 1)]
        tools = [self._tool()] if shape == "tools" else []
        self._agents = [
            Agent(name=name, model=model, tools=tools)
            for name, model in zip(AGENTS[: len(self._models)], self._models, strict=True)
        ]
        self._history: list[TResponseInputItem] = []
        self._server: Any = None
        """The object that holds the connections."""

    def _tool(self) -> Any:
        @function_tool
        async def look_up(order: str, reason: str) -> str:
            """Look up an order."""
            del order, reason
            call = self._models[0].turn.call
            assert call
            return call.result

        return look_up

    async def open(self) -> None:
        match self._store:
            case "sqlite":
                require_full()  # the session sets journal_mode=WAL, and its connection is its own
            case "postgres":
                self._server = create_async_engine(self._address.replace("postgresql:", "postgresql+asyncpg:", 1))
            case _:
                self._server = Redis.from_url(self._address)
        self._session = self._new_session(create_tables=True)
        await self._session.get_items(1)  # connects, and makes the tables

    def _new_session(self, **options: bool) -> SessionABC:
        match self._store:
            case "sqlite":
                return AsyncSQLiteSession(self._name, database(self._address))
            case "postgres":
                return SQLAlchemySession(self._name, engine=self._server, **options)
            case _:
                return RedisSession(self._name, redis_client=self._server)

    def _asked(self, turn: Turn) -> list[TResponseInputItem]:
        for model in self._models:
            model.turn = turn
        if not turn.picture:
            return [{"role": "user", "content": turn.question}]
        picture = {"type": "input_image", "detail": "auto", "image_url": data_url(turn.picture)}
        return [{"role": "user", "content": [{"type": "input_text", "text": turn.question}, picture]}]

    async def recall(self) -> None:
        self._history = await self._session.get_items()

    async def durable(self, turn: Turn) -> None:
        """Run the agents of a team one after the other in the same session. Later ones get no new input."""
        asked = self._asked(turn)
        for agent in self._agents:
            await Runner.run(agent, asked, session=self._session)
            asked = []

    async def plain(self, turn: Turn) -> None:
        self._history += self._asked(turn)
        for agent in self._agents:
            result = await Runner.run(agent, self._history)
            self._history = result.to_input_list()

    async def restore(self) -> int:
        # A session holds its connection and nothing else; where that can be given, it is a new one.
        session = self._session if self._store == "sqlite" else self._new_session()
        return len(await session.get_items())

    async def another(self, name: str) -> "OpenAIAgents":
        other = OpenAIAgents(self._address, self._shape, store=self._store, name=name)
        other._server = self._server
        other._session = other._new_session()
        return other

    async def close(self) -> None:
        match self._session:
            case AsyncSQLiteSession():
                await self._session.close()
            case SQLAlchemySession():
                await self._server.dispose()
            case _:
                await self._server.aclose()


make = OpenAIAgents
