"""The order in which the calls of a turn return to their callers.

Agents that work side by side see each other's messages in the order in which their calls complete. The journal records
that order, so that the turn can run again in the same way. For this, the order of the completions alone must decide
what happens. So only one completion is let through at a time. The next one follows when everything that the last one
causes without another call has happened.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midturn.python_private import ready

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

CALM = 3
"""Number of rounds in a row without work after which an event loop counts as quiet."""

LONGEST, MARGIN = 2.0, 0.05
"""Seconds: the longest wait for a completion, and the margin that is added to the time that the call took."""

PATIENCE = 100
"""Number of rounds after which nobody waits for a quiet event loop any longer: other work may keep it busy for ever."""

ROUND = 16
"""Number of callers that a gate lets through in one round of the event loop: about ten milliseconds of work."""


class Gate:
    """Lets callers through in the order in which they came, a few in each round of the event loop.

    A framework may start ten thousand calls at once. Without a gate, all of them would work in the same round, for
    seconds. Nothing else would run meanwhile, and the lease would not be renewed.
    """

    def __init__(self) -> None:
        self._room = ROUND
        self._opening = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._listening: list[asyncio.Future[None]] = []
        self._rounds = self._calm = 0

    async def enter(self) -> None:
        """Wait until the caller may work."""
        if self._room:
            self._room -= 1
            return
        loop = asyncio.get_running_loop()
        if not self._opening:
            self._opening = True
            loop.call_soon(self._open)
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _open(self) -> None:
        """Let the next callers through. New callers get room only when these have run, so nobody overtakes."""
        if not self._waiting:
            self._room, self._opening = ROUND, False
            return
        for _ in range(min(ROUND, len(self._waiting))):
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
        asyncio.get_running_loop().call_soon(self._open)

    async def quiet(self) -> None:
        """Wait until nobody waits at the gate, and the event loop has nothing left to run."""
        loop = asyncio.get_running_loop()
        if not self._listening:
            self._rounds = self._calm = 0
            loop.call_soon(self._listen, ready(loop))
        # One callback listens for all of them: two that listened for themselves would never find the loop quiet.
        waiter: asyncio.Future[None] = loop.create_future()
        self._listening.append(waiter)
        await waiter

    def _listen(self, due: Collection[object]) -> None:
        self._rounds = 0 if self._waiting else self._rounds + 1
        self._calm = 0 if due or self._waiting else self._calm + 1
        if self._calm < CALM and self._rounds < PATIENCE:
            asyncio.get_running_loop().call_soon(self._listen, due)
            return
        listening, self._listening = self._listening, []
        for waiter in listening:
            if not waiter.done():
                waiter.set_result(None)


@dataclass(slots=True, eq=False)
class Completion:
    """The completion of a call. Nobody waits for a recorded one until the call is made again."""

    caller: asyncio.Future[None] | None = None
    awaited: bool = False
    """True while the caller waits for the completion."""
    optional: bool = False
    """True if the turn may end without this call: nobody has to make it again."""
    gap: float = 0.0
    """Seconds since the previous completion."""
    passed: bool = False
    """True if the completion was skipped, because a later one was ready and nobody had made this call."""


class Order:
    """Lets completions through one by one. Calls ``idle`` when no call runs and no completion is left."""

    def __init__(self, recorded: Collection[Completion], idle: Callable[[], None]) -> None:
        self.gate = Gate()
        """The gate that every caller passes before it works."""
        self._completions = list(recorded)
        self._recorded = len(self._completions)
        self._next = 0
        self.replaying = self._recorded > 0
        """True while recorded completions are left."""
        self._ready = 0
        self._running = 0
        self._unsettled = False
        self._idle = idle
        self._changed = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._closed = False

    def begin(self) -> None:
        """Count a call as running; its completion is added later."""
        self._running += 1

    def end(self) -> None:
        """Count a call as no longer running: it failed, or its completion was added."""
        self._running -= 1
        self._look()

    def add(self) -> Completion:
        """Add a completion at the end of the order and return it, for its caller to take."""
        completion = Completion(awaited=True)
        self._completions.append(completion)
        return completion

    def extend(self, recorded: Collection[Completion]) -> None:
        """Add completions that were recorded elsewhere since; their calls are made again later."""
        if recorded:
            self._completions += recorded
            self._recorded = len(self._completions)
            self.replaying = True
            self._look()

    async def take(self, completion: Completion) -> None:
        """Wait until this completion is the next one."""
        if self._closed:
            raise asyncio.CancelledError
        if completion.passed:
            return
        alone = not (self._running or self._ready or self._unsettled)
        if alone and not self.replaying and self._completions[self._next] is completion:
            self._next += 1
            return
        completion.caller, completion.awaited = asyncio.get_running_loop().create_future(), True
        self._ready += 1
        self._look()
        try:
            await completion.caller
        finally:
            completion.awaited = False
            self._look()

    def leave(self, completion: Completion) -> None:
        """Note that the caller of this completion no longer waits."""
        completion.awaited = False
        self._look()

    def ask(self) -> None:
        """Note that a call waits for a human."""
        self._look(even_if_idle=True)

    def _look(self, *, even_if_idle: bool = False) -> None:
        """Wake the task that lets completions through; start it if it does not run yet."""
        if self._pump is None and (self._ready or even_if_idle) and not self._closed:
            self._pump = asyncio.create_task(self._let_through())
        self._changed.set()

    async def _let_through(self) -> None:
        while True:
            self._changed.clear()
            await self.gate.quiet()
            if (late := self._missing()) is not None:
                await self._wait_for(late)
            elif not self._advance():
                if not self._running and not self._ready:
                    self._unsettled = False
                    self._idle()
                if not self._changed.is_set():
                    await self._changed.wait()

    def _missing(self) -> Completion | None:
        """Return the next completion if a later one is ready and nobody has made this call yet."""
        if not self._ready or self._next == len(self._completions):
            return None
        found = self._completions[self._next]
        return None if found.caller is not None or found.awaited or found.optional else found

    async def _wait_for(self, completion: Completion) -> None:
        """Wait for a caller, about as long as the call took before; without one, the completion becomes optional."""
        until = time.monotonic() + min(completion.gap, LONGEST) + MARGIN
        while completion.caller is None and (left := until - time.monotonic()) > 0:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()
        completion.optional = completion.caller is None

    def _advance(self) -> bool:
        """Let the next completion through, or skip an optional one; return whether there was one."""
        if self._next == len(self._completions):
            return False
        completion = self._completions[self._next]
        if completion.caller is not None:
            self._ready -= 1
            self._unsettled = True
            if not completion.caller.done():
                completion.caller.set_result(None)
        elif completion.optional:
            completion.passed = True
        else:
            return False
        self._next += 1
        self.replaying = self._next < self._recorded
        return True

    async def close(self) -> None:
        """Let no more completions through, and cancel the waiting callers."""
        self._closed = True
        for completion in self._completions[self._next :]:
            if completion.caller is not None:
                completion.caller.cancel()
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait({self._pump})
