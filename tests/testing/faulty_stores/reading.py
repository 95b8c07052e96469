"""Rows that come back otherwise, or from elsewhere."""

import unicodedata
from dataclasses import replace

from faulty_stores.kept import Kept, mutant
from midturn.record.head import Kind


@mutant("test_rows_come_back_as_the_very_bytes")
class RowsAreTrimmed(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return [
            replace(row, data=row.data.strip()) for row in await super().rows(session, kind, start=start, stop=stop)
        ]


@mutant("test_large_numbers_are_exact")
class NumbersAreFloats(Kept):
    async def write(self, write):
        return await super().write(replace(write, rows=tuple(replace(row, n=int(float(row.n))) for row in write.rows)))


@mutant("test_a_row_and_a_head_of_five_megabytes")
class LargeRowsAreCut(Kept):
    async def write(self, write):
        rows = (replace(row, data=row.data[:1_000_000]) for row in write.rows)
        return await super().write(replace(write, rows=tuple(rows)))


@mutant("test_rows_are_ordered_by_number_whatever_order_they_were_written_in")
class RowsAreInTheOrderOfWriting(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        found = await super().rows(session, kind, start=start, stop=stop)
        return [row for row in self._rows.get(session, {}).values() if row in found]


@mutant("test_rows_are_ordered_by_number_whatever_order_they_were_written_in")
class RowsAreOrderedAsText(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return sorted(await super().rows(session, kind, start=start, stop=stop), key=lambda row: str(row.n))


@mutant("test_a_range_has_its_start_and_not_its_stop")
class TheRangeHasItsStop(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return await super().rows(session, kind, start=start, stop=None if stop is None else stop + 1)


@mutant("test_a_range_has_its_start_and_not_its_stop")
class TheRangeLacksItsStart(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return await super().rows(session, kind, start=start + 1 if start else 0, stop=stop)


@mutant("test_a_range_has_its_start_and_not_its_stop")
class AStopOfZeroMeansNone(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return await super().rows(session, kind, start=start, stop=stop or None)


@mutant("test_two_thousand_rows_in_one_write")
class AThousandRowsAreEnough(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return (await super().rows(session, kind, start=start, stop=stop))[:1_000]


@mutant("test_kinds_are_kept_apart")
class KindsAreMixed(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return [row for each in Kind for row in await Kept.rows(self, session, each)]


@mutant("test_later_writes_leave_earlier_rows_alone")
class ALaterWriteDropsEarlierRows(Kept):
    async def write(self, write):
        head = await super().write(write)
        rows = self._rows[write.session]
        for key in sorted(rows)[:-5]:
            del rows[key]
        return head


@mutant("test_an_id_that_was_never_written_finds_nothing_of_its_neighbours")
class RowsOfTheNeighboursToo(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        found = []
        for other in sorted(self._rows):
            if other.startswith(session):
                found += await super().rows(other, kind, start=start, stop=stop)
        return found


@mutant("test_an_unknown_session_is_not_deleted_and_not_made")
class AnUnknownSessionHasAHead(Kept):
    async def head(self, session):
        if session not in self._heads and self._heads:
            return replace(next(iter(self._heads.values())), session=session, seq=0)
        return await super().head(session)


class _Renamed(Kept):
    @staticmethod
    def rename(session):
        raise NotImplementedError

    async def head(self, session):
        head = await super().head(self.rename(session))
        return head and replace(head, session=session)

    async def write(self, write):
        head = await super().write(replace(write, session=self.rename(write.session)))
        return replace(head, session=write.session)

    async def rows(self, session, kind, *, start=0, stop=None):
        return await super().rows(self.rename(session), kind, start=start, stop=stop)

    async def delete(self, session, *, data=b""):
        return await super().delete(self.rename(session), data=data)

    async def forget(self, session):
        return await super().forget(self.rename(session))


@mutant("test_an_id_that_was_never_written_finds_nothing_of_its_neighbours")
class IdsAreCaseBlind(_Renamed):
    rename = staticmethod(str.casefold)


@mutant("test_an_id_that_was_never_written_finds_nothing_of_its_neighbours")
class IdsAreNormalised(_Renamed):
    @staticmethod
    def rename(session):
        return unicodedata.normalize("NFC", session)


@mutant("test_an_id_that_was_never_written_finds_nothing_of_its_neighbours")
class IdsAreTrimmed(_Renamed):
    @staticmethod
    def rename(session):
        return session.rstrip(" .") or session


@mutant("test_an_id_that_was_never_written_finds_nothing_of_its_neighbours")
class IdsAreCutShort(_Renamed):
    @staticmethod
    def rename(session):
        return session[:150]


@mutant("test_every_hostile_id_is_a_session_of_its_own")
class IdsHaveTheirSlashesReplaced(_Renamed):
    @staticmethod
    def rename(session):
        return session.replace("/", "_")


@mutant("test_every_hostile_id_is_a_session_of_its_own")
class IdsAreFiles(Kept):
    """Ids become file names as they are."""

    async def write(self, write):
        head = await super().write(write)
        if ".." in write.session and len(write.session) < 12:
            (self.where.parent / write.session).parent.joinpath("stray").touch()
        return head
