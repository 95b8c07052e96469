"""The contract that every store keeps. Its prose stands here only; the proof is :mod:`midturn.testing`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from midturn.record.head import NO_LABELS, by_change, read_cursor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from midturn.record.head import Head, Kind, Row, Status, Write

Profile: TypeAlias = Literal["volatile", "strict", "bounded-loss"]
"""What an acknowledged write survives. ``strict``: a crash and a power loss. ``bounded-loss``: what the store's docs
say. ``volatile``: nothing, the memory store."""

ListOrder: TypeAlias = Literal["id", "updated"]
"""How sessions are listed: by id, or the last change first."""

DEADLINE = 30.0
"""Seconds after which a call to a store gives up."""


class Store(Protocol):
    """Sessions by id: a head that is swapped atomically, and immutable rows beside it.

    All ids were checked by :func:`midturn.record.head.check_id`. Every method may raise
    :class:`~midturn.errors.StoreUnavailable` within the deadline and :class:`~midturn.errors.StateInvalid` for a
    stored record that is damaged; damage to one session does not touch another.
    Two ids are the same session only if they are equal character by character.
    """

    profile: Profile

    async def head(self, session: str) -> Head | None:
        """The session's head, also of a deleted one; ``None`` if the id was never written."""
        ...

    async def heads(
        self,
        *,
        after: str = "",
        limit: int = 100,
        prefix: str = "",
        status: Status | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        order: ListOrder = "id",
    ) -> Sequence[Head]:
        """Up to ``limit`` heads with ids after ``after``, ordered by id (by code point).

        Those that match all filters: the literal ``prefix``, the ``status``, every one of ``labels``. Deleted sessions
        are listed only when asked for by status. One whose head cannot be read is left out, with a warning in the log.

        With ``order="updated"`` the last change comes first, and of equal ones the greater id. ``after`` is then the
        :func:`~midturn.record.head.cursor` of the last head. A session that changes between two pages moves to the
        front: it may be missed by later pages, and no session is listed twice unless it changed.
        """
        ...

    async def counts(self) -> Mapping[Status, int]:
        """Return how many sessions have each status that occurs, ``deleted`` included."""
        ...

    async def write(self, write: Write) -> Head:
        """Apply the write whole and durably, then return the new head; its seq is the write's plus one.

        Raises:
            Conflict: the session's head is not the one that the writer saw (``write.follows(head)``), or a row is
                already there. Nothing was written.
            SessionDeleted: the session is deleted. Nothing was written.
            StoreFull: no space. Nothing was written.
            OutcomeUnknown: the write was cut off. It is settled before the next ``head()`` of the same store answers,
                and that head's token tells whether it took effect.
        """
        ...

    async def rows(self, session: str, kind: Kind, *, start: int = 0, stop: int | None = None) -> Sequence[Row]:
        """The rows of one kind with ``start <= n < stop``, ordered by ``n``; none for an unknown or deleted session."""
        ...

    async def delete(self, session: str) -> bool:
        """Remove the rows, labels and data for good and leave a head with status ``deleted``; free the space.

        Whether there was something to delete. Works whoever holds the lease: the owner's next write is refused.
        """
        ...

    async def close(self) -> None:
        """Give back files, threads and connections; the store is of no use afterwards. Closing twice is fine."""
        ...


class Transaction(Protocol):
    """Statements of the caller's and one write of the store's, of which all take effect or none does.

    Made by :meth:`Transactional.transaction`. Every call has the store's deadline. After a call that was cancelled or
    that the store could not carry out, the transaction is over.
    """

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement of the caller's; its rows, if it has any.

        Parameters are written as the database does: ``?`` or ``:name`` for SQLite, ``%s`` or ``%(name)s`` for Postgres.
        What is wrong with the statement is told by the driver's own exception; the statement has no effect then, and
        the transaction goes on unless the database has ended it.

        Raises:
            StateInvalid: the statement would begin, end or divide the transaction, or the transaction is over. SQLite
                also refuses to write to midturn's tables; on Postgres, rights do.
        """
        ...

    async def write(self, write: Write) -> Head:
        """As :meth:`Store.write`, in this transaction, which it commits; with an error, all of it is rolled back.

        Nothing can be done in it afterwards. A constraint of the caller's that the database only checks at the end is
        told by the driver's own exception.
        """
        ...


@runtime_checkable
class Transactional(Protocol):
    """What a store also is if the caller's own tables can be in its database."""

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction; leaving the block without :meth:`Transaction.write` rolls it back."""
        ...


def matching(
    heads: Iterable[Head],
    *,
    after: str = "",
    limit: int = 100,
    prefix: str = "",
    status: Status | None = None,
    labels: Mapping[str, str] = NO_LABELS,
    order: ListOrder = "id",
) -> list[Head]:
    """Return the page that :meth:`Store.heads` returns, from all heads of a store."""
    if order == "updated":
        start = read_cursor(after)
        ordered = sorted((head for head in heads if by_change(head) < start), key=by_change, reverse=True)
    else:
        ordered = sorted((head for head in heads if head.session > after), key=lambda head: head.session)
    found = (head for head in ordered if head.session.startswith(prefix) and fits(head, status, labels))
    return list(islice(found, limit))


def fits(head: Head, status: Status | None, labels: Mapping[str, str]) -> bool:
    """Return whether a head has the status and all labels that a list asks for."""
    return (head.status == status if status else head.status != "deleted") and labels.items() <= head.labels.items()
