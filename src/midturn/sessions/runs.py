"""Runs: turns that continue when their caller goes away, with numbered events."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, cast
from weakref import WeakValueDictionary

from midturn.errors import InvalidArgument, StoreUnavailable, TurnFailed
from midturn.framework import EventT_co, ResultT_co
from midturn.stopping import Stop, fail, settled
from midturn.turns.resting import RestingTurns

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterable

    from midturn.history.turns import TurnStatus
    from midturn.lease.ledger import Ledger

_log = logging.getLogger(__name__)

DRAIN = 10.0
"""Seconds for which closing a store waits for its runs, unless the store was opened with another ``drain``."""
KEPT = 16
"""Number of finished runs whose events are kept, for consumers that lost their connection and come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent(Generic[EventT_co]):
    """An event of a turn, with its number: the first event of a turn has number 1."""

    turn: int
    number: int
    event: EventT_co

    @property
    def id(self) -> str:
        """Return ``<turn>.<number>``, as an id for a server-sent event."""
        return f"{self.turn}.{self.number}"


class Run(ABC, Generic[EventT_co, ResultT_co]):
    """A turn that somebody follows, wherever it runs."""

    def __init__(self, session: str, turn: int = 0, key: str | None = None) -> None:
        self.session = session
        self.turn = turn
        """The number of the turn."""
        self.key = key
        """The key of the turn, or of the delivery that continued it, if there is one."""

    def __repr__(self) -> str:
        return f"<Run of turn {self.turn} of session {self.session!r}: {self.status}>"

    @property
    @abstractmethod
    def status(self) -> TurnStatus:
        """Return the status of the turn; for a turn of another process, as it was last seen."""

    @property
    def done(self) -> bool:
        """Return whether the turn has stopped running: it has ended, waits for people, or was interrupted."""
        return self.status != "running"

    @abstractmethod
    def events(self, *, after: int = 0) -> AsyncGenerator[RunEvent[EventT_co], None]:
        """Yield the events after number ``after``: first the past ones, then the others as they happen.

        The iterator ends when the turn ends, waits for people or is interrupted; :meth:`result` tells which. Any number
        of consumers can read at once, each at its own pace. Leaving the iterator does not stop the turn.

        Raises:
            InvalidArgument: another process runs the turn or has run it, and the session has no factory with which to
                rebuild its events.
            NotFound: the events cannot be rebuilt, because the calls were not recorded, or have been removed.
            ReplayDiverged: the events cannot be rebuilt, because today's code does not make the recorded calls.
        """

    @abstractmethod
    async def result(self) -> ResultT_co:
        """Wait for the result of the turn and return it; a turn that waits for people has one, too.

        Raises:
            TurnFailed: the turn failed, was cancelled, or was interrupted because its worker died.
            MidturnError: the error that the turn raised.
        """

    @abstractmethod
    async def cancel(self) -> bool:
        """Cancel the turn and wait until that is recorded; return whether the turn was still running.

        Raises:
            SessionBusy: another process runs the turn.
        """


def check_after(after: object) -> int:
    """Return the number of an event.

    Raises:
        InvalidArgument: it is not a number.
    """
    if type(after) is not int or after < 0:
        raise InvalidArgument(f"is {after!r}; give the number of an event, or 0", path="after")
    return after


def check_drain(seconds: object) -> float:
    """Return a number of seconds.

    Raises:
        InvalidArgument: it is not one.
    """
    if type(seconds) not in (int, float) or not cast("float", seconds) >= 0:
        raise InvalidArgument(f"is {seconds!r}; give a number of seconds, 0 or more", path="drain")
    return cast("float", seconds)


class Events(Generic[EventT_co]):
    """The events of a turn so far. Readers wait for more."""

    def __init__(self) -> None:
        self._events: list[EventT_co] = []
        self.ended = False
        self._error: BaseException | None = None
        self._readers: set[asyncio.Future[None]] = set()

    @property
    def failed(self) -> bool:
        """Return whether the events ended with an error."""
        return self._error is not None

    def append(self, event: EventT_co) -> None:  # type: ignore[misc]  # the type is that of a buffer, not of a subclass
        """Add an event and wake the readers."""
        self._events.append(event)
        self._wake()

    def end(self, error: BaseException | None = None) -> None:
        """End the events, for the readers with an error if there is one."""
        self.ended, self._error = True, error
        self._wake()

    async def read(self, turn: int, after: int) -> AsyncGenerator[RunEvent[EventT_co], None]:
        """Yield the events after this number."""
        number = after
        while True:
            while number < len(self._events):
                number += 1
                yield RunEvent(turn=turn, number=number, event=self._events[number - 1])
            if self.ended:
                break
            reader = asyncio.get_running_loop().create_future()
            self._readers.add(reader)
            try:
                await reader
            finally:
                self._readers.discard(reader)
        if self._error is not None:
            raise self._error

    def _wake(self) -> None:
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)


class OwnRun(Run[EventT_co, ResultT_co]):
    """A run of this process. A task of the open store drives it."""

    def __init__(self, session: str, key: str | None, digest: str, result: type[ResultT_co]) -> None:
        super().__init__(session, key=key)
        self.digest = digest
        """The digest of the task, if the run has a key."""
        self._result_type = result
        self.stop: Stop = asyncio.get_running_loop().create_future()
        """Stops the turn when it is cancelled or gets an error."""
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the input is durable, or when it is clear that the turn will not run here."""
        self.runs = False
        """True if the turn runs here, or has run here."""
        self.seq = 0
        """The number of the session's last write when the run ended."""
        self._status: TurnStatus = "running"
        self._events = Events[EventT_co]()
        self._result: ResultT_co | None = None
        self._cancelled = False
        self._error: BaseException | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def status(self) -> TurnStatus:
        return self._status

    @property
    def error(self) -> BaseException | None:
        """Return the error that the run ended with, if it did."""
        return self._error

    def begin(self, turn: int, key: str | None) -> None:
        """Note that this turn runs from now on: its input is durable."""
        self.turn, self.key, self.runs = turn, self.key or key, True
        self._settle()

    def known(self, turn: int) -> None:
        """Note that this turn has a result, or waits, and does not run."""
        self.turn = turn
        self._settle()

    async def drive(self, stream: AsyncGenerator[EventT_co | ResultT_co, None], ledger: Ledger) -> None:
        """Run the turn to its end. Its error is kept for :meth:`result`. The ``ledger`` knows how the turn ended."""
        try:
            async with aclosing(stream):
                async for item in stream:
                    if isinstance(item, self._result_type):
                        self._result = item
                    else:
                        self._events.append(cast("EventT_co", item))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it is, result() raises it
            self._end(error, ledger)
        else:
            self._end(None, ledger)

    def events(self, *, after: int = 0) -> AsyncGenerator[RunEvent[EventT_co], None]:
        return self._events.read(self.turn, check_after(after))

    async def result(self) -> ResultT_co:
        await asyncio.wait({self.ended})
        if self._error is not None:
            raise self._error
        return cast("ResultT_co", self._result)

    async def cancel(self) -> bool:
        running = not self.ended.done()
        self.stop.cancel()
        await asyncio.wait({self.ended})
        return running and self._cancelled

    def interrupt(self) -> None:
        """Stop the turn and leave it interrupted, because the store closes."""
        if not self.runs:
            fail(self.stop, StoreUnavailable.closed())
            return
        error = StoreUnavailable(
            f"the store was closed while turn {self.turn} of session {self.session!r} ran",
            session=self.session,
            hint="resume() continues the turn.",
        )
        fail(self.stop, error)

    def _end(self, error: BaseException | None, ledger: Ledger) -> None:
        self.seq = ledger.seq
        if error is None:
            self._status = "waiting" if getattr(self._result, "waiting", None) is not None else "done"
        else:
            opened = ledger.progress.open if ledger.progress.turn == self.turn else None
            self._status = "interrupted" if opened is None or opened == "running" else opened
        if isinstance(error, asyncio.CancelledError) and self.runs:  # whoever waits for the result was not cancelled
            self._cancelled = True
            error = ended_without_result(self.session, self.turn, "cancelled")
        self._error = error
        self._events.end()
        self._settle()
        self.ended.set_result(None)

    def _settle(self) -> None:
        if not self.settled.done():
            self.settled.set_result(None)


def ended_without_result(session: str, turn: int, status: TurnStatus, why: str = "") -> TurnFailed:
    """Return the error of ``result()`` for a turn that has no result."""
    how = {"cancelled": "was cancelled", "interrupted": "was interrupted: its worker died, or closed its store"}
    hint = "The state is as it was before the turn. resume() tries it again, discard() gives it up."
    if status == "interrupted":
        hint = "resume() continues it, discard() gives it up."
    return TurnFailed(
        f"turn {turn} of session {session!r} {how.get(status, 'failed')}{why and ': '}{why}",
        session=session,
        turn=turn,
        hint=hint,
    )


class Runs:
    """The runs of an open store."""

    def __init__(self, drain: float = DRAIN) -> None:
        self._drain = drain
        self._running: dict[OwnRun[Any, Any], asyncio.Task[None]] = {}
        self._finished: dict[OwnRun[Any, Any], None] = {}
        """Finished runs, the oldest first."""
        self._tasks: set[asyncio.Task[None]] = set()
        """Other tasks, which end with the store."""
        self.followed = WeakValueDictionary[tuple[str, int, int], Any]()
        """Turns of other processes that are followed here: by session, turn, and the identity of what runs them."""
        self.built = WeakValueDictionary[str, Any]()
        """The latest instance of each session that was built here."""
        self.resting = RestingTurns()
        """The turns that wait for people and are kept as they stand."""
        self._closed = False

    async def launch(
        self,
        run: OwnRun[EventT_co, ResultT_co],
        stream: AsyncGenerator[EventT_co | ResultT_co, None],
        ledger: Ledger,
    ) -> None:
        """Drive a run, and wait until its input is durable or it is clear that the turn does not run here.

        Raises:
            MidturnError: the input was not accepted.
        """
        if self._closed:
            raise StoreUnavailable.closed()
        task = self._running[run] = asyncio.create_task(run.drive(stream, ledger))
        task.add_done_callback(lambda _: self._finish(run))
        try:
            await asyncio.wait({run.settled})
        except asyncio.CancelledError:
            if not run.settled.done():
                run.stop.cancel()
                await settled(task)
            raise
        if not run.runs and run.error is not None:
            raise run.error

    def find(self, session: str, turn: int) -> OwnRun[Any, Any] | None:
        """Return the latest run of a turn in this process, or ``None``."""
        for run in (*reversed(self._running), *reversed(self._finished)):
            if (run.session, run.turn) == (session, turn) and run.runs:
                return run
        return None

    def under_way(self, session: str, key: str | None = None) -> OwnRun[Any, Any] | None:
        """Return a run of a session that has not ended, or ``None``; with a key, also one that has not begun."""
        for run in self._running:
            if run.session == session and not run.ended.done() and (run.runs if key is None else run.key == key):
                return run
        return None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run other work that ends with the store at the latest."""
        if self._closed:
            work.close()
            raise StoreUnavailable.closed()
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Wait for the runs for some time, interrupt those that still run, and name them in the log."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        running = dict(self._running)
        try:
            if running:
                await asyncio.wait(running.values(), timeout=self._drain)
        finally:
            left = [run for run, task in running.items() if not task.done()]
            for run in left:
                run.interrupt()
            await settled(_all(running.values(), self._tasks))
            for turn in list(self.resting):
                await turn.end()
            names = [f"turn {run.turn} of {run.session!r}" for run in left if run.status == "interrupted" and run.runs]
            if names:
                _log.warning("closing the store interrupted %s, which any process can resume", ", ".join(names))
            self._finished.clear()

    def _finish(self, run: OwnRun[Any, Any]) -> None:
        del self._running[run]
        if run.runs:
            self._finished[run] = None
        while len(self._finished) > KEPT:
            del self._finished[next(iter(self._finished))]


async def _all(*tasks: Iterable[asyncio.Task[None]]) -> None:
    await asyncio.gather(*(task for group in tasks for task in group), return_exceptions=True)
