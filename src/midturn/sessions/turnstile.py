"""One call at a time on a session of this process, and the lease given back when it ends."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from midturn.errors import MidturnError, SessionBusy, StoreUnavailable
from midturn.stopping import settled, unless

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from midturn.lease.ledger import Ledger
    from midturn.record.head import Status
    from midturn.stopping import Stop
    from midturn.turns.instance import Instance


class Turnstile:
    """Lets the calls on a session through one by one; ``wait`` is for how many seconds one waits for the others."""

    def __init__(self, ledger: Ledger, instance: Instance[Any, Any], wait: float) -> None:
        self._ledger = ledger
        self._instance = instance
        self._wait = wait
        self._mutex = asyncio.Lock()
        self._inside = 0
        """How many calls have the mutex or wait for it."""
        self._loop: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def alone(self, stop: Stop) -> AsyncGenerator[float]:
        """One call at a time in this process; until when to wait for other workers; the lease given back at the end."""
        self._move_to(asyncio.get_running_loop())
        until = time.monotonic() + self._wait
        await self._enter(stop)
        try:
            yield until
        except GeneratorExit:
            raise  # a caller that has its result needs no more; a turn that is left in the middle forgets by itself
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

    async def _enter(self, stop: Stop) -> None:
        self._inside += 1
        if self._inside == 1:  # nobody has it or waits for it, so there is nothing to wait for, or to stop
            await self._mutex.acquire()
            return
        acquiring = asyncio.ensure_future(self._mutex.acquire())
        try:
            async with asyncio.timeout(self._wait):
                await unless(acquiring, stop)
        except (asyncio.CancelledError, TimeoutError) as error:
            self._inside -= 1
            if not acquiring.cancelled():  # it came in the same moment
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
        """Belong to this event loop, after the one before has ended."""
        if self._loop is not None and self._loop is not loop:
            if self._loop.is_running():
                raise StoreUnavailable(
                    f"session {self._ledger.session!r} is in use in another event loop or process",
                    session=self._ledger.session,
                    hint="Make one in each: store.session(...).",
                )
            self._instance.forget()
            self._mutex, self._inside = asyncio.Lock(), 0
            self._ledger.move()
        self._loop = loop

    async def _release(self, status: Status) -> None:
        """Give back a lease that was taken for nothing."""
        self._instance.forget()
        with suppress(MidturnError):  # it expires by itself
            await self._ledger.write(status=status, progress=self._ledger.progress, release=True)
