"""Turns that continue when the caller goes away, and the words of a user, whatever the session is doing."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, get_args

from midturn.errors import Conflict, InvalidArgument, NotFound
from midturn.framework import EventT_co, Input, ResultT_co
from midturn.history.turns import missing_turn
from midturn.questions import check_by
from midturn.record import codec
from midturn.record.rows import task_digest
from midturn.sessions.followed_run import FollowedRun, Source
from midturn.sessions.reader import Readers, check_number
from midturn.sessions.runs import OwnRun, Run
from midturn.turns.follower import Watch
from midturn.turns.runner import Diverged

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from midturn.lease.ledger import Ledger
    from midturn.record.codec import Json
    from midturn.sessions.runs import Runs
    from midturn.stopping import Cancellation

MAX_KEY = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The words of a user, and who said them."""

    text: str
    by: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            raise InvalidArgument(f"must be a string, not {type(self.text).__name__}", path="text")


class Background(Readers[EventT_co, ResultT_co], Generic[EventT_co, ResultT_co]):
    """The part of a session that serves interfaces: turns in the background, and the words of users."""

    _what: object
    _ledger: Ledger
    _runs: Runs

    @property
    def live(self) -> Any:
        """Return the agent or team that runs this session in this process, or ran it last; ``None`` if there is none.

        It is there from the beginning of a turn on, also for other objects of the same session. Use it to ``pause()``
        and ``resume()`` a team, or to set an external termination. To run it, call the session.
        """
        built = self._instance if self._instance.live is not None else self._runs.built.get(self.id)
        return None if built is None else built.live

    async def start(self, task: Any = None, *, key: str | None = None) -> Run[EventT_co, ResultT_co]:
        """Start a turn that continues when the caller goes away; return it when its input is durable.

        A known ``key`` returns the turn that has it: done, waiting, or under way, also in another process.

        Raises:
            Everything that :meth:`run` raises before it accepts the task.
        """
        given = await self._input(task, streamed=True)
        return self._started(await self._launch(key, given, lambda run: self._stream(given, key, None, run=run)))

    async def say(
        self,
        text: str,
        *,
        key: str | None = None,
        by: str | None = None,
        cancellation_token: Cancellation | None = None,
    ) -> ResultT_co:
        """Take what a user said, whatever the session is doing, and return the result of the turn that it leads to.

        An interrupted turn is finished first. If the open turn then waits for the words of a human, ``text`` is the
        answer, and ``by`` names the person who gives it. Otherwise ``text`` is the task of a new turn. With a ``key``,
        the same words delivered twice count once.

        Raises:
            SessionBusy: the open turn waits for an approval or for several people. The text was not accepted.
            InDoubt: the open turn waits for a decision about a call in doubt. The text was not accepted.
            TurnFailed: the turn failed. Or the text was the answer to a question of an earlier turn without a result.
        """
        words = Words(text=text, by=check_by(by))
        given = await self._input(words.text)
        return await self._last(self._stream(given, key, cancellation_token, words=words))

    async def say_stream(
        self,
        text: str,
        *,
        key: str | None = None,
        by: str | None = None,
        cancellation_token: Cancellation | None = None,
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        """Take what a user said as :meth:`say` does; yield the events, also of an interrupted turn, then the result."""
        words = Words(text=text, by=check_by(by))
        given = await self._input(words.text, streamed=True)
        async with aclosing(self._stream(given, key, cancellation_token, words=words)) as stream:
            async for item in stream:
                yield item

    async def start_say(
        self, text: str, *, key: str | None = None, by: str | None = None
    ) -> Run[EventT_co, ResultT_co]:
        """Take what a user said as :meth:`say` does, in a turn that continues when the caller goes away.

        The run has the events of the turn that the text leads to. This returns the run when the text is durable. Before
        that, it finishes an interrupted turn.
        """
        words = Words(text=text, by=check_by(by))
        given = await self._input(words.text, streamed=True)
        started = await self._launch(key, given, lambda run: self._stream(given, key, None, words=words, run=run))
        return self._started(started)

    async def start_resume(
        self, *, diverged: Diverged = "raise", by: str | None = None
    ) -> Run[EventT_co, ResultT_co] | None:
        """Continue a turn as :meth:`resume` does, even if the caller goes away. Return ``None`` if no turn is open.

        If the turn runs already, here or in another process, this returns that run.
        """
        if (own := self._runs.under_way(self.id)) is not None:
            return own
        return await self._launch(None, Input(), lambda run: self._resume(diverged, by, None, run=run))

    async def start_answer(
        self,
        answer: str,
        *,
        question: str | None = None,
        arguments: Mapping[str, Json] | None = None,
        by: str | None = None,
        diverged: Diverged = "raise",
    ) -> Run[EventT_co, ResultT_co]:
        """Answer a question as :meth:`answer` does, and continue the turn even if the caller goes away.

        This returns the run when the answer is durable.

        Raises:
            InvalidArgument: the session has no agent or team. Or the question does not allow this answer.
        """
        if not self._instance.is_runnable:
            raise InvalidArgument("give the session an agent, a team or a factory to continue the turn", path="what")

        def work(run: OwnRun[EventT_co, ResultT_co]) -> AsyncGenerator[EventT_co | ResultT_co, None]:
            return self._answer(answer, question=question, arguments=arguments, by=by, diverged=diverged, run=run)

        return self._started(await self._launch(None, Input(), work))

    async def follow(self, turn: int | None = None, *, key: str | None = None) -> Run[EventT_co, ResultT_co]:
        """Return the run of a turn by the turn's number or key, or else of the latest turn. Any process may run it.

        If this process does not run the turn and did not run it recently, midturn rebuilds its events from its
        record, without any call. That needs a factory.

        Raises:
            NotFound: there is no such turn.
        """
        watch = Watch(self._ledger.store, self.id)
        seen = await watch.look(
            None if turn is None else check_number(turn, "turn"), None if key is None else check_key(key)
        )
        if seen is None:
            if key is not None and watch.ledger.head is not None:
                raise NotFound(f"session {self.id!r} has no turn with the key {key!r}", session=self.id)
            raise missing_turn(watch.ledger, turn or 0)
        own = self._runs.find(self.id, seen.turn)
        if own is not None and (not own.done or own.status == "done" or own.seq == watch.ledger.seq):
            return own
        place = self.id, seen.turn, id(self._what)
        known: FollowedRun[EventT_co, ResultT_co] | None = self._runs.followed.get(place)
        if known is None or not known.shared:
            framework, instance = self._framework, self._instance
            source = Source(
                store=watch.ledger.store, session=self.id, framework=framework, instance=instance, runs=self._runs
            )
            known = self._runs.followed[place] = FollowedRun(source, seen)
        return known

    @abstractmethod
    def _stream(
        self,
        given: Input,
        key: str | None,
        token: Cancellation | None,
        *,
        words: Words | None = None,
        run: OwnRun[EventT_co, ResultT_co] | None = None,
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        """Run one turn; yield its events, then its result. Note in ``run`` when the input is durable.

        ``words`` may also answer a question. If an interrupted turn is finished first, its events come, too.
        """

    @abstractmethod
    def _resume(
        self,
        diverged: Diverged,
        by: str | None,
        token: Cancellation | None,
        *,
        run: OwnRun[EventT_co, ResultT_co] | None = None,
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        """Continue the open turn; note in ``run`` when it runs."""

    @abstractmethod
    def _answer(
        self,
        answer: str,
        *,
        question: str | None,
        arguments: Mapping[str, Json] | None,
        by: str | None,
        diverged: Diverged,
        token: Cancellation | None = None,
        run: OwnRun[EventT_co, ResultT_co] | None = None,
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        """Answer a question and continue the turn; note in ``run`` when the answer is durable."""

    @abstractmethod
    async def _last(self, stream: AsyncGenerator[EventT_co | ResultT_co, None]) -> ResultT_co:
        """Return the last item of a turn's stream, which is the result of the turn."""

    @abstractmethod
    async def _input(self, task: Any, *, streamed: bool = False, output_task_messages: bool = True) -> Input:
        """Return a task as it is accepted: as messages, with their texts redacted.

        Raises:
            InvalidArgument: ``task`` is not a task.
            RedactionFailed: the function of the blueprint failed.
        """

    def _digest(self, given: Input, key: str | None) -> str:
        """Return the digest of a task with a key: for a task of many megabytes, it takes time."""
        task = given.task
        return "" if key is None else task_digest(task and [self._framework.identity(message) for message in task])

    async def _launch(
        self,
        key: str | None,
        given: Input,
        work: Callable[[OwnRun[EventT_co, ResultT_co]], AsyncGenerator[EventT_co | ResultT_co, None]],
    ) -> Run[EventT_co, ResultT_co] | None:
        """Start work in the background; return its turn when that is known, and ``None`` if there is none."""
        codec.check_argument(given.task, "task")
        digest = self._digest(given, key)
        while key is not None and (other := self._runs.under_way(self.id, key)) is not None:
            if other.digest != digest:
                raise other_task(self.id, key)
            await asyncio.wait({other.settled})
            if other.runs:
                return other
            await asyncio.wait({other.ended})
        run = OwnRun[EventT_co, ResultT_co](self.id, key, digest, self._framework.result_type)
        await self._runs.launch(run, work(run), self._ledger)
        if run.runs:
            return run
        return await self.follow(run.turn) if run.turn else None

    def _started(self, run: Run[EventT_co, ResultT_co] | None) -> Run[EventT_co, ResultT_co]:
        if run is None:
            raise AssertionError("a task always has a turn")
        return run


def other_task(session: str, key: str) -> Conflict:
    """Return the error for a key that was used for another task."""
    return Conflict(
        f"key {key!r} of session {session!r} belongs to another task; choose another key for this one",
        session=session,
        key=key,
    )


def check_key(key: str) -> str:
    """Return the key of a delivery.

    Raises:
        InvalidArgument: it is not one.
    """
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"must be a string of 1 to {MAX_KEY} characters", path="key")
    codec.check_argument(key, "key")
    return key


def person_who_lets_diverge(diverged: Diverged, by: str | None) -> str | None:
    """Return the person who lets a turn continue although its record does not fit; ``None`` if it must not continue.

    Raises:
        InvalidArgument: ``diverged`` is not known, or ``by`` is not a name.
    """
    if diverged not in get_args(Diverged):
        raise InvalidArgument(f"is {diverged!r}; it can be 'raise' or 'continue'", path="diverged")
    who = check_by(by)
    return who if diverged == "continue" else None
