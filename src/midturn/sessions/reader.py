"""Reading one session without its agents, as the command line, HTTP and the web page do."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from midturn.history.checkpoints import Checkpoint
from midturn.history.turns import history, read_turn
from midturn.lease.ledger import Ledger
from midturn.questions import Waiting
from midturn.turns.open_turn import read_questions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from midturn.history.turns import Turn
    from midturn.store import Store


class SessionReader:
    """One session as it is stored. Every call reads it again. ``id`` is its name in the store."""

    def __init__(self, store: Store, session: str) -> None:
        self.id = session
        self._store = store

    async def history(self, *, last: int | None = None) -> AsyncGenerator[Turn, None]:
        """Yield the turns, oldest first, also failed ones; with ``last``, only that many of the latest turns."""
        ledger = await self._read_head()
        start = 0 if last is None else max(0, ledger.progress.turn + 1 - last)
        async with aclosing(history(ledger, start=start)) as turns:
            async for turn in turns:
                yield turn

    async def turn(self, number: int) -> Turn:
        """Return one turn, with its calls and the decisions of people.

        Raises:
            NotFound: the session has no such turn.
        """
        return await read_turn(await self._read_head(), number)

    async def open_turn(self) -> Turn | None:
        """Return the turn that has no result yet, with its calls so far and its questions; ``None`` if there is none.

        Such a turn runs, was interrupted, waits for an answer, or failed or was cancelled and can be tried again.
        """
        ledger = await self._read_head()
        if ledger.progress.open is None:
            return None
        questions = await read_questions(ledger)
        return replace(await read_turn(ledger, ledger.progress.turn), questions=questions)

    async def waiting(self) -> Waiting | None:
        """Return the questions of the open turn to people; ``None`` if it has no questions."""
        questions = await read_questions(await self._read_head())
        return Waiting(questions) if questions else None

    def at(self, checkpoint: int) -> Checkpoint:
        """Return the checkpoint with this number. Its methods read it."""
        return Checkpoint(self._store, self.id, checkpoint)

    async def _read_head(self) -> Ledger:
        ledger = Ledger(self._store, self.id)
        await ledger.refresh()
        return ledger
