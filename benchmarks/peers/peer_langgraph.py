"""LangGraph: a graph of agents, and its checkpointers."""

from contextlib import AsyncExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import aiosqlite
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import MessagesState
from langgraph.graph.message import _messages_delta_reducer as reducer  # the name that their documentation gives
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from benchmarks.peers.shared import SESSION, data_url, database
from benchmarks.workload import AGENTS, Shape, Turn

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

CONNECTIONS = 10
"""Connections of many conversations at the same time: as many as midturn uses."""


class DeltaState(TypedDict):
    """Stores what was added, and the whole state every hundred updates, which is the default."""

    messages: Annotated[list[AnyMessage], DeltaChannel(reducer)]


class LangGraph:
    def __init__(
        self,
        address: str,
        shape: Shape,
        *,
        store: str,
        durability: Literal["sync", "exit"],
        delta: bool = False,
        name: str = SESSION,
    ) -> None:
        self._address = address
        self._shape = shape
        self._store = store
        self._durability: Literal["sync", "exit"] = durability
        self._delta = delta
        self._state = DeltaState if delta else MessagesState
        self._config: RunnableConfig = {"configurable": {"thread_id": name}}
        self._resources = AsyncExitStack()
        self._history: list[AnyMessage] = []
        self._turn: Turn
        self._pool: AsyncConnectionPool[Any] | None = None

    async def open(self) -> None:
        self._keeping = self._graph(await self._saver())
        self._plain = self._graph(None)

    async def _saver(self) -> BaseCheckpointSaver[str]:
        if self._store == "postgres":
            # As their guide has it. The server's synchronous_commit is on.
            saver = await self._resources.enter_async_context(AsyncPostgresSaver.from_conn_string(self._address))
            await saver.setup()
            self._connection: Any = saver.conn
            return saver
        self._connection = await self._resources.enter_async_context(aiosqlite.connect(database(self._address)))
        await self._connection.execute("PRAGMA synchronous=FULL")
        saver = AsyncSqliteSaver(self._connection)
        await saver.setup()  # sets journal_mode=WAL
        return saver

    def _graph(self, saver: BaseCheckpointSaver[str] | None) -> CompiledStateGraph:
        """Build a graph of one agent, one with a tool, or four in a row."""
        graph = StateGraph(self._state)
        names = AGENTS if self._shape == "team" else AGENTS[:1]
        for number, name in enumerate(names):
            graph.add_node(name, self._agent(number, name))
        graph.add_edge(START, names[0])
        for before, after in pairwise(names):
            graph.add_edge(before, after)
        if self._shape == "tools":
            graph.add_node("tools", ToolNode([self._tool()]))
            graph.add_conditional_edges(names[0], tools_condition)
            graph.add_edge("tools", names[0])
        else:
            graph.add_edge(names[-1], END)
        return graph.compile(checkpointer=saver)

    def _agent(self, number: int, name: str) -> Any:
        async def agent(state: Any) -> dict[str, list[AIMessage]]:
            turn = self._turn
            if turn.call and state["messages"][-1].type == "human":
                call = {"name": turn.call.tool, "args": turn.call.arguments, "id": turn.call.id, "type": "tool_call"}
                return {"messages": [AIMessage("", name=name, tool_calls=[call])]}
            return {"messages": [AIMessage(turn.answers[number], name=name)]}

        return agent

    def _tool(self) -> Any:
        @tool
        async def look_up(order: str, reason: str) -> str:
            """Look up an order."""
            del order, reason
            assert self._turn.call
            return self._turn.call.result

        return look_up

    def _question(self, turn: Turn) -> HumanMessage:
        self._turn = turn
        if not turn.picture:
            return HumanMessage(turn.question)
        picture = {"type": "image_url", "image_url": {"url": data_url(turn.picture)}}
        return HumanMessage([{"type": "text", "text": turn.question}, picture])

    async def recall(self) -> None:
        self._history = (await self._keeping.aget_state(self._config)).values.get("messages", [])

    async def durable(self, turn: Turn) -> None:
        asked = {"messages": [self._question(turn)]}
        await self._keeping.ainvoke(asked, self._config, durability=self._durability)

    async def plain(self, turn: Turn) -> None:
        result = await self._plain.ainvoke({"messages": [*self._history, self._question(turn)]})
        self._history = result["messages"]

    async def restore(self) -> int:
        made = AsyncPostgresSaver if self._store == "postgres" else AsyncSqliteSaver
        saver = made(self._connection)
        if isinstance(saver, AsyncSqliteSaver):
            saver.is_setup = True  # by open()
        state = await self._graph(saver).aget_state(self._config)
        return len(state.values["messages"])

    async def another(self, name: str) -> "LangGraph":
        """Open another with a pool, as their guide advises, and with its own saver, because a saver has a lock."""
        if self._pool is None:
            options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
            pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
                self._address, min_size=CONNECTIONS, max_size=CONNECTIONS, kwargs=options, open=False
            )
            self._pool = await self._resources.enter_async_context(pool)
        other = LangGraph(
            self._address, self._shape, store=self._store, durability=self._durability, delta=self._delta, name=name
        )
        other._keeping = other._graph(AsyncPostgresSaver(self._pool))
        return other

    async def close(self) -> None:
        await self._resources.aclose()


make = LangGraph
