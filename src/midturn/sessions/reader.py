"""Reading one session without its agents, as the command line, HTTP and the web page do."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from midturn.errors import InvalidArgument
from midturn.history.checkpoints import Checkpoint
from midturn.history.turns import history, read_turn
from midturn.lease.ledger import Changed, Ledger, consistent
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
        if last is not None:
            check_number(last, "last")
        ledger = Ledger(self._store, self.id)
        await ledger.refresh()
        start = 0 if last is None else max(0, ledger.progress.turn + 1 - last)
        try:
            async with ledger.reading(), aclosing(history(ledger, start=start)) as turns:
                async for turn in turns:
                    yield turn
        except Changed as changed:  # of what a history shows, only a deletion can remove anything
            raise changed.reason from None

    async def turn(self, number: int) -> Turn:
        """Return one turn, with its calls and the decisions of people.

        Raises:
            NotFound: the session has no such turn.
        """
        check_number(number, "turn")
        return await consistent(self._store, self.id, lambda ledger: read_turn(ledger, number))

    async def open_turn(self) -> Turn | None:
        """Return the turn that has no result yet, with its calls so far and its questions; ``None`` if there is none.

        Such a turn runs, was interrupted, waits for an answer, or failed or was cancelled and can be tried again.
        """

        async def read(ledger: Ledger) -> Turn | None:
            if ledger.progress.open is None:
                return None
            questions = await read_questions(ledger)
            return replace(await read_turn(ledger, ledger.progress.turn), questions=questions)

        return await consistent(self._store, self.id, read)

    async def waiting(self) -> Waiting | None:
        """Return the questions of the open turn to people; ``None`` if it has no questions."""
        questions = await consistent(self._store, self.id, read_questions)
        return Waiting(questions) if questions else None

    def at(self, checkpoint: int) -> Checkpoint:
        """Return the checkpoint with this number. Its methods read it."""
        return Checkpoint(self._store, self.id, check_number(checkpoint, "checkpoint"))


def check_number(number: object, name: str) -> int:
    """Return the number of a turn or a checkpoint, if it is a number.

    Raises:
        InvalidArgument: it is not.
    """
    if type(number) is not int:
        raise InvalidArgument(f"must be a number, not {type(number).__name__}", path=name)
    return number
