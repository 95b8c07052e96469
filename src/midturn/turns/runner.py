"""Running one turn of a session: accept, run and commit it, or record that it failed."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from midturn.errors import (
    HistoryLost,
    InvalidArgument,
    LeaseLost,
    MidturnError,
    NotFound,
    RedactionFailed,
    SessionDeleted,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
    TurnFailed,
    TurnTimeout,
)
from midturn.framework import EventT_co, Outcome, ResultT_co
from midturn.history.checkpoints import name_of_turn
from midturn.history.turns import last_failure
from midturn.journal.divergence import Divergence
from midturn.journal.journal import Journal, Suspended, Unrecorded
from midturn.journal.recorded import Delivery, Recorded, name_of
from midturn.record.head import Kind, Row
from midturn.record.rows import (
    MAX_ERROR,
    CheckpointRow,
    FailureRow,
    KeyRow,
    TurnRow,
    calls_before,
    encode_record,
    key_row,
    now,
)
from midturn.stopping import Escaped, Resting, fail, settled
from midturn.turns.commit import commit
from midturn.turns.follower import Follower
from midturn.turns.open_turn import OpenTurn, about_turn, calls_made, check_open_turn, keep_calls, read_open_turn
from midturn.turns.recorded_result import result_of
from midturn.turns.resting import RestingTurn, repeated

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from midturn.framework import Framework, Input, Rest
    from midturn.lease.ledger import Ledger
    from midturn.record.rows import Ended, Opened, Progress
    from midturn.stopping import Stop
    from midturn.turns.instance import Instance
    from midturn.turns.open_turn import Decided
    from midturn.turns.resting import RestingTurns
    from midturn.turns.session_options import Options

Diverged: TypeAlias = Literal["raise", "continue"]

MOST_NOTES = 20
"""Number of notes about earlier turns that a turn begins with."""
EARLIER_TURNS = "earlier turns also acted and did not end; the history lists them"
"""The note that a turn has in place of more notes about earlier turns."""


class TurnRunner(Generic[EventT_co, ResultT_co]):
    """Runs the turns of one session, one at a time."""

    def __init__(
        self,
        ledger: Ledger,
        instance: Instance[EventT_co, ResultT_co],
        framework: Framework[EventT_co, ResultT_co],
        options: Options,
        all_resting: RestingTurns,
    ) -> None:
        self._ledger = ledger
        self._instance = instance
        self._framework = framework
        self._options = options
        self._said: tuple[int, list[EventT_co]] | None = None
        """The number of the write that made the turn wait, and the events until then."""
        self._resting: RestingTurn | None = None
        self._all_resting = all_resting

    def at_rest(self) -> OpenTurn | None:
        """Return the open turn if it rests in this process, and can continue as it stands."""
        resting = self._resting
        return resting.turn if resting is not None and resting.fits(self._ledger, self._instance) else None

    async def end_rest(self) -> None:
        """End the turn that rests in this process, if there is one: it will not continue as it stands."""
        resting, self._resting = self._resting, None
        if resting is not None:
            resting.leave_owner()
            await resting.end()

    async def said(self) -> list[EventT_co]:
        """Return the events so far of the open turn, which waits. They are rebuilt if another worker had them."""
        ledger, instance = self._ledger, self._instance
        if self._said is not None and self._said[0] == ledger.seq:
            return self._said[1]
        if not instance.is_runnable:
            return []
        framework = self._framework.another() if instance.is_built else self._framework
        build = None if instance.is_built else self._given
        turn = ledger.progress.turn
        follower = Follower(ledger.store, ledger.session, turn, instance.blueprint, framework, build=build)
        try:
            said = await follower.said()
        except (NotFound, StateInvalid):
            seq = ledger.seq
            await ledger.refresh()
            if ledger.seq == seq:
                raise
            return []  # another worker has ended the turn since its questions were read
        finally:
            if build is not None:
                await settled(instance.go_back())
        self._said = ledger.seq, said
        return said

    async def _given(self) -> Any:
        """Return the given agent or team with the state from before the open turn."""
        await self._instance.load(self._ledger)
        await self._instance.begin()
        await self._framework.prepare(self._instance.live)
        return self._instance.live

    async def begin(
        self, given: Input, key: str | None, key_number: int, digest: str, earlier: KeyRow | None
    ) -> OpenTurn:
        """Accept an input: take the lease and store the input before anything runs. Return the turn to perform.

        ``earlier`` is the record of an earlier turn with the same key; its calls count for this turn, too.
        """
        await self.end_rest()
        await self._instance.load(self._ledger)
        repairs = await self._framework.prepare(self._instance.live)
        progress, archive = self._ledger.progress, self._instance.archive
        turn = progress.turn + 1
        numbers = None
        if given.task is not None:
            self._framework.check(self._instance.live, given.task)
            try:
                numbers = [archive.message(message, f"task[{i}]") for i, message in enumerate(given.task)]
            except StateInvalid as error:  # it is too long
                raise InvalidArgument.of(error) from None
        kept, notes = await self._left_behind(earlier) if progress.open is not None else ((), ())
        row = self._turn_row(numbers, key, repairs, notes)
        row = replace(row, streamed=given.streamed, output_task_messages=given.output_task_messages)
        calls = [] if earlier is None else calls_before(earlier)
        if earlier is not None and calls:
            again = (
                f"key {key!r} was delivered before, as turn {earlier.turn}; midturn does not repeat what that turn did"
            )
            row = replace(row, notes=(*row.notes, again))
        if not progress.checkpoint:
            row = replace(row, fingerprint=self._instance.stamp().fingerprint)
        rows = [_row(Kind.TURN, turn, row), *kept]
        rows += [_row(Kind.CALL, progress.calls + index, call) for index, call in enumerate(calls)]
        if key is not None:
            rows.append(key_row(key_number, key, turn, digest))
        progress = replace(
            progress,
            turn=turn,
            journal=progress.calls,
            calls=progress.calls + len(calls),
            attempts=1,
            attempted=row.at,
            answers=0,
            paid=(0, 0),
            blueprint=self._instance.blueprint.name or progress.blueprint,
            version=self._instance.version,
            redacted=progress.redacted or self._instance.redaction is not None,
        )
        await self._open(progress, rows, own=True, waits=False)
        if calls:
            return await read_open_turn(self._ledger)
        delivery = Delivery(key=key, born=row.at)
        recorded = Recorded(turn=name_of(self._ledger), born=row.at)
        given = replace(given, turn=name_of_turn(self._ledger.session, turn, row.at))
        return OpenTurn(given=given, delivery=delivery, version=row.version, notes=row.notes, recorded=recorded)

    async def _left_behind(self, earlier: KeyRow | None) -> tuple[Sequence[Row], Sequence[str]]:
        """Return what the next turn records of the open one, which it replaces: its calls, and notes if it acted.

        The open turn may have such notes of turns before it. They are not its own, so the next turn has them, too.
        ``earlier`` is the record of an earlier turn with the key of the next one, which knows what that turn did.
        """
        progress = self._ledger.progress
        async with self._ledger.reading():
            left, kept = await read_open_turn(self._ledger), await keep_calls(self._ledger)
        known = () if earlier is None else (f"turn {earlier.turn} ",)
        notes = [note for note in left.notes if not note.startswith((*known, f"key {left.delivery.key!r} "))]
        if acted := left.recorded.acted():
            ended = "failed" if progress.open == "failed" else "was cancelled"
            notes.append(
                f"turn {progress.turn} {ended} after {', '.join(acted)}; the agents of this turn do not know of that"
            )
        if len(notes) > MOST_NOTES:
            notes = [EARLIER_TURNS, *notes[-MOST_NOTES:]]
        return kept, notes

    async def reopen(self, *, own: bool, decided: Decided | None = None, may_diverge_by: str | None = None) -> OpenTurn:
        """Take the lease to run the open turn again, and record what was ``decided``. Return the turn to perform.

        ``own`` is true if the caller asked for this very turn. ``may_diverge_by`` names the person who lets the turn
        continue although its recorded calls do not fit the code; it is empty if nobody is named.
        """
        turn = await self._at_rest(decided) or await self._loaded(decided)
        progress, rows, answered = self._ledger.progress, list[Row](), None
        if decided is not None:
            progress, rows, answered = decided.record(progress, self._instance.archive)
        if may_diverge_by is not None:
            question = "Continue although the recorded calls do not fit the code?"
            rows.append(about_turn(progress, "diverged", question, "continue", may_diverge_by))
            progress = replace(progress, decisions=progress.decisions + 1)
        progress = replace(
            progress,
            attempts=progress.attempts + 1,
            attempted=now(),
            blueprint=self._instance.blueprint.name or progress.blueprint,
            version=max(progress.version, self._instance.version),
            redacted=progress.redacted or self._instance.redaction is not None,
        )
        waits = bool(turn.recorded.questions) if decided is None else not decided.last
        try:
            await self._open(progress, rows, own=own, waits=waits)
        except BaseException:
            if turn.resting is not None:
                self._instance.forget()
                await turn.resting.end()
            raise
        if decided is not None and answered is not None:
            turn.recorded.add(answered, decided.value)
        return turn

    async def _at_rest(self, decided: Decided | None) -> OpenTurn | None:
        """Return the open turn as it stands in this process, if a decision lets it continue there."""
        turn, resting = self.at_rest(), self._resting
        if resting is None or turn is None or decided is None or decided.turn is not turn:
            await self.end_rest()
            return None
        self._resting = None
        resting.leave_owner()
        resting.question = decided.question.id
        self._instance.take_back(resting.aside)
        return replace(turn, resting=resting)

    async def _loaded(self, decided: Decided | None) -> OpenTurn:
        """Return the open turn as it is recorded, to run it again from its beginning."""
        await self._instance.load(self._ledger)
        async with self._ledger.reading():
            read = decided is None or decided.turn.was_kept
            turn = await read_open_turn(self._ledger) if read or decided is None else decided.turn
        await check_open_turn(turn, self._instance)
        if self._instance.redaction is not None:
            self._instance.redaction.learn(turn.given.task)
        await self._framework.prepare(self._instance.live)  # begin() has recorded the repairs
        return turn

    async def _open(self, progress: Progress, rows: Sequence[Row], *, own: bool, waits: bool) -> None:
        """Record that the turn runs, and take the lease, in one write. ``waits`` is true if it has other questions."""
        await self._instance.begin()
        archive = self._instance.archive
        try:
            with self._ledger.storing(archive) as bodies:
                await self._ledger.write(
                    status="running",
                    progress=replace(progress, bodies=archive.bodies, open="running"),
                    rows=[*bodies, *rows],
                )
        except asyncio.CancelledError as error:
            if own and self._ledger.owned:  # the turn was written nevertheless
                await self._abort("cancelled", error, waits=waits)
            raise

    async def perform(
        self, turn: OpenTurn, stop: Stop, *, own: bool, diverged: Diverged = "raise", again: bool = True
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        """Run the open turn, whose lease is held, and commit it; yield its events, then its result.

        If the turn continues as it stands, earlier events come ``again``, as they do in a turn that runs again.

        If the caller leaves, a turn that is not its ``own`` stays interrupted; it is not recorded as cancelled.
        """
        self._ledger.forget_bodies()
        number, waiting, notes = self._ledger.progress.turn, None, turn.notes
        caught: BaseException | None = None
        outcome = Outcome(messages=[])
        lost: Stop = asyncio.get_running_loop().create_future()
        said: list[EventT_co] = []
        try:
            journal, stream, said = self._start(turn, (stop, lost), diverged, again=again)
            self._limit(number, lost)
            async with self._ledger.hold(lost):
                try:
                    async for item in stream:
                        if isinstance(item, Outcome):
                            outcome = item
                        else:
                            said.append(item)
                            yield item
                    found = journal.finish()
                finally:
                    await settled(self._end(turn, stream, journal, lost, said))
                # The lease is held until the commit gives it back: capturing a large state takes its time.
                tree = await self._framework.capture(self._instance.live)
                tree = tree if self._instance.redaction is None else await self._instance.redacted(tree)
                notes = (*turn.notes, *found)
                await self._commit(number, tree, outcome, notes, recorded=isinstance(journal, Journal))
        except Suspended as suspended:
            waiting, outcome = suspended.waiting, Outcome(messages=[], native=list(said))
            await self._suspend(suspended)
            self._said = self._ledger.seq, said
        except (asyncio.CancelledError, GeneratorExit) as error:
            await self._leave(turn, error, own=own)
            raise
        except (LeaseLost, SessionDeleted, HistoryLost, StoreUnavailable, StoreFull):
            self._instance.forget()  # The store has the last word: as far as it knows, the turn was interrupted.
            raise
        except MidturnError as error:
            error.session = error.session or self._ledger.session
            if not own:
                error.add_note(f"This is turn {number}, which was interrupted before. Your task was not accepted.")
            await self._abort("failed", error, waits=bool(turn.recorded.questions))
            raise
        except Exception as error:  # noqa: BLE001 - whatever the agent raised
            caught = error.error if isinstance(error, Escaped) else error
        if caught is not None:  # Outside of the handler: what is raised there has the caught error as its context.
            failed, caught = await self._failed(turn, caught, own=own)
            raise failed from caught
        yield self._framework.result(
            self._instance.live,
            turn=number,
            checkpoint=self._ledger.progress.checkpoint,
            outcome=outcome,
            waiting=waiting,
            notes=notes,
        )

    async def _leave(self, turn: OpenTurn, error: BaseException, *, own: bool) -> None:
        """Record that a turn was cancelled, if it is the caller's own."""
        await self.end_rest()
        if own:
            await self._abort("cancelled", error, waits=bool(turn.recorded.questions))
        else:
            self._instance.forget()

    async def _failed(self, turn: OpenTurn, cause: BaseException, *, own: bool) -> tuple[TurnFailed, BaseException]:
        """Record that a turn failed. Return the error to raise, and its cause without texts that are redacted."""
        described = await self._abort("failed", cause, waits=bool(turn.recorded.questions))
        number, session = self._ledger.progress.turn, self._ledger.session
        which = "" if own else ", which was interrupted and had to be finished first,"
        failed = TurnFailed(
            f"turn {number} of session {session!r}{which} failed: {described}\nThe state is as it was before the turn.",
            session=session,
            turn=number,
            hint=self._after_failure(own=own),
        )
        try:
            return failed, cause if self._instance.redaction is None else await self._instance.redaction.error(cause)
        except RedactionFailed as reason:
            return failed, reason

    def _after_failure(self, *, own: bool) -> str:
        """Return what can be done after the open turn failed, for the person who reads the error."""
        progress = self._ledger.progress
        hint = f"resume() tries turn {progress.turn} again, discard() gives it up."
        if progress.open == "waiting":
            hint = f"answer() continues turn {progress.turn} with the next answer, discard() gives it up."
        elif own and not progress.is_unfinished:
            hint = f"run() starts another task, {hint}"
        if not own:
            hint = f"Your task was not accepted: run() it again, {hint}"
        return hint

    def _limit(self, turn: int, halt: Stop) -> None:
        """Stop this attempt at a turn when its timeout is over, if it has one and ``halt`` is not done before."""
        session, timeout = self._ledger.session, self._options.turn_timeout or self._instance.blueprint.timeout
        if timeout is None:
            return
        error = TurnTimeout(
            f"turn {turn} of session {session!r} took longer than {timeout:g} seconds and was stopped\n"
            "The state is as it was before the turn.",
            session=session,
            turn=turn,
            timeout=timeout,
            hint="resume(), or run() with the same key, continues it and repeats no completed call; allow it more time "
            "with session(..., turn_timeout=SECONDS).",
        )
        timer = asyncio.get_running_loop().call_later(timeout, fail, halt, error)
        halt.add_done_callback(lambda _: timer.cancel())

    def _journal(self, turn: OpenTurn, halt: Stop, diverged: Diverged) -> Journal | Unrecorded:
        """Return the journal of a turn. A turn with recorded calls always gets one, so that no call is made again."""
        if self._options.durability != "call" and not turn.recorded.entries:
            redaction = self._instance.redaction
            return Unrecorded(self._ledger, delivery=turn.delivery, halt=halt, redaction=redaction)
        tolerant, tools = diverged == "continue", self._instance.tools()
        divergence = Divergence(self._ledger, turn.recorded, tools=tools, tolerant=tolerant)
        return Journal(
            self._ledger,
            self._instance.archive,
            turn.recorded,
            delivery=turn.delivery,
            halt=halt,
            divergence=divergence,
            redaction=self._instance.redaction,
        )

    def _start(
        self, turn: OpenTurn, stops: tuple[Stop, Stop], diverged: Diverged, *, again: bool
    ) -> tuple[Journal | Unrecorded, AsyncGenerator[EventT_co | Outcome, None], list[EventT_co]]:
        """Let a turn run from its beginning, or from where it rests. Return its calls, its events, and those so far."""
        resting, halt = turn.resting, stops[-1]
        if resting is None:
            journal, effects = self._journal(turn, halt, diverged), self._instance.blueprint.effects
            return journal, self._framework.stream(self._instance.live, turn.given, journal, effects, stops), []
        stream: AsyncGenerator[EventT_co | Outcome, None] = resting.proceed(halt, stops)
        if again:
            return resting.journal, repeated(resting.said, stream, self._framework), []
        return resting.journal, stream, resting.said

    async def _end(
        self,
        turn: OpenTurn,
        stream: AsyncGenerator[EventT_co | Outcome, None],
        journal: Journal | Unrecorded,
        halt: Stop,
        said: list[EventT_co],
    ) -> None:
        """End the run and its calls. But keep a run that rests, unless its owner has to get the instance back."""
        await stream.aclose()
        error = halt.exception() if halt.done() else None
        rest: Rest[EventT_co] | None = error.kept if isinstance(error, Resting) else None
        if rest is not None and self._instance.is_built and isinstance(journal, Journal):
            turn = replace(turn, resting=None, was_kept=True)
            self._resting = RestingTurn(turn=turn, journal=journal, rest=rest, said=said)
            return
        try:
            if rest is not None:
                await rest.end()
        finally:
            await journal.close()

    async def _suspend(self, suspended: Suspended) -> None:
        """Record that the turn waits, with its questions, and give the lease back. Keep the turn if it rests."""
        progress, archive = self._ledger.progress, self._instance.archive
        rows = [_row(Kind.CALL, progress.calls + index, row) for index, (row, _) in enumerate(suspended.rows)]
        try:
            with self._ledger.storing(archive) as bodies:
                write = self._ledger.write(
                    status="waiting",
                    progress=replace(progress, calls=progress.calls + len(rows), bodies=archive.bodies, open="waiting"),
                    rows=[*bodies, *rows],
                    release=True,
                )
                await settled(write)
        except BaseException as error:
            await self.end_rest()
            if isinstance(error, MidturnError):
                self._instance.forget()  # as far as the store knows, the turn was interrupted
            raise
        if self._resting is None:
            await settled(self._instance.go_back())
            return
        suspended.with_traceback(None)  # it would keep the caller alive, and so the session
        for row, value in suspended.rows:
            self._resting.turn.recorded.add(row, deepcopy(value))
        self._resting.keep(self._ledger.seq, self._instance.lay_aside(), self)
        self._all_resting.add(self._resting)

    async def _commit(self, turn: int, tree: Any, outcome: Outcome, notes: Sequence[str], *, recorded: bool) -> None:
        progress = self._ledger.progress
        await commit(
            self._ledger,
            self._instance.archive,
            tree,
            self._instance.stamp(),
            turn=turn,
            origin="run",
            outcome=outcome,
            calls=(progress.journal, progress.calls) if recorded else (),
            notes=notes,
            attempts=progress.attempts,
            journals=self._options.journals,
        )
        self._instance.end(turn)

    def _turn_row(
        self, task: list[int] | None, key: str | None, repairs: Sequence[str] = (), notes: Sequence[str] = ()
    ) -> TurnRow:
        return TurnRow(
            at=now(),
            task=task,
            key=key,
            blueprint=self._instance.blueprint.name,
            version=self._instance.version,
            repairs=tuple(repairs),
            notes=tuple(notes),
        )

    async def _abort(self, status: Ended, error: BaseException, *, waits: bool) -> str:
        """Record that the open turn ended without a checkpoint; drop its instance, or restore it if it was given.

        Return the description of the error that is recorded.

        If people have answered it, no other turn may replace it. It stays interrupted if it was cancelled, and goes
        back to waiting if it ``waits`` for another answer.

        Raises:
            HistoryLost: the turn failed, and the store has lost it or what was before it.
        """
        progress = self._ledger.progress
        described = _describe(error)
        if self._instance.redaction is not None:
            described = await self._instance.redaction.described(described)
        if progress.open is None or not self._ledger.owned:
            self._instance.forget()
            return described  # It was cancelled when its commit had already been written.
        failure = FailureRow(
            turn=progress.turn,
            status=status,
            error=described,
            at=now(),
            calls=calls_made(progress),
            attempts=progress.attempts,
            usage=progress.paid,
        )
        opened: Opened = status
        if progress.answers and (waits or status == "cancelled"):
            opened = "waiting" if waits else "running"
        ended = status in ("failed", opened)
        try:
            write = self._ledger.write(
                status=opened,
                progress=replace(progress, failures=progress.failures + ended, open=opened),
                rows=[_row(Kind.FAILURE, progress.failures, failure)] if ended else (),
                release=True,
            )
            await settled(write)
            await settled(self._instance.go_back())  # a given instance must not keep half a turn
        except MidturnError as also:
            self._instance.forget()
            if isinstance(also, HistoryLost) and status == "failed":
                raise also from error  # TurnFailed would say that the state is as before the turn
            error.add_note(f"midturn could not record the end of turn {progress.turn} either: {also}")
        return described

    async def recorded(self, turn: int) -> ResultT_co | None:
        """Return the recorded result of a turn; ``None`` if the turn has no result.

        Raises:
            StateInvalid: the result is missing or damaged.
        """
        return await self._ledger.steady(lambda: self._recorded(turn))

    async def _recorded(self, turn: int) -> ResultT_co | None:
        progress = self._ledger.progress
        if turn < progress.first:
            raise NotFound(
                f"turn {turn} of session {self._ledger.session!r} had this key, and a compaction has removed the turn; "
                "it does not run again",
                session=self._ledger.session,
                hint="To run the task again, choose another key.",
            )
        row = await self._ledger.read(Kind.CHECKPOINT, CheckpointRow, turn)
        if row is None:
            is_open = turn == progress.turn and progress.open is not None
            if not is_open and await last_failure(self._ledger, turn) is None:
                raise self._ledger.missing(Kind.CHECKPOINT, turn)  # to run it again would repeat what it did
            return None
        return await result_of(
            row, self._ledger, turn, self._framework, live=self._instance.live, another=self._known_types
        )

    async def _known_types(self) -> Any:
        await self._instance.load(self._ledger)
        return self._instance.live


def _row(kind: Kind, n: int, record: object) -> Row:
    return Row(kind=kind, n=n, data=encode_record(record))


def _describe(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"[:MAX_ERROR].rstrip(": ")
    return text.encode(errors="replace").decode()
