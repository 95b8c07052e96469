"""A turn that waits for people and is kept as it stands, so that its next answer continues it without a replay."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet, finalize

from midturn.stopping import settled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from midturn.framework import EventT_co, Framework, Outcome, Rest, ResultT_co
    from midturn.journal.journal import Journal
    from midturn.lease.ledger import Ledger
    from midturn.stopping import Stop
    from midturn.turns.instance import Aside, Instance
    from midturn.turns.open_turn import OpenTurn


@dataclass(slots=True, eq=False, kw_only=True, weakref_slot=True)
class RestingTurn:
    """A turn that rests in this process. It can continue if nobody has written the session since."""

    turn: OpenTurn
    journal: Journal
    rest: Rest[Any]
    said: list[Any]
    """The events so far."""
    seq: int = 0
    """The number of the write that made the turn wait."""
    aside: Aside = field(init=False)
    """The agent or team, and what the session knows about it."""
    question: str = ""
    """The id of the question that was answered."""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _ended: bool = False
    _with_owner: Any = None

    def fits(self, ledger: Ledger, instance: Instance[Any, Any]) -> bool:
        """Return whether the turn can continue from here."""
        return (
            ledger.seq == self.seq
            and instance.live is None
            and self._loop is asyncio.get_running_loop()
            and not self._ended
            and self.rest.is_still
            and self.journal.is_still
        )

    def proceed(self, halt: Stop, stops: Sequence[Stop]) -> AsyncGenerator[Any, None]:
        """Let the turn continue with the answer to its question; return its further events."""
        self._ended = True  # the run is its caller's again
        stream = self.rest.proceed(stops, self.journal.proceed(halt))
        self.journal.answer(self.question)
        return stream

    async def end(self) -> None:
        """End the run and its calls, for a turn that does not continue here."""
        if not self._ended:
            self._ended = True
            if self._loop is asyncio.get_running_loop():
                await settled(self._end())

    async def _end(self) -> None:
        try:
            await self.rest.end()
        finally:
            await self.journal.close()

    def keep(self, seq: int, aside: Aside, owner: object) -> None:
        """Keep the turn, which waits since a write, as long as its owner lives. Nobody can await the owner's end."""
        self.seq, self.aside = seq, aside
        self._with_owner = finalize(owner, self._end_soon)
        self._with_owner.atexit = False

    def leave_owner(self) -> None:
        """Forget the owner, who lets the run continue or ends it."""
        if self._with_owner is not None:
            self._with_owner.detach()

    def _end_soon(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, and has ended all tasks
            self._loop.call_soon_threadsafe(self._begin_to_end)

    def _begin_to_end(self) -> None:
        task = self._loop.create_task(self.end())
        _ENDING.add(task)
        task.add_done_callback(_ENDING.discard)


RestingTurns: TypeAlias = WeakSet[RestingTurn]
"""The turns that rest in an open store."""

_ENDING: set[asyncio.Task[None]] = set()
"""Tasks that nobody waits for. An event loop does not keep them alive."""


async def repeated(
    said: Sequence[EventT_co],
    stream: AsyncGenerator[EventT_co | Outcome, None],
    framework: Framework[EventT_co, ResultT_co],
) -> AsyncGenerator[EventT_co | Outcome, None]:
    """Yield the events so far, marked as such, before the further ones."""
    async with aclosing(stream):
        for event in said:
            yield framework.again(event)
        async for item in stream:
            yield item
