"""Stopping work without leaving anything half done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from midturn.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


T = TypeVar("T")


class Cancellation(Protocol):
    """The part of a framework's cancellation token that midturn uses."""

    def is_cancelled(self) -> bool:
        """Return whether the token was cancelled."""
        ...

    def add_callback(self, callback: Callable[[], Any]) -> None:
        """Call ``callback`` when the token is cancelled."""
        ...


Stop: TypeAlias = asyncio.Future[None]
"""A future that is cancelled, or gets an error, when the work has to stop."""


class Escaped(Exception):
    """Carries an exception that is no ``Exception``, such as a ``CancelledError`` that a tool itself has raised.

    By itself, it would look as if somebody had cancelled the turn.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}".rstrip(": "))
        self.error = error


class Postponed(Exception):
    """Stops work that is to continue later. Nothing is urgent, so work that waits for its reader may finish that."""


class Resting(Postponed):
    """Stops work until people have answered. ``kept`` is the work as it stands, if it can continue from there."""

    kept: Any = None


def stop_of(token: Cancellation | None) -> Stop:
    """Return a stop that is cancelled together with the token, from any thread.

    Raises:
        CancelledError: the token is already cancelled.
        InvalidArgument: it is not a token.
    """
    loop = asyncio.get_running_loop()
    stop: Stop = loop.create_future()
    if token is not None:
        if not hasattr(token, "add_callback") or not hasattr(token, "is_cancelled"):
            raise InvalidArgument(
                f"must be a CancellationToken, not a {type(token).__name__}", path="cancellation_token"
            )
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
        stop.exception()  # retrieve it, so that asyncio does not report it as never retrieved


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
    """Wait until work ends, even if the caller is cancelled meanwhile: its result must not stay unknown."""
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
    """Retrieve the error of a task: another error is raised, and asyncio would report this one as never retrieved."""
    if not task.cancelled():
        task.exception()
