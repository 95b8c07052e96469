"""Run an AutoGen agent or team so that it can be stopped at any time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, cast

from autogen_agentchat.base import TaskResult
from autogen_core import ROOT_LOGGER_NAME, CancellationToken

from midturn.autogen import private
from midturn.autogen.messages.conversion import load, mark, outcome
from midturn.autogen.parts.walk import teams, walk
from midturn.stopping import Escaped, settled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence

    from midturn.autogen.calls.interception import InterceptedRun
    from midturn.framework import Calls
    from midturn.record.codec import Json
    from midturn.stopping import Stop

GRACE = 0.2
"""Seconds that a cancelled run gets to end by itself before it is cancelled again."""

TRIES = 5
"""Number of times that a run is cancelled before it is abandoned: AutoGen may wait in ``finally`` for ever."""


class _Token(CancellationToken):
    """A token that cancels the task which awaits a linked coroutine. AutoGen's MCP workbench links coroutines.

    AutoGen's own token cannot cancel a coroutine: it raises ``AttributeError`` and stops nothing.
    """

    def link_future(self, future: Any) -> Any:
        task = asyncio.current_task() if iscoroutine(future) else None
        super().link_future(cast("Any", task or future))
        return future


async def stream(run: InterceptedRun, task: Sequence[Json] | None, stops: Sequence[Stop]) -> AsyncGenerator[Any, None]:
    """Yield the events of a run, then its outcome.

    A stop ends the run at once, and this raises the error of the stop. Closing the stream ends the run, too. The
    instance cannot be used after either.
    """
    live, token = run.live, _Token()
    queue: asyncio.Queue[Any] = asyncio.Queue()
    messages = None if task is None else load(live, task, "task")
    with run.installed():
        driver = asyncio.create_task(_drive(live, messages, token, queue, run.calls))
        for ending in (driver, *stops):
            ending.add_done_callback(queue.put_nowait)
        complete = False
        try:
            while not complete:
                item = await queue.get()
                for stop in stops:
                    if stop.done():
                        stop.result()
                if item is driver:
                    _check(driver)
                    complete = True
                else:
                    yield outcome(item) if isinstance(item, TaskResult) else item
        finally:
            for stop in stops:
                stop.remove_done_callback(queue.put_nowait)
            if not complete:
                await settled(_stop(live, driver, token))


async def _drive(live: Any, task: Any, token: CancellationToken, queue: asyncio.Queue[Any], calls: Calls) -> None:
    try:
        async for item in live.run_stream(task=task, cancellation_token=token):
            replayed = not isinstance(item, TaskResult) and calls.replaying
            queue.put_nowait(mark(item) if replayed else item)
    except SystemExit as error:  # asyncio would end the whole process
        raise Escaped(error) from error


def _check(driver: asyncio.Task[None]) -> None:
    """Raise the error of a run that has ended by itself. A cancellation is an error, too: nobody has asked for it."""
    try:
        driver.result()
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Escaped(error) from error


async def _stop(live: Any, driver: asyncio.Task[None], token: CancellationToken) -> None:
    """Cancel a run and all tasks that it started; give up on a task that does not end."""
    token.cancel()
    ended: set[asyncio.Task[Any]] = set()
    with _without_cancellations(logging.getLogger(ROOT_LOGGER_NAME)):
        for _ in range(TRIES):
            running = {driver}.union(*(private.tasks(team) for team in teams(walk(live))))
            ended |= running
            running = {task for task in running if not task.done()}
            if not running:
                break
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=GRACE)
    for task in ended:
        if task.done() and not task.cancelled():
            task.exception()  # so that asyncio does not report it as never retrieved


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
