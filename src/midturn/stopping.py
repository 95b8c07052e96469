"""Stopping work without leaving any of it half done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from midturn.framework import Cancellation

T = TypeVar("T")

Stop: TypeAlias = asyncio.Future[None]
"""Cancelled, or given an error, when the work is to stop."""


def stop_of(token: Cancellation | None) -> Stop:
    """Return a stop that is cancelled with the token, from whatever thread.

    Raises:
        CancelledError: the token is cancelled already.
    """
    loop = asyncio.get_running_loop()
    stop: Stop = loop.create_future()
    if token is not None:
        if token.is_cancelled():
            raise asyncio.CancelledError

        def cancel() -> None:
            with suppress(RuntimeError):  # the loop is closed, and the run long over
                loop.call_soon_threadsafe(stop.cancel)

        token.add_callback(cancel)
    return stop


def fail(stop: Stop, error: Exception) -> None:
    """Stop work with an error, unless it was stopped already."""
    if not stop.done():
        stop.set_exception(error)
        stop.exception()  # looked at already, if nobody else does


async def unless(work: Awaitable[T], *stops: Stop) -> T:
    """Return the result of work. If a stop comes first, cancel the work and raise the stop's error."""
    task = asyncio.ensure_future(work)
    either: set[asyncio.Future[Any]] = {task, *stops}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        for stop in stops:
            if stop.done():
                stop.result()
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await _end_of(task)
        _look_at(task)


async def settled(work: Awaitable[T]) -> T:
    """Await work to its end, however often the caller is cancelled: its result must not stay unknown."""
    task = asyncio.ensure_future(work)
    await _end_of(task)
    return task.result()


async def _end_of(task: asyncio.Future[Any]) -> None:
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        _look_at(task)
        raise asyncio.CancelledError


def _look_at(task: asyncio.Future[Any]) -> None:
    """Keep asyncio from reporting an error that nobody looked at: something else is raised instead."""
    if not task.cancelled():
        task.exception()
