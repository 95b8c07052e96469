"""The common part of stores behind a network: tries until a deadline, and writes whose outcome has to be found out.

A write has a token. A server that finds this token in the session's head answers as it did the first time. So a write
whose connection broke is simply tried again, and takes effect once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import uuid
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeVar

from midturn.errors import (
    Conflict,
    OutcomeUnknown,
    SessionDeleted,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
    UnknownVersion,
)
from midturn.stores.secrets import unchained

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from midturn.record.head import Head, Write
    from midturn.store import Profile

T = TypeVar("T")

durability = logging.getLogger("midturn.durability")
"""Log that reports, when a store is opened, what its server may lose."""

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5


class Unreached(Exception):
    """A try that failed, where another try may succeed.

    ``sent`` is true if the try may still have taken effect, ``absent`` if no server answered.
    """

    def __init__(self, message: str, *, sent: bool = False, absent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.absent = absent


class Slow(Unreached):
    """A try that took too long."""


class MovedOn(Conflict):
    """Others have written since a try that may have taken effect, so its outcome can no longer be found out."""


@dataclass(slots=True)
class Tries:
    """The tries of one call."""

    until: float
    """The time at which the call gives up, on the clock of the event loop."""
    sent: bool = False
    """True if a failed try may have taken effect."""


class ServerStore(ABC):
    """A store behind a network. Subclasses implement the work on the server."""

    profile: Profile

    def __init__(self, address: str, deadline: float) -> None:
        self._address = address
        self._deadline = deadline
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._unsettled: dict[str, list[Write]] = {}
        self.risks: list[str] = []
        """Sentences that say what the server may lose."""

    @property
    def address(self) -> str:
        """Return the name of the server, without secrets."""
        return self._address

    @abstractmethod
    async def _head(self, session: str, tries: Tries) -> Head | None: ...

    @abstractmethod
    async def _write(self, write: Write, tries: Tries) -> Head: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def _forget(self, session: str, tries: Tries) -> bool: ...

    @abstractmethod
    async def _delete(self, session: str, by: str, data: bytes, tries: Tries) -> bool:
        """Delete the session and keep ``data``; ``by`` is the same in every try of one deletion."""

    async def head(self, session: str) -> Head | None:
        until = await self._settle(session)
        return await self._try(lambda tries: self._head(session, tries), session, Tries(until))

    async def write(self, write: Write) -> Head:
        tries = Tries(self._loop.time() + self._deadline)
        try:
            return await self._apply(write, tries)
        except StoreFull as full:
            if not tries.sent:
                raise
            # The server may be too full even to confirm that an earlier try was written.
            self._unsettled.setdefault(write.session, []).append(write)
            raise OutcomeUnknown(str(full), session=write.session) from None
        except MovedOn:
            raise OutcomeUnknown(
                f"others have written session {write.session!r} since a write of unknown outcome; read it again",
                session=write.session,
            ) from None
        except (OutcomeUnknown, asyncio.CancelledError):
            self._unsettled.setdefault(write.session, []).append(write)
            raise

    async def delete(self, session: str, *, data: bytes = b"") -> bool:
        until = await self._settle(session)  # no abandoned write may take effect after the deletion
        by = uuid.uuid4().hex
        return await self._try(lambda tries: self._delete(session, by, data, tries), session, Tries(until))

    async def forget(self, session: str) -> bool:
        until = await self._settle(session)
        return await self._try(lambda tries: self._forget(session, tries), session, Tries(until))

    async def _apply(self, write: Write, tries: Tries) -> Head:
        return await self._try(lambda tries: self._write(write, tries), write.session, tries)

    async def _settle(self, session: str) -> float:
        """Find out the outcome of unsettled writes, and return the time at which the call gives up."""
        until = self._loop.time() + self._deadline
        while unsettled := self._unsettled.get(session):
            write = unsettled[0]
            with suppress(Conflict, SessionDeleted, StoreFull, StateInvalid, UnknownVersion):  # the outcome is final
                await self._apply(write, Tries(until, sent=True))
            if write in unsettled:  # no other call was faster
                unsettled.remove(write)
                if not unsettled:
                    self._unsettled.pop(session, None)
        return until

    async def _open(self, work: Callable[[Tries], Awaitable[None]]) -> None:
        """Make the store ready. An absent server is an error at once; this call does not wait for it."""
        try:
            await self._try(work, patient=False)
        except BaseException:
            await self.close()
            raise

    async def _try(
        self,
        work: Callable[[Tries], Awaitable[T]],
        session: str | None = None,
        tries: Tries | None = None,
        *,
        patient: bool = True,
    ) -> T:
        """Return the result of ``work``, which is tried until it reaches the server or the deadline has passed."""
        with unchained():
            return await self._tries(work, session, tries, patient=patient)

    async def _tries(
        self, work: Callable[[Tries], Awaitable[T]], session: str | None, tries: Tries | None, *, patient: bool
    ) -> T:
        self._check_usable()
        tries = tries or Tries(self._loop.time() + self._deadline)
        pause, problem = FIRST_PAUSE, ""
        while True:
            try:
                return await work(tries)
            except Unreached as error:
                if error.absent and not patient and not problem:
                    raise StoreUnavailable(f"{self._address} cannot be used: {error}") from None
                tries.sent |= error.sent
                # A timeout explains less than the problem of an earlier try.
                problem = problem if problem and isinstance(error, Slow) else str(error)
            except StoreUnavailable as error:
                if not tries.sent:
                    raise
                raise OutcomeUnknown(f"{error}; an earlier try may have taken effect", session=session) from error
            # Random, so that not all workers try at the same moment when their server comes back.
            rest = pause * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
            if self._loop.time() + rest < tries.until:
                await asyncio.sleep(rest)
            else:
                self._give_up(problem, session, tries)
            if self._closed:
                self._give_up("the store was closed during the call", session, tries)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _warn(self, risk: str) -> None:
        self.risks.append(risk)
        durability.log(logging.ERROR if self.profile == "volatile" else logging.WARNING, "%s", risk)

    def _give_up(self, problem: str, session: str | None, tries: Tries) -> NoReturn:
        message = f"{self._address} was not reached within {self._deadline:g} s: {problem}"
        raise (OutcomeUnknown if tries.sent else StoreUnavailable)(message, session=session)

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreUnavailable.closed()
        if os.getpid() != self._pid:
            raise StoreUnavailable(
                f"{self._address} was opened by the parent process; open the store again in this one"
            )
        if asyncio.get_running_loop() is not self._loop:
            raise StoreUnavailable(
                f"{self._address} was opened in another event loop; open the store again in this one"
            )
