"""Removals that take too much, too little, or too early."""

from dataclasses import replace

from faulty_stores.kept import Kept, mutant
from midturn.record.head import Kind, Removal

EXACTLY = "test_a_removal_takes_exactly_the_rows_of_its_range"


class _Removed(Kept):
    """Removes by a rule of its own."""

    def removed(self, removal):
        return removal

    async def write(self, write):
        removes = (Removal(*self.removed(removal)) for removal in write.removes)
        return await super().write(replace(write, removes=tuple(removes)))


@mutant(EXACTLY, "test_removing_calls_gives_the_space_back")
class NothingIsRemoved(Kept):
    async def write(self, write):
        head = await super().write(replace(write, removes=()))
        with self.where.open("ab") as file:
            file.writelines(row.data for row in write.rows)
        return head


@mutant(EXACTLY, "test_another_handle_sees_a_removal_at_once")
class TheLastRowOfTheRangeStays(_Removed):
    def removed(self, removal):
        return removal.kind, removal.start, removal.stop - 1


@mutant(EXACTLY)
class TheRowAfterTheRangeGoes(_Removed):
    def removed(self, removal):
        return removal.kind, removal.start, removal.stop + 1


@mutant(EXACTLY)
class TheRowBeforeTheRangeGoes(_Removed):
    def removed(self, removal):
        return removal.kind, max(0, removal.start - 1), removal.stop


@mutant(EXACTLY)
class TheRangeBeginsAt0(_Removed):
    def removed(self, removal):
        return removal.kind, 0, removal.stop


@mutant(EXACTLY)
class TheRangeIsOfFloats(_Removed):
    def removed(self, removal):
        return removal.kind, int(float(removal.start)), int(float(removal.stop))


@mutant(EXACTLY, "test_a_removal_leaves_other_kinds_and_other_sessions")
class OnlyCallsAreRemoved(Kept):
    async def write(self, write):
        return await super().write(
            replace(write, removes=tuple(each for each in write.removes if each.kind is Kind.CALL))
        )


@mutant("test_a_removal_leaves_other_kinds_and_other_sessions", "test_another_handle_sees_a_removal_at_once")
class EveryKindIsRemoved(Kept):
    async def write(self, write):
        kinds = set(Kind) - {Kind.DECISION}  # no write can remove those
        removes = (Removal(kind, start, stop) for _, start, stop in write.removes for kind in kinds)
        return await super().write(replace(write, removes=tuple(removes)))


@mutant("test_a_removal_leaves_other_kinds_and_other_sessions")
class OtherSessionsLoseTheRows(Kept):
    async def write(self, write):
        head = await super().write(write)
        for session, rows in self._rows.items():
            if session != write.session:
                self._rows[session] = {at: rows[at] for at in write.left(rows)}
        return head


@mutant("test_a_write_has_several_removals")
class OnlyTheFirstRangeIsRemoved(Kept):
    async def write(self, write):
        return await super().write(replace(write, removes=write.removes[:1]))


@mutant("test_a_refused_write_removes_nothing")
class RemovedBeforeTheWriteIsChecked(Kept):
    async def write(self, write):
        rows = self._rows.get(write.session, {})
        self._rows[write.session] = {at: rows[at] for at in write.left(rows)}
        return await super().write(write)


@mutant("test_rows_are_added_and_removed_again_after_a_removal")
class TheRemovalIsRememberedForGood(Kept):
    def __init__(self, where):
        super().__init__(where)
        self.removed = {}

    async def write(self, write):
        removed = self.removed[write.session] = (*self.removed.get(write.session, ()), *write.removes)
        return await super().write(replace(write, removes=removed))


@mutant("test_a_row_is_removed_before_the_rows_of_the_write_are_added")
class TheRowsOfTheWriteAreRemovedToo(Kept):
    async def write(self, write):
        head = await super().write(write)
        rows = self._rows[write.session]
        self._rows[write.session] = {at: rows[at] for at in write.left(rows)}
        return head


@mutant("test_a_row_is_removed_before_the_rows_of_the_write_are_added")
class ARemovedRowIsInTheWay(Kept):
    async def write(self, write):
        rows = self._rows.get(write.session, {})
        taken = {(row.kind, row.n) for row in write.rows} & rows.keys()
        return await super().write(replace(write, removes=() if taken else write.removes))


@mutant("test_what_was_removed_is_gone_after_opening_again", "test_another_handle_sees_a_removal_at_once")
class OnlyTheHandleRemoves(Kept):
    """A store in which a handle still finds what another one has removed."""

    def __init__(self, where):
        super().__init__(where)
        self.removed = {}

    async def write(self, write):
        head = await super().write(replace(write, removes=()))
        self.removed.setdefault(write.session, []).extend(write.removes)
        return head

    async def rows(self, session, kind, *, start=0, stop=None):
        found = await super().rows(session, kind, start=start, stop=stop)
        return [row for row in found if not any(each.has(kind, row.n) for each in self.removed.get(session, ()))]


@mutant("test_removing_calls_gives_the_space_back")
class RemovedRowsStillTakeSpace(Kept):
    async def write(self, write):
        head = await super().write(write)
        with self.where.open("ab") as file:
            file.writelines(row.data for row in write.rows)
        return head
