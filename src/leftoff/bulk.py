"""Bringing many sessions to a blueprint's version, each in one write, and undoing that."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from leftoff import turns
from leftoff.committing import Stamp, commit, now
from leftoff.errors import (
    Conflict,
    LeftoffError,
    OutcomeUnknown,
    SessionDeleted,
    StoreFull,
    StoreUnavailable,
    UnknownVersion,
)
from leftoff.history import read_checkpoint
from leftoff.ledger import Ledger
from leftoff.records import Kind, Row
from leftoff.state import Archive
from leftoff.turns import CheckpointRow, TurnRow
from leftoff.upgrading import check_version, upgrade

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence

    from leftoff.blueprint import Blueprint
    from leftoff.codec import Json
    from leftoff.framework import Framework
    from leftoff.store import Store
    from leftoff.turns import Origin

Outcome: TypeAlias = Literal["changed", "unchanged", "open", "busy", "failed"]
"""``open``: its last turn is not finished, so it is migrated when that goes on. ``busy``: a worker holds it."""

AGAIN, PAUSE = 5, 1.0
"""How often the busy ones are tried again at the end, and after how many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one session."""

    session: str
    outcome: Outcome
    reason: str = ""
    before: Json = None
    """The state that was there, if it is changed; ``after`` is the one that is there now, or would be."""
    after: Json = None


Worker: TypeAlias = "Callable[[str], Coroutine[Any, Any, Result]]"


class Migration:
    """A run that brings sessions to a blueprint's version. Each worker of a run has its own."""

    def __init__(
        self,
        store: Store,
        blueprint: Blueprint,
        framework: Framework[Any, Any],
        *,
        run: str,
        dry_run: bool = False,
        adopt: bool = False,
    ) -> None:
        blueprint.check()
        self._store = store
        self._blueprint = blueprint
        self._framework = framework
        self._run = run
        self._dry_run = dry_run
        self._adopt = adopt
        """Whether sessions without a blueprint's name are taken for this one's."""
        self._live: Any = None
        self._built: dict[str, Json] = {}

    async def __call__(self, session: str) -> Result:
        """Migrate one session, if it has to be."""
        return await _settle(session, self._migrate(Ledger(self._store, session)))

    async def _migrate(self, ledger: Ledger) -> Result:
        session, blueprint = ledger.session, self._blueprint
        row = await _latest(ledger)
        if row is None:
            return Result(session=session, outcome="unchanged")
        if row.blueprint != blueprint.name and not (self._adopt and not row.blueprint):
            what = f"is of the blueprint {row.blueprint!r}" if row.blueprint else "is of no blueprint"
            return Result(session=session, outcome="unchanged", reason=what)
        check_version(row.version, blueprint.version, session)
        if row.version == blueprint.version:
            return Result(session=session, outcome="unchanged")
        if (held := _held(ledger)) is not None:
            return held
        archive = Archive()
        archive.logs = ledger.progress.logs
        stored = await read_checkpoint(ledger, ledger.progress.checkpoint, archive, bodies=ledger.progress.bodies)
        live = await self.build()
        fitted = await upgrade(
            stored, live, self._built, blueprint, self._framework, session=session, on_drift="ignore"
        )
        stamp = Stamp(
            blueprint=blueprint.name,
            version=blueprint.version,
            fingerprint=archive.message(self._built, "fingerprint"),
            drift=fitted.changes,
            run=self._run,
        )
        if not self._dry_run:
            await _write(ledger, archive, fitted.tree, stamp, "migration")
        return Result(session=session, outcome="changed", before=stored.tree, after=fitted.tree)

    async def build(self) -> Any:
        """What the states have to fit; it is never run."""
        if self._live is None:
            live = await self._blueprint.build()
            self._built = await self._framework.fingerprint(live)
            self._live = live
        return self._live


class Rollback:
    """A run that undoes another one: sessions have the state from before it again."""

    def __init__(self, store: Store, *, run: str, dry_run: bool = False) -> None:
        self._store = store
        self._run = run
        self._dry_run = dry_run

    async def __call__(self, session: str) -> Result:
        """Undo the migration of one session, if it was migrated in the run and has not gone on since."""
        return await _settle(session, self._undo(Ledger(self._store, session)))

    async def _undo(self, ledger: Ledger) -> Result:
        session = ledger.session
        row = await _latest(ledger)
        if row is None:
            return Result(session=session, outcome="unchanged")
        number = ledger.progress.checkpoint
        if row.run != self._run:
            since = await self._went_on(ledger, number, row.version)
            reason = since and f"has gone on since to turn {number}; fork() it from checkpoint {since} to go back"
            return Result(session=session, outcome="failed" if since else "unchanged", reason=reason or "")
        if (held := _held(ledger)) is not None:
            return held
        archive = Archive()
        archive.logs = ledger.progress.logs
        stored = await read_checkpoint(ledger, number, archive, bodies=ledger.progress.bodies)
        before = await read_checkpoint(ledger, row.parent, Archive())
        if not self._dry_run:
            await _write(ledger, archive, before.tree, Stamp.of(before, archive), "rollback")
        return Result(session=session, outcome="changed", before=stored.tree, after=before.tree)

    async def _went_on(self, ledger: Ledger, number: int, version: int) -> int | None:
        """The checkpoint from before the run, if a session was migrated in it before its latest checkpoint."""
        while number:
            row = await ledger.read(Kind.CHECKPOINT, CheckpointRow, number)
            if row is None or row.version != version:
                return None
            if row.run == self._run:
                return row.parent
            number = row.parent
        return None


async def in_bulk(sessions: AsyncGenerator[str, None], workers: Sequence[Worker]) -> AsyncGenerator[Result, None]:
    """What becomes of many sessions, each given to one of the workers; those that are busy are tried again at the end.

    The first error of the store ends it: what was done is done, and another run goes on from there.
    """
    busy: list[str] = []
    async with aclosing(_spread(sessions, workers)) as results:
        async for result in results:
            if result.outcome == "busy":
                busy.append(result.session)
            else:
                yield result
    for last in range(AGAIN, 0, -1):
        if not busy:
            return
        await asyncio.sleep(PAUSE)
        again, busy = busy, []
        async with aclosing(_spread(_each(again), workers)) as results:
            async for result in results:
                if result.outcome == "busy" and last > 1:
                    busy.append(result.session)
                else:
                    yield result


async def _each(sessions: Sequence[str]) -> AsyncGenerator[str, None]:
    for session in sessions:
        yield session


async def _spread(sessions: AsyncGenerator[str, None], workers: Sequence[Worker]) -> AsyncGenerator[Result, None]:
    free = list(workers)
    running: dict[asyncio.Task[Result], Worker] = {}
    more = True
    try:
        while more or running:
            while more and free:
                session = await anext(sessions, None)
                more = session is not None
                if session is not None:
                    worker = free.pop()
                    running[asyncio.create_task(worker(session))] = worker
            done = (await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))[0] if running else ()
            for task in done:
                free.append(running.pop(task))
                yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await sessions.aclose()


async def _settle(session: str, work: Coroutine[Any, Any, Result]) -> Result:
    """What became of a session; errors that are its own do not end the run."""
    try:
        return await work
    except SessionDeleted:
        return Result(session=session, outcome="unchanged", reason="was deleted")
    except Conflict:
        return Result(session=session, outcome="busy", reason="is being written by somebody else")
    except (StoreUnavailable, OutcomeUnknown, StoreFull):
        raise
    except UnknownVersion as error:
        return Result(session=session, outcome="unchanged", reason=str(error))
    except LeftoffError as error:
        return Result(
            session=session, outcome="failed", reason="\n".join([str(error), *getattr(error, "__notes__", ())])
        )


async def _latest(ledger: Ledger) -> CheckpointRow | None:
    await ledger.refresh()
    number = ledger.progress.checkpoint
    return await ledger.read(Kind.CHECKPOINT, CheckpointRow, number) if number else None


def _held(ledger: Ledger) -> Result | None:
    """Why a session is left alone for now."""
    session, progress = ledger.session, ledger.progress
    if owner := ledger.busy():
        return Result(session=session, outcome="busy", reason=f"is held by {owner}")
    if progress.open is not None:
        doing = {"waiting": "waits for an answer", "running": "was interrupted"}.get(progress.open, progress.open)
        return Result(session=session, outcome="open", reason=f"its turn {progress.turn} {doing}")
    return None


async def _write(ledger: Ledger, archive: Archive, tree: Json, stamp: Stamp, origin: Origin) -> None:
    number = ledger.progress.turn + 1
    turn = TurnRow(at=now(), blueprint=stamp.blueprint, version=stamp.version)
    await commit(
        ledger,
        archive,
        tree,
        stamp,
        turn=number,
        origin=origin,
        rows=[Row(kind=Kind.TURN, n=number, data=turns.encode(turn))],
    )
