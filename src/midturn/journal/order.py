"""The order in which the calls of a turn come back to those who made them.

Agents that work side by side see each other's messages in the order in which their calls complete. So that a turn can
be run again from its journal, each completion is let through alone, and the next one when all that follows from it
without another call has happened: then the order of the completions decides everything.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midturn.journal.private import ready

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

CALM = 3
"""How many times in a row an event loop must have nothing to do to be taken for quiet."""

LONGEST, MARGIN = 2.0, 0.05
"""Seconds: for how long a completion is waited for at the most, and what is added to the time that it took."""

PATIENCE = 100
"""Rounds of the event loop after which it is not waited for any longer; other work may keep it busy for ever."""


async def quiet() -> None:
    """Let all run that can."""
    due = ready(asyncio.get_running_loop())
    calm = 0
    for _ in range(PATIENCE):
        await asyncio.sleep(0)
        calm = 0 if due else calm + 1
        if calm == CALM:
            return


@dataclass(slots=True, eq=False)
class Place:
    """A completion and its place in the order. Nobody waits for one that is recorded, until the call is made again."""

    caller: asyncio.Future[None] | None = None
    awaited: bool = False
    """Whether the one who made the call is there to take it."""
    optional: bool = False
    """Whether nobody need ask for it again."""
    gap: float = 0.0
    """How many seconds it came after the one before it."""
    passed: bool = False
    """Whether it was passed over, because nobody had asked for it when a later one was ready."""


class Order:
    """Completions, let through one by one. ``idle`` is called when nothing runs and nothing is left to let through."""

    def __init__(self, recorded: Collection[Place], idle: Callable[[], None]) -> None:
        self._places = list(recorded)
        self._recorded = len(self._places)
        self._next = 0
        self._ready = 0
        self._running = 0
        self._unsettled = False
        self._idle = idle
        self._changed = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def replaying(self) -> bool:
        """Whether recorded completions are left."""
        return self._next < self._recorded

    def begin(self) -> None:
        """A call is being made, and its completion will be added."""
        self._running += 1

    def end(self) -> None:
        """It was not completed, or its completion was added."""
        self._running -= 1
        self._look()

    def add(self) -> Place:
        """The next completion; the one who made the call takes it."""
        place = Place(awaited=True)
        self._places.append(place)
        return place

    async def take(self, place: Place) -> None:
        """Wait until it is this one's turn."""
        if self._closed:
            raise asyncio.CancelledError
        if place.passed:
            return
        alone = not (self._running or self._ready or self._unsettled)
        if alone and not self.replaying and self._places[self._next] is place:
            self._next += 1
            return
        place.caller, place.awaited = asyncio.get_running_loop().create_future(), True
        self._ready += 1
        self._look()
        try:
            await place.caller
        finally:
            place.awaited = False
            self._look()

    def leave(self, place: Place) -> None:
        """Whoever made the call has gone."""
        place.awaited = False
        self._look()

    def ask(self) -> None:
        """Somebody waits for a human."""
        self._look(even_if_idle=True)

    def _look(self, *, even_if_idle: bool = False) -> None:
        """See to it that what can go on does."""
        if self._pump is None and (self._ready or even_if_idle) and not self._closed:
            self._pump = asyncio.create_task(self._let_through())
        self._changed.set()

    async def _let_through(self) -> None:
        while True:
            self._changed.clear()
            await quiet()
            if (late := self._missing()) is not None:
                await self._wait_for(late)
            elif not self._advance():
                if not self._running and not self._ready:
                    self._unsettled = False
                    self._idle()
                if not self._changed.is_set():
                    await self._changed.wait()

    def _missing(self) -> Place | None:
        """The next completion, if a later one is ready and nobody has asked for this one yet."""
        place = self._places[self._next] if self._next < len(self._places) else None
        absent = place is not None and place.caller is None and not place.awaited and not place.optional
        return place if absent and self._ready else None

    async def _wait_for(self, place: Place) -> None:
        """Give whoever asks for a completion the time that he took before; then do without."""
        until = time.monotonic() + min(place.gap, LONGEST) + MARGIN
        while place.caller is None and (left := until - time.monotonic()) > 0:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()
        place.optional = place.caller is None

    def _advance(self) -> bool:
        """Let the next completion through, or pass over one that need not come; whether there was one."""
        if self._next == len(self._places):
            return False
        place = self._places[self._next]
        if place.caller is not None:
            self._ready -= 1
            self._unsettled = True
            if not place.caller.done():
                place.caller.set_result(None)
        elif place.optional:
            place.passed = True
        else:
            return False
        self._next += 1
        return True

    async def close(self) -> None:
        """Let nothing through any more; whoever waits is cancelled."""
        self._closed = True
        for place in self._places[self._next :]:
            if place.caller is not None:
                place.caller.cancel()
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait({self._pump})
