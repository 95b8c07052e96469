"""AutoGen agents and teams for leftoff; the only place that imports AutoGen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage

from leftoff.autogen import capture, messages, private, running
from leftoff.autogen.messages import TurnResult
from leftoff.errors import StateInvalid

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from leftoff.codec import Json
    from leftoff.framework import Outcome

Event: TypeAlias = BaseAgentEvent | BaseChatMessage

__all__ = ["AutoGen", "Event", "TurnResult"]


class AutoGen:
    """AutoGen 0.7 as leftoff sees it."""

    def is_live(self, what: object) -> bool:
        return isinstance(what, ChatAgent | Team)

    async def renew(self, live: Any) -> None:
        for team in running.teams(live):
            await private.renew(team)

    async def capture(self, live: Any) -> Any:
        return await capture.capture(live)

    async def restore(self, live: Any, tree: Any) -> None:
        try:
            await live.load_state(tree["state"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StateInvalid(f"does not fit what was built: {error}", path="$.state") from error

    def accept(self, task: Any) -> list[Json] | None:
        return messages.accept(task)

    def check(self, live: Any, task: Sequence[Json]) -> None:
        messages.load(live, task, "task")

    def identity(self, message: Json) -> Json:
        return messages.identity(message)

    def stream(self, live: Any, task: Sequence[Json] | None) -> AsyncGenerator[Event | Outcome, None]:
        return running.stream(live, task)

    def result(self, live: Any, *, turn: int, checkpoint: int, outcome: Outcome) -> TurnResult:
        return messages.result(live, turn=turn, checkpoint=checkpoint, outcome=outcome)
