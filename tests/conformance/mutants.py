"""Stores with one fault each. Not collected by name: test_suite_catches.py runs the suite against them."""

import asyncio
import fnmatch
import re
import time
import unicodedata
from contextlib import asynccontextmanager
from dataclasses import replace

from leftoff.errors import Conflict, SessionDeleted
from leftoff.records import Kind
from leftoff.stores.memory import MemoryStore
from leftoff.testing import StoreConformance

MUTANTS = {}


def mutant(kind):
    MUTANTS[kind.__name__] = kind
    return kind


class Sound(MemoryStore):
    """No fault: the suite is green for the store that the faults are put into."""


@mutant
class NoSeqCheck(MemoryStore):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status != "deleted":
            write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant
class OnlyOlderSeqsAreRefused(MemoryStore):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status != "deleted" and write.seq > head.seq:
            write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant
class SeqZeroOverwrites(MemoryStore):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status != "deleted" and write.seq == 0:
            write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant
class AnySeqMakesASession(MemoryStore):
    async def write(self, write):
        if write.session not in self._heads:
            write = replace(write, seq=0)
        return await super().write(write)


@mutant
class RowsStayAfterACollision(MemoryStore):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status != "deleted" and head.seq == write.seq:
            rows = self._rows[write.session]
            for row in write.rows:
                if (row.kind, row.n) in rows:
                    raise Conflict.of(write.session)
                rows[row.kind, row.n] = row
            written = await super().write(replace(write, rows=()))
            return written
        return await super().write(write)


@mutant
class TheHeadStaysAfterACollision(MemoryStore):
    async def write(self, write):
        try:
            return await super().write(write)
        except Conflict:
            head = self._heads.get(write.session)
            if head and head.seq == write.seq:
                await super().write(replace(write, rows=()))
            raise


@mutant
class CollidingRowsAreReplaced(MemoryStore):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.seq == write.seq:
            for row in write.rows:
                self._rows[write.session].pop((row.kind, row.n), None)
        return await super().write(write)


@mutant
class CollidingRowsAreIgnored(MemoryStore):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.seq == write.seq:
            there = self._rows[write.session]
            write = replace(write, rows=tuple(row for row in write.rows if (row.kind, row.n) not in there))
        return await super().write(write)


@mutant
class TheSameRowAgainIsFine(MemoryStore):
    async def write(self, write):
        there = self._rows.get(write.session, {})
        rows = tuple(row for row in write.rows if there.get((row.kind, row.n)) != row)
        return await super().write(replace(write, rows=rows))


@mutant
class DuplicatesInOneWriteAreTaken(MemoryStore):
    async def write(self, write):
        rows = {(row.kind, row.n): row for row in write.rows}
        return await super().write(replace(write, rows=tuple(rows.values())))


@mutant
class LabelsAreMerged(MemoryStore):
    async def write(self, write):
        head = self._heads.get(write.session)
        return await super().write(replace(write, labels={**(head.labels if head else {}), **write.labels}))


@mutant
class LabelsFollowTheWritersDict(MemoryStore):
    async def write(self, write):
        head = await super().write(write)
        self._heads[write.session] = replace(head, labels=write.labels)
        return head


@mutant
class TheLeaseIsKeptWithoutAnOwner(MemoryStore):
    async def write(self, write):
        head = replace(await super().write(write), expires=time.time() + write.lease)
        self._heads[write.session] = head
        return head


@mutant
class TheLeaseIsForgotten(MemoryStore):
    async def head(self, session):
        head = await super().head(session)
        return head and replace(head, expires=0.0)


@mutant
class CreatedIsRenewed(MemoryStore):
    async def write(self, write):
        head = await super().write(write)
        head = replace(head, created=head.updated)
        self._heads[write.session] = head
        return head


@mutant
class TheClockStands(MemoryStore):
    async def head(self, session):
        head = await super().head(session)
        return head and replace(head, now=head.updated)


@mutant
class TheClockCountsFromTheStart(MemoryStore):
    async def head(self, session):
        head = await super().head(session)
        return head and replace(head, now=time.monotonic())


@mutant
class TheTokenIsLost(MemoryStore):
    async def head(self, session):
        head = await super().head(session)
        return head and replace(head, token="")


@mutant
class DataIsParsedAndWrittenAnew(MemoryStore):
    async def rows(self, session, kind, *, start=0, stop=None):
        return [replace(row, data=row.data.strip()) for row in await super().rows(session, kind, start=start, stop=stop)]


@mutant
class DataEndsAtANul(MemoryStore):
    async def write(self, write):
        return await super().write(replace(write, data=write.data.split(b"\0")[0]))


@mutant
class NumbersAreFloats(MemoryStore):
    async def write(self, write):
        return await super().write(replace(write, rows=tuple(replace(row, n=int(float(row.n))) for row in write.rows)))


@mutant
class RowsAreInTheOrderOfWriting(MemoryStore):
    async def rows(self, session, kind, *, start=0, stop=None):
        found = await super().rows(session, kind, start=start, stop=stop)
        return [row for row in self._rows.get(session, {}).values() if row in found]


@mutant
class RowsAreOrderedAsText(MemoryStore):
    async def rows(self, session, kind, *, start=0, stop=None):
        return sorted(await super().rows(session, kind, start=start, stop=stop), key=lambda row: str(row.n))


@mutant
class TheRangeHasItsStop(MemoryStore):
    async def rows(self, session, kind, *, start=0, stop=None):
        return await super().rows(session, kind, start=start, stop=None if stop is None else stop + 1)


@mutant
class TheRangeLacksItsStart(MemoryStore):
    async def rows(self, session, kind, *, start=0, stop=None):
        return await super().rows(session, kind, start=start + 1 if start else 0, stop=stop)


@mutant
class AStopOfZeroMeansNone(MemoryStore):
    async def rows(self, session, kind, *, start=0, stop=None):
        return await super().rows(session, kind, start=start, stop=stop or None)


@mutant
class AThousandRowsAreEnough(MemoryStore):
    async def rows(self, session, kind, *, start=0, stop=None):
        return (await super().rows(session, kind, start=start, stop=stop))[:1_000]


@mutant
class KindsAreMixed(MemoryStore):
    async def rows(self, session, kind, *, start=0, stop=None):
        return [row for each in Kind for row in await super(KindsAreMixed, self).rows(session, each)]


@mutant
class RowsOfTheNeighboursToo(MemoryStore):
    async def rows(self, session, kind, *, start=0, stop=None):
        found = []
        for other in sorted(self._rows):
            if other.startswith(session):
                found += await super().rows(other, kind, start=start, stop=stop)
        return found


class _Renamed(MemoryStore):
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


@mutant
class IdsAreCaseBlind(_Renamed):
    rename = staticmethod(str.casefold)


@mutant
class IdsAreNormalised(_Renamed):
    @staticmethod
    def rename(session):
        return unicodedata.normalize("NFC", session)


@mutant
class IdsAreTrimmed(_Renamed):
    @staticmethod
    def rename(session):
        return session.rstrip(" .") or session


@mutant
class IdsAreCutShort(_Renamed):
    @staticmethod
    def rename(session):
        return session[:150]


@mutant
class IdsHaveTheirSlashesReplaced(_Renamed):
    @staticmethod
    def rename(session):
        return session.replace("/", "_")


@mutant
class IdsAreFiles(MemoryStore):
    """Ids become file names as they are."""

    async def write(self, write):
        head = await super().write(write)
        if ".." in write.session and len(write.session) < 12:
            (self.where.parent / write.session).parent.joinpath("stray").touch()
        return head


@mutant
class DeleteKeepsTheRows(MemoryStore):
    async def delete(self, session):
        rows = self._rows.get(session, {})
        found = await super().delete(session)
        self._rows[session] = rows
        return found


@mutant
class DeleteKeepsTheLabels(MemoryStore):
    async def delete(self, session):
        old = self._heads.get(session)
        found = await super().delete(session)
        if found:
            self._heads[session] = replace(self._heads[session], labels=old.labels)
        return found


@mutant
class DeleteForgetsTheId(MemoryStore):
    async def delete(self, session):
        found = await super().delete(session)
        self._heads.pop(session, None)
        return found


@mutant
class DeletingTwiceCountsTwice(MemoryStore):
    async def delete(self, session):
        return await super().delete(session) or session in self._heads


@mutant
class DeletingAnUnknownSessionMakesIt(MemoryStore):
    async def delete(self, session):
        if session not in self._heads:
            sample = next(iter(self._heads.values()), None)
            if sample:
                self._heads[session] = replace(sample, session=session).deleted(now=time.time())
        return await super().delete(session)


@mutant
class AHeldSessionIsNotDeleted(MemoryStore):
    async def delete(self, session):
        head = self._heads.get(session)
        return False if head and head.expires > time.time() else await super().delete(session)


@mutant
class DeletePrefixes(MemoryStore):
    async def delete(self, session):
        found = False
        for other in list(self._heads):
            found |= fnmatch.fnmatchcase(other, session) and await super().delete(other)
        return found or await super().delete(session)


@mutant
class AWriteAfterDeleteIsAccepted(MemoryStore):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status == "deleted" and write.seq == head.seq:
            self._heads[write.session] = replace(head, status="idle")
        return await super().write(write)


@mutant
class ADeletedIdIsNewAgain(MemoryStore):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status == "deleted" and write.seq == 0:
            del self._heads[write.session]
        return await super().write(write)


@mutant
class ALateWriteIsAConflict(MemoryStore):
    async def write(self, write):
        try:
            return await super().write(write)
        except SessionDeleted:
            if self._heads[write.session].seq != write.seq:
                raise Conflict.of(write.session) from None
            raise


class _Listed(MemoryStore):
    """Lists by a rule of its own."""

    async def heads(self, *, after="", limit=100, prefix="", status=None, labels=None):
        found = list(await super().heads(limit=10_000, status=status))
        found = [head for head in found if self.matches(head, prefix, labels or {}) and head.session > after]
        return self.cut(found, limit)

    def matches(self, head, prefix, labels):
        return head.session.startswith(prefix) and labels.items() <= head.labels.items()

    def cut(self, found, limit):
        return found[:limit]


@mutant
class ThePrefixIsALikePattern(_Listed):
    def matches(self, head, prefix, labels):
        pattern = re.escape(prefix).replace("%", ".*").replace("_", ".")
        return re.match(pattern, head.session, re.DOTALL) and super().matches(head, "", labels)


@mutant
class ThePrefixIsAGlob(_Listed):
    def matches(self, head, prefix, labels):
        return fnmatch.fnmatchcase(head.session, prefix + "*") and super().matches(head, "", labels)


@mutant
class ThePrefixIsCaseBlind(_Listed):
    def matches(self, head, prefix, labels):
        return head.session.lower().startswith(prefix.lower()) and super().matches(head, "", labels)


@mutant
class ThePrefixEndsBeforeTheLastCharacter(_Listed):
    def matches(self, head, prefix, labels):
        return (not prefix or prefix <= head.session < prefix + "\U0010ffff") and super().matches(head, "", labels)


@mutant
class AnyLabelMatches(_Listed):
    def matches(self, head, prefix, labels):
        some = not labels or labels.items() & head.labels.items()
        return some and super().matches(head, prefix, {})


@mutant
class OnlyTheFirstLabelMatches(_Listed):
    def matches(self, head, prefix, labels):
        return super().matches(head, prefix, dict(list(labels.items())[:1]))


@mutant
class LabelsMatchByTheirValue(_Listed):
    def matches(self, head, prefix, labels):
        return set(labels.values()) <= set(head.labels.values()) and super().matches(head, prefix, {})


@mutant
class LabelsAreJoinedByAnEqualsSign(_Listed):
    def matches(self, head, prefix, labels):
        joined = {f"{key}={value}" for key, value in head.labels.items()}
        return {f"{key}={value}" for key, value in labels.items()} <= joined and super().matches(head, prefix, {})


@mutant
class AnEmptyLabelMatchesAMissingOne(_Listed):
    def matches(self, head, prefix, labels):
        return all(head.labels.get(key, "") == value for key, value in labels.items()) and super().matches(
            head, prefix, {}
        )


@mutant
class LabelsOfOldWritesMatch(_Listed):
    def __init__(self):
        super().__init__()
        self.seen = {}

    async def write(self, write):
        head = await super().write(write)
        self.seen.setdefault(write.session, set()).update(write.labels.items())
        return head

    def matches(self, head, prefix, labels):
        return labels.items() <= self.seen[head.session] and super().matches(head, prefix, {})


@mutant
class ThePageHasOneMore(_Listed):
    def cut(self, found, limit):
        return found[: limit + 1]


@mutant
class ThePageEndsEarly(_Listed):
    def cut(self, found, limit):
        return found[: min(limit, 50)]


@mutant
class ListedInTheOrderOfUtf16(_Listed):
    def cut(self, found, limit):
        return sorted(found, key=lambda head: head.session.encode("utf-16-be"))[:limit]


@mutant
class ListedCaseBlind(_Listed):
    def cut(self, found, limit):
        return sorted(found, key=lambda head: head.session.lower())[:limit]


@mutant
class ListedNewestFirst(_Listed):
    def cut(self, found, limit):
        return sorted(found, key=lambda head: -head.updated)[:limit]


@mutant
class TheLimitCountsWhatDoesNotMatch(MemoryStore):
    async def heads(self, *, after="", limit=100, prefix="", status=None, labels=None):
        found = await super().heads(after=after, limit=limit, prefix=prefix, status=status)
        return [head for head in found if (labels or {}).items() <= head.labels.items()]


@mutant
class AfterIncludesTheId(MemoryStore):
    async def heads(self, *, after="", **filters):
        found = list(await super().heads(after=after, **filters))
        head = self._heads.get(after)
        return [head, *found][: filters.get("limit", 100)] if head and head.status != "deleted" else found


@mutant
class DeletedAreListedToo(MemoryStore):
    async def heads(self, *, status=None, **filters):
        found = list(await super().heads(status=status, **filters))
        if status is None:
            found += await super().heads(status="deleted", **filters)
        return sorted(found, key=lambda head: head.session)


@mutant
class DeletedAreNeverListed(MemoryStore):
    async def heads(self, *, status=None, **filters):
        return [] if status == "deleted" else await super().heads(status=status, **filters)


@mutant
class TheStatusIsIgnored(MemoryStore):
    async def heads(self, *, status=None, **filters):
        return await super().heads(status="deleted" if status == "deleted" else None, **filters)


@mutant
class TheSeqIsCheckedTooEarly(MemoryStore):
    """The check and the write are two steps."""

    async def write(self, write):
        head = self._heads.get(write.session)
        if (head.seq if head else 0) == write.seq:
            await asyncio.sleep(0)
            head = self._heads.get(write.session)
            if head and head.status != "deleted":
                write = replace(write, seq=head.seq)
        return await super().write(write)


@mutant
class TheHeadComesBeforeItsRows(MemoryStore):
    async def write(self, write):
        head = await super().write(write)
        for row in write.rows:
            del self._rows[write.session][row.kind, row.n]
        for row in write.rows:
            await asyncio.sleep(0)
            self._rows[write.session][row.kind, row.n] = row
        return head


@mutant
class TheRowsComeBeforeTheHead(MemoryStore):
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


@mutant
class ACancelledCallKeepsTheLock(MemoryStore):
    def __init__(self):
        super().__init__()
        self.lock = asyncio.Lock()

    async def write(self, write):
        await asyncio.wait_for(self.lock.acquire(), 0.5)
        await asyncio.sleep(0)
        head = await super().write(write)
        self.lock.release()
        return head


@mutant
class ClosingTwiceFails(MemoryStore):
    async def close(self):
        self._check_open()
        await super().close()


@mutant
class AClosedStoreLooksEmpty(MemoryStore):
    async def close(self):
        await super().close()
        self._closed = False


@mutant
class ErrorsDoNotNameTheSession(MemoryStore):
    async def write(self, write):
        try:
            return await super().write(write)
        except Conflict:
            raise Conflict("something changed") from None


def proof(kind):
    """The suite for one store."""

    @asynccontextmanager
    async def open_store(self, where):
        store = kind()
        store.where = where
        try:
            yield store
        finally:
            await MemoryStore.close(store)

    members = {"shared": False, "durable": False, "open_store": open_store, "__module__": __name__}
    return type(f"Test{kind.__name__}", (StoreConformance,), members)


for each in (Sound, *MUTANTS.values()):
    globals()[f"Test{each.__name__}"] = proof(each)
