"""Ids that are not free again, or too early."""

import asyncio
from dataclasses import replace
from typing import ClassVar

from faulty_stores.kept import Kept, mutant
from midturn.errors import Conflict


@mutant("test_a_forgotten_session_was_never_written", "test_another_handle_sees_at_once_that_an_id_was_forgotten")
class NothingIsForgotten(Kept):
    async def forget(self, session):
        if session in self._heads and self._heads[session].status != "deleted":
            raise Conflict.of(session)
        return session in self._heads


@mutant("test_forgetting_again_or_an_unknown_session_finds_nothing")
class ForgettingAlwaysFindsSomething(Kept):
    async def forget(self, session):
        return await super().forget(session) or True


@mutant("test_only_a_deleted_session_is_forgotten")
class AnySessionIsForgotten(Kept):
    async def forget(self, session):
        self._rows.pop(session, None)
        return self._heads.pop(session, None) is not None


@mutant("test_only_a_deleted_session_is_forgotten")
class AnIdleSessionIsNotThere(Kept):
    async def forget(self, session):
        head = self._heads.get(session)
        return False if head and head.status != "deleted" else await super().forget(session)


@mutant("test_a_forgotten_id_begins_anew")
class TheRowsOfTheEarlierLifeComeBack(Kept):
    rows_before: ClassVar = {}  # another handle may have deleted the session

    async def delete(self, session, *, data=b""):
        rows = dict(self._rows.get(session, {}))
        found = await super().delete(session, data=data)
        self.rows_before = rows
        return found

    async def forget(self, session):
        found = await super().forget(session)
        if found:
            self._rows[session] = dict(self.rows_before)
        return found


@mutant("test_a_forgotten_id_begins_anew")
class TheNewLifeHasTheOldBeginning(Kept):
    def __init__(self, where):
        super().__init__(where)
        self.born = {}

    async def write(self, write):
        head = await super().write(write)
        head = self._heads[write.session] = replace(head, created=self.born.setdefault(write.session, head.created))
        return head


@mutant("test_a_late_write_of_an_earlier_life_is_refused")
class ALateWriteMakesTheSessionAnew(Kept):
    async def write(self, write):
        return await super().write(write if write.session in self._heads else replace(write, seq=0))


@mutant("test_only_the_named_session_is_forgotten")
class EverythingDeletedIsForgotten(Kept):
    async def forget(self, session):
        found = await super().forget(session)
        if found:
            for other in [other for other, head in self._heads.items() if head.status == "deleted"]:
                del self._heads[other]
        return found


@mutant("test_forgotten_stays_forgotten_after_opening_again")
class ForgottenUntilTheEnd(Kept):
    hidden = {}  # noqa: RUF012 - outlives the handle, as a file does

    def __init__(self, where):
        super().__init__(where)
        for session, head in self.hidden.pop(where, {}).items():
            self._heads.setdefault(session, head)

    async def forget(self, session):
        head = self._heads.get(session)
        found = await super().forget(session)
        if found:
            self.hidden.setdefault(self.where, {})[session] = head
        return found


@mutant("test_of_calls_that_forget_at_once_one_finds_something")
class EveryCallForgetsSomething(Kept):
    async def forget(self, session):
        there = session in self._heads
        await asyncio.sleep(0)
        return await super().forget(session) or there


@mutant("test_a_new_session_beside_forgetting_the_old_one_is_refused_or_stays")
class ANewSessionIsForgottenToo(Kept):
    async def forget(self, session):
        head = self._heads.get(session)
        if head is None or head.status != "deleted":
            return await super().forget(session)
        del self._heads[session]
        await asyncio.sleep(0)
        self._heads.pop(session, None)
        self._rows.pop(session, None)
        return True
