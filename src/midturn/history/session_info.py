"""The status and the facts of a session, in the same words in Python, on the command line, in JSON and in SQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from midturn.lease.ledger import holder
from midturn.record.head import cursor
from midturn.record.rows import Progress, Tombstone, decode_record, moment, progress_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from midturn.record.head import Head, Status

SessionStatus: TypeAlias = Literal["idle", "running", "interrupted", "waiting", "failed", "cancelled", "deleted"]
"""``idle``: no turn is open. ``running``: a living worker holds the session. ``interrupted``: a turn is open
and nobody holds it. ``waiting``: the open turn needs an answer from a human. ``failed`` and ``cancelled``: the
last turn ended so; ``resume()`` tries it again. ``deleted``: only the id is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """The checkpoint of another session with which a session began."""

    session: str
    checkpoint: int

    def __str__(self) -> str:
        return f"{self.session}@{self.checkpoint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """The deletion of a session."""

    by: str | None = None
    """The person who deleted it, as given by the caller."""
    why: str | None = None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """The status and the facts of a session, at the time of reading."""

    id: str
    status: SessionStatus
    owner: str | None = None
    """The worker whose lease on the session has not expired, if there is one."""
    seq: int
    """A number that rises with every write."""
    turns: int
    first_turn: int = 1
    """The number of the first turn that is kept; a compaction has removed those before it."""
    checkpoint: int
    """The number of the latest checkpoint; 0 if there is none."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    blueprint: str | None = None
    """The name of the blueprint that the session belongs to, if the blueprint has a name."""
    version: int = 1
    """The latest version of the blueprint that has worked on the session."""
    forked_from: Fork | None = None
    deleted: Deletion | None = None
    """The deletion of the session, if its status is ``deleted``."""
    created: datetime
    updated: datetime
    cursor: str = ""
    """The value of ``after`` with which :meth:`midturn.OpenStore.sessions` continues after this session."""
    problem: str | None = None
    """The reason why the record cannot be read. Its fields then have defaults. Only lists contain such items."""


def info_of(head: Head) -> SessionInfo:
    """Return the status and the facts of the session with this head.

    Raises:
        UnknownVersion: a newer midturn wrote the head.
        StateInvalid: the head is damaged, or the session is only half copied.
    """
    return known_info(head, fork_of(head))


def known_info(head: Head, record: Progress | Tombstone) -> SessionInfo:
    """Return what :func:`info_of` does, given the record of the head that :func:`fork_of` has returned."""
    return describe(head, Progress(), record) if isinstance(record, Tombstone) else describe(head, record)


def tombstone_of(head: Head) -> Tombstone | None:
    """Return what is left of a deleted session; ``None`` if the session is not deleted.

    Raises:
        UnknownVersion: a newer midturn has deleted it.
        StateInvalid: the head is damaged.
    """
    if head.status != "deleted":
        return None
    if head.problem is not None:
        raise head.problem
    return decode_record(Tombstone, head.data, f"{head.session} tombstone") if head.data else Tombstone()


def fork_of(head: Head) -> Progress | Tombstone:
    """Return the record of a session's head that says what the session was forked from. It raises as `info_of` does."""
    return tombstone_of(head) or progress_of(head)


def describe(
    head: Head, progress: Progress, tombstone: Tombstone | None = None, *, problem: str | None = None
) -> SessionInfo:
    """Return the status and the facts of a session with this head, and its progress or its tombstone."""
    left, deletion = tombstone or progress, None
    fork = Fork(session=left.forked_from, checkpoint=left.forked_at) if left.forked_from else None
    if tombstone is not None:
        deletion = Deletion(by=tombstone.by or None, why=tombstone.why or None, at=moment(head.updated))
    owner = holder(head)
    return SessionInfo(
        id=head.session,
        status=status_of(head.status, owner),
        owner=owner,
        seq=head.seq,
        turns=progress.turn,
        first_turn=progress.first,
        checkpoint=progress.checkpoint,
        labels=head.labels,
        blueprint=progress.blueprint or None,
        version=progress.version,
        forked_from=fork,
        deleted=deletion,
        created=moment(head.created),
        updated=moment(head.updated),
        cursor=cursor(head),
        problem=problem,
    )


def status_of(stored: Status, owner: str | None) -> SessionStatus:
    """Return the status of a session that ``owner`` holds; without an owner, a running turn counts as interrupted."""
    return "interrupted" if stored == "running" and owner is None else stored
