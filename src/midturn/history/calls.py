"""The calls inside a turn, as users read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from midturn.record.codec import Json
    from midturn.record.rows import CallRow, Effect, What


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One completed call of a turn: of a model, a tool, code, a memory, or a question that somebody answered."""

    agent: str
    """The path of the agent: ``participants/ann``; empty for a single agent."""
    kind: What
    name: str | None = None
    """The name of the tool."""
    arguments: str = ""
    """A tool's arguments as JSON, with long texts shortened."""
    effect: Effect
    result: Json
    """The recorded result."""
    at: float
    """The time at which the call was complete."""
    attempt: int
    """The number of the attempt that made the call; 0 if an earlier turn with the same key made it."""


def call_of(row: CallRow, value: Json) -> Call:
    """Return the call that a row records."""
    agent, _, _ = row.path.rpartition("/")
    return Call(
        agent=agent,
        kind=row.what,
        name=row.name or None,
        arguments=row.about,
        effect=row.effect,
        result=value,
        at=row.at,
        attempt=row.attempt,
    )
