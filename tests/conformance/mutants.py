"""Stores with one fault each, and the tests of the suite that must find it.

Not collected by its name: test_suite_catches.py runs it.
"""

import asyncio
import fnmatch
import random
import re
import threading
import time
import unicodedata
from contextlib import asynccontextmanager
from dataclasses import replace

from leftoff.errors import Conflict, SessionDeleted
from leftoff.records import Kind
from leftoff.stores.memory import MemoryStore
from leftoff.testing import StoreConformance

MUTANTS = {}
PLACES = {}


def mutant(*caught_by):
    def register(kind):
        MUTANTS[kind.__name__] = (kind, caught_by)
        return kind

    return register


class Kept(MemoryStore):
    """A memory store that all handles on one place share and that is there again: no fault."""

    profile = "strict"
    lock = threading.Lock()

    def __init__(self, where):
        super().__init__()
        self.where = where
        self._heads, self._rows = PLACES.setdefault(where, ({}, {}))

    async def write(self, write):
        with self.lock:  # its handles may be in several threads
            return await super().write(write)

    async def close(self):
        self._closed = True


@mutant()
class NoSeqCheck(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status != "deleted":
            write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant()
class OnlyOlderSeqsAreRefused(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status != "deleted" and write.seq > head.seq:
            write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant()
class SeqZeroOverwrites(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status != "deleted" and write.seq == 0:
            write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant()
class AnySeqMakesASession(Kept):
    async def write(self, write):
        if write.session not in self._heads:
            write = replace(write, seq=0)
        return await super().write(write)


@mutant()
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


@mutant()
class TheHeadStaysAfterACollision(Kept):
    async def write(self, write):
        try:
            return await super().write(write)
        except Conflict:
            head = self._heads.get(write.session)
            if head and head.seq == write.seq:
                await super().write(replace(write, rows=()))
            raise


@mutant()
class CollidingRowsAreReplaced(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.seq == write.seq:
            for row in write.rows:
                self._rows[write.session].pop((row.kind, row.n), None)
        return await super().write(write)


@mutant()
class CollidingRowsAreIgnored(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.seq == write.seq:
            there = self._rows[write.session]
            write = replace(write, rows=tuple(row for row in write.rows if (row.kind, row.n) not in there))
        return await super().write(write)


@mutant()
class TheSameRowAgainIsFine(Kept):
    async def write(self, write):
        there = self._rows.get(write.session, {})
        rows = tuple(row for row in write.rows if there.get((row.kind, row.n)) != row)
        return await super().write(replace(write, rows=rows))


@mutant()
class DuplicatesInOneWriteAreTaken(Kept):
    async def write(self, write):
        rows = {(row.kind, row.n): row for row in write.rows}
        return await super().write(replace(write, rows=tuple(rows.values())))


@mutant()
class LabelsAreMerged(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        return await super().write(replace(write, labels={**(head.labels if head else {}), **write.labels}))


@mutant()
class LabelsFollowTheWritersDict(Kept):
    async def write(self, write):
        head = await super().write(write)
        self._heads[write.session] = replace(head, labels=write.labels)
        return head


@mutant()
class TheLeaseIsKeptWithoutAnOwner(Kept):
    async def write(self, write):
        head = replace(await super().write(write), expires=time.time() + write.lease)
        self._heads[write.session] = head
        return head


@mutant()
class TheLeaseIsForgotten(Kept):
    async def head(self, session):
        head = await super().head(session)
        return head and replace(head, expires=0.0)


@mutant()
class CreatedIsRenewed(Kept):
    async def write(self, write):
        head = await super().write(write)
        head = replace(head, created=head.updated)
        self._heads[write.session] = head
        return head


@mutant()
class TheClockStands(Kept):
    async def head(self, session):
        head = await super().head(session)
        return head and replace(head, now=head.updated)


@mutant()
class TheClockCountsFromTheStart(Kept):
    async def head(self, session):
        head = await super().head(session)
        return head and replace(head, now=time.monotonic())


@mutant()
class TheTokenIsLost(Kept):
    async def head(self, session):
        head = await super().head(session)
        return head and replace(head, token="")


@mutant()
class DataIsParsedAndWrittenAnew(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return [
            replace(row, data=row.data.strip()) for row in await super().rows(session, kind, start=start, stop=stop)
        ]


@mutant()
class DataEndsAtANul(Kept):
    async def write(self, write):
        return await super().write(replace(write, data=write.data.split(b"\0")[0]))


@mutant()
class NumbersAreFloats(Kept):
    async def write(self, write):
        return await super().write(replace(write, rows=tuple(replace(row, n=int(float(row.n))) for row in write.rows)))


@mutant()
class RowsAreInTheOrderOfWriting(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        found = await super().rows(session, kind, start=start, stop=stop)
        return [row for row in self._rows.get(session, {}).values() if row in found]


@mutant()
class RowsAreOrderedAsText(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return sorted(await super().rows(session, kind, start=start, stop=stop), key=lambda row: str(row.n))


@mutant()
class TheRangeHasItsStop(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return await super().rows(session, kind, start=start, stop=None if stop is None else stop + 1)


@mutant()
class TheRangeLacksItsStart(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return await super().rows(session, kind, start=start + 1 if start else 0, stop=stop)


@mutant()
class AStopOfZeroMeansNone(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return await super().rows(session, kind, start=start, stop=stop or None)


@mutant()
class AThousandRowsAreEnough(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return (await super().rows(session, kind, start=start, stop=stop))[:1_000]


@mutant()
class KindsAreMixed(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        return [row for each in Kind for row in await Kept.rows(self, session, each)]


@mutant()
class RowsOfTheNeighboursToo(Kept):
    async def rows(self, session, kind, *, start=0, stop=None):
        found = []
        for other in sorted(self._rows):
            if other.startswith(session):
                found += await super().rows(other, kind, start=start, stop=stop)
        return found


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

    async def delete(self, session):
        return await super().delete(self.rename(session))


@mutant()
class IdsAreCaseBlind(_Renamed):
    rename = staticmethod(str.casefold)


@mutant()
class IdsAreNormalised(_Renamed):
    @staticmethod
    def rename(session):
        return unicodedata.normalize("NFC", session)


@mutant()
class IdsAreTrimmed(_Renamed):
    @staticmethod
    def rename(session):
        return session.rstrip(" .") or session


@mutant()
class IdsAreCutShort(_Renamed):
    @staticmethod
    def rename(session):
        return session[:150]


@mutant()
class IdsHaveTheirSlashesReplaced(_Renamed):
    @staticmethod
    def rename(session):
        return session.replace("/", "_")


@mutant()
class IdsAreFiles(Kept):
    """Ids become file names as they are."""

    async def write(self, write):
        head = await super().write(write)
        if ".." in write.session and len(write.session) < 12:
            (self.where.parent / write.session).parent.joinpath("stray").touch()
        return head


@mutant()
class DeleteKeepsTheRows(Kept):
    async def delete(self, session):
        rows = self._rows.get(session, {})
        found = await super().delete(session)
        self._rows[session] = rows
        return found


@mutant()
class DeleteKeepsTheLabels(Kept):
    async def delete(self, session):
        old = self._heads.get(session)
        found = await super().delete(session)
        if found:
            self._heads[session] = replace(self._heads[session], labels=old.labels)
        return found


@mutant()
class DeleteForgetsTheId(Kept):
    async def delete(self, session):
        found = await super().delete(session)
        self._heads.pop(session, None)
        return found


@mutant()
class DeletingTwiceCountsTwice(Kept):
    async def delete(self, session):
        return await super().delete(session) or session in self._heads


@mutant()
class DeletingAnUnknownSessionMakesIt(Kept):
    async def delete(self, session):
        if session not in self._heads:
            sample = next(iter(self._heads.values()), None)
            if sample:
                self._heads[session] = replace(sample, session=session).deleted(now=time.time())
        return await super().delete(session)


@mutant()
class AHeldSessionIsNotDeleted(Kept):
    async def delete(self, session):
        head = self._heads.get(session)
        return False if head and head.expires > time.time() else await super().delete(session)


@mutant()
class DeletePrefixes(Kept):
    async def delete(self, session):
        found = False
        for other in list(self._heads):
            found |= fnmatch.fnmatchcase(other, session) and await super().delete(other)
        return found or await super().delete(session)


@mutant()
class AWriteAfterDeleteIsAccepted(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status == "deleted" and write.seq == head.seq:
            self._heads[write.session] = replace(head, status="idle")
        return await super().write(write)


@mutant()
class ADeletedIdIsNewAgain(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status == "deleted" and write.seq == 0:
            del self._heads[write.session]
        return await super().write(write)


@mutant()
class ALateWriteIsAConflict(Kept):
    async def write(self, write):
        try:
            return await super().write(write)
        except SessionDeleted:
            if self._heads[write.session].seq != write.seq:
                raise Conflict.of(write.session) from None
            raise


class _Listed(Kept):
    """Lists by a rule of its own."""

    async def heads(self, *, after="", limit=100, prefix="", status=None, labels=None):
        found = list(await super().heads(limit=10_000, status=status))
        found = [head for head in found if self.matches(head, prefix, labels or {}) and head.session > after]
        return self.cut(found, limit)

    def matches(self, head, prefix, labels):
        return head.session.startswith(prefix) and labels.items() <= head.labels.items()

    def cut(self, found, limit):
        return found[:limit]


@mutant()
class ThePrefixIsALikePattern(_Listed):
    def matches(self, head, prefix, labels):
        pattern = re.escape(prefix).replace("%", ".*").replace("_", ".")
        return re.match(pattern, head.session, re.DOTALL) and super().matches(head, "", labels)


@mutant()
class ThePrefixIsAGlob(_Listed):
    def matches(self, head, prefix, labels):
        return fnmatch.fnmatchcase(head.session, prefix + "*") and super().matches(head, "", labels)


@mutant()
class ThePrefixIsCaseBlind(_Listed):
    def matches(self, head, prefix, labels):
        return head.session.lower().startswith(prefix.lower()) and super().matches(head, "", labels)


@mutant()
class ThePrefixEndsBeforeTheLastCharacter(_Listed):
    def matches(self, head, prefix, labels):
        return (not prefix or prefix <= head.session < prefix + "\U0010ffff") and super().matches(head, "", labels)


@mutant()
class AnyLabelMatches(_Listed):
    def matches(self, head, prefix, labels):
        some = not labels or labels.items() & head.labels.items()
        return some and super().matches(head, prefix, {})


@mutant()
class OnlyTheFirstLabelMatches(_Listed):
    def matches(self, head, prefix, labels):
        return super().matches(head, prefix, dict(list(labels.items())[:1]))


@mutant()
class LabelsMatchByTheirValue(_Listed):
    def matches(self, head, prefix, labels):
        return set(labels.values()) <= set(head.labels.values()) and super().matches(head, prefix, {})


@mutant()
class LabelsAreJoinedByAnEqualsSign(_Listed):
    def matches(self, head, prefix, labels):
        joined = {f"{key}={value}" for key, value in head.labels.items()}
        return {f"{key}={value}" for key, value in labels.items()} <= joined and super().matches(head, prefix, {})


@mutant()
class AnEmptyLabelMatchesAMissingOne(_Listed):
    def matches(self, head, prefix, labels):
        return all(head.labels.get(key, "") == value for key, value in labels.items()) and super().matches(
            head, prefix, {}
        )


@mutant()
class LabelsOfOldWritesMatch(_Listed):
    def __init__(self, where):
        super().__init__(where)
        self.seen = {}

    async def write(self, write):
        head = await super().write(write)
        self.seen.setdefault(write.session, set()).update(write.labels.items())
        return head

    def matches(self, head, prefix, labels):
        return labels.items() <= self.seen[head.session] and super().matches(head, prefix, {})


@mutant()
class ThePageHasOneMore(_Listed):
    def cut(self, found, limit):
        return found[: limit + 1]


@mutant()
class ThePageEndsEarly(_Listed):
    def cut(self, found, limit):
        return found[: min(limit, 50)]


@mutant()
class ListedInTheOrderOfUtf16(_Listed):
    def cut(self, found, limit):
        return sorted(found, key=lambda head: head.session.encode("utf-16-be"))[:limit]


@mutant()
class ListedCaseBlind(_Listed):
    def cut(self, found, limit):
        return sorted(found, key=lambda head: head.session.lower())[:limit]


@mutant()
class ListedNewestFirst(_Listed):
    def cut(self, found, limit):
        return sorted(found, key=lambda head: -head.updated)[:limit]


@mutant()
class TheLimitCountsWhatDoesNotMatch(Kept):
    async def heads(self, *, after="", limit=100, prefix="", status=None, labels=None):
        found = await super().heads(after=after, limit=limit, prefix=prefix, status=status)
        return [head for head in found if (labels or {}).items() <= head.labels.items()]


@mutant()
class AfterIncludesTheId(Kept):
    async def heads(self, *, after="", **filters):
        found = list(await super().heads(after=after, **filters))
        head = self._heads.get(after)
        return [head, *found][: filters.get("limit", 100)] if head and head.status != "deleted" else found


@mutant()
class DeletedAreListedToo(Kept):
    async def heads(self, *, status=None, **filters):
        found = list(await super().heads(status=status, **filters))
        if status is None:
            found += await super().heads(status="deleted", **filters)
        return sorted(found, key=lambda head: head.session)


@mutant()
class DeletedAreNeverListed(Kept):
    async def heads(self, *, status=None, **filters):
        return [] if status == "deleted" else await super().heads(status=status, **filters)


@mutant()
class TheStatusIsIgnored(Kept):
    async def heads(self, *, status=None, **filters):
        return await super().heads(status="deleted" if status == "deleted" else None, **filters)


@mutant()
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


@mutant()
class TheHeadComesBeforeItsRows(Kept):
    async def write(self, write):
        head = await super().write(write)
        for row in write.rows:
            del self._rows[write.session][row.kind, row.n]
        for row in write.rows:
            await asyncio.sleep(0)
            self._rows[write.session][row.kind, row.n] = row
        return head


@mutant()
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


@mutant()
class ACancelledCallKeepsTheLock(Kept):
    def __init__(self, where):
        super().__init__(where)
        self.lock = asyncio.Lock()

    async def write(self, write):
        await asyncio.wait_for(self.lock.acquire(), 0.5)
        await asyncio.sleep(0)
        head = await super().write(write)
        self.lock.release()
        return head


@mutant()
class ClosingTwiceFails(Kept):
    async def close(self):
        self._check_open()
        await super().close()


@mutant()
class AClosedStoreLooksEmpty(Kept):
    async def close(self):
        await super().close()
        self._closed = False


@mutant()
class ErrorsDoNotNameTheSession(Kept):
    async def write(self, write):
        try:
            return await super().write(write)
        except Conflict:
            raise Conflict("something changed") from None


@mutant()
class AVolatileStoreSaysStrict(MemoryStore):
    profile = "strict"

    def __init__(self, where):
        super().__init__()


@mutant()
class AStoreThatKeepsSaysVolatile(Kept):
    profile = "volatile"


@mutant()
class ANewSessionStartsAtTwo(Kept):
    async def write(self, write):
        head = await super().write(write)
        if head.seq == 1:
            head = self._heads[write.session] = replace(head, seq=2)
        return head


@mutant()
class AnUnknownSessionHasAHead(Kept):
    async def head(self, session):
        if session not in self._heads and self._heads:
            return replace(next(iter(self._heads.values())), session=session, seq=0)
        return await super().head(session)


@mutant()
class TheSeqStands(Kept):
    async def write(self, write):
        head = await super().write(write)
        if head.seq > 10:
            head = self._heads[write.session] = replace(head, seq=10)
        return head


@mutant()
class AHigherEpochWins(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status != "deleted" and write.epoch > head.epoch:
            write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant()
class TheSameTokenIsTheSameWrite(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        return head if head and head.token == write.token else await super().write(write)


@mutant()
class KindsShareTheirNumbers(Kept):
    async def write(self, write):
        if len({row.n for row in write.rows}) < len(write.rows):
            raise Conflict.of(write.session)
        return await super().write(write)


@mutant()
class ALaterWriteDropsEarlierRows(Kept):
    async def write(self, write):
        head = await super().write(write)
        rows = self._rows[write.session]
        for key in sorted(rows)[:-5]:
            del rows[key]
        return head


@mutant()
class LargeRowsAreCut(Kept):
    async def write(self, write):
        rows = (replace(row, data=row.data[:1_000_000]) for row in write.rows)
        return await super().write(replace(write, rows=tuple(rows)))


@mutant()
class ANewStoreHasASession(Kept):
    async def heads(self, **filters):
        found = await super().heads(**filters)
        return found or [None]


@mutant()
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


@mutant()
class EveryDeletionFindsSomething(Kept):
    async def delete(self, session):
        there = session in self._heads and self._heads[session].status != "deleted"
        await asyncio.sleep(0)
        return await super().delete(session) or there


@mutant()
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


@mutant()
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


@mutant()
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


@mutant()
class ClosingLeavesCallsHanging(Kept):
    async def head(self, session):
        await asyncio.sleep(0)
        if self._closed:
            raise RuntimeError("no current connection")
        return await super().head(session)


@mutant()
class ACachePerHandle(Kept):
    def __init__(self, where):
        super().__init__(where)
        self.cache = {}

    async def write(self, write):
        head = self.cache[write.session] = await super().write(write)
        return head

    async def head(self, session):
        return self.cache.get(session) or await super().head(session)


@mutant()
class AHandleTrustsItsCachedSeq(ACachePerHandle):
    async def head(self, session):
        return await Kept.head(self, session)

    async def write(self, write):
        cached = self.cache.get(write.session)
        head = self._heads.get(write.session)
        if cached and head.status != "deleted" and cached.seq == write.seq:
            write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant()
class ClosingClosesThePlace(Kept):
    async def close(self):
        self._heads.clear()
        self._rows.clear()
        await super().close()


@mutant()
class OpeningMakesThePlaceAnew(Kept):
    def __init__(self, where):
        super().__init__(where)
        for session in list(self._heads)[1:]:
            del self._heads[session]


@mutant()
class RowsAreNotShared(Kept):
    def __init__(self, where):
        super().__init__(where)
        self._rows = {}


@mutant()
class LabelsAreNotKept(Kept):
    def __init__(self, where):
        super().__init__(where)
        for session, head in self._heads.items():
            self._heads[session] = replace(head, labels={})


@mutant()
class TheClockStartsAnew(Kept):
    def __init__(self, where):
        super().__init__(where)
        for session, head in self._heads.items():
            self._heads[session] = replace(head, updated=time.time(), expires=head.expires and time.time() + 1)


@mutant()
class DeletionsAreNotKept(Kept):
    def __init__(self, where):
        super().__init__(where)
        for session in [head.session for head in self._heads.values() if head.status == "deleted"]:
            del self._heads[session]


@mutant()
class TheNewestWriteIsNotKept(Kept):
    async def close(self):
        if not self._closed:
            newest = max(self._heads.values(), key=lambda head: head.updated, default=None)
            if newest and newest.seq == 1 and len(self._heads) > 1:
                del self._heads[newest.session]
        await super().close()


@mutant()
class SpaceIsNotGivenBack(Kept):
    async def write(self, write):
        head = await super().write(write)
        with self.where.open("ab") as file:
            file.writelines(row.data for row in write.rows)
        return head


@mutant()
class ThreadsDisturbEachOther(Kept):
    async def write(self, write):
        old = self._heads.get(write.session)
        if (old.seq if old else 0) != write.seq:
            raise Conflict.of(write.session)
        time.sleep(0.001)
        new = self._heads.get(write.session)
        return await super().write(replace(write, seq=new.seq if new else 0, rows=()))


def proof(name, kind, caught_by=()):
    """The suite for one store, or only those of its tests that must find the fault."""

    @asynccontextmanager
    async def open_store(self, where):
        store = kind(where)
        try:
            yield store
        finally:
            await Kept.close(store)

    members = {"open_store": open_store, "__module__": __name__}
    if caught_by:
        members |= {test: None for test in dir(StoreConformance) if test.startswith("test_") and test not in caught_by}
    return type(f"Test{name}", (StoreConformance,), members)


TestSound = proof("Sound", Kept)
globals().update({f"Test{name}": proof(name, *entry) for name, entry in MUTANTS.items()})
