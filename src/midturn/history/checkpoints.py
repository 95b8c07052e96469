"""The checkpoints of a session, and the bodies that they are made of, as they are read back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midturn.errors import NotFound, StateInvalid
from midturn.framework import Input
from midturn.lease.ledger import consistent
from midturn.record.bodies import gc_paused
from midturn.record.codec import is_object
from midturn.record.head import Kind
from midturn.record.packing import Archive, restore
from midturn.record.rows import CheckpointRow, decode_appends, decode_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midturn.lease.ledger import Ledger
    from midturn.record.bodies import Bodies, BodyReader
    from midturn.record.codec import Json
    from midturn.record.rows import TurnRow
    from midturn.store import Store

MANY = 4000
"""Bodies read at once: until they are parsed, their rows take as much memory again."""


class Checkpoint:
    """One checkpoint of a session. Its methods read it from the store."""

    def __init__(self, store: Store, session: str, number: int) -> None:
        self.store = store
        self.session = session
        self.number = number

    def __repr__(self) -> str:
        return f"Checkpoint({self.session!r}, {self.number})"

    async def state(self) -> Any:
        """Return the state exactly as the framework's own ``save_state()`` returned it."""
        return (await self.tree())["state"]

    async def beside(self) -> dict[str, Any]:
        """Return what the framework's own ``save_state()`` leaves out, by the path of the part that it belongs to."""
        beside: dict[str, Any] = (await self.tree()).get("beside", {})
        return beside

    async def tree(self) -> Any:
        """Return the whole state: "state", "beside", and the number of parts in "beside"."""
        return (await self.read()).tree

    async def version(self) -> int:
        """Return the version of the blueprint that wrote it."""
        return (await self.read()).row.version

    async def fingerprint(self) -> Any:
        """Return the fingerprint of the agents: prompts, tools, participants. ``None`` if the checkpoint has none."""
        return (await self.read()).fingerprint

    async def read(self) -> Stored:
        """Read the whole checkpoint."""
        return await consistent(self.store, self.session, lambda ledger: read_checkpoint(ledger, self.number))


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint as it was read."""

    session: str
    number: int
    row: CheckpointRow
    tree: Any
    fingerprint: Json
    """The fingerprint of its agents; ``None`` if it has none."""


async def read_checkpoint(
    ledger: Ledger, number: int, archive: Archive | None = None, *, bodies: int | None = None
) -> Stored:
    """Return a checkpoint with its state. An empty ``archive`` learns its lists and the first ``bodies`` bodies."""
    if not ledger.progress.first <= number <= ledger.progress.checkpoint:
        raise absent(ledger, number)
    rows = await ledger.store.rows(ledger.session, Kind.CHECKPOINT, stop=number + 1)
    if not rows or rows[-1].n != number:
        latest = number == ledger.progress.checkpoint
        raise ledger.missing(Kind.CHECKPOINT, number) if latest else absent(ledger, number)
    row = decode_record(CheckpointRow, rows[-1].data, ledger.name(Kind.CHECKPOINT, number))
    count = row.bodies if bodies is None else bodies
    found = await read_bodies(ledger, count)
    fingerprint = None
    try:
        with gc_paused():
            logs = [decode_appends(row) for row in rows]
            if archive is not None:
                archive.learn_bodies(found, count)
            if row.fingerprint is not None:
                fingerprint = found.message(row.fingerprint, "fingerprint")
            tree: Any = restore(
                skeleton=row.skeleton,
                spans=row.spans,
                bodies=found,
                logs=logs,
                archive=archive or Archive(),
            )
    except StateInvalid as error:
        error.session = ledger.session
        raise
    if not is_object(tree) or "state" not in tree:
        raise StateInvalid("is not the state of a session", path="$", session=ledger.session)
    return Stored(ledger.session, number, row, tree, fingerprint)


def absent(ledger: Ledger, number: int) -> NotFound:
    """Make the error for a checkpoint that is not there."""
    if ledger.head is None:
        return NotFound.of(ledger.session)
    latest, first = ledger.progress.checkpoint, ledger.progress.first
    if 1 <= number < first:
        which = f"checkpoint {number} any more; what is before turn {first} was removed"
        return NotFound(f"session {ledger.session!r} has no {which}", session=ledger.session)
    which = f"checkpoint {number}; the latest is {latest}" if latest else "checkpoint yet"
    return NotFound(f"session {ledger.session!r} has no {which}", session=ledger.session)


def latest_restoring(row: CheckpointRow, number: int) -> int:
    """Return the latest checkpoint that restores an older one, among those that lead to this one and itself."""
    return row.restored if row.restores is None else number


async def read_bodies(ledger: Ledger, count: int) -> Bodies:
    """Return the bodies of a session, at least the first ``count``; read those that were not read before.

    Raises:
        StateInvalid: some are missing.
    """
    bodies = ledger.bodies
    while (start := len(bodies.values)) < count:
        found = await ledger.store.rows(ledger.session, Kind.BODY, start=start, stop=min(start + MANY, count))
        holes = min(count, ledger.progress.holes)
        if not found:
            if start >= holes:
                raise StateInvalid(f"there are {start} of {count}", path="bodies", session=ledger.session)
            bodies.skip(min(start + MANY, holes))
        with gc_paused():
            bodies.extend(found, holes)
        del found  # the next read, and the caller, need not have room for both
        await asyncio.sleep(0)  # a long session takes seconds, and other sessions have leases to renew
    return bodies


def input_of(session: str, number: int, turn: TurnRow, bodies: BodyReader) -> Input:
    """Return the input that a turn accepted."""
    return Input(
        task=messages_of(bodies, turn.task),
        streamed=turn.streamed,
        output_task_messages=turn.output_task_messages,
        turn=name_of_turn(session, number, turn.at),
    )


def name_of_turn(session: str, number: int, at: float) -> str:
    """Return a name of the turn that no other turn has, not even one of an earlier session with this id."""
    return f"{number} {at!r} {session}"


def messages_of(bodies: BodyReader, numbers: Sequence[int] | None) -> list[Json] | None:
    """Return the messages whose bodies have these numbers."""
    return None if numbers is None else [bodies.message(number, f"body {number}") for number in numbers]
