"""Search the turns of many sessions for a pattern, in bounded memory, from any place on."""

from __future__ import annotations

import re
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from midturn.errors import InvalidArgument, NotFound, SessionDeleted, StateInvalid, UnknownVersion
from midturn.history.lineage import Line
from midturn.history.listing import Listing, listed
from midturn.history.turns import history
from midturn.lease.ledger import Ledger
from midturn.record.head import check_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Iterator

    from midturn.history.calls import Call
    from midturn.history.session_info import SessionInfo
    from midturn.history.turns import StoredTurn
    from midturn.record.codec import Json
    from midturn.store import Store

Where: TypeAlias = Literal["task", "messages", "calls"]

TURNS = 20
"""Turns of a session that are in memory at the same time."""

_CURSOR = re.compile(r"([0-9]{1,15}) ([0-9]{1,15}) (.+)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """A text of a turn, and who said it or made the call."""

    where: Where
    who: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A line in which the pattern was found. A line that a turn has several times counts once."""

    session: str
    turn: int
    where: Where
    who: str
    line: str
    start: int
    """The position of the first match in the line, and of the character after it."""
    end: int
    cursor: str
    """The place after which another search continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A session that was searched to its end, or whose record cannot be read."""

    session: str
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search. Sessions come in the order of their ids, and the lines of a session in the order of its turns."""

    pattern: re.Pattern[str]
    listing: Listing
    """The sessions to search, in the order of their ids."""
    within: Collection[Where]
    message: Callable[[Json], tuple[str, str]]
    """Returns who says what in a message."""
    call: Callable[[Call], tuple[str, str]]
    """Returns who made a call, and its text."""

    async def read(self, store: Store, after: str = "") -> AsyncGenerator[Match | Searched, None]:
        """Yield the matches after a cursor, and each session when nothing more of it comes.

        Raises:
            InvalidArgument: this is not a cursor.
        """
        rest = self.listing
        if after:
            session, turn, skipped = read_place(after)
            head = await store.head(session)
            info = None if head is None else listed(head)
            if info is not None and self.listing.fits(info):
                async with aclosing(self._session(store, info, turn, skipped)) as found:
                    async for each in found:
                        yield each
            rest = replace(rest, after=f"0 {session}")
        async with aclosing(rest.read(store)) as infos:
            async for info in infos:
                async with aclosing(self._session(store, info, 1, 0)) as found:
                    async for each in found:
                        yield each

    async def _session(
        self, store: Store, info: SessionInfo, first: int, skipped: int
    ) -> AsyncGenerator[Match | Searched, None]:
        """Yield the matches of a session from a turn on, without those that were ``skipped`` in that turn."""
        problem = info.problem
        try:
            if problem is None:
                async with aclosing(self._turns(store, info.id, first)) as turns:
                    async for turn in turns:
                        for match in self._matches(info.id, turn, skipped if turn.number == first else 0):
                            yield match
        except (StateInvalid, UnknownVersion, NotFound) as error:
            problem = str(error)
        except SessionDeleted:
            pass  # nothing of it is left that could match
        yield Searched(session=info.id, problem=problem)

    async def _turns(self, store: Store, session: str, first: int) -> AsyncGenerator[StoredTurn, None]:
        ledger = Ledger(store, session)
        await ledger.refresh()
        start = first
        while start <= ledger.progress.turn:

            async def page(start: int = start) -> list[StoredTurn]:
                progress = ledger.progress
                stop = min(start + TURNS, progress.turn + 1)
                line = Line(ledger=ledger, start=start, stop=stop, restored=progress.restored)
                return [turn async for turn in history(line, calls="calls" in self.within)]

            for turn in await ledger.steady(page):
                yield turn
            start += TURNS

    def _matches(self, session: str, turn: StoredTurn, skipped: int) -> Iterator[Match]:
        number, seen = 0, set[str]()
        for spoken in self._texts(turn):
            for line in spoken.text.splitlines():
                match = None if line in seen else self.pattern.search(line)
                if match is None:
                    continue
                seen.add(line)  # what a model answered is a call and a message
                number += 1
                if number > skipped:
                    yield Match(
                        session=session,
                        turn=turn.number,
                        where=spoken.where,
                        who=spoken.who,
                        line=line,
                        start=match.start(),
                        end=match.end(),
                        cursor=f"{turn.number} {number} {session}",
                    )

    def _texts(self, turn: StoredTurn) -> Iterator[Spoken]:
        """Yield the texts of a turn. What is part of the task and of the messages comes as part of the task."""
        task, messages = list(turn.task or ()), list(turn.messages)
        said = messages[len(task) :] if messages[: len(task)] == task else messages
        places: tuple[tuple[Where, list[Json]], ...] = ("task", task), ("messages", said)
        for where, found in places:
            for message in found if where in self.within else ():
                who, text = self.message(message)
                yield Spoken(where=where, who=who, text=text)
        for call in turn.calls or ():
            who, text = self.call(call)
            yield Spoken(where="calls", who=who, text=text)


def read_place(cursor: str) -> tuple[str, int, int]:
    """Return the session, the turn and the number of its matches that a cursor names.

    Raises:
        InvalidArgument: this is not a cursor.
    """
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidArgument("is not a cursor of a search", path="after")
    return check_id(match[3]), int(match[1]), int(match[2])
