"""Handles that do not share, and places that do not last."""

import time
from dataclasses import replace

from faulty_stores.kept import PLACES, Kept, mutant
from midturn.errors import Conflict
from midturn.stores.memory import MemoryStore


@mutant("test_another_handle_sees_a_write_at_once")
class ACachePerHandle(Kept):
    def __init__(self, where):
        super().__init__(where)
        self.cache = {}

    async def write(self, write):
        head = self.cache[write.session] = await super().write(write)
        return head

    async def head(self, session):
        return self.cache.get(session) or await super().head(session)


@mutant("test_another_handles_write_makes_a_seq_stale")
class AHandleTrustsItsCachedSeq(ACachePerHandle):
    async def head(self, session):
        return await Kept.head(self, session)

    async def write(self, write):
        cached = self.cache.get(write.session)
        head = self._heads.get(write.session)
        if cached and head.status != "deleted" and cached.seq == write.seq:
            write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant("test_closing_one_handle_leaves_the_other")
class ClosingClosesThePlace(Kept):
    async def close(self):
        self._heads.clear()
        self._rows.clear()
        await super().close()


@mutant("test_many_handles_open_a_new_store_at_once")
class AnEmptyPlaceIsMadeAnew(Kept):
    def __init__(self, where):
        super().__init__(where)
        if not self._heads:
            self._heads, self._rows = PLACES[where] = ({}, {})


@mutant("test_everything_is_there_when_opened_again")
class OpeningMakesThePlaceAnew(Kept):
    def __init__(self, where):
        super().__init__(where)
        for session in list(self._heads)[1:]:
            del self._heads[session]


@mutant("test_another_handle_sees_a_write_at_once")
class RowsAreNotShared(Kept):
    def __init__(self, where):
        super().__init__(where)
        self._rows = {}


@mutant("test_handles_in_several_threads_have_one_winner")
class ThreadsDisturbEachOther(Kept):
    async def write(self, write):
        old = self._heads.get(write.session)
        if (old.seq if old else 0) != write.seq:
            raise Conflict.of(write.session)
        time.sleep(0.002)  # noqa: ASYNC251 - another thread comes in between
        new = self._heads.get(write.session)
        for row in write.rows:
            self._rows.get(write.session, {}).pop((row.kind, row.n), None)
        return await super().write(replace(write, seq=new.seq if new else 0))


@mutant("test_everything_is_there_when_opened_again")
class AVolatileStoreSaysStrict(MemoryStore):
    profile = "strict"

    def __init__(self, where):
        super().__init__()


@mutant("test_everything_is_there_when_opened_again")
class LabelsAreNotKept(Kept):
    def __init__(self, where):
        super().__init__(where)
        for session, head in self._heads.items():
            self._heads[session] = replace(head, labels={})


@mutant("test_the_clock_continues_after_opening_again")
class TheClockStartsAnew(Kept):
    def __init__(self, where):
        super().__init__(where)
        for session, head in self._heads.items():
            self._heads[session] = replace(head, updated=time.time(), expires=head.expires and time.time() + 1)


@mutant("test_deleted_stays_deleted_after_opening_again")
class DeletionsAreNotKept(Kept):
    def __init__(self, where):
        super().__init__(where)
        for session in [head.session for head in self._heads.values() if head.status == "deleted"]:
            del self._heads[session]


@mutant("test_closing_loses_nothing_that_was_acknowledged")
class TheNewestWriteIsNotKept(Kept):
    async def close(self):
        if not self._closed:
            self._heads.popitem()
        await super().close()


@mutant("test_a_deletion_gives_the_space_back")
class SpaceIsNotGivenBack(Kept):
    async def write(self, write):
        head = await super().write(write)
        with self.where.open("ab") as file:
            file.writelines(row.data for row in write.rows)
        return head
