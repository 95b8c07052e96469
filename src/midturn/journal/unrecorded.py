"""The calls of a turn of which none is recorded: what ``durability="turn"`` makes of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn

from midturn.errors import StateInvalid
from midturn.journal.recorded import call_key_of
from midturn.stopping import fail
from midturn.tools import inside, is_inside

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from midturn.framework import Answer, Request
    from midturn.lease.ledger import Ledger
    from midturn.stopping import Stop


class Unrecorded:
    """Makes every call, with a key that is the same if the turn is run again; what needs a journal is refused."""

    def __init__(self, ledger: Ledger, *, born: float, halt: Stop) -> None:
        self._ledger = ledger
        self._born = born
        self._halt = halt
        self._counts: Counter[tuple[str, str]] = Counter()
        self._ended: asyncio.Future[NoReturn] = asyncio.get_running_loop().create_future()

    @property
    def replaying(self) -> bool:
        return False

    async def call(self, request: Request, make: Callable[[Any], Awaitable[Answer]]) -> Answer:
        if is_inside() and not request.approval:
            return await make(request.arguments)
        if request.approval or request.effect == "transactional":
            await self._refuse(request.name)
        nth = self._counts[request.path, request.key]
        self._counts[request.path, request.key] += 1
        with inside(call_key_of(self._ledger, self._born, request.path, request.key, nth)):
            return await make(request.arguments)

    async def approve(self, request: Request) -> tuple[Any, str | None]:
        return await self._refuse(request.name)

    async def ask(self, request: Request, question: str) -> str:
        _ = question
        return await self._refuse(request.path)

    async def look(self, path: str, see: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        _ = path
        return await see()

    def finish(self) -> list[str]:
        """What was not as before: nothing is known of that."""
        return []

    async def close(self) -> None:
        """Let nobody wait any longer."""
        self._ended.cancel()

    async def fail(self, error: Exception) -> NoReturn:
        """End the turn with an error, which is not raised here: the framework would make another one of it."""
        fail(self._halt, error)
        await self._ended
        raise AssertionError

    async def _refuse(self, path: str) -> NoReturn:
        what = "needs a journal: session(..., durability='call')"
        await self.fail(StateInvalid(what, path=path, session=self._ledger.session))
