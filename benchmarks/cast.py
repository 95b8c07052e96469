"""The AutoGen agents that run the turns: one agent or a team. Their model answers at once from the turn."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias

import PIL.Image
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import MultiModalMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall, Image
from autogen_core.models import CreateResult, RequestUsage

import midturn
from benchmarks.workload import AGENTS
from midturn.record.codec import encode
from midturn.testing import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.workload import Shape, ToolCall, Turn

Live: TypeAlias = AssistantAgent | RoundRobinGroupChat
USAGE = RequestUsage(prompt_tokens=1, completion_tokens=1)


class Cast:
    """Builds agents of one shape, and gives their models the answers of the current turn."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._replies: Iterator[CreateResult] = iter(())
        self._call: ToolCall | None = None
        self._last: AssistantAgent

    def build(self) -> Live:
        if self._shape != "team":
            self._last = self._agent(AGENTS[0])
            return self._last
        agents = [self._agent(name) for name in AGENTS]
        self._last = agents[-1]
        return RoundRobinGroupChat(list(agents), max_turns=len(agents))

    def enter(self, turn: Turn) -> str | MultiModalMessage:
        """Make this turn the current one, and return its task."""
        self._call = turn.call
        self._replies = _replies(turn)
        if not turn.picture:
            return turn.question
        picture = Image(PIL.Image.open(BytesIO(turn.picture)))
        return MultiModalMessage(content=[turn.question, picture], source="user")

    async def messages(self) -> int:
        """Return the number of messages that the last agent knows. In a team, the last speaker has received all."""
        return len(await self._last.model_context.get_messages())

    def _agent(self, name: str) -> AssistantAgent:
        @midturn.tool(effect="read")
        async def look_up(order: str, reason: str) -> str:
            """Look an order up."""
            del order, reason
            assert self._call is not None
            return self._call.result

        model = ScriptedModel(lambda _: next(self._replies))
        tools: list[Any] | None = [look_up] if self._shape == "tools" else None
        return AssistantAgent(
            name, model_client=model, description=f"The {name}.", tools=tools, reflect_on_tool_use=bool(tools)
        )


def _replies(turn: Turn) -> Iterator[CreateResult]:
    if turn.call:
        arguments = encode(turn.call.arguments).decode()
        call = FunctionCall(id=turn.call.id, name=turn.call.tool, arguments=arguments)
        yield CreateResult(finish_reason="function_calls", content=[call], usage=USAGE, cached=False)
    for answer in turn.answers:
        yield CreateResult(finish_reason="stop", content=answer, usage=USAGE, cached=False)
