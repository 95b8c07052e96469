"""The contract of every store. It is documented here only; :mod:`midturn.testing` tests that a store keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from midturn.record.head import NO_LABELS, by_change, read_cursor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from midturn.record.head import Head, Kind, Row, Status, Write

Profile: TypeAlias = Literal["volatile", "strict", "bounded-loss"]
"""The failures that an acknowledged write survives. ``strict``: a crash and a power loss. ``bounded-loss``: those that
the docs of the store name. ``volatile``: none, because the data is in memory."""

ListOrder: TypeAlias = Literal["id", "updated"]
"""The order of a list of sessions: by id, or by change with the latest first."""

DEADLINE = 30.0
"""Seconds after which a call to a store gives up."""


class Store(Protocol):
    """Sessions by id. Each has a head, which a write replaces atomically, and rows, which never change.

    A write can remove rows, except decisions: those are append-only until the session is deleted.

    Callers check all ids with :func:`midturn.record.head.check_id`. Two ids are the same session only if they are
    equal character by character.

    Every method may raise :class:`~midturn.errors.StoreUnavailable` within the deadline, and
    :class:`~midturn.errors.StateInvalid` for a stored record that is damaged. Damage to one session does not affect
    another. A store that notices by itself that it has lost acknowledged writes raises
    :class:`~midturn.errors.HistoryLost`; it need not, because each session compares the heads that it reads.
    """

    profile: Profile

    async def head(self, session: str) -> Head | None:
        """Return the session's head, also that of a deleted session; ``None`` if the id was never written."""
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
        reverse: bool = False,
    ) -> Sequence[Head]:
        """Return up to ``limit`` heads with ids after ``after``, ordered by id (by code point).

        A head must match all filters: the literal ``prefix``, the ``status``, and every one of ``labels``. Deleted
        sessions are listed only with ``status="deleted"``. A session whose head cannot be read is omitted, with a
        warning in the log.

        With ``order="updated"`` the latest change comes first; where the times are equal, the greater id. ``after`` is
        then the :func:`~midturn.record.head.cursor` of the last head. A session that changes between two pages moves
        to the front, so later pages may miss it. No session is listed twice unless it changed.

        With ``reverse``, the order is the opposite one: the greatest id first, or the oldest change first. ``after`` is
        then the last id or cursor of a page in that order. A session that changes between two pages of
        ``order="updated"`` moves to the end, so a later page lists it again, and no page misses it.

        A page of the latest or of the oldest changes, with or without a status, reads about as many heads as it
        returns, however many sessions there are. With a prefix, with labels or in the order of ids, a store may also
        read the heads in between that do not match.
        """
        ...

    async def counts(self) -> Mapping[Status, int]:
        """Return the number of sessions by status, ``deleted`` included; a status without sessions is absent."""
        ...

    async def write(self, write: Write) -> Head:
        """Apply the whole write durably, then return the new head; its seq is the write's plus one.

        Raises:
            Conflict: the session's head is not the one that the writer saw (``write.follows(head)``), or a row already
                exists that the write does not remove. Nothing was written.
            SessionDeleted: the session is deleted. Nothing was written.
            StoreFull: no space is left. Nothing was written.
            OutcomeUnknown: the write was interrupted. Its outcome is final before the next ``head()`` of the same
                store returns, and the token of that head shows whether the write took effect.
        """
        ...

    async def rows(self, session: str, kind: Kind, *, start: int = 0, stop: int | None = None) -> Sequence[Row]:
        """Return the rows of one kind with ``start <= n < stop``, ordered by ``n``.

        An unknown or deleted session has no rows.
        """
        ...

    async def delete(self, session: str, *, data: bytes = b"") -> bool:
        """Remove the rows, labels and data for good, free their space, and return whether there was anything to delete.

        A head with the status ``deleted`` remains, and keeps the given ``data``. A deleted session does not change. The
        lease does not prevent a deletion: the owner's next write is rejected.
        """
        ...

    async def forget(self, session: str) -> bool:
        """Remove the head of a deleted session, so that its id can be used again; return whether there was one.

        Raises:
            Conflict: the session is not deleted. Nothing changed.
        """
        ...

    async def close(self) -> None:
        """Release files, threads and connections. The store cannot be used afterwards; closing it twice is allowed."""
        ...


class Transaction(Protocol):
    """Statements of the caller and one write of the store: all of them take effect, or none.

    :meth:`Transactional.transaction` makes it. Every call has the store's deadline. The transaction is over after a
    call that was cancelled or that the store could not carry out.
    """

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement of the caller and return its rows, if it has any.

        Parameters are written as the database does: ``?`` or ``:name`` for SQLite, ``%s`` or ``%(name)s`` for Postgres.
        For a wrong statement the driver raises its own exception. The statement then has no effect, and the
        transaction continues unless the database has ended it.

        Raises:
            InvalidArgument: the statement would begin, end or divide the transaction, or the transaction is over.
                SQLite also rejects writes to midturn's tables; on Postgres, use the rights of the database for that.
        """
        ...

    async def write(self, write: Write) -> Head:
        """Apply a write as :meth:`Store.write` does, and commit the transaction; an error rolls all of it back.

        The transaction cannot be used afterwards. Where a constraint of the caller is checked only at the commit, the
        driver raises its own exception.
        """
        ...


@runtime_checkable
class Transactional(Protocol):
    """A store whose database can also have tables of the caller."""

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction; leaving the block without :meth:`Transaction.write` rolls it back."""
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
    reverse: bool = False,
) -> list[Head]:
    """Return the page of :meth:`Store.heads`, given all heads of a store."""
    behind = follows(after, order=order, reverse=reverse)
    fitting = (
        head for head in heads if behind(head) and head.session.startswith(prefix) and fits(head, status, labels)
    )
    if order == "updated":
        return sorted(fitting, key=by_change, reverse=not reverse)[:limit]
    return sorted(fitting, key=lambda head: head.session, reverse=reverse)[:limit]


def follows(after: str, *, order: ListOrder, reverse: bool) -> Callable[[Head], bool]:
    """Return a function that says whether a head belongs to the pages after ``after``.

    Raises:
        InvalidArgument: ``after`` is not a cursor, and the order needs one.
    """
    if order == "id":
        return lambda head: not after or (head.session < after if reverse else head.session > after)
    start = read_cursor(after, reverse=reverse)
    return lambda head: by_change(head) > start if reverse else by_change(head) < start


def fits(head: Head, status: Status | None, labels: Mapping[str, str]) -> bool:
    """Return whether a head has all labels and the status; without a status, any head but a deleted one fits."""
    return (head.status == status if status else head.status != "deleted") and labels.items() <= head.labels.items()
