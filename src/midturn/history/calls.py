"""The calls inside a turn, as users read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from midturn.record.rows import moment

if TYPE_CHECKING:
    from datetime import datetime

    from midturn.record.codec import Json
    from midturn.record.rows import CallRow, Effect, What


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One completed call of a turn: of a model, a tool, code, a memory, or a question that somebody answered."""

    agent: str
    """The name of the agent in its team; empty for an agent that runs alone."""
    path: str
    """The place of the agent: ``participants/ann``; empty for an agent that runs alone."""
    kind: What
    name: str | None = None
    """The name of the tool."""
    arguments: str = ""
    """A tool's arguments as JSON, with long texts shortened."""
    effect: Effect
    result: Json
    """The recorded result."""
    at: datetime
    """The time at which the call was complete."""
    attempt: int
    """The number of the attempt that made the call; 0 if an earlier turn with the same key made it."""


def call_of(row: CallRow, value: Json) -> Call:
    """Return the call that a row records."""
    path, _, _ = row.path.rpartition("/")
    return Call(
        agent=path.rpartition("/")[2],
        path=path,
        kind=row.what,
        name=row.name or None,
        arguments=row.about,
        effect=row.effect,
        result=value,
        at=moment(row.at),
        attempt=row.attempt,
    )
