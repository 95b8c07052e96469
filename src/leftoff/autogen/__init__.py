"""AutoGen agents and teams for leftoff; the only place that imports AutoGen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage

from leftoff.autogen import complete, messages, parts, private, resuming, running, unkept
from leftoff.autogen.messages import TurnResult

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from leftoff.codec import Json
    from leftoff.framework import Outcome

Event: TypeAlias = BaseAgentEvent | BaseChatMessage

__all__ = ["AutoGen", "Event", "TurnResult"]


class AutoGen:
    """AutoGen 0.7 as leftoff sees it."""

    def __init__(self) -> None:
        self._live: ref[Any] | None = None
        self._built: frozenset[str] = frozenset()
        """The paths of the parts of the live instance as it was built."""
        self._before: unkept.Seen = {}
        """What the things in it that cannot be kept were like before the turn."""

    def is_live(self, what: object) -> bool:
        return isinstance(what, ChatAgent | Team) or parts.is_stateful(what)

    async def renew(self, live: Any) -> None:
        for team in parts.teams(live):
            await private.renew(team)

    async def ready(self, live: Any) -> list[str]:
        repairs = await resuming.ready(live)
        if isinstance(live, ChatAgent | Team):
            self._meet(live)
            self._before = unkept.look(live, self._built)
        return repairs

    async def capture(self, live: Any) -> Any:
        if not isinstance(live, ChatAgent | Team):
            return await complete.capture(live)
        await parts.settle(live)
        self._meet(live)
        tree = await complete.capture(live, self._built)
        unkept.warn(live, self._built, self._before)
        return tree

    async def read(self, live: Any, tree: Any) -> complete.Plan:
        await parts.settle(live)
        if isinstance(live, ChatAgent | Team):
            self._meet(live)
        return await complete.read(live, tree)

    async def load(self, live: Any, read: complete.Plan) -> Any:
        return await complete.load(live, read)

    def _meet(self, live: Any) -> None:
        """Remember what an agent or team was made of when it was new: only that can be given its state again."""
        if self._live is None or self._live() is not live:
            self._live = ref(live)
            self._built = frozenset(part.path for part in parts.walk(live))
            self._before = unkept.look(live, self._built)

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
