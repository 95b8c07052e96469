"""A session: the life of a turn, from the lease to the commit. ``docs/turn.md`` explains it in prose."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Self, cast

from midturn.errors import Conflict, InvalidArgument, TurnFailed
from midturn.framework import EventT_co, Input, ResultT_co
from midturn.lease.ledger import Ledger, consistent
from midturn.questions import check_by
from midturn.record import codec
from midturn.record.head import Kind
from midturn.record.rows import TurnRow, key_row
from midturn.redaction import Where
from midturn.sessions.acts import Acts
from midturn.sessions.background import Words, check_key, other_task, person_who_lets_diverge
from midturn.sessions.reader import check_number
from midturn.sessions.runs import OwnRun, Runs
from midturn.sessions.turnstile import Turnstile
from midturn.stopping import stop_of
from midturn.turns.instance import Instance
from midturn.turns.open_turn import OpenQuestions, OpenTurn
from midturn.turns.replay import Replay, replay
from midturn.turns.runner import Diverged, TurnRunner
from midturn.turns.session_options import Options

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from midturn.framework import Framework
    from midturn.lease.ledger import Seen
    from midturn.record.codec import Json
    from midturn.record.rows import KeyRow
    from midturn.stopping import Cancellation
    from midturn.store import Store

NO_OPTIONS = Options()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request of a caller."""

    given: Input
    key: str | None
    digest: str
    words: Words | None
    """The words of a user, which may also be the answer to a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step(Generic[ResultT_co]):
    """The next step for a task: a turn to perform, or a result."""

    number: int
    turn: OpenTurn | None = None
    own: bool = True
    """False if the turn is another one that was interrupted, and has to be finished first."""
    result: ResultT_co | None = None

    def tell(self, run: OwnRun[Any, Any] | None, key: str | None) -> None:
        """Tell a run in the background what its task leads to, if there is one."""
        if run is None:
            return
        if self.turn is None:
            run.known(self.number)
        elif self.own:
            run.begin(self.number, key)


class Session(Acts[EventT_co, ResultT_co], Generic[EventT_co, ResultT_co]):
    """One long-running conversation or case: a drop-in for the framework's own task runner that remembers.

    ``id`` is its name in the store. Two calls at once on one session run one after the other.
    """

    def __init__(
        self,
        store: Store,
        session: str,
        what: object,
        framework: Framework[EventT_co, ResultT_co],
        options: Options = NO_OPTIONS,
        *,
        lease: float | None = None,
        runs: Runs | None = None,
        seen: Seen | None = None,
    ) -> None:
        super().__init__(store, session)
        self._runs = Runs() if runs is None else runs
        self._seen = seen
        self._what = what
        self._options = options
        self._ledger = Ledger(store, session, labels=options.labels, lease=lease, seen=seen, reuse=options.reuse)
        self._framework = framework
        self._instance = Instance(session, what, framework, options.on_drift, self._runs.built)
        self._runner = TurnRunner(self._ledger, self._instance, framework, options, self._runs.resting)
        self._questions = OpenQuestions(self._ledger, self._instance, framework, self._runner.at_rest)
        self._turnstile = Turnstile(self._ledger, self._instance, options.timeout if options.busy == "wait" else 0.0)

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    async def run(
        self,
        task: Any = None,
        *,
        key: str | None = None,
        cancellation_token: Cancellation | None = None,
        output_task_messages: bool = True,
    ) -> ResultT_co:
        """Run a turn, store its result and return it. If the turn asks people, ``waiting`` has the questions.

        The turn runs as the agent's or team's own ``run()`` does, and the result has what that returns.
        ``output_task_messages=False`` leaves the messages of the task out.

        With a ``key``, the same turn delivered twice runs once: a known key returns the recorded result.

        Raises:
            TurnFailed: the agent or team raised an error; the state is as before, ``resume()`` tries the turn again.
            TurnTimeout: the turn took too long and was stopped; ``resume()`` continues it.
            SessionBusy: another worker holds the session for too long, or the open turn waits for a human.
            InDoubt: the open turn waits for a decision about a call in doubt.
            ReplayDiverged: an interrupted turn has to be finished first, and its recorded calls do not fit the code.
            Conflict: the key was used before, for another task.
            HistoryLost: the store has lost turns that this object has seen; the turn did not run, or has no result.
        """
        if output_task_messages not in (True, False):
            raise InvalidArgument(f"must be True or False, not {output_task_messages!r}", path="output_task_messages")
        given = await self._input(task, output_task_messages=bool(output_task_messages))
        return await self._last(self._stream(given, key, cancellation_token))

    async def run_stream(
        self,
        task: Any = None,
        *,
        key: str | None = None,
        cancellation_token: Cancellation | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        """Run a turn as the agent's or team's own ``run_stream()`` does; yield its events, and the result at the end.

        The rest is as for :meth:`run`.
        """
        if output_task_messages not in (True, False):
            raise InvalidArgument(f"must be True or False, not {output_task_messages!r}", path="output_task_messages")
        given = await self._input(task, streamed=True, output_task_messages=bool(output_task_messages))
        async with aclosing(self._stream(given, key, cancellation_token)) as stream:
            async for item in stream:
                yield item

    async def resume(
        self, *, diverged: Diverged = "raise", by: str | None = None, cancellation_token: Cancellation | None = None
    ) -> ResultT_co | None:
        """Continue an interrupted turn, or try a failed or cancelled turn again; ``None`` if no turn is open.

        For a turn that waits for a human, return a result whose ``waiting`` has the questions.
        ``diverged="continue"`` continues a turn although its recorded calls do not fit the code any more: what they
        did stays done. That is a decision; ``by`` names the person who made it.

        Raises:
            TurnFailed: the turn failed again.
            TurnTimeout: the turn took too long again.
            ReplayDiverged: the code has changed, and the recorded calls do not fit.
        """
        return await self._last(self._resume(diverged, by, cancellation_token))

    async def resume_stream(
        self, *, diverged: Diverged = "raise", by: str | None = None, cancellation_token: Cancellation | None = None
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        """Continue a turn as :meth:`resume` does; yield its events, then its result.

        :func:`midturn.replayed` returns whether an event happened in an earlier attempt.
        """
        async with aclosing(self._resume(diverged, by, cancellation_token)) as stream:
            async for item in stream:
                yield item

    async def _resume(
        self,
        diverged: Diverged,
        by: str | None,
        token: Cancellation | None,
        *,
        run: OwnRun[EventT_co, ResultT_co] | None = None,
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        may_diverge_by = person_who_lets_diverge(diverged, by)
        stop = stop_of(token) if run is None else run.stop
        async with self._turnstile.alone(stop) as until:
            while True:
                await self._ledger.refresh()
                if run is not None and self._ledger.busy() and self._ledger.progress.open == "running":
                    run.known(self._ledger.progress.turn)
                    return
                await self._ledger.wait(until, stop)
                if self._ledger.progress.open is None:
                    return
                if self._ledger.progress.open == "waiting":
                    if run is not None:
                        run.known(self._ledger.progress.turn)
                    yield await self._questions.result(own=True, said=self._runner.said)
                    return
                try:
                    turn = await self._runner.reopen(own=True, may_diverge_by=may_diverge_by)
                except Conflict as error:
                    self._turnstile.give_way(error, until)
                    continue
                break
            if run is not None:
                run.begin(self._ledger.progress.turn, turn.delivery.key)
            async with aclosing(self._runner.perform(turn, stop, own=True, diverged=diverged)) as stream:
                async for item in stream:
                    yield item

    async def answer(
        self,
        answer: str,
        *,
        question: str | None = None,
        arguments: Mapping[str, Json] | None = None,
        by: str | None = None,
        diverged: Diverged = "raise",
        cancellation_token: Cancellation | None = None,
    ) -> ResultT_co | None:
        """Answer a question of the open turn and continue the turn; return its result, which may have new questions.

        Answer an agent that stands for a human with any text. Answer a tool that needs approval with ``approve``, also
        with other ``arguments``, or with ``deny: <reason>``. Answer a call in doubt with ``retry``, ``done: <result>``
        or ``fail``.
        ``question`` is the id of the question; it is needed if several are open. ``by`` names the person who answers;
        the decision in the history keeps it. ``diverged`` is as for :meth:`resume`.
        A session without an agent or team only records the answer and returns ``None``; ``resume()`` continues the turn
        later.

        Raises:
            Conflict: the question was never asked, or is no longer open.
            InvalidArgument: the question does not allow this answer, or several questions are open.
        """
        return await self._last(
            self._answer(
                answer,
                question=question,
                arguments=arguments,
                by=by,
                diverged=diverged,
                token=cancellation_token,
                again=False,
            )
        )

    async def answer_stream(
        self,
        answer: str,
        *,
        question: str | None = None,
        arguments: Mapping[str, Json] | None = None,
        by: str | None = None,
        diverged: Diverged = "raise",
        cancellation_token: Cancellation | None = None,
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        """Answer a question as :meth:`answer` does; yield the events of the turn, then its result.

        :func:`midturn.replayed` returns whether an event happened in an earlier attempt.
        """
        async with aclosing(
            self._answer(
                answer, question=question, arguments=arguments, by=by, diverged=diverged, token=cancellation_token
            )
        ) as stream:
            async for item in stream:
                yield item

    async def _answer(
        self,
        answer: str,
        *,
        question: str | None,
        arguments: Mapping[str, Json] | None,
        by: str | None,
        diverged: Diverged,
        token: Cancellation | None = None,
        run: OwnRun[EventT_co, ResultT_co] | None = None,
        again: bool = True,
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        may_diverge_by, who = person_who_lets_diverge(diverged, by), check_by(by)
        stop = stop_of(token) if run is None else run.stop
        async with self._turnstile.alone(stop) as until:
            await self._ledger.refresh()
            decided = None
            if question is None:  # the answer is for the question of now, not for one that comes while we wait
                decided = await self._questions.decide(None, answer, arguments, who)
                question = decided.question.id
            while True:
                await self._ledger.wait(until, stop)
                if decided is None or decided.head is not self._ledger.head:
                    decided = await self._questions.decide(question, answer, arguments, who)
                try:
                    if not self._instance.is_runnable:
                        await self._questions.record(decided)
                        return
                    turn = await self._runner.reopen(own=True, decided=decided, may_diverge_by=may_diverge_by)
                except Conflict as error:
                    self._turnstile.give_way(error, until)
                    await self._ledger.refresh()
                    decided = None
                    continue
                break
            if run is not None:
                run.begin(self._ledger.progress.turn, turn.delivery.key)
            async with aclosing(self._runner.perform(turn, stop, own=True, diverged=diverged, again=again)) as stream:
                async for item in stream:
                    yield item

    async def discard(self, *, by: str | None = None, seq: int | None = None) -> bool:
        """Give up the open turn; return whether there was one. What the turn did to the world stays done.

        That is a decision in the turn's history; ``by`` names the person who made it. ``seq`` is that of the
        :class:`~midturn.SessionInfo` that the decision is based on.

        Raises:
            Conflict: the session has changed since ``seq``.
        """
        who = check_by(by)
        stop = stop_of(None)
        async with self._turnstile.alone(stop) as until:
            while True:
                await self._ledger.refresh()
                await self._ledger.wait(until, stop)
                self._check_seen(seq)
                if self._ledger.progress.open is None:
                    return False
                try:
                    await self._runner.end_rest()
                    await self._questions.discard(who)
                except Conflict as error:
                    self._turnstile.give_way(error, until)
                    continue
                return True

    async def replay(self, turn: int) -> Replay:
        """Run a finished turn again from its journal, without any call, and compare its messages with the record.

        This makes a regression test of a past turn: today's code gets the task, the state and the answers of that turn.
        Nothing is written, and the session can be used at the same time.

        Raises:
            InvalidArgument: the turn did not run to its end, or the session has no factory.
            NotFound: there is no such turn, or its calls were removed.
        """
        if not self._instance.is_built:
            raise InvalidArgument("replaying needs a function that builds the agent or team", path="what")
        check_number(turn, "turn")
        return await consistent(
            self._ledger.store,
            self.id,
            lambda ledger: replay(ledger, turn, self._instance.blueprint, self._framework.another()),
        )

    def _other(self, session: str, labels: Mapping[str, str] | None) -> Self:
        options, ledger = replace(self._options, labels=labels, reuse=False), self._ledger
        return type(self)(
            ledger.store,
            session,
            self._what,
            self._framework.another(),
            options,
            lease=ledger.lease,
            runs=self._runs,
            seen=self._seen,
        )

    async def _last(self, stream: AsyncGenerator[EventT_co | ResultT_co, None]) -> ResultT_co:
        result: Any = None
        async with aclosing(stream):
            async for item in stream:
                result = item
        return cast("ResultT_co", result)

    async def _input(self, task: Any, *, streamed: bool = False, output_task_messages: bool = True) -> Input:
        messages, redaction = self._framework.accept(task), self._instance.redaction
        if messages is not None and redaction is not None:
            codec.check_argument(messages, "task")
            texts, found = self._framework.texts, messages
            messages = await redaction.given(lambda clean: [texts(each, clean) for each in found], Where(kind="task"))
        return Input(task=messages, streamed=streamed, output_task_messages=output_task_messages)

    async def _stream(
        self,
        given: Input,
        key: str | None,
        token: Cancellation | None,
        *,
        words: Words | None = None,
        run: OwnRun[EventT_co, ResultT_co] | None = None,
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        codec.check_argument(given.task, "task")
        asked = _Asked(given=given, key=key, digest=self._digest(given, key), words=words)
        contended = False
        stop = stop_of(token) if run is None else run.stop
        async with self._turnstile.alone(stop) as until:
            while True:
                if self._instance.live is None or self._ledger.progress.open is not None:
                    await self._ledger.refresh()
                if run is not None and (elsewhere := await self._elsewhere(asked)) is not None:
                    run.known(elsewhere)
                    return
                await self._ledger.wait(until, stop)
                number, known = await self._turn_of(key, asked.digest)
                try:
                    step = await self._step(asked, number, known, contended=contended)
                except Conflict as error:
                    contended = True
                    self._turnstile.give_way(error, until)
                    continue
                if step is None:
                    continue
                step.tell(run, key)
                if step.turn is None:
                    yield cast("ResultT_co", step.result)
                    return
                again = given.streamed
                async with aclosing(self._runner.perform(step.turn, stop, own=step.own, again=again)) as stream:
                    async for item in stream:
                        if step.own or (words is not None and not isinstance(item, self._framework.result_type)):
                            yield item
                if step.own:
                    return

    async def _step(
        self, asked: _Asked, number: int, known: KeyRow | None, *, contended: bool
    ) -> _Step[ResultT_co] | None:
        """Do what is next for a task: find its result, begin it, or continue the open turn. ``None``: look again.

        Raises:
            Conflict: another worker wrote the session first.
        """
        if known is not None and (recorded := await self._runner.recorded(known.turn)) is not None:
            await self._ledger.refresh()  # the record must not be of another history than the one known here
            return _Step(number=known.turn, result=recorded)
        progress, words = self._ledger.progress, asked.words
        own = known is not None and known.turn == progress.turn and progress.open is not None
        if own and progress.open != "waiting":
            turn = await self._runner.reopen(own=True)
        elif known is not None and not own and await self._was_an_answer(known):
            raise TurnFailed(
                f"key {known.key!r} of session {self.id!r} delivered an answer in turn {known.turn}, which has no "
                "result. The answer was not repeated in another turn.",
                session=self.id,
                turn=known.turn,
                hint="To say it again, choose another key.",
            )
        elif progress.open == "waiting" and (words is None or known is not None):
            if known is not None and await self._has_moved():  # the key may have answered the question since
                return None
            return _Step(number=progress.turn, result=await self._questions.result(own=own, said=self._runner.said))
        elif progress.open == "waiting" and words is not None:
            row = None if asked.key is None else key_row(number, asked.key, progress.turn, asked.digest)
            turn = await self._runner.reopen(own=True, decided=await self._questions.hear(words.text, words.by, row))
        elif progress.is_unfinished:
            return _Step(number=progress.turn, turn=await self._runner.reopen(own=False), own=False)
        else:
            if contended:  # with the lease held, the state that is read next is the latest
                await self._take()
            turn = await self._runner.begin(asked.given, asked.key, number, asked.digest, known)
        return _Step(number=self._ledger.progress.turn, turn=turn)

    async def _has_moved(self) -> bool:
        """Read the head again; return whether somebody has written the session since it was read last."""
        seq = self._ledger.seq
        await self._ledger.refresh()
        return self._ledger.seq != seq

    async def _was_an_answer(self, known: KeyRow) -> bool:
        """Return whether a key delivered the answer to a question, and not the task of its turn."""
        async with self._ledger.reading():
            turn = await self._ledger.demand(Kind.TURN, TurnRow, known.turn)
        return turn.key != known.key

    async def _turn_of(self, key: str | None, digest: str) -> tuple[int, KeyRow | None]:
        """Return the number for the next record of a key, and the latest record of that key if there is one.

        Raises:
            Conflict: the key belongs to another task.
        """
        if key is None:
            return 0, None
        number, known = await self._ledger.key(check_key(key))
        if known is not None and known.task != digest:
            raise other_task(self.id, key)
        return number, known

    async def _elsewhere(self, asked: _Asked) -> int | None:
        """Return the number of the turn that has this key, if another worker runs it now."""
        if asked.key is None or self._ledger.busy() is None:
            return None
        _, known = await self._turn_of(asked.key, asked.digest)
        progress = self._ledger.progress
        return known.turn if known is not None and progress.open and known.turn == progress.turn else None

    async def _take(self) -> None:
        """Take the lease, unless this session holds it."""
        head = self._ledger.head
        if not self._ledger.owned:
            await self._ledger.write(status=head.status if head is not None else "idle", progress=self._ledger.progress)
