"""Google ADK: its runner, and its session service for databases."""

import logging
import warnings
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent, SequentialAgent
from google.adk.apps.app import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import DatabaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from pydantic import PrivateAttr
from sqlalchemy import event

from benchmarks.peers.shared import SESSION, database, set_pragmas
from benchmarks.workload import AGENTS, Shape, Turn

APP = "benchmark"
USER = "somebody"


class Instant(BaseLlm):
    """Answers from the turn for its agent, after a call of the tool."""

    number: int
    _turn: Turn = PrivateAttr()

    def take(self, turn: Turn) -> None:
        self._turn = turn

    @property
    def result(self) -> str:
        assert self._turn.call
        return self._turn.call.result

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: FBT001, FBT002 - theirs
    ) -> AsyncGenerator[LlmResponse, None]:
        del stream
        call = self._turn.call
        parts = llm_request.contents[-1].parts or []
        if call and not any(part.function_response for part in parts):
            part = types.Part(function_call=types.FunctionCall(id=call.id, name=call.tool, args=call.arguments))
        else:
            part = types.Part(text=self._turn.answers[self.number])
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


class GoogleADK:
    def __init__(self, address: str, shape: Shape, *, store: str, name: str = SESSION) -> None:
        logging.getLogger("google_adk").setLevel(logging.ERROR)  # it warns that answers have no number of tokens
        self._address = address
        self._store = store
        self._shape = shape
        self._where = {"app_name": APP, "user_id": USER, "session_id": name}
        names = AGENTS if shape == "team" else AGENTS[:1]
        self._models = [Instant(model="instant", number=number) for number in range(len(names))]

    def _agent(self) -> BaseAgent:
        tools = [self._tool()] if self._shape == "tools" else []
        agents = [
            LlmAgent(name=name, model=model, tools=tools)
            for name, model in zip(AGENTS[: len(self._models)], self._models, strict=True)
        ]
        if len(agents) == 1:
            return agents[0]
        with warnings.catch_warnings():
            # Its replacement, Workflow, shows an agent only the answer of the agent before it.
            warnings.simplefilter("ignore", DeprecationWarning)
            return SequentialAgent(name="team", sub_agents=agents)

    def _tool(self) -> Any:
        async def look_up(order: str, reason: str) -> str:
            """Look up an order."""
            del order, reason
            return self._models[0].result

        return look_up

    async def open(self) -> None:
        self._service = self._new_service()
        await self._service.prepare_tables()
        await self._begin()

    async def _begin(self) -> None:
        if await self._service.get_session(**self._where, config=GetSessionConfig(num_recent_events=0)) is None:
            await self._service.create_session(**self._where)
        self._memory = InMemorySessionService()
        await self._memory.create_session(**self._where)
        self._keeping = Runner(app=App(name=APP, root_agent=self._agent()), session_service=self._service)
        self._plain = Runner(app=App(name=APP, root_agent=self._agent()), session_service=self._memory)

    def _new_service(self) -> DatabaseSessionService:
        if self._store == "postgres":
            return DatabaseSessionService(self._address.replace("postgresql:", "postgresql+asyncpg:", 1))
        service = DatabaseSessionService(f"sqlite+aiosqlite:///{database(self._address)}")
        event.listen(service.db_engine.sync_engine, "connect", set_pragmas)
        return service

    async def recall(self) -> None:
        session = await self._memory.get_session(**self._where)
        assert session
        for said in (await self._stored()).events:
            await self._memory.append_event(session, said)

    async def _stored(self) -> Session:
        session = await self._service.get_session(**self._where)
        assert session
        return session

    async def _run(self, runner: Runner, turn: Turn) -> None:
        for model in self._models:
            model.take(turn)
        parts = [types.Part(text=turn.question)]
        if turn.picture:
            parts.append(types.Part.from_bytes(data=turn.picture, mime_type="image/png"))
        message = types.Content(role="user", parts=parts)
        async for _ in runner.run_async(user_id=USER, session_id=self._where["session_id"], new_message=message):
            pass

    async def durable(self, turn: Turn) -> None:
        await self._run(self._keeping, turn)

    async def plain(self, turn: Turn) -> None:
        await self._run(self._plain, turn)

    async def restore(self) -> int:
        """Read the session. The service keeps connections but no sessions, so the result is new."""
        return sum(said.content is not None for said in (await self._stored()).events)

    async def another(self, name: str) -> "GoogleADK":
        other = GoogleADK(self._address, self._shape, store=self._store, name=name)
        other._service = self._service
        await other._begin()
        return other

    async def close(self) -> None:
        await self._service.close()


make = GoogleADK
