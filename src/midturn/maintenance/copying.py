"""Copying a session with its whole history from one store to another: nothing lost, nothing overwritten.

The rows of a session never change, except that a compaction removes some and replaces others. So an interrupted copy
continues where it stopped: it adds the missing rows, and removes or replaces those that the source has removed or
replaced. Until the copy has the last row, the data of its head is
:data:`midturn.record.rows.COPYING`, and nobody can use the copy.
"""

from __future__ import annotations

import shlex
import uuid
from contextlib import aclosing
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from midturn.errors import Conflict, HistoryLost, NotFound, SessionBusy, SessionDeleted, StateInvalid
from midturn.history.session_info import tombstone_of
from midturn.lease.ledger import LEASE, holder
from midturn.lease.process import new_owner
from midturn.record import codec
from midturn.record.bodies import is_without_some
from midturn.record.head import Kind, Removal, Write
from midturn.record.rows import BURYING, COPYING, progress_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from midturn.record.head import Head, Row
    from midturn.store import Store

CopyResult: TypeAlias = Literal["copied", "unchanged", "deletion"]
"""The outcome for a session. ``deletion``: it was deleted in the source, and now in the target, too."""

CHUNK = 4_000_000
"""Limit on the bytes of a write with several rows."""
PAGE = 250
"""Number of rows to read at once; rows of a kind whose numbers are not consecutive are all read at once."""
REMOVALS = 200
"""Largest number of ranges of rows that a write removes."""
TRIES = 5
"""Number of times that a session is read if it keeps changing."""
TOKEN = "copy-"  # noqa: S105 - not a secret
"""Beginning of a head's token, which shows that nobody has written the session since it was copied."""


class _Page(NamedTuple):
    """A range of rows that are read at once, and the rows that one of the stores has there."""

    kind: Kind
    start: int
    stop: int | None
    rows: Sequence[Row]


class _Digest:
    """Digest of a session, to compare two of them; it also remembers the rows that it contains."""

    def __init__(self) -> None:
        self._sum = sha256()
        self.seen: set[tuple[Kind, int]] = set()

    def add(self, row: Row) -> None:
        self._sum.update(b"%d %d %d\n" % (row.kind, row.n, len(row.data)))
        self._sum.update(row.data)
        self.seen.add((row.kind, row.n))

    def close(self, head: Head) -> str:
        """Return the digest of the rows and of the head's status, labels and data."""
        labels = [list(item) for item in sorted(head.labels.items())]
        self._sum.update(codec.encode([head.status, labels]))
        self._sum.update(head.data)
        return self._sum.hexdigest()


async def copy(source: Store, target: Store, session: str, *, on_write: Callable[[int], None]) -> CopyResult:
    """Copy the session from ``source``, which is only read, to ``target``, and compare the copy with it.

    ``on_write`` gets the number of bytes of each write.

    Raises:
        SessionBusy: a turn runs, or somebody else copies the session; nothing is lost, try again.
        Conflict: the session has continued in ``target``, or keeps changing in ``source``. Nothing was overwritten.
        SessionDeleted: the session was deleted in ``target``.
        HistoryLost: one of the stores went back in time during the copy.
        StateInvalid: the session is damaged or half copied in ``source``, or ``target`` returned other data than was
            written to it.
    """
    owner = new_owner()
    for _ in range(TRIES):
        head = await source.head(session)
        if head is None:
            raise NotFound(f"there is no session {session!r} in the source", session=session)
        if head.status == "deleted":
            tombstone_of(head)  # raises if nobody can read who deleted it
            return await _bury(target, head, owner)
        if busy := holder(head):
            raise SessionBusy(
                f"session {session!r} is held in the source by {busy}; run again when its turn has ended",
                session=session,
                owner=busy,
            )
        result = await _Transfer(source, target, head, owner, on_write).run()
        if result is not None:
            return result
    raise Conflict(
        f"session {session!r} changed in the source each of the {TRIES} times that it was read; "
        "run again when its turn has ended",
        session=session,
    )


async def _bury(target: Store, head: Head, owner: str) -> CopyResult:
    """Delete the session in the target, because it was deleted in the source, perhaps while ``owner`` copied it."""
    session = head.session
    there = await target.head(session)
    if there is not None and there.status == "deleted":
        return "unchanged"
    if there is None:
        await target.write(Write(session=session, seq=0, epoch=1, status="idle", token=_token(), data=BURYING))
    elif there.data != BURYING and (there.data, there.owner) != (COPYING, owner):
        raise Conflict(
            f"session {session!r} was deleted in the source and still exists in the destination; "
            f"to delete it there, too: midturn rm {shlex.quote(session)} --store DST_URL",
            session=session,
        )
    await target.delete(session, data=head.data)
    return "deletion"


class _Transfer:
    """The transfer of one session, in the state of the head that was read from the source."""

    def __init__(self, source: Store, target: Store, head: Head, owner: str, on_write: Callable[[int], None]) -> None:
        self._source = source
        self._target = target
        self._head = head
        self._session = head.session
        self._owner = owner
        self._on_write = on_write
        self._there: Head | None = None
        self._epoch = 0
        self._removes: tuple[Removal, ...] = ()
        progress = progress_of(head)
        self._compacted = {
            Kind.BODY: progress.holes,
            Kind.TURN: progress.first,
            Kind.CHECKPOINT: progress.first,
            Kind.FAILURE: progress.first_failure,
        }
        """For some kinds, the number below which a compaction of the source may have removed or replaced rows."""
        self._last = {
            Kind.BODY: progress.bodies,
            Kind.DECISION: progress.decisions,
            Kind.TURN: progress.turn,
            Kind.CHECKPOINT: progress.checkpoint,
            Kind.FAILURE: progress.failures,
            Kind.CALL: progress.calls,
        }

    async def run(self) -> CopyResult | None:
        """Copy the session and return the outcome; ``None`` if it changed in the source during the reading."""
        there = self._there = await self._target.head(self._session)
        if there is not None and there.status == "deleted":
            raise SessionDeleted(
                f"session {self._session!r} was deleted in the destination and stays deleted; copy it to another store",
                session=self._session,
            )
        if (busy := holder(there)) and busy != self._owner:
            raise SessionBusy(
                f"session {self._session!r} is held in the destination by {busy}; run again when it is released",
                session=self._session,
                owner=busy,
            )
        self._epoch = max(self._head.epoch, there.epoch if there is not None else 0) + 1
        if there is not None:
            # Compare everything before the first write, which replaces the head.
            same = await self._compare(there)
            if same is not False:
                return "unchanged" if same else None
        return await self._add(fresh=there is None)

    async def _compare(self, there: Head) -> bool | None:  # noqa: C901 - one branch for each way to differ
        """Return whether the copy is complete; ``None`` if the source changed during the comparison.

        Raises:
            Conflict: the target is not an earlier state of the source, so completing it would lose something.
        """
        missing = stale = False
        differs: Row | None = None
        extra: Row | None = None
        first: int | None = None
        gone: list[Row] = []
        async with aclosing(self._pages(self._source)) as pages:
            async for page in pages:
                found = {row.n: row for row in await self._same(self._target, page)}
                for row in page.rows:
                    other = found.pop(row.n, None)
                    missing |= other is None
                    if other is not None and other.data != row.data:
                        if self._is_replaced(other, row):
                            stale = True
                        else:
                            differs = differs or other
                    if row.kind is Kind.CALL and first is None:
                        first = row.n
                if page.kind is Kind.CALL:
                    gone += found.values()
                else:
                    left = [each for each in found.values() if not self._may_be_gone(each)]
                    stale |= len(left) < len(found)
                    extra = extra or next(iter(left), None)
        if await self._moved():
            return None
        extra = extra or self._own_call(gone, first, followed=missing or there.token.startswith(TOKEN))
        if differs or extra:
            raise self._conflict(there, differs or extra, ahead=not (differs or missing))
        head = self._head
        if (there.data, there.status, there.labels) == (head.data, head.status, head.labels):
            return not missing and not gone and not stale
        if not missing and not there.token.startswith(TOKEN):
            raise self._conflict(there, None, ahead=False)
        return False

    def _may_be_gone(self, row: Row) -> bool:
        """Return whether a compaction of the source may have removed a row that the copy still has."""
        return row.n < self._compacted.get(row.kind, 0)

    def _is_replaced(self, old: Row, new: Row) -> bool:
        """Return whether a compaction of the source may have replaced the ``old`` row, which the copy still has."""
        if not self._may_be_gone(old):
            return False
        return is_without_some(old, new) if old.kind is Kind.BODY else True

    def _own_call(self, gone: Sequence[Row], first: int | None, *, followed: bool) -> Row | None:
        """Return a call that only the copy has; ``None`` if the source has removed such calls, so the copy will, too.

        ``first`` is the first call in the source. ``followed`` is true if the source has continued, or nobody has used
        the copy.
        """
        if not gone:
            return None
        self._removes = (Removal(Kind.CALL, 0, gone[-1].n + 1),)
        return None if followed and (first is None or gone[-1].n < first) else gone[-1]

    def _conflict(self, there: Head, row: Row | None, *, ahead: bool) -> Conflict:
        """Return the error for a session that differs from the source in a ``row``, or without one only in its head."""
        name, id_ = f"session {self._session!r}", shlex.quote(self._session)
        what = f"{row.kind.name.lower()} {row.n}" if row else "its status or labels"
        if there.data == COPYING:
            text = (
                f"{name} was half copied to the destination from another source ({what} differs); finish the copy from "
                f"there, or copy this session to another store: midturn copy SRC_URL OTHER_URL --session {id_}"
            )
        elif ahead:
            text = (
                f"{name} has continued in the destination ({what} is not in the source), nothing was overwritten; "
                f"to bring the source up to date: midturn copy DST_URL SRC_URL --session {id_}"
            )
        else:
            text = (
                f"{name} has continued in both stores ({what} differs), nothing was overwritten; continue one of "
                f"them, or keep both in different stores: midturn copy SRC_URL OTHER_URL --session {id_}"
            )
        return Conflict(text, session=self._session)

    async def _add(self, *, fresh: bool) -> CopyResult | None:
        """Write the missing rows, then the head. Rows that the source no longer has go in the same writes."""
        digest = _Digest()
        chunk: list[Row] = []
        gone: list[Removal] = []
        size = 0
        async with aclosing(self._pages(self._source)) as pages:
            async for page in pages:
                found = {} if fresh else {row.n: row for row in await self._same(self._target, page)}
                for row in page.rows:
                    digest.add(row)
                    there = found.pop(row.n, None)
                    if there is not None and (there.data == row.data or not self._may_be_gone(row)):
                        continue
                    if (chunk and size + len(row.data) > CHUNK) or len(gone) >= REMOVALS:
                        await self._write(chunk, gone, last=False)
                        chunk, gone, size = [], [], 0
                    if there is not None:
                        gone.append(Removal(row.kind, row.n, row.n + 1))
                    chunk.append(row)
                    size += len(row.data)
                for row in found.values():
                    if self._may_be_gone(row):
                        gone.append(Removal(row.kind, row.n, row.n + 1))
                    if len(gone) >= REMOVALS:
                        await self._write(chunk, gone, last=False)
                        chunk, gone, size = [], [], 0
        if await self._moved():
            return None
        await self._verify(digest, await self._write(chunk, gone, last=True))
        return "copied"

    async def _write(self, rows: Sequence[Row], removes: Sequence[Removal], *, last: bool) -> Head:
        head, there = self._head, self._there
        try:
            self._there = await self._target.write(
                Write(
                    session=self._session,
                    seq=there.seq if there is not None else 0,
                    after=there.token if there is not None else None,
                    epoch=self._epoch,
                    status=head.status if last else "idle",  # not "running": nobody should try to finish a turn
                    labels=head.labels,
                    owner=None if last else self._owner,
                    lease=0.0 if last else LEASE,
                    token=_token(),
                    data=head.data if last else COPYING,
                    rows=tuple(rows),
                    removes=(*removes, *self._removes) if last else tuple(removes),
                )
            )
        except Conflict:
            if there is not None:
                await self._later(self._target, there)
            raise Conflict(
                f"session {self._session!r} was written in the destination by somebody else during the copy; run again",
                session=self._session,
            ) from None
        self._on_write(sum(len(row.data) for row in rows))
        return self._there

    async def _verify(self, digest: _Digest, written: Head) -> None:
        """Read the copy back and compare it. Somebody may use it already, so it may have further rows."""
        found, more = _Digest(), False
        async with aclosing(self._pages(self._target)) as pages:
            async for page in pages:
                for row in page.rows:
                    if (row.kind, row.n) in digest.seen:
                        found.add(row)
                    else:
                        more = True
        head = await self._later(self._target, written)
        if head.status == "deleted":
            raise SessionDeleted.of(self._session)
        if head.seq == written.seq:
            good = not more and found.close(head) == digest.close(self._head)
        else:
            good = found.close(self._head) == digest.close(self._head)
        if not good:
            raise StateInvalid(
                "the destination returned other data than was written to it; the source is unchanged: "
                "check the destination's disk, and copy to another store",
                path=f"session {self._session!r}",
                session=self._session,
            )

    async def _moved(self) -> bool:
        """Return whether the source has changed, so that the rows that were read may not belong together."""
        return (await self._later(self._source, self._head)).seq != self._head.seq

    async def _later(self, store: Store, seen: Head) -> Head:
        """Return the head of the session in one of the stores, where it was ``seen`` before.

        Raises:
            HistoryLost: the store no longer has what was seen.
        """
        head = await store.head(self._session)
        if head is None or not seen.is_followed_by(head):
            where = "source" if store is self._source else "destination"
            raise HistoryLost.of(self._session, f"the {where} had write {seen.seq}, and lost it during the copy")
        return head

    async def _pages(self, store: Store) -> AsyncGenerator[_Page, None]:
        for kind in Kind:
            start, size, last = 0, PAGE, self._last.get(kind, 0)
            while start <= last:
                stop = start + size if start + size <= last else None
                page = _Page(kind, start, stop, await store.rows(self._session, kind, start=start, stop=stop))
                yield page
                # Where there is nothing, take longer steps: calls were removed, or the head is wrong about the number.
                start, size = start + size, PAGE if page.rows else 2 * size

    async def _same(self, store: Store, page: _Page) -> Sequence[Row]:
        """Return the rows that a store has in the range of a page."""
        return await store.rows(self._session, page.kind, start=page.start, stop=page.stop)


def _token() -> str:
    return f"{TOKEN}{uuid.uuid4().hex[:12]}"
