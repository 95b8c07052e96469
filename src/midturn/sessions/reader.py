"""Reading one session without its agents, as the command line, HTTP and the web page do."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, cast

from midturn.errors import InvalidArgument, NotFound, StateInvalid
from midturn.framework import EventT_co, ResultT_co
from midturn.history.checkpoints import Checkpoint
from midturn.history.lineage import lines
from midturn.history.turns import history, read_turn
from midturn.lease.ledger import TRIES, Changed, Ledger, consistent
from midturn.questions import Waiting
from midturn.sessions.comparison import diff
from midturn.turns.follower import Follower
from midturn.turns.open_turn import read_questions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from midturn.autogen.adapter import Turn
    from midturn.framework import Framework
    from midturn.history.diff import StateDiff
    from midturn.history.turns import StoredTurn
    from midturn.store import Store
    from midturn.turns.instance import Instance


class SessionReader:
    """One session as it is stored, with messages as JSON. Every call reads it again.

    ``id`` is its name in the store.
    """

    def __init__(self, store: Store, session: str) -> None:
        self.id = session
        self.store = store

    async def history(
        self, *, last: int | None = None, origins: bool = False, before: int | None = None, calls: bool = False
    ) -> AsyncGenerator[StoredTurn, None]:
        """Yield the turns, oldest first, also failed ones; with ``last``, only that many of the latest turns.

        With ``origins``, a fork begins with the turns that led to it in the session that it was forked from, unless
        that one was deleted; and so on. :attr:`~midturn.Turn.session` tells them apart. ``before`` leaves out the turn
        with this number and those after it. With ``calls``, turns have their calls.
        """
        for name, number in (("last", last), ("before", before)):
            if number is not None:
                check_number(number, name)
        ledger = Ledger(self.store, self.id)
        await ledger.refresh()
        shown = 0
        while True:
            first = ledger.progress.first
            try:
                async with ledger.reading():
                    found = await lines(ledger, last, origins=origins and not shown, before=before)
                for line in found:
                    own = line.ledger is ledger
                    part = replace(line, start=max(line.start, shown + 1)) if own else line
                    async with part.ledger.reading(), aclosing(history(part, calls=calls)) as turns:
                        async for turn in turns:
                            yield turn
                            shown = turn.number if own else shown
            except Changed as changed:
                await ledger.refresh()
                if ledger.progress.first == first:  # of what a history shows, only a compaction removes anything
                    raise changed.reason from None
            else:
                return

    async def turn(self, number: int) -> StoredTurn:
        """Return one turn, with its calls and the decisions of people.

        Raises:
            NotFound: the session has no such turn.
        """
        check_number(number, "turn")
        return await consistent(self.store, self.id, lambda ledger: read_turn(ledger, number))

    async def open_turn(self) -> StoredTurn | None:
        """Return the turn that has no result yet, with its calls so far and its questions; ``None`` if there is none.

        Such a turn runs, was interrupted, waits for an answer, or failed or was cancelled and can be tried again.
        """

        async def read(ledger: Ledger) -> StoredTurn | None:
            if ledger.progress.open is None:
                return None
            questions = await read_questions(ledger)
            return replace(await read_turn(ledger, ledger.progress.turn), questions=questions)

        return await consistent(self.store, self.id, read)

    async def waiting(self) -> Waiting | None:
        """Return the questions of the open turn to people; ``None`` if it has no questions."""
        questions = await consistent(self.store, self.id, read_questions)
        return Waiting(questions) if questions else None

    def at(self, checkpoint: int) -> Checkpoint:
        """Return the checkpoint with this number. Its methods read it."""
        return Checkpoint(self.store, self.id, check_number(checkpoint, "checkpoint"))


class Readers(Generic[EventT_co, ResultT_co]):
    """The readers of a session that has a framework: its turns have the framework's own messages."""

    _framework: Framework[EventT_co, ResultT_co]
    _instance: Instance[EventT_co, ResultT_co]

    def __init__(self, store: Store, session: str) -> None:
        self.id = session
        self._reader = SessionReader(store, session)
        self._another: Any = None
        """An agent or team that was built for the types of its messages."""

    async def history(
        self, *, last: int | None = None, origins: bool = False, before: int | None = None
    ) -> AsyncGenerator[Turn, None]:
        """Yield the turns, oldest first, also failed ones; with ``last``, only that many of the latest turns.

        With ``origins``, a fork begins with the turns that led to it in the session that it was forked from, unless
        that one was deleted; and so on. :attr:`~midturn.Turn.session` tells them apart. ``before`` leaves out the turn
        with this number and those after it: with ``last``, this reads a long history page by page from its end.
        """
        async with aclosing(self._reader.history(last=last, origins=origins, before=before)) as turns:
            async for stored in turns:
                yield await self._shown(stored)

    async def turn(self, number: int) -> Turn:
        """Return one turn, with its calls and the decisions of people.

        Raises:
            NotFound: the session has no such turn.
        """
        return await self._shown(await self._reader.turn(number))

    async def open_turn(self) -> Turn | None:
        """Return the turn that has no result yet; ``None`` if there is none.

        It has its calls so far and its questions. If the session has a factory, it also has its messages so far:
        midturn rebuilds them from the record, without any call.

        Such a turn runs, was interrupted, waits for an answer, or failed or was cancelled and can be tried again.
        """
        store = self._reader.store
        for left in reversed(range(TRIES)):
            before = await store.head(self.id)
            stored = await self._reader.open_turn()
            if stored is None or not self._instance.is_built:
                return None if stored is None else await self._shown(stored)
            blueprint, framework = self._instance.blueprint, self._framework.another()
            try:
                said = await Follower(store, self.id, stored.number, blueprint, framework).said()
            except (NotFound, StateInvalid):
                if not left or await store.head(self.id) == before:
                    raise
                continue  # another worker has ended the turn, or deleted the session
            return await self._shown(stored, said)
        raise AssertionError("the last round ends the loop")

    async def waiting(self) -> Waiting | None:
        """Return the questions of the open turn to people; ``None`` if it has no questions."""
        return await self._reader.waiting()

    def at(self, checkpoint: int) -> Checkpoint:
        """Return the checkpoint with this number. Its methods read it."""
        return self._reader.at(checkpoint)

    async def diff(self, before: int | Checkpoint, after: int | Checkpoint) -> StateDiff:
        """Return the differences between two checkpoints: messages, whose turn it is, other state, prompts and tools.

        A number is a checkpoint of this session. For one of another session, such as a fork, pass ``other.at(3)``.
        This reads the two checkpoints, and none of the turns between.

        Raises:
            NotFound: there is no such checkpoint.
        """
        return await diff(self._framework, self._checkpoint(before, "before"), self._checkpoint(after, "after"))

    def _checkpoint(self, which: int | Checkpoint, name: str) -> Checkpoint:
        return which if isinstance(which, Checkpoint) else self._reader.at(check_number(which, name))

    async def _shown(self, stored: StoredTurn, said: list[EventT_co] | None = None) -> Turn:
        """Return a turn with the framework's messages. An agent or team is built only if its types are needed."""
        live = self._instance.live if self._another is None else self._another
        try:
            return cast("Turn", self._framework.turn(live, stored, said=said))
        except StateInvalid:
            if live is None and self._instance.is_runnable:
                live = self._another = await self._instance.blueprint.build()
            return cast("Turn", self._framework.turn(live, stored, said=said, as_text=True))


def check_number(number: object, name: str) -> int:
    """Return the number of a turn or a checkpoint, if it is a number.

    Raises:
        InvalidArgument: it is not.
    """
    if type(number) is not int:
        raise InvalidArgument(f"must be a number, not {type(number).__name__}", path=name)
    return number
