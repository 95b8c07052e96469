"""Migrating many sessions to a blueprint's version, each in one write, and rolling such a run back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from midturn.errors import (
    Conflict,
    HistoryLost,
    InvalidArgument,
    MidturnError,
    SessionDeleted,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
)
from midturn.history.turns import PAGE
from midturn.lease.ledger import Ledger
from midturn.questions import check_by
from midturn.record.head import Kind
from midturn.record.rows import CheckpointRow, TurnRow, decode_record
from midturn.stopping import settled
from midturn.turns.acts import Act, Restoration, commit_act, new_archive, read_latest
from midturn.turns.commit import Stamp
from midturn.turns.instance import check_redacts
from midturn.versions.blueprint import build, fingerprint_of
from midturn.versions.loading import fit_stored

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence

    from midturn.framework import Framework
    from midturn.record.codec import Json
    from midturn.record.head import Row
    from midturn.store import Store
    from midturn.versions.blueprint import Blueprint

Became: TypeAlias = Literal["changed", "unchanged", "open", "busy", "failed"]
"""The outcome for a session. ``open``: its last turn is not finished, so it is migrated when that turn continues.
``busy``: a worker holds it."""

AGAIN, PAUSE = 5, 1.0
"""Number of times that busy sessions are tried again at the end, and seconds before each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome for one session."""

    session: str
    became: Became
    reason: str = ""
    before: Json = None
    """The state before a change."""
    after: Json = None
    """The state after the change; in a dry run, the state that the change would make."""


Worker: TypeAlias = "Callable[[str], Coroutine[Any, Any, Result]]"


class MigrationRun:
    """A run that migrates sessions to a blueprint's version. Each worker of a run has its own."""

    def __init__(
        self,
        store: Store,
        blueprint: Blueprint,
        framework: Framework[Any, Any],
        *,
        run: str,
        by: str | None = None,
        dry_run: bool = False,
        adopt: bool = False,
    ) -> None:
        blueprint.check()
        self._store = store
        self._blueprint = blueprint
        self._framework = framework
        self._run = run
        self._by = check_by(by)
        self._dry_run = dry_run
        self._adopt = adopt
        """True if sessions without a blueprint's name count as sessions of this blueprint."""
        self._live: Any = None
        self._built: dict[str, Json] = {}

    async def __call__(self, session: str) -> Result:
        """Migrate one session, if it needs a migration."""
        return await _settle(Ledger(self._store, session), self._migrate)

    async def _migrate(self, ledger: Ledger) -> Result:
        session, blueprint = ledger.session, self._blueprint
        row = await _latest(ledger)
        if row is None:
            return await self._without_a_state(ledger)
        if row.blueprint != blueprint.name and not (self._adopt and not row.blueprint):
            nobodys = "without a blueprint; name each one that you want to migrate with --session"
            what = f"of the blueprint {row.blueprint!r}" if row.blueprint else nobodys
            return Result(session=session, became="unchanged", reason=what)
        if row.version > blueprint.version:
            return Result(session=session, became="unchanged", reason=f"of version {row.version}, which is newer")
        if row.version == blueprint.version:
            return Result(session=session, became="unchanged")
        if (held := _held(ledger)) is not None:
            return held
        archive = new_archive(ledger)
        stored = await read_latest(ledger, archive)
        live = await self.build()
        fitted = await fit_stored(
            stored, live, self._built, blueprint, self._framework, session=session, on_drift="ignore"
        )
        stamp = Stamp(
            blueprint=blueprint.name,
            version=blueprint.version,
            fingerprint=archive.message(self._built, "fingerprint"),
            drift=[*fitted.changes, f"in the run {self._run}"],
            run=self._run,
        )
        if not self._dry_run:
            act = Act(
                kind="migration",
                question=f"Migrate to version {blueprint.version} of {blueprint.name}?",
                by=self._by,
                about={"run": self._run, "version": blueprint.version},
            )
            redaction, tree = blueprint.redaction(session), fitted.tree
            check_redacts(ledger.progress, redaction, session)
            if redaction is not None:
                redaction.learn(stored.tree)
                tree = await self._framework.another().redact(tree, redaction)
            await commit_act(ledger, archive, tree, stamp, act)
        return Result(session=session, became="changed", before=stored.tree, after=fitted.tree)

    async def _without_a_state(self, ledger: Ledger) -> Result:
        """Return the outcome for a session without a state: unchanged, or open in a turn of an earlier version."""
        number = ledger.progress.turn
        turn = await ledger.demand(Kind.TURN, TurnRow, number) if number else None
        mine = turn is not None and turn.blueprint == self._blueprint.name and turn.version < self._blueprint.version
        return (_held(ledger) if mine else None) or Result(session=ledger.session, became="unchanged")

    async def build(self) -> Any:
        """Build the agent or team that the states have to fit; it is never run."""
        if self._live is None:
            live = await build(self._blueprint, self._framework)
            self._built = await fingerprint_of(live, self._framework)
            self._live = live
        return self._live


class RollbackRun:
    """A run that rolls a migration run back: sessions get the state that they had before it."""

    def __init__(self, store: Store, *, run: str, by: str | None = None, dry_run: bool = False) -> None:
        if not run:
            raise InvalidArgument("is empty; give the name that midturn migrate printed", path="run")
        self._store = store
        self._run = run
        self._by = check_by(by)
        self._dry_run = dry_run

    async def __call__(self, session: str) -> Result:
        """Undo the migration of one session, if the run migrated it and it has not continued since."""
        return await _settle(Ledger(self._store, session), self._undo)

    async def _undo(self, ledger: Ledger) -> Result:
        session = ledger.session
        if await _latest(ledger) is None:
            return Result(session=session, became="unchanged")
        number, line = ledger.progress.checkpoint, _Line(ledger)
        row = await line.of(number)
        if row is None or row.run != self._run:
            since = await self._continued_since(line, row)
            if since is None:
                return Result(session=session, became="unchanged")
            reason = f"has continued since to turn {number}; checkpoint {since} has the state before the run"
            return Result(session=session, became="failed", reason=reason)
        if (held := _held(ledger)) is not None:
            return held
        restoration = await Restoration.read(ledger, row.parent)
        if not self._dry_run:
            undone = f"back to version {restoration.older.row.version}: the run {self._run} was undone"
            act = Act(
                kind="rollback",
                question=f"Undo the migration run {self._run}?",
                by=self._by,
                about={"run": self._run, "checkpoint": row.parent},
            )
            await restoration.write(act, drift=[undone])
        return Result(session=session, became="changed", before=restoration.latest.tree, after=restoration.older.tree)

    async def _continued_since(self, line: _Line, row: CheckpointRow | None) -> int | None:
        """Return the checkpoint before the run, if the run migrated the session and it has continued since."""
        while row is not None:
            if row.run == self._run:
                return row.parent
            row = await line.of(row.parent)
        return None


class _Line:
    """The checkpoints that lead to the latest one, without those that were rolled back."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._rows: dict[int, Row] = {}

    async def of(self, number: int) -> CheckpointRow | None:
        """Return a checkpoint, or the older one that it restores."""
        while number >= self._ledger.progress.first:
            if number not in self._rows:
                start = max(0, number + 1 - PAGE)
                found = await self._ledger.store.rows(
                    self._ledger.session, Kind.CHECKPOINT, start=start, stop=number + 1
                )
                self._rows = {row.n: row for row in found}
            name = self._ledger.name(Kind.CHECKPOINT, number)
            if number not in self._rows:
                raise self._ledger.missing(Kind.CHECKPOINT, number)
            row = decode_record(CheckpointRow, self._rows[number].data, name)
            if max(row.parent, row.restores or 0) >= number:  # else the line might never end
                raise StateInvalid("does not follow from an earlier one", path=name, session=self._ledger.session)
            if row.restores is None:
                return row
            number = row.restores
        return None


async def in_bulk(
    sessions: AsyncGenerator[str, None],
    workers: Sequence[Worker],
    tell: Callable[[Result], None],
    *,
    limit: int | None = None,
) -> None:
    """Give each session to one of the workers, and call ``tell`` with the result; try busy sessions again at the end.

    It stops when ``limit`` sessions are changed, or with the first error of the store; another run continues from
    there. When it is cancelled, it completes and reports the sessions that it has begun.
    """
    bulk = _Bulk(workers, tell, limit)
    busy = await bulk.spread(sessions)
    for last in range(AGAIN, 0, -1):
        if not busy:
            return
        await asyncio.sleep(PAUSE)
        busy = await bulk.spread(_each(busy), last=last == 1)


async def _each(sessions: Sequence[str]) -> AsyncGenerator[str, None]:
    for session in sessions:
        yield session


class _Bulk:
    """The distribution of sessions to the workers."""

    def __init__(self, workers: Sequence[Worker], tell: Callable[[Result], None], limit: int | None) -> None:
        self._free = list(workers)
        self._tell = tell
        self._limit = limit
        self._changed = 0
        self._busy: list[str] = []

    async def spread(self, sessions: AsyncGenerator[str, None], *, last: bool = False) -> list[str]:
        """Give all sessions to the workers and return the busy ones; the ``last`` round reports them instead."""
        self._busy = []
        running: dict[asyncio.Task[Result], Worker] = {}
        more = True
        try:
            while more or running:
                while more and self._free and self._may(len(running)):
                    session = await anext(sessions, None)
                    more = session is not None
                    if session is not None:
                        worker = self._free.pop()
                        running[asyncio.create_task(worker(session))] = worker
                if not running:
                    break
                for task in (await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))[0]:
                    self._free.append(running.pop(task))
                    self._count(task.result(), last=last)
        finally:
            for result in await settled(asyncio.gather(*running, return_exceptions=True)):
                if isinstance(result, Result):
                    self._count(result, last=True)
            await sessions.aclose()
        return self._busy

    def _may(self, running: int) -> bool:
        """Return whether the limit allows one more session to change."""
        return self._limit is None or self._changed + running < self._limit

    def _count(self, result: Result, *, last: bool) -> None:
        if result.became == "busy" and not last:
            self._busy.append(result.session)
            return
        self._changed += result.became == "changed"
        self._tell(result)


async def _settle(ledger: Ledger, work: Callable[[Ledger], Coroutine[Any, Any, Result]]) -> Result:
    """Return the outcome for a session; an error of this session does not end the run."""
    session = ledger.session
    try:
        async with ledger.reading():
            return await work(ledger)
    except SessionDeleted:
        return Result(session=session, became="unchanged", reason="was deleted")
    except Conflict:
        return Result(session=session, became="busy", reason="is being written by somebody else")
    except (StoreUnavailable, StoreFull, HistoryLost):  # nobody knows what else the store has lost
        raise
    except Exception as error:  # noqa: BLE001 - an error of one session must not stop the others
        text = str(error) if isinstance(error, MidturnError) else f"{type(error).__name__}: {error}"
        return Result(session=session, became="failed", reason="\n".join([text, *getattr(error, "__notes__", ())]))


async def _latest(ledger: Ledger) -> CheckpointRow | None:
    await ledger.refresh()
    number = ledger.progress.checkpoint
    return await ledger.demand(Kind.CHECKPOINT, CheckpointRow, number) if number else None


def _held(ledger: Ledger) -> Result | None:
    """Return the outcome for a session that cannot be migrated now, if it is busy or open."""
    session, progress = ledger.session, ledger.progress
    if owner := ledger.busy():
        return Result(session=session, became="busy", reason=f"is held by {owner}")
    if progress.open is not None:
        doing = {"waiting": "waits for an answer", "running": "was interrupted"}.get(progress.open, progress.open)
        return Result(session=session, became="open", reason=f"its turn {progress.turn} {doing}")
    return None
