"""A session: the life of a turn, from the lease to the commit. ``docs/turn.md`` tells it in prose."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, cast, get_args

from leftoff import codec, turns
from leftoff.errors import Conflict, LeftoffError, SessionBusy, StateInvalid, StoreUnavailable, TurnFailed
from leftoff.execution import Execution
from leftoff.framework import EventT_co, ResultT_co
from leftoff.history import Checkpoint, history
from leftoff.instance import Instance
from leftoff.ledger import Ledger
from leftoff.records import check_labels
from leftoff.stopping import settled, stop_of, unless

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from leftoff.codec import Json
    from leftoff.framework import Cancellation, Framework
    from leftoff.history import Turn
    from leftoff.stopping import Stop
    from leftoff.store import Store
    from leftoff.turns import Origin

Busy: TypeAlias = Literal["wait", "raise"]

MAX_KEY = 500


class Session(Generic[EventT_co, ResultT_co]):
    """One long-running conversation or case: a drop-in for the framework's own task runner that remembers.

    ``id`` is its name in the store. Two calls at once on one session run one after the other.
    """

    def __init__(
        self,
        store: Store,
        session: str,
        what: object,
        framework: Framework[EventT_co, ResultT_co],
        *,
        labels: Mapping[str, str] | None = None,
        busy: Busy = "wait",
        timeout: float = 30.0,
    ) -> None:
        if busy not in get_args(Busy):
            raise StateInvalid(f"is {busy!r}; it can be 'wait' or 'raise'", path="busy")
        if type(timeout) not in (int, float) or not timeout >= 0:
            raise StateInvalid(f"is {timeout!r}; it is a number of seconds from 0 on", path="timeout")
        self.id = session
        self._ledger = Ledger(store, session, labels=None if labels is None else check_labels(labels))
        self._framework = framework
        self._instance = Instance(session, what, framework)
        self._execution = Execution(self._ledger, self._instance, framework)
        self._busy: Busy = busy
        self._timeout = timeout
        self._mutex = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    async def run(
        self,
        task: Any = None,
        *,
        key: str | None = None,
        cancellation_token: Cancellation | None = None,
    ) -> ResultT_co:
        """Run a turn to its end and return its result, which is durable by then.

        With a ``key`` the same turn delivered twice runs once: a known key returns the recorded result.

        Raises:
            TurnFailed: the agent or team raised; the state is as before, ``resume()`` tries the turn again.
            SessionBusy: another worker holds the session and did not finish in time.
            Conflict: the key was used before, for another task.
        """
        return await self._last(self._stream(self._framework.accept(task), key, cancellation_token))

    async def run_stream(
        self,
        task: Any = None,
        *,
        key: str | None = None,
        cancellation_token: Cancellation | None = None,
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        """As :meth:`run`, with the events as they happen and the result as the last item."""
        async with aclosing(self._stream(self._framework.accept(task), key, cancellation_token)) as stream:
            async for item in stream:
                yield item

    async def resume(self, *, cancellation_token: Cancellation | None = None) -> ResultT_co | None:
        """Finish a turn that crashed, or try again one that failed or was cancelled; ``None`` if there is none.

        Raises:
            TurnFailed: it failed again.
        """
        stop = stop_of(cancellation_token)
        async with self._alone(stop) as until:
            while True:
                await self._ledger.refresh()
                await self._ledger.wait(until, stop)
                if self._ledger.progress.open is None:
                    return None
                try:
                    await self._execution.reopen(own=True)
                except Conflict:
                    self._instance.forget()
                    continue
                return await self._last(self._execution.perform(stop, own=True))

    async def history(self) -> AsyncGenerator[Turn, None]:
        """All turns, oldest first, also those that failed."""
        ledger = Ledger(self._ledger.store, self.id)
        await ledger.refresh()
        async for turn in history(ledger):
            yield turn

    def at(self, checkpoint: int) -> Checkpoint:
        """The checkpoint with that number, to be read."""
        return Checkpoint(Ledger(self._ledger.store, self.id), checkpoint)

    async def delete(self) -> bool:
        """Delete the session for good; whether there was something to delete."""
        return await self._ledger.store.delete(self.id)

    async def save(self, tree: Any = None, *, origin: Origin = "save") -> int:
        """Store the state of the given live instance (or ``tree``) as a checkpoint, running nothing; its number.

        Raises:
            TurnFailed: a crashed turn is open; it has to be finished first.
        """
        if tree is None:
            tree = await self._framework.capture(self._instance.given())
        stop = stop_of(None)
        async with self._alone(stop) as until:
            while True:
                await self._ledger.refresh()
                await self._ledger.wait(until, stop)
                if self._interrupted():
                    raise TurnFailed(
                        f"turn {self._ledger.progress.turn} of session {self.id!r} was interrupted; "
                        "finish it with resume() before saving by hand",
                        session=self.id,
                        turn=self._ledger.progress.turn,
                    )
                try:
                    return await self._execution.save(tree, origin)
                except Conflict:
                    self._instance.forget()

    async def load(self) -> int:
        """Give the given live instance the state of the latest checkpoint; its number, 0 if there is none.

        Raises:
            StateInvalid: the state does not fit; the instance has its old state again.
        """
        async with self._alone(stop_of(None)):
            await self._ledger.refresh()
            return await self._instance.load_given(self._ledger)

    async def _stream(
        self, task: list[Json] | None, key: str | None, token: Cancellation | None
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        """One turn: the events, then the result."""
        digest = turns.task_digest(task and [self._framework.identity(message) for message in task])
        contended = False
        stop = stop_of(token)
        async with self._alone(stop) as until:
            while True:
                if self._instance.live is None:
                    await self._ledger.refresh()
                await self._ledger.wait(until, stop)
                number, known = await self._turn_of(key, digest)
                if known and (recorded := await self._execution.recorded(known)) is not None:
                    yield recorded
                    return
                progress = self._ledger.progress
                try:
                    if progress.open is not None and progress.turn == known:
                        await self._execution.reopen(own=True)
                    elif self._interrupted():
                        await self._execution.reopen(own=False)
                        await self._last(self._execution.perform(stop, own=False))
                        continue
                    else:
                        if contended:  # with the lease held first, the state that is read next is the last one
                            await self._take()
                        await self._execution.begin(task, key, number, digest)
                    break
                except Conflict:
                    contended = True
                    self._instance.forget()
            async with aclosing(self._execution.perform(stop, own=True)) as stream:
                async for item in stream:
                    yield item

    async def _turn_of(self, key: str | None, digest: str) -> tuple[int, int]:
        """Where the next record of a key goes, and the turn that the key belongs to, 0 if it is new.

        Raises:
            Conflict: it belongs to another task.
        """
        if key is None:
            return 0, 0
        number, known = await self._ledger.key(_check_key(key))
        if known is not None and known.task != digest:
            raise Conflict(f"key {key!r} of session {self.id!r} belongs to another task", session=self.id)
        return number, known.turn if known is not None else 0

    async def _take(self) -> None:
        """Take the lease, if it is not held."""
        head = self._ledger.head
        if not self._ledger.owned:
            await self._ledger.write(status=head.status if head is not None else "idle", progress=self._ledger.progress)

    @asynccontextmanager
    async def _alone(self, stop: Stop) -> AsyncGenerator[float]:
        """One call at a time in this process; until when to wait for other workers; the lease given back at the end."""
        self._move_to(asyncio.get_running_loop())
        wait = self._timeout if self._busy == "wait" else 0.0
        until = time.monotonic() + wait
        acquiring = asyncio.ensure_future(self._mutex.acquire())
        try:
            async with asyncio.timeout(wait if self._mutex.locked() else None):
                await unless(acquiring, stop)
        except (asyncio.CancelledError, TimeoutError) as error:
            if not acquiring.cancelled():  # it came in the same moment
                self._mutex.release()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise SessionBusy(
                f"session {self.id!r} still runs a turn in this process; wait longer: session(..., timeout=60)",
                session=self.id,
                owner="this process",
            ) from None
        try:
            yield until
        except GeneratorExit:
            raise  # a caller that has its result needs no more; a turn that is left in the middle forgets by itself
        except BaseException:
            self._instance.doubt()
            raise
        finally:
            try:
                await settled(self._release())
            finally:
                self._mutex.release()

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Belong to this event loop, after the one before has ended."""
        if self._loop is not None and self._loop is not loop:
            if self._loop.is_running():
                raise StoreUnavailable(
                    f"session {self.id!r} is in use in another event loop or process; "
                    "make one in each: store.session(...)",
                    session=self.id,
                )
            self._instance.forget()
            self._mutex = asyncio.Lock()
            self._ledger.move()
        self._loop = loop

    async def _release(self) -> None:
        """Give back a lease that was taken for nothing."""
        head = self._ledger.head
        if head is not None and self._ledger.owned:
            self._instance.forget()
            with suppress(LeftoffError):  # it expires by itself
                await self._ledger.write(status=head.status, progress=self._ledger.progress, release=True)

    async def _last(self, stream: AsyncGenerator[EventT_co | ResultT_co, None]) -> ResultT_co:
        """The last item of a turn's stream, which is its result."""
        result: Any = None
        async with aclosing(stream):
            async for item in stream:
                result = item
        return cast("ResultT_co", result)

    def _interrupted(self) -> bool:
        """Whether the open turn was neither finished nor reported to anybody: its worker died."""
        return self._ledger.progress.open == "running"


def _check_key(key: str) -> str:
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StateInvalid(f"must be a string of 1 to {MAX_KEY} characters", path="key")
    codec.check(key, "key")
    return key
