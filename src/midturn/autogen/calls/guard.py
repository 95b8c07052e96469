"""Keep exceptions from getting lost in AutoGen's tasks.

AutoGen's assistant waits on a queue for a task that runs its tools, and a team waits on a queue for its runtime. If an
exception ends such a task, AutoGen waits for ever. So an exception goes one of three ways:

* What midturn itself raises in a stand-in never enters an agent: it ends the turn (:func:`guarded`).
* What the user's client, workbench or memory raises enters the agent as it is: the agent may handle it.
* What leaves a tool call or an agent of a team, and is not an ``Exception``, ends the turn (:func:`watched`).
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from functools import wraps
from inspect import isasyncgenfunction
from typing import TYPE_CHECKING, Any, TypeVar, cast

from midturn.stopping import Escaped

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable

    from midturn.framework import Calls

T = TypeVar("T")
MethodT = TypeVar("MethodT", bound="Callable[..., Any]")


class Theirs(Exception):
    """Carries an exception of the user's own objects through the code of midturn."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error


class Exited(BaseException):
    """Carries a ``SystemExit`` of a tool: asyncio would end the whole process with it, AutoGen would tell the model."""

    def __init__(self, error: SystemExit) -> None:
        super().__init__(str(error))
        self.error = error


async def in_thread(function: Callable[..., T], *args: Any, **options: Any) -> T:
    """Return the result of a function that runs in a thread.

    Before Python 3.12, no future accepts a ``StopIteration``, and whoever waits for that future waits for ever. A
    coroutine turns a ``StopIteration`` into a ``RuntimeError``, and so does this function.
    """
    return await asyncio.to_thread(_without_stop_iteration, function, *args, **options)


def _without_stop_iteration(function: Callable[..., T], /, *args: Any, **options: Any) -> T:
    try:
        return function(*args, **options)
    except StopIteration as error:
        raise RuntimeError("function raised StopIteration") from error


async def theirs(work: Awaitable[T]) -> T:
    """Return the result of a call of the user's own object; mark what it raises as the user's.

    ``SystemExit`` is marked, too: asyncio would end the whole process with it, if it left a task of midturn.
    """
    try:
        return await work
    except (Exception, SystemExit) as error:
        raise Theirs(error) from error


@asynccontextmanager
async def closing(items: AsyncIterable[T]) -> AsyncGenerator[AsyncIterable[T]]:
    """Close a stream at the end. The stream of a user's own object may be no generator, and then needs no closing."""
    try:
        yield items
    finally:
        if (close := getattr(items, "aclose", None)) is not None:
            await close()


async def their_items(items: AsyncIterable[T]) -> AsyncGenerator[T, None]:
    """Yield the items of a stream of the user's own object; mark what it raises as the user's."""
    try:
        async with closing(items):
            async for item in items:
                yield item
    except (Exception, SystemExit) as error:
        raise Theirs(error) from error


def guarded(method: MethodT) -> MethodT:
    """Decorate a method of a recorder: the caller gets only what the user's own object raised.

    Any other error is one of midturn, such as a recorded value that cannot be read. It ends the turn.
    """
    if isasyncgenfunction(method):

        @wraps(method)
        async def items(self: Any, *args: Any) -> AsyncGenerator[Any, None]:
            calls: Calls = self.run.calls
            try:
                async with aclosing(method(self, *args)) as found:
                    async for item in found:
                        yield item
                return
            except Theirs as marked:
                error = marked.error
            except Exception as ours:  # noqa: BLE001 - whatever it is, the turn ends with it
                await calls.fail(ours)
            error = await self.run.without_secrets(error, self.who)
            raise error

        return cast("MethodT", items)

    @wraps(method)
    async def call(self: Any, *args: Any) -> Any:
        calls: Calls = self.run.calls
        try:
            return await method(self, *args)
        except Theirs as marked:
            error = marked.error
        except Exception as ours:  # noqa: BLE001 - the same
            await calls.fail(ours)
        error = await self.run.without_secrets(error, self.who)
        raise error

    return cast("MethodT", call)


async def watched(work: Awaitable[T], token: Any, calls: Calls) -> T:
    """Return the result of work whose ``CancelledError`` or ``SystemExit`` AutoGen would lose: it ends the turn.

    A cancelled ``token`` explains a ``CancelledError``: whoever cancelled the token waits for nothing more. A
    ``KeyboardInterrupt`` is Ctrl-C, which ends the process.
    """
    try:
        return await work
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        if token is not None and token.is_cancelled():
            raise
        await calls.fail(Escaped(error.error if isinstance(error, Exited) else error))
