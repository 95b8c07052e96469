"""Writing the calls of a running turn. Each call is written as soon as it is complete; several may share a write."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from midturn.errors import InvalidArgument
from midturn.journal.order import Completion
from midturn.record.head import Kind, Row
from midturn.record.rows import encode_record
from midturn.stopping import fail, settled
from midturn.store import Transactional

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from midturn.journal.order import Order
    from midturn.lease.ledger import Ledger
    from midturn.record.packing import Archive
    from midturn.record.rows import CallRow
    from midturn.stopping import Stop
    from midturn.store import Transaction


MAX_ROWS, MAX_BYTES = 500, 8 * 1024 * 1024
"""Limits for one write: rows of calls, and bytes of new bodies if there are several rows. A framework may end ten
thousand calls at once. A write of all of them would stall the event loop, and some servers would reject it."""


class _Pending(NamedTuple):
    """A row that is not written yet."""

    row: CallRow
    written: asyncio.Future[Completion] | None
    """The caller that waits for the write, if there is one."""
    bodies: int
    """Number of bodies that have to be stored with the row or before it."""
    size: int
    """Bytes of these bodies."""
    paid: tuple[int, int] = (0, 0)
    """The tokens that the call took, if a model made it."""


class Appender:
    """Writes rows. An error ends the turn: ``halt`` gets the error, and the waiting callers are cancelled."""

    def __init__(self, ledger: Ledger, archive: Archive, order: Order, halt: Stop) -> None:
        self._ledger = ledger
        self._archive = archive
        self._order = order
        self._halt = halt
        self._pending: deque[_Pending] = deque()
        self._written = archive.size
        """Bytes of the bodies that the last batch needed."""
        self._prompts, self._completions = ledger.progress.paid
        self._writing = asyncio.Lock()
        self._flushing: asyncio.Task[None] | None = None
        self._waiters: set[asyncio.Future[Completion]] = set()
        self.closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """A future that is done when the turn has ended."""

    def check_open(self) -> None:
        """Check that the turn has not ended: a framework may not cancel all tasks that it started in the turn.

        Raises:
            CancelledError: the turn has ended.
        """
        if self.closing.done():
            raise asyncio.CancelledError

    async def append(self, row: CallRow, paid: tuple[int, int] = (0, 0)) -> Completion:
        """Write a row and return its completion; only a row of the stage "done" has one in the order."""
        written = self.waiter()
        self._pending.append(_Pending(row, written, self._archive.bodies, self._archive.size, paid))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
        return await self.answered(written)

    def append_later(self, row: CallRow) -> None:
        """Write a row together with the next one."""
        self._pending.append(_Pending(row, None, self._archive.bodies, self._archive.size))

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        """Open a transaction of the store for a tool; nothing else is written meanwhile.

        Raises:
            InvalidArgument: the store has no transactions.
        """
        if not isinstance(self._ledger.store, Transactional):
            raise InvalidArgument(
                "needs a store in SQLite or Postgres", path="transactional", session=self._ledger.session
            )
        async with self._writing, self._ledger.transaction(self._ledger.store) as transaction:
            yield transaction

    async def commit(self, transaction: Transaction, row: CallRow) -> Completion:
        """Write a row in a transaction, together with what the tool did in it, and return its completion."""
        await self._write([row], self._archive.bodies, transaction)
        return self._order.add()

    def halt(self, error: Exception) -> None:
        """End the turn with an error, or because it has to wait."""
        fail(self._halt, error)

    async def stop(self, error: Exception) -> NoReturn:
        """End the turn with an error, from inside. Do not raise the error: the framework would turn it into another."""
        self.halt(error)
        await self.wait()

    async def wait(self) -> NoReturn:
        """Wait until the turn has ended."""
        await self.answered(self.waiter())
        raise AssertionError

    def proceed(self, halt: Stop) -> None:
        """Continue after a rest; ``halt`` takes the place of the future that has ended the turn's last stretch."""
        self._halt = halt

    async def close(self) -> None:
        """Finish the current write, start no other, and cancel the waiting callers."""
        self.closing.set_result(None)
        if self._flushing is not None:
            await settled(self._flushing)
        for waiter in list(self._waiters):
            waiter.cancel()

    async def _flush(self) -> None:
        try:
            while self._pending:
                async with self._writing:
                    batch = self._batch()
                    for each in batch:
                        self._prompts += each.paid[0]
                        self._completions += each.paid[1]
                    await self._write([each.row for each in batch], batch[-1].bodies)
                for each in batch:
                    self._tell(each.row, each.written)
        except Exception as error:  # noqa: BLE001 - whatever it is, the turn ends with it
            self.halt(error)

    def _batch(self) -> list[_Pending]:
        """Take the rows for one write. At least one, and no more than the limits allow."""
        batch = [self._pending.popleft()]
        limit = max(batch[0].size, self._written + MAX_BYTES)
        while self._pending and len(batch) < MAX_ROWS and self._pending[0].size <= limit:
            batch.append(self._pending.popleft())
        self._written = batch[-1].size
        return batch

    async def _write(self, calls: Sequence[CallRow], bodies: int, transaction: Transaction | None = None) -> None:
        progress = self._ledger.progress
        rows = [Row(kind=Kind.CALL, n=progress.calls + i, data=encode_record(row)) for i, row in enumerate(calls)]
        with self._ledger.storing(self._archive, max(bodies, self._archive.stored)) as new:
            await self._ledger.write(
                status="running",
                progress=replace(
                    progress,
                    calls=progress.calls + len(rows),
                    bodies=self._archive.stored,
                    paid=(self._prompts, self._completions),
                ),
                rows=[*new, *rows],
                transaction=transaction,
                sheltered=transaction is None,  # :meth:`_flush` is a task of its own
            )

    def _tell(self, row: CallRow, written: asyncio.Future[Completion] | None) -> None:
        """Report to the caller that its call is recorded."""
        if written is None:
            return
        completion = self._order.add() if row.stage == "done" else Completion()
        if written.done():  # the caller has gone
            self._order.leave(completion)
        else:
            written.set_result(completion)

    def waiter(self) -> asyncio.Future[Completion]:
        """Return a future for the completion of a call."""
        self.check_open()
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        return waiter

    async def answered(self, waiter: asyncio.Future[Completion]) -> Completion:
        """Wait for a completion, until the turn has ended."""
        self._waiters.add(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # it came in the same moment
                self._order.leave(waiter.result())
            raise
        finally:
            self._waiters.discard(waiter)
