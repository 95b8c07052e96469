"""Give the messages of a turn the same ids in every process that runs it.

AutoGen makes ids at random. A process that continues a turn, or rebuilds its events, would have others, and an
interface that knows a message by its id would show it twice.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

if TYPE_CHECKING:
    from collections.abc import Iterable

SPACE = UUID("5d0a4f6e-3b7c-4b52-9a53-0c7f1d6b2e90")
"""Ids of midturn are in a namespace of their own."""


class Ids:
    """The ids of one turn's messages: the n-th id of a source depends on nothing but the turn."""

    def __init__(self, turn: str, task: Iterable[Any]) -> None:
        self._turn = turn
        self._counts: Counter[str] = Counter()
        self.final = {message.id: message.id for message in task}
        """The ids that messages keep or get, by those that they have."""

    def give(self, message: Any) -> None:
        """Give a message its ids. The agents that hold it see them, too."""
        fields: dict[str, Any] = message.__dict__
        for name in ("full_message_id", "id"):
            before = fields.get(name)
            if isinstance(before, str):
                fields[name] = self.final.get(before) or self._next(before, message.source)

    def _next(self, before: str, source: str) -> str:
        self._counts[source] += 1
        made = str(uuid5(SPACE, f"{self._turn}\n{self._counts[source]}\n{source}"))
        self.final[before] = self.final[made] = made
        return made
