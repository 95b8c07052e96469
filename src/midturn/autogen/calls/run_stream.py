"""Run an AutoGen agent or team so that it can be stopped at any time without losing what was said before."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Never, cast

from autogen_agentchat.base import Response, TaskResult, Team
from autogen_core import ROOT_LOGGER_NAME, CancellationToken

from midturn.autogen import private
from midturn.autogen.messages.conversion import mark, outcome
from midturn.autogen.messages.ids import Ids
from midturn.autogen.parts.walk import teams, walk
from midturn.errors import InvalidArgument
from midturn.record.codec import class_of
from midturn.stopping import Escaped, Postponed, Resting, settled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence

    from midturn.autogen.calls.interception import InterceptedRun
    from midturn.framework import Answer, Input, Request
    from midturn.redaction import Redaction
    from midturn.stopping import Stop

GRACE = 0.2
"""Seconds that a cancelled run gets to end by itself before it is cancelled again."""

TRIES = 5
"""Number of times that a run is cancelled before it is abandoned: AutoGen may wait in ``finally`` for ever."""

LONGEST = 10.0
"""Seconds that a stopped run gets to deliver what its agents have said: an agent of a user may talk for ever."""

SPEAKING = ("run_stream", "on_messages_stream", "on_messages")
"""The methods that run while an agent speaks."""

END = object()

_RUN: ContextVar[object] = ContextVar("midturn_run", default=None)
"""The mark of the run that the current task belongs to. Tasks of servers live longer, and must not keep the run."""


class _Token(CancellationToken):
    """A token that cancels the task which awaits a linked coroutine. AutoGen's MCP workbench links coroutines.

    AutoGen's own token cannot cancel a coroutine: it raises ``AttributeError`` and stops nothing.
    """

    def link_future(self, future: Any) -> Any:
        task = asyncio.current_task() if iscoroutine(future) else None
        super().link_future(cast("Any", task or future))
        return future


def stream(
    run: InterceptedRun, given: Input, messages: list[Any] | None, stops: Sequence[Stop]
) -> AsyncGenerator[Any, None]:
    """Yield the events of a run, then its outcome. ``messages`` are those of the task.

    After a stop, the run makes no more calls. This yields what was said before the stop, however slow the reader is,
    and then raises the error of the stop. Closing the stream ends the run, too. The instance cannot be used after a
    stop or a close. But a run that only rests stays as it is: the error then has the run, which can continue.
    """
    return _Driver(run, given, messages).items(stops)


class _Driver:
    """Runs an agent or a team in a task of its own. The run waits for its reader where AutoGen's own stream does."""

    def __init__(self, run: InterceptedRun, given: Input, messages: Any) -> None:
        self._run, self._live, self._calls = run, run.live, run.calls
        self._options: dict[str, Any] = {"task": messages, "cancellation_token": _Token()}
        if not given.output_task_messages:  # an agent of a user may not know it
            self._options["output_task_messages"] = False
        self._streamed = given.streamed
        self._ids = Ids(given.turn, messages or ())
        self._stops: Sequence[Stop] = ()
        self._installed = ExitStack()
        self._items: deque[Any] = deque()
        self._count = 0
        self._news, self._asked = asyncio.Event(), asyncio.Event()
        self._paused = self._free = self._rests = False
        self._nothing = _NoCalls(run)
        self._ending: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None]
        self._begun = False

    async def items(self, stops: Sequence[Stop]) -> AsyncGenerator[Any, None]:
        """Begin or continue the run; yield its events, then its outcome."""
        keeps = complete = False
        if not self._begun:
            await self._begin()
        try:
            self._listen(stops)
            while (item := await self.next()) is not END:
                told = outcome(item) if isinstance(item, TaskResult) else item
                yield told if self._run.redaction is None else await self._run.shown(told)
            complete = True
        except Resting as rest:
            if keeps := self.is_still:
                self._run.resting = rest.kept = self
            raise
        finally:
            self.leave()
            if not keeps:
                await self._finish(complete=complete)

    async def _begin(self) -> None:
        for other in self._run.resting_rivals():
            await settled(other.end())
        self._installed.enter_context(self._run.installed())
        self._begun = True
        self._task = asyncio.create_task(self._guarded(self._stream() if self._streamed else self._whole()))
        self._task.add_done_callback(self._notice)

    async def next(self) -> Any:
        """Return the next item of the run; ``END`` after the last one.

        Raises the error of a stop, or of the run itself.
        """
        while not self._items:
            if (self._ending or self._task).done():
                for stop in self._stops:
                    if stop.done():
                        stop.result()
                _check(self._task)
                return END
            self._asked.set()
            self._news.clear()
            await self._news.wait()
        return self._items.popleft()

    @property
    def is_still(self) -> bool:
        return self._rests and not self._items and not self._task.done() and self._nothing.is_untouched

    def proceed(self, stops: Sequence[Stop], spent: float) -> AsyncGenerator[Any, None]:
        self._rests = self._free = False
        self._ending = self._run.resting = None
        self._run.calls = self._calls
        self._run.pass_time(spent)
        return self.items(stops)

    async def end(self) -> None:
        self._run.resting = None
        await self._finish(complete=False)

    async def _finish(self, *, complete: bool) -> None:
        """End the run, and put the real objects back."""
        try:
            if not complete:
                self._run.forget_stand_ins()
                await settled(self.close())
        finally:
            self._installed.close()

    def _listen(self, stops: Sequence[Stop]) -> None:
        self._stops = stops
        for stop in stops:
            stop.add_done_callback(self._halt)

    def leave(self) -> None:
        """Stop listening for stops."""
        for stop in self._stops:
            stop.remove_done_callback(self._halt)

    async def close(self) -> None:
        """End the run."""
        if self._ending is not None and not self._ending.done():
            self._ending.cancel()
            await asyncio.wait({self._ending})
        await self._cancel()

    # The run.

    async def _guarded(self, work: Any) -> None:
        _RUN.set(self._run.mark)
        try:
            await work
        except SystemExit as error:  # asyncio would end the whole process
            raise Escaped(error) from error

    async def _stream(self) -> None:
        """Run as AutoGen's stream does: continue when the reader asks for the next item."""
        items = self._live.run_stream(**self._options)
        try:
            async for item in items:
                self._put(item)
                if not self._free:
                    self._asked.clear()
                    self._paused = True
                    await self._asked.wait()
                    self._paused = False
        finally:
            if (close := getattr(items, "aclose", None)) is not None:
                await close()

    async def _whole(self) -> None:
        """Run as AutoGen's ``run`` does; its result may differ from that of its stream."""
        with _overheard(self._live, self._put):
            if not isinstance(self._live, Team) and "output_task_messages" not in self._options:
                for message in self._options["task"] or ():
                    self._put(message)
            self._put(await self._live.run(**self._options))

    def _put(self, item: Any) -> None:
        is_result = isinstance(item, TaskResult)
        for message in item.messages if is_result else (item,):
            if self._ids.final.get(message.id) != message.id:
                self._ids.give(message)
        self._items.append(item if is_result or not self._calls.replaying else mark(item))
        self._count += 1
        self._news.set()

    # Its end.

    def _notice(self, _: object) -> None:
        self._news.set()

    def _halt(self, stop: Stop) -> None:
        """Make no more calls, and begin to end the run: its reader may not come back for a long time."""
        if self._ending is None:  # the run may have been cancelled, and its agents not
            self._run.calls = self._nothing
            self._ending = asyncio.create_task(self._end(stop))
            self._ending.add_done_callback(self._notice)
        self._news.set()

    async def _end(self, stop: Stop) -> None:
        """End the run when everything that was said has arrived."""
        if _is_autogens(class_of(self._live)):
            self._free = True  # AutoGen's own code does nothing but calls, and there are no more of them
            self._asked.set()
        hurry = stop.cancelled() or not isinstance(stop.exception(), Postponed)
        loop = asyncio.get_running_loop()
        until, count = loop.time() + LONGEST, -1
        while count != self._count and loop.time() < until:
            count = self._count
            await self._calls.quiet()
            if self._paused and not hurry:  # in the code of a user, which continues when the reader does
                await self._asked.wait()
                until, count = loop.time() + LONGEST, -1
        self._rests = not stop.cancelled() and isinstance(stop.exception(), Resting) and count == self._count
        if not self._rests:
            await self._cancel()

    async def _cancel(self) -> None:
        """Cancel the run and all tasks that it started; give up on a task that does not end."""
        self._options["cancellation_token"].cancel()
        self._nothing.close()
        self._run.ended = True
        ended: set[asyncio.Task[Any]] = set()
        with _without_cancellations(logging.getLogger(ROOT_LOGGER_NAME)):
            for _ in range(TRIES):
                running = {self._task, *self._run.handling}
                running = running.union(*(private.tasks(team) for team in teams(walk(self._live))))
                ended |= running
                running = {task for task in running if not task.done()}
                if not running:
                    break
                for task in running:
                    task.cancel()
                await asyncio.wait(running, timeout=GRACE)
        await self._calls.quiet()
        for task in ended:
            if task.done() and not task.cancelled():
                task.exception()  # so that asyncio does not report it as never retrieved


class _NoCalls:
    """The calls of a run that has ended or rests: none is made, and no caller continues.

    A run that rests for days must not stop others that use the same part: their calls are none of the run.
    """

    recording = True
    replaying = False
    redaction: Redaction | None = None

    def __init__(self, run: InterceptedRun) -> None:
        self._run = run
        self._callers: set[asyncio.Future[None]] = set()
        self._closed = False
        self.is_untouched = True
        """True if nobody has tried to make a call."""

    @property
    def _is_elsewhere(self) -> bool:
        return self._run.resting is not None and _RUN.get() is not self._run.mark

    async def enter(self) -> None:
        if not self._is_elsewhere:
            await self._wait()

    async def quiet(self) -> None:
        if not self._is_elsewhere:
            await self._wait()

    async def call(self, request: Request, make: Callable[[Any], Awaitable[Answer]]) -> Answer:
        return await make(request.arguments) if self._is_elsewhere else await self._wait()

    async def approve(self, request: Request) -> tuple[Any, str | None]:
        if self._is_elsewhere:
            raise InvalidArgument("is in use by a session that waits for people", path=request.path)
        await self._wait()

    async def fail(self, error: Exception) -> Never:
        if self._is_elsewhere:
            raise error
        await self._wait()

    async def ask(self, request: Request, question: str) -> str:
        _ = question
        if self._is_elsewhere:
            raise InvalidArgument("is in use by a session that waits for people", path=request.path)
        await self._wait()

    async def look(self, path: str, see: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        _ = path
        return await see() if self._is_elsewhere else await self._wait()

    async def _wait(self) -> Never:
        self.is_untouched = False
        if self._closed:
            raise asyncio.CancelledError
        caller: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._callers.add(caller)
        try:
            await caller
            raise asyncio.CancelledError
        finally:
            self._callers.discard(caller)

    def close(self) -> None:
        """Cancel the waiting callers."""
        self._closed = True
        for caller in self._callers:
            caller.cancel()


def _is_autogens(cls: Any) -> bool:
    """Return whether only AutoGen's own code runs while an agent or a team of a class speaks."""
    found = (getattr(cls, name, None) for name in SPEAKING)
    return all(method is None or method.__module__.startswith("autogen_agentchat.") for method in found)


@contextmanager
def _overheard(live: Any, put: Callable[[Any], None]) -> Generator[None]:
    """Pass on what an agent or a team says during its ``run``, as far as that uses its stream."""
    name = "run_stream" if isinstance(live, Team) else "on_messages_stream"
    own, real = getattr(live, "__dict__", None), getattr(live, name, None)
    if own is None or real is None:
        yield
        return

    async def heard(*args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        async for item in real(*args, **options):
            if not isinstance(item, TaskResult):
                put(item.chat_message if isinstance(item, Response) else item)
            yield item

    before = own.get(name)
    own[name] = heard
    try:
        yield
    finally:
        if own.get(name) is heard:
            own.pop(name) if before is None else own.update({name: before})


def _check(driver: asyncio.Task[None]) -> None:
    """Raise the error of a run that has ended by itself. A cancellation is an error, too: nobody has asked for it."""
    try:
        driver.result()
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Escaped(error) from error


@contextmanager
def _without_cancellations(logger: logging.Logger) -> Generator[None]:
    """Keep cancellations out of the log: AutoGen logs each as an error with a traceback, and here they are wanted."""

    def keep(record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        return kind is None or not issubclass(kind, asyncio.CancelledError)

    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)
