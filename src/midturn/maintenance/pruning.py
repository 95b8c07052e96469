"""Deleting the sessions that nobody needs any more: by their age, status and labels, into an archive if there is one.

A session is deleted in two steps. A write that names the head which was looked at replaces the session's progress by
:data:`midturn.record.rows.BURYING`: if somebody has written the session since, this write is refused and the session
stays. From then on nobody can use the session, and the deletion follows. An interrupted pruning leaves a session
between the two steps at most, and the next one deletes it.
"""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from midturn.errors import (
    Conflict,
    HistoryLost,
    InvalidArgument,
    MidturnError,
    SessionDeleted,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
    UnknownVersion,
)
from midturn.history.listing import Listing
from midturn.history.session_info import status_of
from midturn.lease.ledger import holder
from midturn.maintenance import copying
from midturn.record.rows import BURYING, progress_of
from midturn.turns.acts import condemn, tombstone
from midturn.versions.blueprint import check_age

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
    from datetime import timedelta
    from pathlib import Path

    from midturn.history.session_info import SessionStatus
    from midturn.record.head import Head, Status
    from midturn.store import Store

Reason: TypeAlias = Literal["held", "open", "changed", "unreadable", "not archived"]
"""The reason for which a session stays. ``held``: a living worker holds it. ``open``: its last turn has no result, and
nobody asked for sessions with its status. ``changed``: somebody wrote it during the pruning. ``unreadable``: its record
is damaged or only half copied. ``not archived``: it could not be copied to the archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The conditions that a session must match to be pruned.

    Raises:
        InvalidArgument: there is no condition, or one is not valid.
    """

    older_than: timedelta | None = None
    status: frozenset[SessionStatus] = frozenset()
    labels: Mapping[str, str]
    prefix: str = ""
    keep_last: int | None = None
    blueprint: str = ""

    def __post_init__(self) -> None:
        if self.older_than is not None:
            check_age(self.older_than, "older_than")
        if self.keep_last is not None and (type(self.keep_last) is not int or self.keep_last < 0):
            raise InvalidArgument(f"is {self.keep_last!r}; give a number from 0 on", path="keep_last")
        if "deleted" in self.status:
            raise InvalidArgument("a deleted session cannot be deleted; give another status", path="status")
        if not set(self._words()) - {f"blueprint {self.blueprint}"}:
            raise InvalidArgument(
                f"would delete every session{' of a blueprint without retain=' if self.blueprint else ''}; "
                "give a condition: older_than=, status=, labels=, prefix= or keep_last=",
                path="prune",
            )

    def __str__(self) -> str:
        """Return the conditions in words."""
        return ", ".join(self._words())

    def _words(self) -> Iterator[str]:
        if self.older_than is not None:
            yield f"unchanged for {str(self.older_than).removesuffix(', 0:00:00')}"
        if self.status:
            yield f"status {' or '.join(sorted(self.status))}"
        for name, value in sorted(self.labels.items()):
            yield f"label {name}={value}"
        if self.prefix:
            yield f"id begins with {self.prefix}"
        if self.blueprint:
            yield f"blueprint {self.blueprint}"
        if self.keep_last is not None:
            yield f"not among the last {self.keep_last}"

    @property
    def stored(self) -> Collection[Status | None]:
        """Return the statuses with which a store lists the sessions that can match; ``None`` lists all."""
        return {None} if not self.status else {"running" if word == "interrupted" else word for word in self.status}


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A session that matches and stays."""

    session: str
    reason: Reason
    detail: str
    """A sentence that says more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """The sessions that :meth:`~midturn.OpenStore.prune` has deleted, and those that match and stay."""

    deleted: Sequence[str]
    """The ids of the deleted sessions, those that changed first coming first. After a dry run, the ids of the sessions
    that would be deleted."""
    skipped: Sequence[Skipped]
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A session that matches: its head as it was looked at, and why it stays, if that is known."""

    head: Head
    skipped: Skipped | None = None


async def choose(store: Store, rule: Rule) -> list[Chosen]:
    """Return the sessions that match a rule, those that changed first coming first."""
    found: dict[str, Chosen] = {}
    listing = Listing(labels=rule.labels, prefix=rule.prefix)
    for status in rule.stored:
        async with aclosing(listing.heads(store, status)) as heads:
            async for head in heads:
                chosen = _chosen(head, rule)
                if chosen is not None:
                    found.setdefault(head.session, chosen)  # one that changes during the listing can come twice
    ordered = sorted(found.values(), key=lambda each: (each.head.updated, each.head.session), reverse=True)
    kept = ordered[: rule.keep_last or 0]
    left = ordered[len(kept) :]
    left += [each for each in kept if each.head.data == BURYING]
    return left[::-1]


def _chosen(head: Head, rule: Rule) -> Chosen | None:  # noqa: PLR0911 - one for each reason
    """Return a session if it matches a rule; ``keep_last`` is not considered."""
    if head.data == BURYING:  # this was decided before
        return Chosen(head=head)
    age, owner = rule.older_than, holder(head)
    status = status_of(head.status, owner)
    if (age and head.updated > head.now - age.total_seconds()) or (rule.status and status not in rule.status):
        return None
    try:
        progress = progress_of(head)
    except (StateInvalid, UnknownVersion) as error:
        return None if rule.blueprint else _skip(head, "unreadable", str(error))
    if rule.blueprint and progress.blueprint != rule.blueprint:
        return None
    if owner is not None:
        return _skip(head, "held", f"is held by {owner}")
    if progress.open is not None and status not in rule.status:
        return _skip(head, "open", f"its turn {progress.turn} is {status}; ask for this status to delete it, too")
    return Chosen(head=head)


def _skip(head: Head, reason: Reason, detail: str) -> Chosen:
    return Chosen(head=head, skipped=Skipped(session=head.session, reason=reason, detail=detail))


async def prune(
    store: Store, chosen: Sequence[Chosen], archive: Store | None, *, by: str, why: str
) -> AsyncGenerator[tuple[str, Skipped | None], None]:
    """Delete the chosen sessions, each after it was copied to the archive; yield each, and why it stays.

    Raises:
        StoreFull: there is no space in the archive. The session that was being copied is not deleted, and no later one.
        InvalidArgument: the archive is the store itself.
    """
    for each in chosen:
        head, skipped = each.head, each.skipped
        if skipped is None and head.data != BURYING:
            if archive is not None:
                skipped = await _archive(store, archive, head)
            if skipped is None:
                skipped = await _condemn(store, head)
        if skipped is None:
            await store.delete(head.session, data=tombstone(head, by=by, why=why))
        yield head.session, skipped


@asynccontextmanager
async def open_archive(directory: str | Path) -> AsyncGenerator[Store]:
    """Open the ``file://`` store in a directory, and create it if it does not exist."""
    from midturn.stores.files.store import FileStore

    store = await FileStore.open(directory)
    try:
        yield store
    finally:
        await store.close()


async def _condemn(store: Store, head: Head) -> Skipped | None:
    """Take a session away from everybody; return why that was not possible."""
    try:
        await condemn(store, head)
    except Conflict:
        return Skipped(session=head.session, reason="changed", detail="was written meanwhile")
    except SessionDeleted:
        return Skipped(session=head.session, reason="changed", detail="was deleted meanwhile")
    return None


async def _archive(store: Store, archive: Store, head: Head) -> Skipped | None:
    """Copy a session to the archive, and compare the copy with it."""
    there = await archive.head(head.session)
    if there is not None and (there.seq, there.token, there.created) == (head.seq, head.token, head.created):
        raise InvalidArgument("is the store itself, or a copy of its files; name another directory", path="archive")
    try:
        await copying.copy(store, archive, head.session, on_write=lambda _: None)
    except (StoreFull, StoreUnavailable, HistoryLost):  # the other sessions would fail in the same way
        raise
    except MidturnError as error:
        return Skipped(session=head.session, reason="not archived", detail=str(error))
    return None
