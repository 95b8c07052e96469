"""Compare two checkpoints, of one session or of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from midturn.history.checkpoints import read_checkpoint
from midturn.history.diff import (
    AgentChange,
    CheckpointName,
    StateDiff,
    conversation_changes,
    readable,
    text_diff,
    turn_changes,
    value_changes,
)
from midturn.lease.ledger import consistent
from midturn.versions.drift.comparison import compare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from midturn.framework import Framework
    from midturn.history.checkpoints import Checkpoint, Stored
    from midturn.lease.ledger import Ledger
    from midturn.record.codec import Json


async def diff(framework: Framework[Any, Any], before: Checkpoint, after: Checkpoint) -> StateDiff:
    """Return the differences between two checkpoints. It reads them, and none of the turns between.

    Raises:
        NotFound: a session has no such checkpoint.
    """
    one, other = await _read(before, after)
    old, new = framework.outline(one.tree), framework.outline(other.tree)
    return StateDiff(
        before=CheckpointName(session=one.session, checkpoint=one.number),
        after=CheckpointName(session=other.session, checkpoint=other.number),
        conversations=tuple(conversation_changes(old, new)),
        turns=tuple(turn_changes(old, new)),
        values=tuple(value_changes(old.values, new.values)),
        agents=tuple(_agent_changes(one.fingerprint, other.fingerprint)),
    )


async def _read(before: Checkpoint, after: Checkpoint) -> tuple[Stored, Stored]:
    if (before.store, before.session) != (after.store, after.session):
        return await before.read(), await after.read()

    async def both(ledger: Ledger) -> tuple[Stored, Stored]:  # the bodies that both have are read once
        return await read_checkpoint(ledger, before.number), await read_checkpoint(ledger, after.number)

    return await consistent(before.store, before.session, both)


def _agent_changes(before: Json, after: Json) -> Iterator[AgentChange]:
    if before is None or after is None:
        return
    for found in compare(before, after).changes:
        was, now = ("" if value is None else readable(value) for value in (found.before, found.after))
        yield AgentChange(
            path=found.path,
            agent=found.agent,
            what=found.what,
            text=found.text,
            before=found.before,
            after=found.after,
            lines=text_diff(was, now),
        )
