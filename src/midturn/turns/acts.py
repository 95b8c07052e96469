"""Checkpoints that no turn makes: states saved by hand, and acts of people on a session, with who decided them and why.

The checkpoint, its turn and the decision are one write.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from midturn.errors import Conflict, OutcomeUnknown, StateInvalid, UnknownVersion
from midturn.history.checkpoints import latest_restoring, read_checkpoint
from midturn.history.session_info import fork_of
from midturn.record.head import Kind, Row, Write
from midturn.record.packing import Archive
from midturn.record.rows import BURYING, DecisionRow, Tombstone, TurnRow, encode_record, now
from midturn.turns.commit import Stamp, commit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midturn.history.checkpoints import Stored
    from midturn.lease.ledger import Ledger
    from midturn.record.head import Head
    from midturn.record.rows import ActKind, Origin, Progress
    from midturn.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An act on a session, and the decision of a person that it is."""

    kind: ActKind
    question: str
    """The decision, as a question."""
    by: str = ""
    why: str = ""
    about: dict[str, Any] | None = None
    """The things that the act is about: a checkpoint, another session, a run."""

    def row(self, number: int, turn: int) -> Row:
        """Return the decision with this number as a row; ``turn`` is the turn that the act makes."""
        decision = DecisionRow(
            turn=turn,
            question=self.question,
            kind=self.kind,
            arguments=self.about,
            answer=self.kind,
            by=self.by,
            why=self.why,
            at=now(),
        )
        return Row(kind=Kind.DECISION, n=number, data=encode_record(decision))


async def commit_act(
    ledger: Ledger,
    archive: Archive,
    tree: Any,
    stamp: Stamp,
    act: Act,
    *,
    progress: Progress | None = None,
    rows: Sequence[Row] = (),
    journals: int | None = None,
) -> int:
    """Write a state that an act makes, and the act; return the checkpoint. ``progress`` counts the other ``rows``."""
    progress = ledger.progress if progress is None else progress
    return await commit_state(
        ledger,
        archive,
        tree,
        stamp,
        origin=cast("Origin", act.kind),
        progress=replace(progress, decisions=progress.decisions + 1),
        rows=[*rows, act.row(progress.decisions, progress.turn + 1)],
        journals=journals,
    )


async def commit_state(
    ledger: Ledger,
    archive: Archive,
    tree: Any,
    stamp: Stamp,
    *,
    origin: Origin,
    progress: Progress | None = None,
    rows: Sequence[Row] = (),
    journals: int | None = None,
) -> int:
    """Write a state that no turn has made; return its checkpoint. ``progress`` counts the other ``rows``."""
    number = ledger.progress.turn + 1
    turn = TurnRow(at=now(), blueprint=stamp.blueprint, version=stamp.version)
    await commit(
        ledger,
        archive,
        tree,
        stamp,
        turn=number,
        origin=origin,
        rows=[Row(kind=Kind.TURN, n=number, data=encode_record(turn)), *rows],
        journals=journals,
        progress=progress,
    )
    return number


async def bury(store: Store, session: str, *, by: str = "", why: str = "", seq: int | None = None) -> bool:
    """Delete a session; return whether it existed. Its head keeps who did that, and what it was forked from.

    Raises:
        Conflict: the session has changed since ``seq``.
    """
    head = None
    with suppress(StateInvalid, UnknownVersion):  # deleting is the way out for a damaged session
        head = await store.head(session)
    if seq is not None:
        if head is None or head.seq != seq:
            raise Conflict.of(session)
        await condemn(store, head)
    return await store.delete(session, data=tombstone(head, by=by, why=why))


async def condemn(store: Store, head: Head) -> None:
    """Take a session away from everybody before it is deleted, if nobody has written it since its head was read.

    Raises:
        Conflict: somebody has written it.
        SessionDeleted: somebody has deleted it.
    """
    write = Write(
        session=head.session,
        seq=head.seq,
        after=head.token,
        epoch=head.epoch + 1,
        status=head.status,
        labels=head.labels,
        token=uuid.uuid4().hex[:12],
        data=BURYING,
    )
    try:
        await store.write(write)
    except OutcomeUnknown:
        found = await store.head(head.session)  # the outcome is final now
        if found is None or (found.token != write.token and found.status != "deleted"):
            raise


def tombstone(head: Head | None, *, by: str, why: str) -> bytes:
    """Return what stays in the head of a session that is deleted."""
    origin: Progress | Tombstone = Tombstone()
    with suppress(StateInvalid, UnknownVersion):
        origin = origin if head is None else fork_of(head)
    stone = Tombstone(
        by=by,
        why=why,
        forked_from=origin.forked_from,
        forked_at=origin.forked_at,
        forked_when=origin.forked_when,
    )
    return encode_record(stone)


def new_archive(ledger: Ledger) -> Archive:
    """Return an archive that has to learn what the session has stored."""
    archive = Archive()
    archive.logs = ledger.progress.logs
    return archive


async def read_latest(ledger: Ledger, archive: Archive) -> Stored:
    """Return the latest checkpoint. The new ``archive`` learns what is stored.

    Raises:
        NotFound: the session has no checkpoint.
    """
    return await read_checkpoint(ledger, ledger.progress.checkpoint, archive, bodies=ledger.progress.bodies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """An older checkpoint of a session that is about to become the latest state again. No agent is needed for that."""

    ledger: Ledger
    archive: Archive
    latest: Stored
    older: Stored

    @classmethod
    async def read(cls, ledger: Ledger, number: int) -> Restoration:
        """Read what restoring the checkpoint with this number needs. The ledger must have read the head before.

        Raises:
            NotFound: the session has no such checkpoint.
        """
        archive = new_archive(ledger)
        older = await read_checkpoint(ledger, number)
        latest = await read_latest(ledger, archive)  # what is written continues the lists of the latest checkpoint
        return cls(ledger=ledger, archive=archive, latest=latest, older=older)

    async def write(
        self, act: Act, *, drift: Sequence[str] = (), progress: Progress | None = None, rows: Sequence[Row] = ()
    ) -> int:
        """Write a checkpoint with the older state; return its number. ``progress`` counts the other ``rows``."""
        older = self.older
        stamp = replace(
            Stamp.of(older, self.archive),
            restores=older.number,
            restored=latest_restoring(older.row, older.number),
            drift=drift,
        )
        return await commit_act(self.ledger, self.archive, older.tree, stamp, act, progress=progress, rows=rows)
