"""The status and the facts of a session, in the same words in Python, on the command line, in JSON and in SQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from midturn.lease.ledger import holder
from midturn.record.head import cursor
from midturn.record.rows import Progress, moment, progress_of

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
    checkpoint: int
    """The number of the latest checkpoint; 0 if there is none."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    blueprint: str | None = None
    """The name of the blueprint that the session belongs to, if the blueprint has a name."""
    version: int = 1
    """The latest version of the blueprint that has worked on the session."""
    forked_from: Fork | None = None
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
    return describe(head, Progress() if head.status == "deleted" else progress_of(head))


def describe(head: Head, progress: Progress, *, problem: str | None = None) -> SessionInfo:
    """Return the status and the facts of a session with this head and progress."""
    fork = Fork(session=progress.forked_from, checkpoint=progress.forked_at) if progress.forked_from else None
    owner = holder(head)
    return SessionInfo(
        id=head.session,
        status=status_of(head.status, owner),
        owner=owner,
        seq=head.seq,
        turns=progress.turn,
        checkpoint=progress.checkpoint,
        labels=head.labels,
        blueprint=progress.blueprint or None,
        version=progress.version,
        forked_from=fork,
        created=moment(head.created),
        updated=moment(head.updated),
        cursor=cursor(head),
        problem=problem,
    )


def status_of(stored: Status, owner: str | None) -> SessionStatus:
    """Return the status of a session that ``owner`` holds; without an owner, a running turn counts as interrupted."""
    return "interrupted" if stored == "running" and owner is None else stored
