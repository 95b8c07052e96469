"""Live pages: one stream of events a page, which sends parts of the page when the store has changed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from midturn.errors import MidturnError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

EVERY = 1.0
"""Seconds between two looks at the store. A look is a read of one or two heads."""
NONE = object()


async def looked(look: Callable[[], Awaitable[Any]]) -> AsyncGenerator[int, None]:
    """Yield 0 at once, so that a page that comes back is brought up to date, and a number after each change.

    ``look`` returns something that is different after a change.
    """
    number, before = 0, NONE
    while True:
        try:
            found = await look()
        except StoreUnavailable:
            found = before  # the next look may work
        except MidturnError:
            return  # the session is gone, or not this reader's any more
        if found is not NONE and (before is NONE or found != before):
            before = found
            yield number
            number += 1
        await asyncio.sleep(EVERY)


async def sent(texts: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """Yield parts of a page as events without a name, which htmx puts into the page.

    They end when the session is gone or the store cannot be reached. The page connects again, and is up to date then.
    """
    with suppress(MidturnError):
        async for text in texts:
            yield "".join(f"data: {line}\n" for line in text.split("\n")) + "\n"
