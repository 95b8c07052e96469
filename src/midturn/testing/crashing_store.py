"""A store whose process crashes at a chosen write, inside this process."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from midturn.errors import InvalidArgument, MidturnError, StoreUnavailable
from midturn.lease.ledger import check_lease
from midturn.record.head import Kind, Write
from midturn.record.rows import CallRow, decode_record
from midturn.sessions.opening import Door, OpenStore
from midturn.stores.registry import locate, split_lease
from midturn.stores.sealed.keys import Keys
from midturn.stores.wrapper import StoreWrapper, wrap

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from midturn.record.head import Head, Row, Status
    from midturn.store import ListOrder, Store, Transaction

When: TypeAlias = Literal["before", "after"]

NAMES = {Kind.TURN: "task", Kind.CHECKPOINT: "commit", Kind.FAILURE: "failure", Kind.DECISION: "answer"}
"""Names of writes by the rows in them; a call has the name of its tool, or its kind."""


class Crashed(StoreUnavailable):
    """The process crashed here, because a test asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPoint:
    """A moment at which a process crashes: just before a write to the store, or just after it."""

    when: When
    write: str
    """Name of the write: ``task`` accepts the input, ``commit`` ends the turn, ``question`` and ``answer`` are those
    of people. The end of a call has the name of the tool, or is ``model``, ``code`` or ``memory``."""
    nth: int
    """The number of this write among the writes with the same name, from 1."""

    def __str__(self) -> str:
        nth = f", nth={self.nth}" if self.nth > 1 else ""
        return f'{self.when}="{self.write}"{nth}'


Trigger: TypeAlias = "Callable[[Sequence[CrashPoint], int], bool]"
"""A function that gets the points and the number of a write, and returns whether the process crashes there."""


class CrashingStore(StoreWrapper):
    """A store as one process sees it. After the crash, every call fails, because a dead process does nothing."""

    def __init__(self, inner: Store, *, trigger: Trigger, closes: bool = True) -> None:
        super().__init__(inner)
        self._trigger = trigger
        self._closes = closes
        self._owners: dict[str, set[str]] = {}
        """The holders of leases in this process, by session."""
        self._counts: Counter[str] = Counter()
        self._number = 0
        self.crashed: CrashPoint | None = None
        self.written: list[str] = []
        """The names of the writes."""

    async def head(self, session: str) -> Head | None:
        self._check_alive()
        return await super().head(session)

    async def heads(
        self,
        *,
        after: str = "",
        limit: int = 100,
        prefix: str = "",
        status: Status | None = None,
        labels: Mapping[str, str] = {},
        order: ListOrder = "id",
        reverse: bool = False,
    ) -> Sequence[Head]:
        self._check_alive()
        return await super().heads(
            after=after, limit=limit, prefix=prefix, status=status, labels=labels, order=order, reverse=reverse
        )

    async def counts(self) -> Mapping[Status, int]:
        self._check_alive()
        return await super().counts()

    async def rows(self, session: str, kind: Kind, *, start: int = 0, stop: int | None = None) -> Sequence[Row]:
        self._check_alive()
        return await super().rows(session, kind, start=start, stop=stop)

    async def delete(self, session: str, *, data: bytes = b"") -> bool:
        self._check_alive()
        return await super().delete(session, data=data)

    async def forget(self, session: str) -> bool:
        self._check_alive()
        return await super().forget(session)

    async def write(self, write: Write) -> Head:
        return await self.guard(write, super().write)

    def wrap_transaction(
        self, transaction: AbstractAsyncContextManager[Transaction]
    ) -> AbstractAsyncContextManager[Transaction]:
        return _transaction(self, transaction)

    async def guard(self, write: Write, apply: Callable[[Write], Awaitable[Head]]) -> Head:
        """Apply a write, and crash before or after it if the process is to crash there."""
        self._check_alive()
        if write.owner is not None:
            self._owners.setdefault(write.session, set()).add(write.owner)
        names = _names(write)
        if not names:  # the renewal of a lease, or another attempt: the time decides when it comes
            return await apply(write)
        self._number += 1
        self._counts.update(names)
        self.written += names
        self._perhaps("before", names)
        head = await apply(write)
        self._check_alive()
        self._perhaps("after", names)
        return head

    async def close(self) -> None:
        """End the process. Its sessions become free, like those of a process that is gone."""
        if self._owners:
            await self._release()
        if self._closes:
            await self.inner.close()

    def _perhaps(self, when: When, names: Sequence[str]) -> None:
        points = [CrashPoint(when=when, write=name, nth=self._counts[name]) for name in names]
        if self._trigger(points, self._number):
            self.crashed = points[0]
            self._check_alive()

    def _check_alive(self) -> None:
        if self.crashed is not None:
            raise Crashed(f"the process crashed at {self.crashed}, as the test asked")

    async def _release(self) -> None:
        """Give back the leases. This host cannot see that their process died, because the real process lives on."""
        owners, self._owners = self._owners, {}
        for session, mine in owners.items():
            head = await self.inner.head(session)
            if head is None or head.owner not in mine:
                continue
            write = Write(
                session=session,
                seq=head.seq,
                after=head.token,
                epoch=head.epoch,
                status=head.status,
                labels=head.labels,
                token=token_hex(6),
                data=head.data,
            )
            await self.inner.write(write)


class _CrashingTransaction:
    def __init__(self, store: CrashingStore, inner: Transaction) -> None:
        self._store = store
        self._inner = inner

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        return await self._inner.execute(sql, parameters)

    async def write(self, write: Write) -> Head:
        return await self._store.guard(write, self._inner.write)


@asynccontextmanager
async def _transaction(
    store: CrashingStore, transaction: AbstractAsyncContextManager[Transaction]
) -> AsyncGenerator[Transaction]:
    async with transaction as inner:
        yield _CrashingTransaction(store, inner)


def _names(write: Write) -> list[str]:
    """Return the names of a write: one, unless calls that ended together share it."""
    kinds = {row.kind for row in write.rows}
    for kind in (Kind.CHECKPOINT, Kind.TURN, Kind.FAILURE, Kind.DECISION):
        if kind in kinds:
            return [NAMES[kind]]
    calls = [decode_record(CallRow, row.data, "call") for row in write.rows if row.kind is Kind.CALL]
    return list(dict.fromkeys(_name(call) for call in calls if call.what != "tools"))


def _name(call: CallRow) -> str:
    if call.stage == "asked":
        return "question"
    name = call.name or call.what
    return f"start of {name}" if call.stage == "started" else name


@asynccontextmanager
async def crash_at(
    url: str, *, before: str | None = None, after: str | None = None, nth: int = 1
) -> AsyncGenerator[OpenStore]:
    """Open a store like :func:`midturn.open`, in a process that crashes before or after the ``nth`` write of a name.

    The names are those of :class:`CrashPoint`. The crash ends the block, and another store at the same URL shows what
    is left::

        async with crash_at("sqlite:///test.db", before="refund") as store:
            await store.session("case-42", build).run(task="Refund A1.")
        async with midturn.open("sqlite:///test.db") as store:
            result = await store.session("case-42", build).resume()

    This process continues, so a tool that is running is cancelled, and its ``finally`` blocks run.

    Raises:
        AssertionError: the block ended without the crash.
        InvalidArgument: there is not one of ``before`` and ``after``, or the store would be gone with the process.
    """
    if (before is None) == (after is None):
        raise InvalidArgument('give the name of a write, as before="refund" or after="refund"', path="crash_at")
    if locate(url)[0] == "memory":
        raise InvalidArgument("is gone when its process ends; use sqlite:///", path="url")
    wanted = CrashPoint(when="before" if after is None else "after", write=cast("str", before or after), nth=nth)

    def trigger(points: Sequence[CrashPoint], number: int) -> bool:
        _ = number
        return wanted in points

    place, lease = split_lease(url)
    # Around what seals, because the names of writes are in their records.
    store = wrap(CrashingStore, await Door(keys=Keys.in_env()).open(place), trigger=trigger)
    try:
        async with OpenStore(store, lease=None if lease is None else check_lease(lease)) as opened:
            yield opened
    except MidturnError:  # a turn that failed does not say `Crashed`, although its failure could not be recorded
        if store.crashed is None:
            raise
    if store.crashed is None:
        came = ", ".join(dict.fromkeys(store.written)) or "nothing"
        raise AssertionError(f"the process never reached {wanted}; it has written {came}")
