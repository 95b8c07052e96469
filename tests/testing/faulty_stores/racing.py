"""Stores that fail when much happens at once, or at the end."""

import asyncio
from dataclasses import replace

from faulty_stores.kept import Kept, mutant
from midturn.errors import Conflict


@mutant("test_a_race_from_one_seq_has_one_winner", "test_a_race_between_handles_has_one_winner")
class TheSeqIsCheckedTooEarly(Kept):
    """The check and the write are two steps."""

    async def write(self, write):
        head = self._heads.get(write.session)
        if (head.seq if head else 0) == write.seq:
            await asyncio.sleep(0)
            head = self._heads.get(write.session)
            if head and head.status != "deleted":
                write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant(
    "test_a_reader_sees_the_old_or_the_new_and_never_half",
    "test_a_reader_with_another_handle_never_sees_half",
    "test_a_cancelled_write_is_settled_by_another_handle",
)
class TheHeadComesBeforeItsRows(Kept):
    async def write(self, write):
        head = await super().write(write)
        for row in write.rows:
            del self._rows[write.session][row.kind, row.n]
        for row in write.rows:
            await asyncio.sleep(0)
            self._rows[write.session][row.kind, row.n] = row
        return head


@mutant("test_a_reader_sees_the_old_or_the_new_and_never_half")
class TheRowsComeBeforeTheHead(Kept):
    """Rows that are written one by one: half of a write is seen."""

    async def write(self, write):
        old = self._heads.get(write.session)
        if not old or old.status == "deleted" or old.seq != write.seq:
            return await super().write(write)
        rows = self._rows[write.session]
        for row in write.rows:
            if (row.kind, row.n) in rows:
                raise Conflict.of(write.session)
            rows[row.kind, row.n] = row
            await asyncio.sleep(0)
        return await super().write(replace(write, rows=()))


@mutant("test_writes_of_different_sessions_do_not_disturb_each_other")
class OnlyOneSessionAtATime(Kept):
    def __init__(self, where):
        super().__init__(where)
        self.busy = False

    async def write(self, write):
        if self.busy:
            raise Conflict.of(write.session)
        self.busy = True
        await asyncio.sleep(0)
        self.busy = False
        return await super().write(write)


@mutant("test_of_deletions_at_once_one_finds_something")
class EveryDeletionFindsSomething(Kept):
    async def delete(self, session, *, data=b""):
        there = session in self._heads and self._heads[session].status != "deleted"
        await asyncio.sleep(0)
        return await super().delete(session, data=data) or there


@mutant("test_a_cancelled_write_happened_whole_or_not_at_all")
class ACancelledCallKeepsTheLock(Kept):
    def __init__(self, where):
        super().__init__(where)
        self.queue = asyncio.Lock()

    async def write(self, write):
        await asyncio.wait_for(self.queue.acquire(), 0.5)
        await asyncio.sleep(0)
        head = await super().write(write)
        self.queue.release()
        return head


@mutant("test_cancelling_some_of_many_waiting_calls_leaves_the_others")
class CancellingOneCancelsTheNext(Kept):
    def __init__(self, where):
        super().__init__(where)
        self.broken = False

    async def write(self, write):
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.broken = True
            raise
        if self.broken:
            self.broken = False
            raise asyncio.CancelledError
        return await super().write(write)


@mutant("test_a_cancelled_call_leaves_the_store_usable")
class ACancelledReadBreaksTheStore(Kept):
    def __init__(self, where):
        super().__init__(where)
        self.broken = False

    async def head(self, session):
        if self.broken:
            raise Conflict.of(session)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.broken = True
            raise
        return await super().head(session)


@mutant("test_a_cancelled_write_happened_whole_or_not_at_all")
class ACancelledWriteStaysHalf(Kept):
    async def write(self, write):
        old = self._heads.get(write.session)
        if not old or old.status == "deleted" or old.seq != write.seq:
            return await super().write(write)
        rows = self._rows[write.session]
        for row in write.rows:
            await asyncio.sleep(0)
            rows[row.kind, row.n] = row
        return await super().write(replace(write, rows=()))


@mutant("test_closing_twice_is_fine")
class ClosingTwiceFails(Kept):
    async def close(self):
        self._check_open()
        await super().close()


@mutant("test_a_closed_store_says_so")
class AClosedStoreLooksEmpty(Kept):
    async def close(self):
        await super().close()
        self._closed = False


@mutant("test_closing_ends_the_calls_under_way")
class ClosingLeavesCallsHanging(Kept):
    async def head(self, session):
        await asyncio.sleep(0)
        if self._closed:
            raise RuntimeError("no current connection")
        return await super().head(session)
