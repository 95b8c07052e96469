"""Lists of sessions: by id or by the time of the last change, with filters, page by page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, get_args

from midturn.errors import InvalidArgument, StateInvalid, UnknownVersion
from midturn.history.session_info import SessionInfo, SessionStatus, describe, info_of
from midturn.record import codec
from midturn.record.head import NO_LABELS, by_change, check_labels, cursor, read_cursor
from midturn.record.rows import Progress, moment
from midturn.store import ListOrder

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping, Sequence

    from midturn.record.head import Head, Status
    from midturn.store import Store

PAGE = 100
"""Heads that are read at once."""
LARGEST = 3_200
"""Limit of the heads that are read at once in a list without a limit. There, each page is twice as large as the one
before, because a store may have to look at all sessions for each page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A list of sessions: what it filters by, and its order. Read it with :meth:`read`."""

    status: frozenset[SessionStatus] | None = None
    """``None`` for all but deleted sessions."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    prefix: str = ""
    order: ListOrder = "id"
    reverse: bool = False
    since: float = 0.0
    """The time of the earliest change, on the store's clock."""
    after: str = ""
    limit: int | None = None

    @classmethod
    def of(
        cls,
        *,
        status: SessionStatus | Collection[SessionStatus] | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        prefix: str = "",
        order: ListOrder = "id",
        reverse: bool = False,
        since: datetime | timedelta | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> Listing:
        """Return the list that these arguments of :meth:`midturn.OpenStore.sessions` describe.

        Raises:
            InvalidArgument: one of them is not valid.
        """
        if order not in get_args(ListOrder):
            raise InvalidArgument(f"is {order!r}; it can be one of {', '.join(get_args(ListOrder))}", path="order")
        for name, text in (("prefix", prefix), ("after", after)):
            if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
                raise InvalidArgument(f"must be a string, not {type(text).__name__}", path=name)
            codec.check_argument(text, name)
        read_cursor(after)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidArgument(f"must be a number from 1, not {limit!r}", path="limit")
        return cls(
            status=check_statuses(status),
            labels=check_labels(labels),
            prefix=prefix,
            order=order,
            reverse=reverse,
            since=_check_since(since),
            after=after,
            limit=limit,
        )

    def fits(self, info: SessionInfo) -> bool:
        """Return whether a session passes all filters."""
        fitting = info.status != "deleted" if self.status is None else info.status in self.status
        return (
            fitting
            and info.id.startswith(self.prefix)
            and self.labels.items() <= info.labels.items()
            and info.updated >= moment(self.since)
        )

    async def read(self, store: Store) -> AsyncGenerator[SessionInfo, None]:
        """Yield the sessions."""
        if "\0" in self.prefix or (self.status is not None and not self.status):
            return  # no id has a NUL, and no session has none of the statuses
        stored: set[Status | None] = (
            {None} if self.status is None else {"running" if word == "interrupted" else word for word in self.status}
        )
        left = self.limit
        streams = [self.heads(store, each) for each in stored]
        async with aclosing(self._merged(streams)) as heads:
            async for head in heads:
                info = listed(head)
                if self.status is None or info.status in self.status:
                    yield info
                    left = None if left is None else left - 1
                if left == 0:
                    return

    async def every(self, store: Store) -> AsyncGenerator[Head, None]:
        """Yield the heads of all sessions, also of deleted ones, whatever their status."""
        async with aclosing(self._merged([self.heads(store, None), self.heads(store, "deleted")])) as heads:
            async for head in heads:
                yield head

    async def heads(self, store: Store, status: Status | None) -> AsyncGenerator[Head, None]:
        """Yield the heads of one stored status, page by page; without a status, those of all but deleted sessions."""
        after, began = self._start(), math.inf
        size = PAGE if self.limit is None else min(PAGE, self.limit)
        while heads := await store.heads(
            after=after,
            limit=size,
            prefix=self.prefix,
            status=status,
            labels=self.labels,
            order=self.order,
            reverse=self.reverse,
        ):
            for head in heads:
                if head.updated >= self.since:
                    yield head
                elif self.order == "updated" and not self.reverse:
                    return  # all others are older
            began = min(began, heads[0].now)
            if self.order == "updated" and self.reverse and len(heads) < size and heads[-1].updated > began:
                return  # else changes meanwhile could make the list endless
            after = heads[-1].session if self.order == "id" else cursor(heads[-1])
            # With a limit, what was read may not have been what is wanted.
            size = PAGE if self.limit is not None else min(2 * size, LARGEST)

    def _start(self) -> str:
        """Return the ``after`` of the first page, which skips what is too old if the oldest change comes first."""
        if self.order == "id":
            return read_cursor(self.after)[1]
        if self.reverse and self.since:
            start = self.since, ""
            if not self.after or read_cursor(self.after) < start:
                return f"{self.since!r} "
        return self.after

    async def _merged(self, streams: Sequence[AsyncGenerator[Head, None]]) -> AsyncGenerator[Head, None]:
        """Merge ordered streams. By id, a session that moves to another stream meanwhile comes only once."""
        last = ""
        async with AsyncExitStack() as stack:
            for stream in streams:
                stack.push_async_callback(stream.aclose)
            heads = [await anext(stream, None) for stream in streams]
            while found := [head for head in heads if head is not None]:
                head = self._next(found)
                if head.session != last:
                    yield head
                index = heads.index(head)
                last, heads[index] = head.session, await anext(streams[index], None)

    def _next(self, heads: Sequence[Head]) -> Head:
        if self.order == "id":
            return (max if self.reverse else min)(heads, key=lambda each: each.session)
        return (min if self.reverse else max)(heads, key=by_change)


def listed(head: Head) -> SessionInfo:
    """Return the status and the facts of a session; if its record cannot be read, the reason is its ``problem``."""
    try:
        return info_of(head)
    except (StateInvalid, UnknownVersion) as error:
        return describe(head, Progress(), problem=str(error))


def check_statuses(status: SessionStatus | Collection[SessionStatus] | None) -> frozenset[SessionStatus] | None:
    """Return the statuses that a list is limited to; ``None`` if it is not.

    Raises:
        InvalidArgument: there is no such status.
    """
    if status is None:
        return None
    if not isinstance(status, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        raise InvalidArgument(f"must be a status or several, not {type(status).__name__}", path="status")
    words = (status,) if isinstance(status, str) else status
    for word in words:
        if word not in get_args(SessionStatus):
            raise InvalidArgument(f"is {word!r}; it can be one of {', '.join(get_args(SessionStatus))}", path="status")
    return frozenset(words)


def _check_since(since: datetime | timedelta | None) -> float:
    if since is None:
        return 0.0
    if isinstance(since, timedelta):
        try:
            since = datetime.now(UTC) - since
        except OverflowError:
            raise InvalidArgument(f"{since} ago is no time", path="since") from None
    if not isinstance(since, datetime):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        raise InvalidArgument(f"must be a datetime or a timedelta, not {type(since).__name__}", path="since")
    if since.tzinfo is None:
        raise InvalidArgument("needs a time zone, such as datetime.now(UTC)", path="since")
    return max(0.0, since.timestamp())
