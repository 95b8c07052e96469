"""Running one turn of a session whose lease is held: accept, run, commit; or record that it failed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from midturn.errors import (
    LeaseLost,
    MidturnError,
    SessionDeleted,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
    TurnFailed,
)
from midturn.framework import EventT_co, Outcome, ResultT_co
from midturn.history.checkpoints import messages_of, read_bodies
from midturn.journal.divergence import Divergence
from midturn.journal.journal import Journal, Suspended, Unrecorded
from midturn.journal.recorded import Recorded
from midturn.record.head import Kind, Row
from midturn.record.rows import MAX_ERROR, CheckpointRow, FailureRow, KeyRow, TurnRow, encode_record, now
from midturn.stopping import each, settled
from midturn.turns.commit import Stamp, commit
from midturn.turns.open_turn import OpenTurn, calls_made, check_open_turn, read_open_turn

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Sequence

    from midturn.framework import Framework
    from midturn.history.checkpoints import Stored
    from midturn.lease.ledger import Ledger
    from midturn.record.codec import Json
    from midturn.record.rows import CallRow, Ended, Origin
    from midturn.stopping import Stop
    from midturn.turns.instance import Instance
    from midturn.turns.session_options import Options

Diverged: TypeAlias = Literal["raise", "continue"]


class TurnRunner(Generic[EventT_co, ResultT_co]):
    """Runs the turns of one session, one at a time."""

    def __init__(
        self,
        ledger: Ledger,
        instance: Instance[EventT_co, ResultT_co],
        framework: Framework[EventT_co, ResultT_co],
        options: Options,
    ) -> None:
        self._ledger = ledger
        self._instance = instance
        self._framework = framework
        self._options = options
        self._turn = OpenTurn(recorded=Recorded())
        """The turn that is about to run."""
        self._notes: list[str] = []

    async def begin(self, task: list[Json] | None, key: str | None, key_number: int, digest: str) -> None:
        """Accept an input: durable, with the lease, before anything runs."""
        await self._instance.load(self._ledger)
        repairs = await self._framework.prepare(self._instance.live)
        progress, archive = self._ledger.progress, self._instance.archive
        turn = progress.turn + 1
        numbers = None
        if task is not None:
            self._framework.check(self._instance.live, task)
            numbers = [archive.message(message, f"task[{i}]") for i, message in enumerate(task)]
        row = self._turn_row(numbers, key, repairs)
        if not progress.checkpoint:
            row = replace(row, fingerprint=self._instance.stamp().fingerprint)
        rows = [_row(Kind.TURN, turn, row)]
        if key is not None:
            rows.append(_row(Kind.KEY, key_number, KeyRow(key=key, turn=turn, task=digest)))
        self._turn = OpenTurn(task=task, born=row.at, recorded=Recorded())
        progress = replace(
            progress,
            turn=turn,
            bodies=archive.bodies,
            journal=progress.calls,
            open="running",
            attempts=1,
            attempted=row.at,
            blueprint=self._instance.blueprint.name or progress.blueprint,
            version=self._instance.version,
        )
        await self._instance.begin()
        with self._ledger.storing(archive) as bodies:
            write = self._ledger.write(status="running", progress=progress, rows=[*bodies, *rows])
            await self._open(write, own=True)

    async def reopen(self, *, own: bool) -> None:
        """Take the lease to run the open turn again; ``own`` says that the caller asked for this very turn."""
        await self._instance.load(self._ledger)
        self._turn = await read_open_turn(self._ledger)
        await check_open_turn(self._turn, self._instance)
        await self._framework.prepare(self._instance.live)  # the turn has the repairs since begin()
        progress = self._ledger.progress
        progress = replace(
            progress,
            open="running",
            attempts=progress.attempts + 1,
            attempted=now(),
            version=max(progress.version, self._instance.version),
        )
        await self._instance.begin()
        await self._open(self._ledger.write(status="running", progress=progress), own=own)

    async def _open(self, write: Coroutine[None, None, None], *, own: bool) -> None:
        try:
            await write
        except asyncio.CancelledError as error:
            if own and self._ledger.owned:  # it was written all the same
                await self._abort("cancelled", error)
            raise

    async def perform(
        self, stop: Stop, *, own: bool, diverged: Diverged = "raise"
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        """Run the open turn, whose lease is held, and commit it; yield its events, then its result.

        A turn that is not the caller's ``own`` is left as it was when the caller goes: nobody was told of its end.
        """
        turn, waiting = self._ledger.progress.turn, None
        outcome: Outcome | None = None
        said: list[EventT_co] = []
        try:
            async with aclosing(self._events(stop, diverged)) as events:
                async for item in events:
                    if isinstance(item, Outcome):
                        outcome = item
                    else:
                        said.append(item)
                        yield item
            tree = await self._framework.capture(self._instance.live)
            await self._commit(turn, tree, outcome)
        except Suspended as suspended:
            waiting, outcome = suspended.waiting, Outcome(messages=[], native=said)
            await self._suspend(suspended.rows)
        except (asyncio.CancelledError, GeneratorExit) as error:
            if own:
                await self._abort("cancelled", error)
            else:
                self._instance.forget()
            raise
        except (LeaseLost, SessionDeleted, StoreUnavailable, StoreFull):
            self._instance.forget()  # The store has the last word: as far as it knows, the turn was interrupted.
            raise
        except MidturnError as error:
            error.session = error.session or self._ledger.session
            if not own:
                error.add_note(f"This is turn {turn}, which was interrupted before. Your task was not accepted.")
            await self._abort("failed", error)
            raise
        except Exception as error:
            await self._abort("failed", error)
            which = "" if own else ", which another worker left behind and had to be finished first,"
            hint = "run() starts another task" if own else "Your task was not accepted: run() it again"
            raise TurnFailed(
                f"turn {turn} of session {self._ledger.session!r}{which} failed: {_describe(error)}\n"
                "The state is as it was before it.",
                session=self._ledger.session,
                turn=turn,
                hint=f"{hint}, resume() tries turn {turn} again, discard() gives it up.",
            ) from error
        yield self._framework.result(
            self._instance.live,
            turn=turn,
            checkpoint=self._ledger.progress.checkpoint,
            outcome=outcome or Outcome(messages=[]),
            waiting=waiting,
        )

    async def _events(self, stop: Stop, diverged: Diverged) -> AsyncGenerator[EventT_co | Outcome, None]:
        """Yield what the framework's run yields, until it ends, is stopped, has to wait, or the lease is lost."""
        lost: Stop = asyncio.get_running_loop().create_future()
        holding = self._ledger.hold(lost)
        turn = self._turn
        journal: Journal | Unrecorded
        if self._records():
            journal = Journal(
                self._ledger,
                self._instance.archive,
                turn.recorded,
                born=turn.born,
                halt=lost,
                divergence=Divergence(
                    self._ledger, turn.recorded, tools=self._instance.tools(), go_on=diverged == "continue"
                ),
            )
        else:
            journal = Unrecorded(self._ledger, born=turn.born, halt=lost)
        stream = self._framework.stream(self._instance.live, turn.task, journal, self._instance.blueprint.effects)
        try:
            async with aclosing(each(stream, stop, lost)) as items:
                async for item in items:
                    yield item
            self._notes = journal.finish()
        finally:

            async def end() -> None:
                try:
                    await stream.aclose()
                finally:
                    await journal.close()
                    if not lost.done():
                        lost.set_result(None)
                    await holding.end()

            await settled(end())

    def _records(self) -> bool:
        """Return whether the calls of the turn are recorded; what was recorded once is not done again."""
        return self._options.durability == "call" or bool(self._turn.recorded.entries)

    async def _suspend(self, asked: Sequence[CallRow]) -> None:
        """Leave the turn to whoever answers."""
        progress, archive = self._ledger.progress, self._instance.archive
        rows = [_row(Kind.CALL, progress.calls + index, row) for index, row in enumerate(asked)]
        try:
            with self._ledger.storing(archive) as bodies:
                write = self._ledger.write(
                    status="waiting",
                    progress=replace(progress, calls=progress.calls + len(rows), bodies=archive.bodies, open="waiting"),
                    rows=[*bodies, *rows],
                    release=True,
                )
                await settled(write)
        except MidturnError:
            self._instance.forget()  # as far as the store knows, the turn was interrupted
            raise
        await settled(self._instance.go_back())

    async def save(self, tree: Any, origin: Origin, fork_of: Stored | None = None) -> int:
        """Commit a state that no turn has made, perhaps that of another session's checkpoint; return its number."""
        await self._instance.read(self._ledger)
        await self._instance.describe()
        number = self._ledger.progress.turn + 1
        archive = self._instance.archive
        stamp = self._instance.stamp()
        if fork_of is not None:
            stamp = replace(Stamp.of(fork_of, archive), forked_from=fork_of.session, forked_at=fork_of.number)
        await commit(
            self._ledger,
            archive,
            tree,
            stamp,
            turn=number,
            origin=origin,
            rows=[_row(Kind.TURN, number, self._turn_row(None, None))],
            journals=self._options.journals,
        )
        self._instance.end(number)
        return number

    async def _commit(self, turn: int, tree: Any, outcome: Outcome | None) -> None:
        progress = self._ledger.progress
        await commit(
            self._ledger,
            self._instance.archive,
            tree,
            self._instance.stamp(),
            turn=turn,
            origin="run",
            outcome=outcome,
            calls=(progress.journal, progress.calls) if self._records() else (),
            notes=self._notes,
            attempts=progress.attempts,
            journals=self._options.journals,
        )
        self._instance.end(turn)

    def _turn_row(self, task: list[int] | None, key: str | None, repairs: Sequence[str] = ()) -> TurnRow:
        return TurnRow(
            at=now(),
            task=task,
            key=key,
            blueprint=self._instance.blueprint.name,
            version=self._instance.version,
            repairs=tuple(repairs),
        )

    async def _abort(self, status: Ended, error: BaseException) -> None:
        """Record that the open turn ended without a checkpoint, and never use its instance again."""
        progress = self._ledger.progress
        if progress.open is None or not self._ledger.owned:
            self._instance.forget()
            return  # It was cancelled when its commit had already been written.
        failure = FailureRow(
            turn=progress.turn,
            status=status,
            error=_describe(error),
            at=now(),
            calls=calls_made(progress),
            attempts=progress.attempts,
        )
        try:
            write = self._ledger.write(
                status=status,
                progress=replace(progress, failures=progress.failures + 1, open=status),
                rows=[_row(Kind.FAILURE, progress.failures, failure)],
                release=True,
            )
            await settled(write)
            await settled(self._instance.go_back())  # nobody shall find a given instance with half a turn
        except MidturnError as also:
            self._instance.forget()
            error.add_note(f"midturn could not record the end of turn {progress.turn} either: {also}")

    async def recorded(self, turn: int) -> ResultT_co | None:
        """Return the result of a turn that is done, if it is."""
        row = await self._ledger.read(Kind.CHECKPOINT, CheckpointRow, turn)
        if row is None:
            return None
        messages = messages_of(await read_bodies(self._ledger, row.bodies), row.messages)
        outcome = Outcome(messages=messages or [], stop_reason=row.stop_reason, usage=(row.usage[0], row.usage[1]))
        try:
            return self._framework.result(self._instance.live, turn=turn, checkpoint=turn, outcome=outcome)
        except StateInvalid:  # messages of types that only the agent or team itself knows
            await self._instance.load(self._ledger)
            return self._framework.result(self._instance.live, turn=turn, checkpoint=turn, outcome=outcome)


def _row(kind: Kind, n: int, record: object) -> Row:
    return Row(kind=kind, n=n, data=encode_record(record))


def _describe(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"[:MAX_ERROR].rstrip(": ")
    return text.encode(errors="replace").decode()
