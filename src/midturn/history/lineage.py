"""The origins of a session's state: the turns that lead to it, and the sessions that it was forked from."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from midturn.errors import NotFound, SessionDeleted, StateInvalid, UnknownVersion
from midturn.history.checkpoints import latest_restoring
from midturn.history.session_info import fork_of, known_info
from midturn.lease.ledger import Ledger
from midturn.record.head import Kind
from midturn.record.rows import CheckpointRow, decode_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Sequence

    from midturn.history.session_info import Fork, SessionInfo, SessionStatus
    from midturn.record.head import Head
    from midturn.record.rows import Progress, Tombstone
    from midturn.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """A session in the lineage of another."""

    session: str
    status: SessionStatus
    """``deleted`` also for a session whose id was used again since."""
    forked_from: Fork | None = None
    forks: Sequence[Relative] = ()
    """The sessions that were forked from this one, ordered by checkpoint and id; empty for an ancestor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage(Relative):
    """A session with its ancestors, and its descendants as a tree."""

    ancestors: Sequence[Relative] = field(default=())
    """The sessions that lead to this one, the oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A part of the turns that lead to a state: those of one session."""

    ledger: Ledger
    start: int
    stop: int
    restored: int
    """The latest checkpoint of the session that restores an older one, among those that lead to the state."""


async def lines(ledger: Ledger, last: int | None, *, origins: bool, before: int | None = None) -> list[Line]:
    """Return the turns of a session whose head was read, and before them those of its ``origins``.

    With ``last``, return only that many of the latest turns; with ``before``, only turns before that one. Turns of an
    origin that was deleted are left out.
    """
    progress = ledger.progress
    stop = progress.turn + 1 if before is None else max(min(before, progress.turn + 1), progress.first)
    found = [Line(ledger=ledger, start=progress.first, stop=stop, restored=progress.restored)]
    left, seen = None if last is None else last - (found[0].stop - found[0].start), {ledger.session}
    while origins and (left is None or left > 0):
        origin = await _origin(found[-1].ledger)
        if origin is None or origin.ledger.session in seen:  # damaged records must not lead in circles
            break
        seen.add(origin.ledger.session)
        found.append(origin)
        left = None if left is None else left - (origin.stop - origin.start)
    if left is not None and left < 0:
        found[-1] = replace(found[-1], start=found[-1].start - left)
    return found[::-1]


async def _origin(ledger: Ledger) -> Line | None:
    """Return the turns of the session that a fork began with; ``None`` if it is no fork, or they are deleted."""
    fork = ledger.progress
    if not fork.forked_from:
        return None
    origin = Ledger(ledger.store, fork.forked_from)
    try:
        await origin.refresh()
    except SessionDeleted:
        return None
    at, first = fork.forked_at, origin.progress.first
    if at < first:
        return None
    row = await origin.read(Kind.CHECKPOINT, CheckpointRow, at)
    if not _is_origin(row, origin.progress.checkpoint, at, fork.forked_when):
        return None
    return Line(ledger=origin, start=first, stop=at + 1, restored=0 if row is None else latest_restoring(row, at))


def _is_origin(row: CheckpointRow | None, latest: int, at: int, when: float) -> bool:
    """Return whether this is the session that was forked, and not a later one with its id."""
    return at <= latest if row is None else row.at == when


async def left_behind(ledger: Ledger, restored: int, start: int) -> dict[range, int]:
    """Return the turns after ``start`` that were left behind, each range with the turn that restored an older state.

    ``restored`` is the latest such turn. One row is read for each of them.

    Raises:
        StateInvalid: one of them is missing or damaged.
    """
    found: dict[range, int] = {}
    while restored > start:
        row = await ledger.demand(Kind.CHECKPOINT, CheckpointRow, restored)
        if row.restores is None or not row.restored <= row.restores < restored:  # else this might never end
            name = ledger.name(Kind.CHECKPOINT, restored)
            raise StateInvalid("does not restore an earlier one", path=name, session=ledger.session)
        found[range(row.restores + 1, restored)] = restored
        restored = row.restored
    return found


class _Known(NamedTuple):
    """A session as its head describes it. Most are no relatives, so the facts of a session are found when needed."""

    head: Head
    record: Progress | Tombstone

    @property
    def info(self) -> SessionInfo:
        """Return the status and the facts of the session."""
        return known_info(self.head, self.record)

    @property
    def when(self) -> float:
        """Return the time of the checkpoint that it was forked from."""
        return self.record.forked_when


async def lineage(store: Store, session: str, heads: AsyncIterable[Head]) -> Lineage:
    """Return the ancestors and the descendants of a session, given all other ``heads`` of the store.

    Raises:
        NotFound: there is no such session.
    """
    head = await store.head(session)
    if head is None:
        raise NotFound.of(session)
    family = _Family(store)
    async for each in heads:
        with suppress(StateInvalid, UnknownVersion):  # a damaged head is listed elsewhere
            family.add(each)
    me = family.add(head).info
    return Lineage(
        session=session,
        status=me.status,
        forked_from=me.forked_from,
        ancestors=await family.ancestors(session),
        forks=await family.forks(session),
    )


class _Family:
    """Sessions, and which of them was forked from which."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, _Known] = {}
        self._forks: dict[str, set[str]] = {}

    def add(self, head: Head) -> _Known:
        """Add a session and return it."""
        self._known[head.session] = known = _Known(head, fork_of(head))
        if known.record.forked_from:
            self._forks.setdefault(known.record.forked_from, set()).add(head.session)
        return known

    async def ancestors(self, session: str) -> list[Relative]:
        """Return the sessions that lead to a session, the oldest first."""
        found: list[Relative] = []
        seen, known = {session}, self._known[session]
        while (fork := known.info.forked_from) is not None:
            origin = self._known.get(fork.session)
            if origin is None or fork.session in seen or not await self._is_fork(known):
                found.append(Relative(session=fork.session, status="deleted"))
                break
            seen.add(fork.session)
            found.append(_relative(origin.info))
            known = origin
        return found[::-1]

    async def forks(self, session: str) -> Sequence[Relative]:
        """Return the forks of a session, each with its own."""
        order, seen, forks = [session], {session}, dict[str, list[str]]()
        for name in order:  # it grows: a chain of forks may be longer than the calls that Python can nest
            found = sorted(self._forks.get(name, set()) - seen, key=self._order)
            forks[name] = [each for each in found if await self._is_fork(self._known[each])]
            order += forks[name]
            seen.update(forks[name])
        made: dict[str, Relative] = {}
        for name in reversed(order):
            own = tuple(made.pop(each) for each in forks[name])
            made[name] = replace(_relative(self._known[name].info), forks=own)
        return made[session].forks

    def _order(self, session: str) -> tuple[int, str]:
        fork = self._known[session].info.forked_from
        return 0 if fork is None else fork.checkpoint, session

    async def _is_fork(self, known: _Known) -> bool:
        """Return whether the session with the id of the origin is the origin, and not a later one."""
        fork = known.info.forked_from
        if fork is None:
            return False
        origin = self._known[fork.session].info
        if origin.status == "deleted":
            return True  # what it was can no longer be told
        if fork.checkpoint < origin.first_turn:  # a compaction has removed the checkpoint
            return _is_origin(None, origin.checkpoint, fork.checkpoint, known.when)
        rows = await self._store.rows(origin.id, Kind.CHECKPOINT, start=fork.checkpoint, stop=fork.checkpoint + 1)
        row = decode_record(CheckpointRow, rows[0].data, f"{origin.id} checkpoint {fork.checkpoint}") if rows else None
        return _is_origin(row, origin.checkpoint, fork.checkpoint, known.when)


def _relative(info: SessionInfo) -> Relative:
    return Relative(session=info.id, status=info.status, forked_from=info.forked_from)
