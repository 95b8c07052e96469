"""A turn that another process runs, or that has run before, and its events."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from midturn.errors import InvalidArgument, SessionBusy, StoreUnavailable
from midturn.framework import EventT_co, ResultT_co
from midturn.lease.ledger import holder
from midturn.sessions.runs import Events, Run, RunEvent, check_after, ended_without_result
from midturn.turns.follower import Follower, Seen, Watch
from midturn.turns.open_turn import OpenQuestions
from midturn.turns.recorded_result import recorded_result

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator

    from midturn.framework import Framework
    from midturn.history.turns import TurnStatus
    from midturn.sessions.runs import Runs
    from midturn.store import Store
    from midturn.turns.instance import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Generic[EventT_co, ResultT_co]):
    """The session that a followed turn belongs to."""

    store: Store
    session: str
    framework: Framework[EventT_co, ResultT_co]
    instance: Instance[EventT_co, ResultT_co]
    runs: Runs


class FollowedRun(Run[EventT_co, ResultT_co]):
    """A turn that this process does not run.

    All readers of its events share one task, which rebuilds the events. The task ends with the last reader.
    """

    def __init__(self, source: Source[EventT_co, ResultT_co], seen: Seen) -> None:
        super().__init__(source.session, turn=seen.turn, key=seen.key)
        self._source = source
        self._seen = seen
        self._events = Events[EventT_co]()
        self._readers = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def shared(self) -> bool:
        """Return whether the task that rebuilds the events runs now."""
        return self._task is not None and not self._task.done()

    @property
    def status(self) -> TurnStatus:
        return self._seen.status

    async def events(self, *, after: int = 0) -> AsyncGenerator[RunEvent[EventT_co], None]:
        check_after(after)
        if not self._source.instance.is_built:
            raise InvalidArgument(
                "this process did not run the turn, so it needs a function that builds the agent or team to rebuild "
                "the turn's events",
                path="what",
                session=self.session,
                hint="Give the session a factory. open_turn() and turn() read a turn without one.",
            )
        if self._task is None or (self._task.done() and self._events.failed):
            events = self._events = Events[EventT_co]()
            self._task = self._source.runs.spawn(self._follow(events))
            self._task.add_done_callback(lambda task: events.end(_error_of(task)))
        task, self._readers = self._task, self._readers + 1
        try:
            async with aclosing(self._events.read(self.turn, after)) as numbered:
                async for event in numbered:
                    yield event
        finally:
            self._readers -= 1
            if not self._readers and not task.done():
                self._task = None
                task.cancel()

    async def result(self) -> ResultT_co:
        source, watch = self._source, Watch(self._source.store, self.session)
        found = await watch.settled(self.turn, self._see)
        if found.status == "done":
            return await watch.ledger.steady(
                lambda: recorded_result(watch.ledger, self.turn, source.framework, self._live)
            )
        if found.status == "waiting":
            questions = OpenQuestions(watch.ledger, source.instance, source.framework, lambda: None)
            return await questions.result(own=True, said=self._said if source.instance.is_built else None)
        raise ended_without_result(self.session, self.turn, found.status, found.error)

    async def cancel(self) -> bool:
        watch = Watch(self._source.store, self.session)
        self._see(await watch.demand(self.turn))
        if self.done:
            return False
        owner = holder(watch.ledger.head) or "another worker"
        raise SessionBusy(
            f"turn {self.turn} of session {self.session!r} is run by {owner}, and only that process can cancel it",
            session=self.session,
            owner=owner,
        )

    async def _live(self) -> Any:
        """Return an agent or team that knows the types of the messages."""
        instance = self._source.instance
        return await instance.blueprint.build() if instance.is_runnable else None

    async def _said(self) -> list[Any]:
        """Return the events so far of a turn that waits."""
        source = self._source
        blueprint, framework = source.instance.blueprint, source.framework.another()
        return await Follower(source.store, self.session, self.turn, blueprint, framework).said()

    async def _follow(self, events: Events[EventT_co]) -> None:
        source = self._source
        blueprint, framework = source.instance.blueprint, source.framework.another()
        follower = Follower(source.store, self.session, self.turn, blueprint, framework, seen=self._see)
        async with aclosing(follower.events()) as found:
            async for event in found:
                events.append(event)

    def _see(self, seen: Seen) -> None:
        self._seen = seen


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    return StoreUnavailable.closed() if task.cancelled() else task.exception()
