"""Following a turn that another process runs or has run: its events, rebuilt from its record without any call.

Nothing is written, and no lease is taken. While the turn runs, the store is read again and again for further calls.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from midturn.errors import (
    Drifted,
    MidturnError,
    MigrationFailed,
    MissingMigration,
    NotFound,
    ReplayDiverged,
    UnknownVersion,
)
from midturn.framework import EventT_co, Outcome, ResultT_co
from midturn.history.checkpoints import input_of, read_bodies
from midturn.history.turns import last_failure, missing_turn
from midturn.journal import recorded
from midturn.journal.recorded import shown_row
from midturn.lease.ledger import Ledger, holder
from midturn.record.head import Kind
from midturn.record.rows import CheckpointRow, TurnRow
from midturn.stopping import Stop, fail, settled
from midturn.turns.rerun import EndOfRecord, RecordedCalls, UnknownCall, built_before, check_kept

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from midturn.framework import Framework
    from midturn.history.turns import TurnStatus
    from midturn.journal.recorded import Recorded
    from midturn.store import Store
    from midturn.versions.blueprint import Blueprint

_log = logging.getLogger(__name__)

SHORTEST, LONGEST = 0.02, 0.5
"""Seconds between two reads of a session that does not change."""
SLOWER = 1.5
ACTS = ("tool", "code", "memory")
"""Kinds of calls that today's code has to make again. A model may have been asked again, and a question answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A turn as it was seen last."""

    turn: int
    key: str | None
    status: TurnStatus
    checkpoint: int
    """The checkpoint that the turn began with."""
    calls: Sequence[int]
    """The numbers of the turn's first call and of the one after its last; empty if they were not recorded."""
    error: str = ""


class Watch:
    """Reads one turn of a session, again and again."""

    def __init__(self, store: Store, session: str) -> None:
        self.ledger = Ledger(store, session)
        self._pause = SHORTEST

    async def look(self, turn: int | None = None, key: str | None = None) -> Seen | None:
        """Return the turn with this number or key, or else the latest turn; ``None`` if there is none."""
        await self.ledger.refresh()
        return await self.ledger.steady(lambda: self._look(turn, key))

    async def pause(self) -> None:
        """Wait before the next read. The wait grows while nothing changes."""
        seq = self.ledger.seq
        await asyncio.sleep(self._pause)
        await self.ledger.refresh()
        self._pause = SHORTEST if self.ledger.seq != seq else min(self._pause * SLOWER, LONGEST)

    async def settled(self, turn: int, seen: Callable[[Seen], None]) -> Seen:
        """Wait until a turn has stopped running. ``seen`` gets the turn after each read."""
        while True:
            found = await self.demand(turn)
            seen(found)
            if found.status != "running":
                return found
            await self.pause()

    async def demand(self, turn: int) -> Seen:
        """Return a turn.

        Raises:
            NotFound: there is no such turn.
        """
        found = await self.look(turn)
        if found is None:
            raise missing_turn(self.ledger, turn)
        return found

    async def _look(self, turn: int | None, key: str | None) -> Seen | None:
        ledger = self.ledger
        if key is not None:
            _, known = await ledger.key(key)
            if known is None:
                return None
            turn = known.turn
        progress = ledger.progress
        turn = progress.turn if turn is None else turn
        if not progress.first <= turn <= progress.turn:
            return None
        row = await ledger.demand(Kind.TURN, TurnRow, turn)
        if turn == progress.turn and progress.open is not None:
            failure = await last_failure(ledger, turn) if progress.open in ("failed", "cancelled") else None
            return Seen(
                turn=turn,
                key=row.key,
                status="interrupted" if progress.open == "running" and holder(ledger.head) is None else progress.open,
                checkpoint=progress.checkpoint,
                calls=(progress.journal, progress.calls),
                error="" if failure is None else failure.error,
            )
        done = await ledger.read(Kind.CHECKPOINT, CheckpointRow, turn)
        if done is not None:
            return Seen(turn=turn, key=row.key, status="done", checkpoint=done.parent, calls=done.calls)
        failure = await last_failure(ledger, turn)
        if failure is None:
            raise ledger.missing(Kind.CHECKPOINT, turn)
        before = await ledger.store.rows(ledger.session, Kind.CHECKPOINT, stop=turn)
        return Seen(
            turn=turn,
            key=row.key,
            status=failure.status,
            checkpoint=before[-1].n if before else 0,
            calls=failure.calls or (0, 0),
            error=failure.error,
        )


class Follower(Generic[EventT_co, ResultT_co]):
    """Rebuilds the events of a turn. ``seen`` gets the turn after each read.

    ``build`` returns an agent or team that can run the turn, with the state of a checkpoint; without it, the blueprint
    builds one.
    """

    def __init__(
        self,
        store: Store,
        session: str,
        turn: int,
        blueprint: Blueprint,
        framework: Framework[EventT_co, ResultT_co],
        *,
        seen: Callable[[Seen], None] = lambda _: None,
        build: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        self._watch = Watch(store, session)
        self._turn = turn
        self._blueprint = blueprint
        self._framework = framework
        self._seen = seen
        self._build = build

    async def said(self) -> list[EventT_co]:
        """Return the events so far, as far as the current code rebuilds them."""
        said: list[EventT_co] = []
        try:
            async with aclosing(self.events(follow=False)) as events:
                async for event in events:
                    said.append(event)  # noqa: PERF401 - those before an error count
        except (Drifted, MigrationFailed, MissingMigration, ReplayDiverged, UnknownVersion):
            pass  # the code has changed; its calls and questions can be read nevertheless
        except MidturnError:
            raise
        except Exception as error:  # noqa: BLE001 - a failed turn fails again
            kind = type(error).__name__  # its text may be one that is not stored
            _log.debug("turn %d of session %r fails again: %s", self._turn, self._watch.ledger.session, kind)
        return said

    async def events(self, *, follow: bool = True) -> AsyncGenerator[EventT_co, None]:
        """Yield the events from the first on, until the turn ends, waits or is interrupted, or ``follow`` is false.

        Raises:
            NotFound: the calls of the turn were not recorded, or have been removed.
            ReplayDiverged: today's code does not make the recorded calls.
        """
        ledger, framework = self._watch.ledger, self._framework
        found = await self._watch.demand(self._turn)
        known = await self._read(found)
        redaction = None if self._blueprint.redact is None else self._blueprint.redaction(ledger.session)
        if self._build is None:
            live = await ledger.steady(
                lambda: built_before(ledger, found.checkpoint, self._blueprint, framework, redaction)
            )
        else:
            live = await self._build()
        row = await ledger.demand(Kind.TURN, TurnRow, self._turn)
        given = input_of(ledger.session, self._turn, row, await read_bodies(ledger, ledger.progress.bodies))
        halt: Stop = asyncio.get_running_loop().create_future()
        if redaction is not None:
            redaction.learn(given.task)
        calls = RecordedCalls(known, halt, growing=True, redaction=redaction)
        watching = asyncio.create_task(self._grow(found, calls, halt, follow=follow))
        try:
            async with aclosing(framework.stream(live, given, calls, self._blueprint.effects, [halt])) as stream:
                async for item in stream:
                    if not isinstance(item, Outcome):
                        yield item
        except UnknownCall as other:
            raise self._diverged(known, str(other)) from None
        except EndOfRecord:
            pass
        finally:
            watching.cancel()
            await settled(_end(watching, calls))
        if any(entry.row.what in ACTS and entry.row.attempt for entry in known.left()):
            raise self._diverged(known, None)

    async def _grow(self, found: Seen, calls: RecordedCalls, halt: Stop, *, follow: bool) -> None:
        """Give the calls that were recorded since to the turn that runs again."""
        ledger = self._watch.ledger
        try:
            while True:
                self._seen(found)
                if found.status != "running" or not follow:
                    calls.end(whole=found.status == "done")
                    return
                await self._watch.pause()
                after = found.calls[1]
                found = await self._watch.demand(self._turn)
                calls.grow(await ledger.steady(partial(self._rows, after, self._recorded(found)[1])))
        except Exception as error:  # noqa: BLE001 - whoever follows the turn gets it
            fail(halt, error)

    async def _read(self, found: Seen) -> Recorded:
        ledger = self._watch.ledger
        first, after = self._recorded(found)
        await check_kept(ledger, first, after, self._unavailable("no longer has its calls"))
        return await ledger.steady(lambda: self._all(first, after))

    async def _all(self, first: int, after: int) -> Recorded:
        ledger = self._watch.ledger
        turn = await ledger.demand(Kind.TURN, TurnRow, self._turn)
        bodies = await read_bodies(ledger, ledger.progress.bodies)
        return await recorded.read(ledger, first, after, bodies, born=turn.at)

    async def _rows(self, first: int, after: int) -> list[tuple[Any, dict[str, Any]]]:
        ledger = self._watch.ledger
        bodies = await read_bodies(ledger, ledger.progress.bodies)
        return await recorded.read_values(ledger, first, after, bodies)

    def _recorded(self, found: Seen) -> tuple[int, int]:
        if not found.calls:
            why = 'has no recorded calls: it ran with durability="turn", or did not run at all'
            raise NotFound(self._unavailable(why), session=self._watch.ledger.session)
        return found.calls[0], found.calls[1]

    def _unavailable(self, why: str) -> str:
        session = self._watch.ledger.session
        return f"the events of turn {self._turn} of session {session!r} cannot be rebuilt: it {why}"

    def _diverged(self, known: Recorded, now: str | None) -> ReplayDiverged:
        session = self._watch.ledger.session
        why = f": {now}" if now else ""
        return ReplayDiverged(
            f"the events of turn {self._turn} of session {session!r} cannot be rebuilt, because the code has changed "
            f"since then{why}",
            session=session,
            turn=self._turn,
            recorded=[shown_row(entry.row) for entry in known.left()],
            now=now,
            hint="turn() and open_turn() return what is recorded.",
        )


async def _end(watching: asyncio.Task[None], calls: RecordedCalls) -> None:
    await asyncio.wait({watching})
    await calls.close()
