"""Writing a checkpoint: the state, the agents that made it, and the end of its turn, in one write."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from midturn.record.head import Kind, Removal, Row
from midturn.record.rows import CheckpointRow, encode_record, now, plain_appends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midturn.framework import Outcome
    from midturn.history.checkpoints import Stored
    from midturn.lease.ledger import Ledger
    from midturn.record.packing import Archive
    from midturn.record.rows import Origin, Progress


PIECE = 256 * 1024
"""Bytes of new bodies after which other work may run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The facts that a checkpoint records about its agents and its origin."""

    blueprint: str = ""
    version: int = 1
    fingerprint: int | None = None
    """The number of the body that describes how the agents were built."""
    drift: Sequence[str] = ()
    """The changes in the agents since the previous checkpoint."""
    run: str = ""
    """The migration run that made the checkpoint."""
    restores: int | None = None
    """The older checkpoint whose state this one restores."""
    forked_from: str = ""
    """The session that this one was forked from, if this is the first checkpoint of a fork."""
    forked_at: int = 0
    forked_when: float = 0.0
    restored: int = 0
    """The latest checkpoint that restores an older one, among those that lead to the one that this one ``restores``."""

    @classmethod
    def of(cls, stored: Stored, archive: Archive) -> Stamp:
        """Return the stamp of a stored checkpoint, for another checkpoint with the same state."""
        row, found = stored.row, stored.fingerprint
        number = None if found is None else archive.message(found, "fingerprint")
        return cls(blueprint=row.blueprint, version=row.version, fingerprint=number)


async def commit(
    ledger: Ledger,
    archive: Archive,
    tree: Any,
    stamp: Stamp,
    *,
    turn: int,
    origin: Origin,
    outcome: Outcome | None = None,
    rows: Sequence[Row] = (),
    calls: Sequence[int] = (),
    notes: Sequence[str] = (),
    attempts: int = 1,
    journals: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a checkpoint, the result and the end of the turn in one write, and give the lease back.

    The write may also remove the calls of turns that are more than ``journals`` turns older. ``progress`` counts the
    other ``rows``, if it is given.
    """
    progress = ledger.progress if progress is None else progress
    packed = archive.pack(tree)
    numbers: list[int] = []
    size = archive.size
    for message in () if outcome is None else outcome.messages:
        if archive.size - size > PIECE:
            await asyncio.sleep(0)
            size = archive.size
        numbers.append(archive.message(message, f"result[{len(numbers)}]"))
    checkpoint = CheckpointRow(
        parent=progress.checkpoint,
        skeleton=packed.skeleton,
        spans=packed.spans,
        appends=plain_appends(packed.appends),
        messages=numbers,
        fingerprint=stamp.fingerprint,
        bodies=archive.bodies,
        at=now(),
        origin=origin,
        blueprint=stamp.blueprint,
        version=stamp.version,
        drift=tuple(stamp.drift),
        run=stamp.run,
        restores=stamp.restores,
        restored=progress.restored if stamp.restores is None else stamp.restored,
        stop_reason=outcome.stop_reason if outcome is not None else None,
        usage=outcome.usage if outcome is not None else (0, 0),
        calls=calls,
        notes=tuple(notes),
        attempts=attempts,
    )
    first, number = progress.generation
    removes: tuple[Removal, ...] = ()
    if journals is not None and turn - first >= journals:  # older generations are old enough to be removed
        removes = (Removal(Kind.CALL, 0, number if journals else progress.calls),)
        progress = replace(progress, generation=(turn + 1, progress.calls))
    with ledger.storing(archive) as bodies:
        await ledger.write(
            status="idle",
            progress=replace(
                progress,
                turn=turn,
                checkpoint=turn,
                bodies=archive.bodies,
                logs=packed.logs,
                open=None,
                answers=0,
                attempts=0,
                attempted=0.0,
                blueprint=stamp.blueprint,
                version=stamp.version,
                forked_from=stamp.forked_from or progress.forked_from,
                forked_at=stamp.forked_at or progress.forked_at,
                forked_when=stamp.forked_when or progress.forked_when,
                restored=progress.restored if stamp.restores is None else turn,
            ),
            rows=[*bodies, *rows, Row(kind=Kind.CHECKPOINT, n=turn, data=encode_record(checkpoint))],
            removes=removes,
            release=True,
        )
    archive.keep(packed)
