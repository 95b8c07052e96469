"""Writes that are taken, refused or remembered wrongly."""

import time
from dataclasses import replace

from faulty_stores.kept import Kept, mutant
from midturn.errors import Conflict


@mutant("test_a_new_session_has_no_head_to_come_after")
class ANewSessionComesAfterSomething(Kept):
    async def write(self, write):
        if write.after and write.session not in self._heads:
            raise Conflict.of(write.session)
        return await super().write(write)


@mutant("test_a_stale_seq_is_a_conflict_and_changes_nothing")
class NoSeqCheck(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status != "deleted":
            write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant("test_a_future_seq_is_a_conflict_and_changes_nothing")
class OnlyOlderSeqsAreRefused(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status != "deleted" and write.seq > head.seq:
            write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant("test_seq_0_on_an_existing_session_is_a_conflict")
class SeqZeroOverwrites(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status != "deleted" and write.seq == 0:
            write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant("test_a_seq_on_an_unknown_session_is_a_conflict")
class AnySeqMakesASession(Kept):
    async def write(self, write):
        if write.session not in self._heads:
            write = replace(write, seq=0)
        return await super().write(write)


@mutant("test_a_higher_epoch_does_not_help_a_stale_seq")
class AHigherEpochWins(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status != "deleted" and write.epoch > head.epoch:
            write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant("test_a_write_after_another_head_is_a_conflict")
class OnlyTheSeqCounts(Kept):
    async def write(self, write):
        return await super().write(replace(write, after=None))


@mutant("test_the_same_write_twice_is_a_conflict")
class TheSameTokenIsTheSameWrite(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        return head if head and head.token == write.token else await super().write(write)


@mutant("test_the_seq_rises_by_one_with_each_write")
class TheSeqStands(Kept):
    async def write(self, write):
        head = await super().write(write)
        if head.seq > 10:
            head = self._heads[write.session] = replace(head, seq=10)
        return head


@mutant("test_a_new_session_is_written_at_seq_0_and_becomes_seq_1")
class ANewSessionStartsAtTwo(Kept):
    async def write(self, write):
        head = await super().write(write)
        if head.seq == 1:
            head = self._heads[write.session] = replace(head, seq=2)
        return head


@mutant("test_a_row_that_is_there_already_is_a_conflict_and_nothing_is_kept")
class RowsStayAfterACollision(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status != "deleted" and head.seq == write.seq:
            rows = self._rows[write.session]
            for row in write.rows:
                if (row.kind, row.n) in rows:
                    raise Conflict.of(write.session)
                rows[row.kind, row.n] = row
            return await super().write(replace(write, rows=()))
        return await super().write(write)


@mutant("test_a_row_that_is_there_already_is_a_conflict_and_nothing_is_kept")
class TheHeadStaysAfterACollision(Kept):
    async def write(self, write):
        try:
            return await super().write(write)
        except Conflict:
            head = self._heads.get(write.session)
            if head and head.seq == write.seq:
                await super().write(replace(write, rows=()))
            raise


@mutant("test_a_row_that_is_there_already_is_a_conflict_and_nothing_is_kept")
class CollidingRowsAreReplaced(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.seq == write.seq:
            for row in write.rows:
                self._rows[write.session].pop((row.kind, row.n), None)
        return await super().write(write)


@mutant("test_a_row_that_is_there_already_is_a_conflict_and_nothing_is_kept")
class CollidingRowsAreIgnored(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.seq == write.seq:
            there = self._rows[write.session]
            write = replace(write, rows=tuple(row for row in write.rows if (row.kind, row.n) not in there))
        return await super().write(write)


@mutant(
    "test_a_row_that_is_there_already_is_a_conflict_and_nothing_is_kept", "test_a_session_continues_after_opening_again"
)
class TheSameRowAgainIsFine(Kept):
    async def write(self, write):
        there = self._rows.get(write.session, {})
        rows = tuple(row for row in write.rows if there.get((row.kind, row.n)) != row)
        return await super().write(replace(write, rows=rows))


@mutant("test_a_row_twice_in_one_write_is_a_conflict_and_nothing_is_kept")
class DuplicatesInOneWriteAreTaken(Kept):
    async def write(self, write):
        rows = {(row.kind, row.n): row for row in write.rows}
        return await super().write(replace(write, rows=tuple(rows.values())))


@mutant("test_the_same_number_in_another_kind_or_session_is_no_conflict")
class KindsShareTheirNumbers(Kept):
    async def write(self, write):
        if len({row.n for row in write.rows}) < len(write.rows):
            raise Conflict.of(write.session)
        return await super().write(write)


@mutant("test_a_stale_seq_is_a_conflict_and_changes_nothing")
class ErrorsDoNotNameTheSession(Kept):
    async def write(self, write):
        try:
            return await super().write(write)
        except Conflict:
            raise Conflict("something changed") from None


@mutant("test_every_write_replaces_the_whole_head")
class LabelsAreMerged(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        return await super().write(replace(write, labels={**(head.labels if head else {}), **write.labels}))


@mutant("test_what_was_written_does_not_follow_the_writers_dict")
class LabelsFollowTheWritersDict(Kept):
    async def write(self, write):
        head = await super().write(write)
        self._heads[write.session] = replace(head, labels=write.labels)
        return head


@mutant("test_a_head_comes_back_exactly")
class TheTokenIsLost(Kept):
    async def head(self, session):
        head = await super().head(session)
        return head and replace(head, token="")


@mutant("test_a_lease_runs_from_the_write_and_only_with_an_owner")
class TheLeaseIsKeptWithoutAnOwner(Kept):
    async def write(self, write):
        head = replace(await super().write(write), expires=time.time() + write.lease)
        self._heads[write.session] = head
        return head


@mutant("test_a_head_comes_back_exactly", "test_a_listed_head_is_the_head", "test_a_lease_runs_out_on_the_stores_clock")
class TheLeaseIsForgotten(Kept):
    async def head(self, session):
        head = await super().head(session)
        return head and replace(head, expires=0.0)


@mutant("test_every_write_replaces_the_whole_head")
class CreatedIsRenewed(Kept):
    async def write(self, write):
        head = await super().write(write)
        head = replace(head, created=head.updated)
        self._heads[write.session] = head
        return head


@mutant("test_the_clock_continues_after_opening_again")
class TheClockStands(Kept):
    async def head(self, session):
        head = await super().head(session)
        return head and replace(head, now=head.updated)


@mutant("test_the_clock_is_sane_and_never_goes_back")
class TheClockCountsFromTheStart(Kept):
    async def head(self, session):
        head = await super().head(session)
        return head and replace(head, now=time.monotonic())


@mutant("test_the_head_keeps_any_bytes")
class DataEndsAtANul(Kept):
    async def write(self, write):
        return await super().write(replace(write, data=write.data.split(b"\0")[0]))


@mutant("test_the_profile_agrees_with_what_is_being_proved")
class AStoreThatKeepsSaysVolatile(Kept):
    profile = "volatile"
