"""Copying a session with its whole history from one store to another: nothing lost, nothing overwritten.

The rows of a session never change. So an interrupted copy continues where it stopped: it adds the rows that are not
there yet, and removes the calls that the source has removed. Until the last row is there, the head of the copy is
:data:`midturn.record.rows.COPYING`, and nobody can use it.
"""

from __future__ import annotations

import shlex
import uuid
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from midturn.errors import Conflict, SessionBusy, SessionDeleted, StateInvalid
from midturn.lease.ledger import LEASE, holder
from midturn.lease.process import new_owner
from midturn.record import codec
from midturn.record.head import Kind, Write
from midturn.record.rows import BURYING, COPYING, progress_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from midturn.record.head import Head, Row
    from midturn.store import Store

CopyResult: TypeAlias = Literal["copied", "unchanged", "deletion"]
"""What became of a session. ``deletion``: it was deleted, and now the other store knows that, too."""

CHUNK = 4_000_000
"""Bytes of rows in one write, if there is more than one."""
PAGE = 250
"""Rows read at once, about; those of one kind whose numbers do not follow each other are read all at once."""
TRIES = 5
"""How often a session is read that changes meanwhile."""
TOKEN = "copy-"  # noqa: S105 - not a secret
"""How the token of a head begins that nobody has written since it was copied."""


class _Page(NamedTuple):
    """Rows that are read at once."""

    kind: Kind
    start: int
    stop: int | None

    async def read(self, store: Store, session: str) -> Sequence[Row]:
        return await store.rows(session, self.kind, start=self.start, stop=self.stop)


class _Digest:
    """Tells whether two sessions are the same; knows which rows it has seen."""

    def __init__(self) -> None:
        self._sum = sha256()
        self.seen: set[tuple[Kind, int]] = set()

    def add(self, row: Row) -> None:
        self._sum.update(b"%d %d %d\n" % (row.kind, row.n, len(row.data)))
        self._sum.update(row.data)
        self.seen.add((row.kind, row.n))

    def close(self, head: Head) -> str:
        """Return the digest of the rows and of what the head says of the session."""
        labels = [list(item) for item in sorted(head.labels.items())]
        self._sum.update(codec.encode([head.status, labels]))
        self._sum.update(head.data)
        return self._sum.hexdigest()


async def copy(source: Store, target: Store, session: str, *, on_write: Callable[[int], None]) -> CopyResult:
    """Make the session in ``target`` what it is in ``source``, which is only read, and check that it is.

    ``on_write`` is told the bytes of each write.

    Raises:
        SessionBusy: a turn runs, or somebody else copies it; nothing is lost, try again.
        Conflict: the session has gone on in ``target``, or never rests in ``source``. Nothing was overwritten.
        SessionDeleted: it was deleted in ``target``.
        StateInvalid: it is damaged or half copied in ``source``, or came out of ``target`` other than it went in.
    """
    owner = new_owner()
    for _ in range(TRIES):
        head = await source.head(session)
        if head is None:
            raise StateInvalid("not in the source", path=f"session {session!r}", session=session)
        if head.status == "deleted":
            return await _bury(target, session)
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
        f"session {session!r} changed in the source each of {TRIES} times it was read; run again when it rests",
        session=session,
    )


async def _bury(target: Store, session: str) -> CopyResult:
    """Let the target know that the session was deleted."""
    there = await target.head(session)
    if there is not None and there.status == "deleted":
        return "unchanged"
    if there is None:
        await target.write(Write(session=session, seq=0, epoch=1, status="idle", token=_token(), data=BURYING))
    elif there.data != BURYING:
        raise Conflict(
            f"session {session!r} was deleted in the source and is left as it is in the destination; "
            f"to delete it there, too: midturn rm {shlex.quote(session)} --store DST_URL",
            session=session,
        )
    await target.delete(session)
    return "deletion"


class _Transfer:
    """One session on its way, as its head in the source said when it was read."""

    def __init__(self, source: Store, target: Store, head: Head, owner: str, on_write: Callable[[int], None]) -> None:
        self._source = source
        self._target = target
        self._head = head
        self._session = head.session
        self._owner = owner
        self._on_write = on_write
        self._there: Head | None = None
        self._epoch = 0
        self._prune = 0
        progress = progress_of(head)
        self._last = {
            Kind.BODY: progress.bodies,
            Kind.DECISION: progress.decisions,
            Kind.TURN: progress.turn,
            Kind.CHECKPOINT: progress.checkpoint,
            Kind.FAILURE: progress.failures,
            Kind.CALL: progress.calls,
        }

    async def run(self) -> CopyResult | None:
        """Copy it and return what became of it; ``None`` if it changed in the source before all of it was read."""
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
            # All of it before the first write: that takes the place of the head.
            same = await self._compare(there)
            if same is not False:
                return "unchanged" if same else None
        return await self._add(fresh=there is None)

    async def _compare(self, there: Head) -> bool | None:
        """Say whether the copy is complete; ``None`` if the source changed meanwhile, so that nobody can tell.

        Raises:
            Conflict: it is not a copy of an earlier time, so to complete it would lose something.
        """
        missing = False
        differs: Row | None = None
        extra: Row | None = None
        first: int | None = None
        gone: list[Row] = []
        for page in self._pages():
            found = {row.n: row for row in await page.read(self._target, self._session)}
            for row in await page.read(self._source, self._session):
                other = found.pop(row.n, None)
                missing |= other is None
                if other is not None and other.data != row.data:
                    differs = differs or other
                if row.kind is Kind.CALL and first is None:
                    first = row.n
            if page.kind is Kind.CALL:
                gone += found.values()
            else:
                extra = extra or next(iter(found.values()), None)
        if await self._moved():
            return None
        extra = extra or self._own_call(gone, first, followed=missing or there.token.startswith(TOKEN))
        if differs or extra:
            raise self._conflict(there, differs or extra, ahead=not (differs or missing))
        head = self._head
        if (there.data, there.status, there.labels) == (head.data, head.status, head.labels):
            return not missing and not gone
        if not missing and not there.token.startswith(TOKEN):
            raise self._conflict(there, None, ahead=False)
        return False

    def _own_call(self, gone: Sequence[Row], first: int | None, *, followed: bool) -> Row | None:
        """Return one of the calls that only the copy has, unless the source has removed them; then the copy will, too.

        ``first`` is the first call in the source. ``followed``: it has gone on, or nobody has used the copy.
        """
        if not gone:
            return None
        self._prune = gone[-1].n + 1
        return None if followed and (first is None or gone[-1].n < first) else gone[-1]

    def _conflict(self, there: Head, row: Row | None, *, ahead: bool) -> Conflict:
        """Return the error; ``row`` is one that differs from the source, without it only the head differs."""
        name, id_ = f"session {self._session!r}", shlex.quote(self._session)
        what = f"{row.kind.name.lower()} {row.n}" if row else "its status or labels"
        if there.data == COPYING:
            text = (
                f"{name} was half copied to the destination from another source ({what} differs); finish it from "
                f"there, or copy this one to another store: midturn copy SRC_URL OTHER_URL --session {id_}"
            )
        elif ahead:
            text = (
                f"{name} has gone on in the destination ({what} is not in the source), nothing was overwritten; "
                f"to bring the source up to date: midturn copy DST_URL SRC_URL --session {id_}"
            )
        else:
            text = (
                f"{name} has gone on in both stores ({what} differs), nothing was overwritten; go on with one of "
                f"them, or keep both in different stores: midturn copy SRC_URL OTHER_URL --session {id_}"
            )
        return Conflict(text, session=self._session)

    async def _add(self, *, fresh: bool) -> CopyResult | None:
        """Write the rows that are not there yet, then the head."""
        digest = _Digest()
        chunk: list[Row] = []
        size = 0
        for page in self._pages():
            found = set[int]() if fresh else {row.n for row in await page.read(self._target, self._session)}
            for row in await page.read(self._source, self._session):
                digest.add(row)
                if row.n in found:
                    continue
                if chunk and size + len(row.data) > CHUNK:
                    await self._write(chunk, last=False)
                    chunk, size = [], 0
                chunk.append(row)
                size += len(row.data)
        if await self._moved():
            return None
        await self._verify(digest, await self._write(chunk, last=True))
        return "copied"

    async def _write(self, rows: Sequence[Row], *, last: bool) -> Head:
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
                    prune=self._prune if last else 0,
                )
            )
        except Conflict:
            raise Conflict(
                f"session {self._session!r} was written in the destination by somebody else meanwhile; run again",
                session=self._session,
            ) from None
        self._on_write(sum(len(row.data) for row in rows))
        return self._there

    async def _verify(self, digest: _Digest, written: Head) -> None:
        """Read the copy back. Somebody may use it already, so rows may have come after those that were written."""
        found, more = _Digest(), False
        for page in self._pages():
            for row in await page.read(self._target, self._session):
                if (row.kind, row.n) in digest.seen:
                    found.add(row)
                else:
                    more = True
        head = await self._target.head(self._session)
        if head is not None and head.status == "deleted":
            raise SessionDeleted.of(self._session)
        if head is None or head.seq == written.seq:
            good = head is not None and not more and found.close(head) == digest.close(self._head)
        else:
            good = found.close(self._head) == digest.close(self._head)
        if not good:
            raise StateInvalid(
                "what was read back from the destination is not what was written there; the source is as it was: "
                "check the destination's disk, and copy to another store",
                path=f"session {self._session!r}",
                session=self._session,
            )

    async def _moved(self) -> bool:
        """Say whether the source has changed, so that what was read of it may not belong together."""
        head = await self._source.head(self._session)
        return head is None or head.seq != self._head.seq

    def _pages(self) -> Iterator[_Page]:
        for kind in Kind:
            last = self._last.get(kind, 0)
            for start in range(0, last + 1, PAGE):
                yield _Page(kind, start, start + PAGE if start + PAGE <= last else None)


def _token() -> str:
    return f"{TOKEN}{uuid.uuid4().hex[:12]}"
