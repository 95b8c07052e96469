"""Prunes that remove too much, too little, or too early."""

from dataclasses import replace

from faulty_stores.kept import Kept, mutant
from midturn.record.head import Kind


class _Pruned(Kept):
    """Prunes by a rule of its own."""

    async def write(self, write):
        head = await super().write(replace(write, prune=0))
        if write.prune:
            self.prune(write)
        return head

    def prune(self, write):
        for session, rows in self._rows.items():
            for key in [key for key in rows if self.goes(write, session, *key)]:
                del rows[key]

    def goes(self, write, session, kind, n):
        return session == write.session and kind is Kind.CALL and n < write.prune


@mutant("test_a_prune_removes_the_calls_with_a_lower_number", "test_pruning_gives_the_space_back")
class NothingIsPruned(_Pruned):
    def goes(self, write, session, kind, n):
        return False

    async def write(self, write):
        head = await super().write(write)
        with self.where.open("ab") as file:
            file.writelines(row.data for row in write.rows)
        return head


@mutant("test_a_prune_removes_the_calls_with_a_lower_number", "test_another_handle_sees_a_prune_at_once")
class TheLastPrunedCallStays(_Pruned):
    def goes(self, write, session, kind, n):
        return super().goes(write, session, kind, n + 1)


@mutant("test_a_prune_removes_the_calls_with_a_lower_number")
class TheFirstCallThatStaysGoes(_Pruned):
    def goes(self, write, session, kind, n):
        return super().goes(write, session, kind, n - 1)


@mutant("test_a_prune_removes_the_calls_with_a_lower_number")
class ThePruneIsAFloat(_Pruned):
    def goes(self, write, session, kind, n):
        return super().goes(write, session, kind, int(float(n)))


@mutant("test_a_prune_leaves_other_kinds_and_other_sessions", "test_another_handle_sees_a_prune_at_once")
class EveryKindIsPruned(_Pruned):
    def goes(self, write, session, kind, n):
        return super().goes(write, session, Kind.CALL, n)


@mutant("test_a_prune_leaves_other_kinds_and_other_sessions")
class OtherSessionsArePruned(_Pruned):
    def goes(self, write, session, kind, n):
        return super().goes(write, write.session, kind, n)


@mutant("test_a_refused_write_prunes_nothing")
class PrunedBeforeTheWriteIsChecked(_Pruned):
    async def write(self, write):
        self.prune(write)
        return await super().write(write)


@mutant("test_calls_are_added_and_pruned_again_after_a_prune")
class ThePruneIsRememberedForGood(_Pruned):
    def __init__(self, where):
        super().__init__(where)
        self.pruned = {}

    async def write(self, write):
        self.pruned[write.session] = max(write.prune, self.pruned.get(write.session, 0))
        return await super().write(replace(write, prune=self.pruned[write.session]))


@mutant("test_calls_are_added_and_pruned_again_after_a_prune")
class TheRowsOfTheWriteArePrunedFirst(_Pruned):
    async def write(self, write):
        head = await super().write(write)
        self._rows[write.session].update({(row.kind, row.n): row for row in write.rows})
        return head


@mutant("test_what_was_pruned_is_gone_after_opening_again", "test_another_handle_sees_a_prune_at_once")
class OnlyTheHandlePrunes(Kept):
    """A store in which a handle still finds what another one has pruned."""

    def __init__(self, where):
        super().__init__(where)
        self.pruned = {}

    async def write(self, write):
        head = await super().write(replace(write, prune=0))
        self.pruned[write.session] = max(write.prune, self.pruned.get(write.session, 0))
        return head

    async def rows(self, session, kind, *, start=0, stop=None):
        first = self.pruned.get(session, 0) if kind is Kind.CALL else 0
        return await super().rows(session, kind, start=max(start, first), stop=stop)


@mutant("test_pruning_gives_the_space_back")
class PrunedCallsStillTakeSpace(Kept):
    async def write(self, write):
        head = await super().write(write)
        with self.where.open("ab") as file:
            file.writelines(row.data for row in write.rows)
        return head
