"""Lets one call at a time use a session in this process, and gives the lease back when the call ends."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from midturn.errors import MidturnError, SessionBusy, StoreUnavailable
from midturn.lease.ledger import Changed
from midturn.stopping import settled, unless

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from midturn.errors import Conflict
    from midturn.lease.ledger import Ledger
    from midturn.record.head import Status
    from midturn.stopping import Stop
    from midturn.turns.instance import Instance


PATIENCE = 1.0
"""After its timeout, a call whose writes are rejected retries for this many seconds, to learn who holds the session."""


class Turnstile:
    """Lets the calls on a session through one by one. A call waits up to ``wait`` seconds for the others."""

    def __init__(self, ledger: Ledger, instance: Instance[Any, Any], wait: float) -> None:
        self._ledger = ledger
        self._instance = instance
        self._wait = wait
        self._mutex = asyncio.Lock()
        self._inside = 0
        """Number of calls that hold the mutex or wait for it."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refused: tuple[int, str] | None = None
        """The head at which the latest write was rejected."""

    @asynccontextmanager
    async def alone(self, stop: Stop) -> AsyncGenerator[float]:
        """Let one call in; yield the time until which it waits for other workers. At the end, give the lease back."""
        self._move_to(asyncio.get_running_loop())
        until = time.monotonic() + self._wait
        await self._enter(stop)
        try:
            yield until
        except GeneratorExit:
            raise  # a caller with its result needs no more; perform() drops the instance of an unfinished turn
        except BaseException:
            self._instance.doubt()
            raise
        finally:
            try:
                if (head := self._ledger.head) is not None and self._ledger.owned:
                    await settled(self._release(head.status))
            finally:
                self._ledger.forget_bodies()
                self._inside -= 1
                self._mutex.release()

    def give_way(self, error: Conflict, until: float) -> None:
        """Drop the instance, because another worker wrote the session first; the caller tries again.

        Raises:
            Conflict: the caller has tried for too long, so something else is wrong.
            StateInvalid: nobody has written the session, so the store has a row that the head does not know.
        """
        self._instance.forget()
        head = self._ledger.head
        seen = None if head is None else (head.seq, head.token)
        if isinstance(error, Changed):
            if time.monotonic() >= until + PATIENCE:
                raise error.reason
        elif seen is not None and seen == self._refused:
            raise self._ledger.uncounted()
        elif time.monotonic() >= until + PATIENCE:
            raise error
        self._refused = seen

    async def _enter(self, stop: Stop) -> None:
        self._inside += 1
        if self._inside == 1:  # nobody else holds the mutex or waits for it
            await self._mutex.acquire()
            return
        acquiring = asyncio.ensure_future(self._mutex.acquire())
        try:
            async with asyncio.timeout(self._wait):
                await unless(acquiring, stop)
        except (asyncio.CancelledError, TimeoutError) as error:
            self._inside -= 1
            if not acquiring.cancelled():  # the mutex came in the same moment
                self._mutex.release()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise SessionBusy(
                f"session {self._ledger.session!r} still runs a turn in this process",
                session=self._ledger.session,
                owner="this process",
                hint="Wait longer: session(..., timeout=60).",
            ) from None

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Move to this event loop, if the previous one has ended.

        Raises:
            StoreUnavailable: the previous event loop still runs.
        """
        if self._loop is not None and self._loop is not loop:
            if self._loop.is_running():
                raise StoreUnavailable(
                    f"session {self._ledger.session!r} is in use in another event loop or process",
                    session=self._ledger.session,
                    hint="Call store.session(...) in each of them.",
                )
            self._instance.forget()
            self._mutex, self._inside = asyncio.Lock(), 0
            self._ledger.move()
        self._loop = loop

    async def _release(self, status: Status) -> None:
        """Give back a lease that the call took and did not use."""
        self._instance.forget()
        with suppress(MidturnError):  # the lease expires by itself
            await self._ledger.write(status=status, progress=self._ledger.progress, release=True)
