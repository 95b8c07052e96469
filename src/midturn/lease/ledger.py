"""One session in one store: its head as last read, and the writes that only the holder of its lease can make."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from math import nan
from secrets import token_hex
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from midturn.errors import (
    Conflict,
    HistoryLost,
    InvalidArgument,
    LeaseLost,
    MidturnError,
    NotFound,
    OutcomeUnknown,
    SessionBusy,
    SessionDeleted,
    StateInvalid,
    StoreUnavailable,
    Tampered,
    UnknownVersion,
)
from midturn.lease.process import is_dead, new_owner
from midturn.record.bodies import Bodies
from midturn.record.head import NO_LABELS, Kind, Write
from midturn.record.rows import (
    BURYING,
    CheckpointRow,
    DecisionRow,
    FailureRow,
    KeyRow,
    Progress,
    TurnRow,
    decode_record,
    encode_record,
    key_number,
    progress_of,
)
from midturn.stopping import fail, settled, unless

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence

    from midturn.record.head import Head, Removal, Row, Status
    from midturn.record.packing import Archive
    from midturn.stopping import Stop
    from midturn.store import Store, Transaction, Transactional

LEASE = 30.0
"""Seconds that a lease lasts, unless the store was opened with another length. The worker of a turn renews it."""
SHORTEST_LEASE, LONGEST_LEASE = 3.0, 3600.0
"""Limits of the option ``lease``. A busy worker would lose a shorter one; a longer one delays others after a crash."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.25
"""Seconds between two reads of a lease that another worker holds."""
LOOKS = 20
"""Number of reads in the time for which the lease was last held, if that time is short."""

DATED = frozenset({Kind.TURN, Kind.CHECKPOINT, Kind.FAILURE, Kind.DECISION})
"""Kinds of rows that contain the time, so that no other write makes the same one. Only a compaction removes some."""
TRIES = 5
"""Number of times that a reader reads a session that changes between two of its reads."""

Seen: TypeAlias = "dict[str, Head]"
"""The last heads of the sessions that a worker has used: a store that has an earlier one has lost history.

All ledgers of an open store share them, because a server makes a new object of a session for each request.
"""

T = TypeVar("T")
RowT = TypeVar("RowT", TurnRow, CheckpointRow, FailureRow, KeyRow, DecisionRow)


def check_lease(seconds: object) -> float:
    """Return the length of a lease as a number; text comes from a URL.

    Raises:
        InvalidArgument: it is not a number, or not within the limits.
    """
    try:
        found = float(seconds) if isinstance(seconds, int | float | str) and not isinstance(seconds, bool) else nan
    except ValueError:
        found = nan
    if not SHORTEST_LEASE <= found <= LONGEST_LEASE:
        limits = f"from {SHORTEST_LEASE:g} to {LONGEST_LEASE:g}"
        raise InvalidArgument(f"is {seconds!r}; give a number of seconds {limits}", path="lease")
    return found


class Changed(Conflict):
    """A record is missing or wrong, and the session has changed since its head was read. Its cause says what."""

    @property
    def reason(self) -> BaseException:
        """Return the error of the reader."""
        return self.__cause__ or self


def holder(head: Head | None) -> str | None:
    """Return the owner of the lease, unless the lease has expired or the owner is dead."""
    if head is None or head.owner is None or head.expires <= head.now or is_dead(head.owner):
        return None
    return head.owner


class Holding:
    """Renewal of a lease. Its task starts only when the first renewal is due: most turns are over by then.

    A timer of the event loop renews the lease. A thread would also keep the lease of a worker whose loop hangs for
    ever, and nobody could finish its turn. So midturn's own work must never hold the loop up for long:
    :class:`midturn.journal.order.Gate` bounds what calls do in one round, and each write, which renews the lease too,
    has a limited number of calls. If a tool blocks the loop for longer than the lease, another worker may take the
    turn over, and the next write here raises ``LeaseLost``.
    """

    def __init__(self, hold: Callable[[], Coroutine[None, None, None]], first: float, lost: Stop) -> None:
        self._hold = hold
        self._lost = lost
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(first, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._hold())

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        """Let no renewal begin, and wait for the end of one that runs."""
        self._timer.cancel()
        if not self._lost.done():
            self._lost.set_result(None)
        if self._task is not None:
            await settled(self._task)


class Ledger:
    """A session's rows and head. One writer uses it at a time."""

    def __init__(
        self,
        store: Store,
        session: str,
        *,
        labels: Mapping[str, str] | None = None,
        lease: float | None = None,
        seen: Seen | None = None,
        reuse: bool = False,
    ) -> None:
        self.store = store
        self.session = session
        self.lease = LEASE if lease is None else lease
        self.head: Head | None = None
        self.progress = Progress()
        self.lives = 0
        """Number of times that this ledger has found another session under the same id, after the id was forgotten."""
        self.bodies = Bodies()
        """The bodies that this call has read. They never change, so each is read once in a call."""
        self._labels = labels
        self._seen: Seen = {} if seen is None else seen
        self._reuse = reuse
        """True if the id may be used again should its session be deleted, until this ledger has read the head once."""
        self._owner = new_owner()
        self._writing = asyncio.Lock()
        self._doubtful = False
        """True if the outcome of the last renewal is unknown."""
        self._mark: Row | None = None
        """The last dated row that this ledger wrote. Every later history of the session has it."""
        self._marked: str | None = None
        """The token of a head whose history has the mark."""

    @property
    def owned(self) -> bool:
        """Return whether this ledger holds the lease, according to the head that it read last."""
        return self.head is not None and self.head.owner == self._owner

    @property
    def seq(self) -> int:
        """Return the number of the session's last write, according to the head that was read last; 0 if it is new."""
        return self.head.seq if self.head is not None else 0

    async def refresh(self) -> None:
        """Read the head again.

        Raises:
            SessionDeleted: the session is deleted.
            HistoryLost: the store has lost a part of the history that this ledger has seen.
        """
        self._see(await self._find())
        await self._check_mark()

    def forget_bodies(self) -> None:
        """Free the memory of the bodies that were read."""
        self.bodies = Bodies()

    def move(self) -> None:
        """Prepare for use in another event loop."""
        self._writing = asyncio.Lock()

    def _epoch(self) -> int:
        return self.head.epoch if self.head is not None else 0

    def busy(self) -> str | None:
        """Return the owner of the lease, if it is another one that may be alive."""
        owner = holder(self.head)
        return None if owner == self._owner else owner

    async def wait(self, until: float, stop: Stop) -> None:
        """Wait until nobody else holds the lease.

        Raises:
            SessionBusy: somebody still holds it at ``until``, a time of :func:`time.monotonic`.
            CancelledError: ``stop`` was cancelled.
            HistoryLost: the store has lost a part of the history that this ledger has seen.
        """
        pause, longest = SHORTEST_PAUSE, LONGEST_PAUSE
        epoch, since = self._epoch(), time.monotonic()
        while owner := self.busy():
            left = until - time.monotonic()
            if left <= 0:
                raise SessionBusy(
                    f"worker {owner} holds session {self.session!r}",
                    session=self.session,
                    owner=owner,
                    hint="Try again, or wait longer: session(..., timeout=60).",
                )
            await unless(asyncio.sleep(min(pause, left)), stop)
            pause = min(pause * 1.5, longest)
            self._see(await self._find())
            if self._epoch() != epoch:  # It was free for a moment, and another worker was faster: read more often.
                now = time.monotonic()
                longest = min(longest, max((now - since) / LOOKS, SHORTEST_PAUSE))
                epoch, since = self._epoch(), now
        await self._check_mark()

    @contextmanager
    def storing(self, archive: Archive, stop: int | None = None) -> Generator[list[Row]]:
        """Yield the new bodies as rows for one :meth:`write`; if the write has no effect, they stay new.

        With ``stop``, leave those from this number on.
        """
        rows, bodies = archive.new_bodies(stop), archive.stored
        try:
            yield rows
        except BaseException:
            if self.progress.bodies != bodies:  # otherwise the cancellation came after the write
                archive.take_back()
            raise
        archive.taken.clear()  # they may be large

    async def write(
        self,
        *,
        status: Status,
        progress: Progress,
        rows: Sequence[Row] = (),
        removes: Sequence[Removal] = (),
        release: bool = False,
        transaction: Transaction | None = None,
        sheltered: bool = False,
    ) -> None:
        """Write rows and progress in one write, which also takes the lease if needed, and releases it if asked.

        Rows in ``removes`` go before the new ones come.

        Once begun, the write completes even if the caller is cancelled. ``sheltered`` promises that nobody cancels the
        caller.

        Raises:
            LeaseLost: this ledger held the lease, and another worker has taken it over.
            StateInvalid: this ledger holds the lease, and the store has a row that the head does not count.
            Conflict: this ledger did not hold the lease, and another worker wrote first.
            SessionDeleted: the session was deleted.
            HistoryLost: the store has lost a part of the history that this ledger has seen.
        """
        if transaction is not None:
            await self._write(status, progress, rows, release=release, transaction=transaction)
            return
        async with self._writing:
            await self._write(status, progress, rows, removes=removes, release=release, sheltered=sheltered)

    @asynccontextmanager
    async def transaction(self, store: Transactional) -> AsyncGenerator[Transaction]:
        """Open a transaction of the store for one :meth:`write`; all other writes wait until it ends."""
        async with self._writing, store.transaction() as transaction:
            yield transaction

    def hold(self, lost: Stop) -> Holding:
        """Renew the lease in an ``async with`` block. If the lease is lost, ``lost`` gets the error."""
        return Holding(partial(self._hold, lost), self.lease / 3, lost)

    async def _hold(self, lost: Stop) -> None:
        while not lost.done():
            try:
                await self._renew()
            except StoreUnavailable:
                pass  # The next write shows whether the lease is still held; until then the turn continues.
            except MidturnError as error:
                fail(lost, error)
            await asyncio.wait({lost}, timeout=self.lease / 3)

    async def _renew(self) -> None:
        async with self._writing:
            if self.head is not None and self.owned:
                try:
                    await self._write(self.head.status, self.progress, (), release=False)
                except OutcomeUnknown:
                    self._doubtful = True
                    raise

    async def _write(
        self,
        status: Status,
        progress: Progress,
        rows: Sequence[Row],
        *,
        release: bool,
        removes: Sequence[Removal] = (),
        transaction: Transaction | None = None,
        sheltered: bool = False,
    ) -> None:
        if self._doubtful:
            found = await self._find()
            if found is not None and found.owner == self._owner:
                self._see(found)
            self._doubtful = False
        await self._check_mark()
        head, owned = self.head, self.owned
        if not owned and self.busy():  # a reader may have met a later head, of which nobody has waited for the holder
            raise Conflict.of(self.session)
        epoch = self._epoch()
        labels = self._labels if self._labels is not None else (head.labels if head is not None else NO_LABELS)
        write = Write(
            session=self.session,
            seq=head.seq if head is not None else 0,
            after=head.token if head is not None else None,
            epoch=epoch if owned else epoch + 1,
            status=status,
            labels=labels,
            owner=None if release else self._owner,
            lease=0.0 if release else self.lease,
            token=token_hex(6),
            data=encode_record(progress),
            rows=tuple(rows),
            removes=tuple(removes),
        )
        applied = self._apply(write, progress, self.store if transaction is None else transaction)
        try:
            await (applied if sheltered else settled(applied))  # settled() makes a task, which costs more than it seems
        except (Conflict, SessionDeleted) as error:
            conflict = error
        else:
            return
        found = await self._find()
        await self._check_mark(found)
        if not owned:
            raise conflict
        if _name_of(found) == _name_of(head):  # nobody has written, so a row of the write is in the way
            raise self.uncounted()
        raise LeaseLost(
            f"another worker took over session {self.session!r} and will finish the turn",
            session=self.session,
        )

    async def _apply(self, write: Write, progress: Progress, to: Store | Transaction) -> None:
        try:
            head = await to.write(write)
        except OutcomeUnknown as unknown:
            head = await self._find_out(write, unknown)
        self.head, self.progress, self._marked = head, progress, head.token
        self._seen[self.session] = head
        for row in write.rows:
            if row.kind in DATED:
                self._mark = row

    async def _find_out(self, write: Write, unknown: OutcomeUnknown) -> Head:
        """Return the head that an interrupted write made, if the write took effect."""
        try:
            found = await self._find()
            seq = found.seq if found is not None else 0
            written = found is not None and seq > write.seq + 1 and await self._has(write.rows)
        except StoreUnavailable:
            raise unknown from None
        if found is not None and found.token == write.token:
            return found
        if found is not None and written:  # others have written since
            return write.head(now=found.now, created=found.created)
        if seq == write.seq:
            raise StoreUnavailable(f"{unknown}; nothing was written, try again", session=self.session) from unknown
        raise Conflict.of(self.session)

    async def _has(self, rows: Sequence[Row]) -> bool:
        """Return whether the store has these rows. No other write can have added them: they contain the time."""
        for row in rows:
            if list(await self.store.rows(self.session, row.kind, start=row.n, stop=row.n + 1)) != [row]:
                return False
        return bool(rows)

    async def read(self, kind: Kind, cls: type[RowT], n: int) -> RowT | None:
        """Return one record, if it exists."""
        for row in await self.store.rows(self.session, kind, start=n, stop=n + 1):
            return decode_record(cls, row.data, self.name(kind, n))
        return None

    async def demand(self, kind: Kind, cls: type[RowT], n: int) -> RowT:
        """Return one record, which has to exist.

        Raises:
            StateInvalid: it is missing.
        """
        found = await self.read(kind, cls, n)
        if found is None:
            raise self.missing(kind, n)
        return found

    def missing(self, kind: Kind, n: int) -> StateInvalid:
        """Make the error for a record that the head counts and the store does not have."""
        error = StateInvalid("is missing; restore it from a backup", path=self.name(kind, n), session=self.session)
        return self._suspected(error)

    def uncounted(self) -> StateInvalid:
        """Make the error for a write that is rejected although nobody has written the session since."""
        error = StateInvalid(
            "the store has a row that the head does not count; restore the session from a backup",
            path=f"session {self.session!r}",
            session=self.session,
        )
        return self._suspected(error)

    def _suspected(self, error: StateInvalid) -> StateInvalid:
        """Return the error as it is, or as a :class:`Tampered` if only somebody without the keys can be the cause."""
        if type(error) is not StateInvalid or not getattr(self.store, "sealed", False):
            return error
        return Tampered(str(error), path=f"session {self.session!r}", session=self.session)

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        """Tell damage from change. Between two reads of this block, others can delete or write the session.

        Raises:
            SessionDeleted: something is missing because the session was deleted.
            Changed: something is missing, and the session was written since its head was read; read it again.
        """
        try:
            yield
        except (StateInvalid, NotFound) as error:
            found = await self.store.head(self.session)
            if found is not None and found.status == "deleted":
                raise SessionDeleted.of(self.session) from None
            if _name_of(found) != _name_of(self.head):
                raise Changed.of(self.session) from error
            if isinstance(error, StateInvalid) and (suspected := self._suspected(error)) is not error:
                raise suspected from None
            raise

    async def steady(self, read: Callable[[], Awaitable[T]]) -> T:
        """Return what ``read`` finds in the session as it was at one moment; read again if it changed meanwhile.

        Raises:
            SessionDeleted: the session was deleted meanwhile.
        """
        for left in reversed(range(TRIES)):
            try:
                async with self.reading():
                    return await read()
            except Changed as changed:
                if not left:
                    raise changed.reason from None
            await self.refresh()
        raise AssertionError("the last round ends the loop")

    async def key(self, key: str) -> tuple[int, KeyRow | None]:
        """Return the number for the next record of a key, and the latest record of that key if there is one."""
        n, latest = key_number(key), None
        while (found := await self.read(Kind.KEY, KeyRow, n)) is not None:
            if found.key == key:
                latest = found
            n += 1
        return n, latest

    def name(self, kind: Kind, n: int) -> str:
        """Return the name of a row for error messages."""
        return f"{self.session} {kind.name.lower()} {n}"

    async def _find(self) -> Head | None:
        """Read the head. Nothing else reads it, so that no head before the last known one is ever used.

        Raises:
            SessionDeleted: the session is deleted, or is about to be.
            HistoryLost: the head is gone, or is not the last known one or a later one.
        """
        known = self._seen.get(self.session)  # before reading: another object of this worker may write meanwhile
        known = self.head if known is None else known
        found = await self.store.head(self.session)
        reuse, self._reuse = self._reuse, False
        if reuse and found is not None and found.status == "deleted":
            self._see(found)
            known = found
            with suppress(Conflict):  # another worker has begun it anew
                await self.store.forget(self.session)
            found = await self.store.head(self.session)
        if found is not None and found.status == "deleted":
            self._see(found)
            raise SessionDeleted.of(self.session)
        if found is not None and found.data == BURYING:
            raise SessionDeleted.soon(self.session)
        if known is None or known.is_followed_by(found):
            return found
        at = " (deleted)" if known.status == "deleted" else f" (in turn {self.progress.turn})" if self.head else ""
        now = "the store no longer has the session"
        if found is not None:
            now = f"the store has write {found.seq}{' of another history' if found.seq >= known.seq else ''}"
        raise HistoryLost.of(self.session, f"this worker has seen write {known.seq}{at}, and now {now}")

    async def _check_mark(self, head: Head | None = None) -> None:
        """Check that the history up to a head, by default the last known one, has what this ledger has written.

        Without this, a history that was set back and then continued by others would look like a later one.

        Raises:
            HistoryLost: a row that this ledger wrote is gone.
        """
        head = head or self.head
        if head is None or self._mark is None or head.token == self._marked:
            return
        if not (
            _is_compacted(self._mark, head) or await self._has([self._mark]) or await self._was_compacted(self._mark)
        ):
            what = f"this worker has written {self._mark.kind.name.lower()} {self._mark.n}"
            raise HistoryLost.of(self.session, f"{what}, and others have continued without it")
        self._marked = head.token

    async def _was_compacted(self, row: Row) -> bool:
        """Return whether a compaction has removed a row since the head was read.

        Raises:
            SessionDeleted: the session was deleted since.
        """
        head = await self._find()
        return head is not None and _is_compacted(row, head)

    def _see(self, head: Head | None) -> None:
        before = self.lives, self.progress.holes, self.progress.swept
        if self.head is not None and (head is None or head.created != self.head.created):
            self.lives, self._mark = self.lives + 1, None
        self.head = head
        seen = self._seen.get(self.session)
        # Another object may have written meanwhile.
        if head is not None and (seen is None or (head.created, head.seq) >= (seen.created, seen.seq)):
            self._seen[self.session] = head
        if head is None or head.status == "deleted":
            self.progress = Progress()
        else:
            self.progress = progress_of(head)
        if before != (self.lives, self.progress.holes, self.progress.swept):
            self.forget_bodies()  # a compaction has removed some, and nobody may refer to these again


async def notice_deletion(store: Store, session: str, seen: Seen) -> None:
    """Let the sessions of this worker know that one is deleted, if it is: another may have its id from now on."""
    if session not in seen:
        return
    with suppress(StateInvalid, UnknownVersion):
        head = await store.head(session)
        if head is not None and head.status == "deleted":
            seen[session] = head


async def consistent(
    store: Store, session: str, read: Callable[[Ledger], Awaitable[T]], *, seen: Seen | None = None
) -> T:
    """Read the head of a session, then return what ``read`` finds, as :meth:`Ledger.steady` does.

    With ``seen``, the history must be the one that the worker has seen: something is about to be made of it.

    Raises:
        SessionDeleted: the session is deleted, or was deleted meanwhile.
        HistoryLost: the store has lost a part of the history in ``seen``.
    """
    ledger = Ledger(store, session, seen=seen)
    await ledger.refresh()
    return await ledger.steady(lambda: read(ledger))


def _is_compacted(row: Row, head: Head) -> bool:
    """Return whether a compaction has removed or replaced a row, according to the head."""
    progress = progress_of(head)
    return row.n < {Kind.FAILURE: progress.first_failure, Kind.DECISION: 0}.get(row.kind, progress.first)


def _name_of(head: Head | None) -> tuple[int, str] | None:
    return None if head is None else (head.seq, head.token)
