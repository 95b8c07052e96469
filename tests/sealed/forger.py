"""A sealed store in the hands of somebody who has no keys."""

from contextlib import AsyncExitStack, asynccontextmanager

import midturn
from midturn.stores.registry import open_store
from midturn.stores.sealed.keys import Keys, new_key
from midturn.stores.wrapper import StoreWrapper

KEYS = Keys.parse(new_key("2026-11"))


class Forger(StoreWrapper):
    """A store in the hands of somebody without the keys, who answers with what he likes. It is never closed."""

    def __init__(self, inner):
        super().__init__(inner)
        self.forge_head = self.forge_rows = lambda found: found

    async def head(self, session):
        return self.forge_head(await super().head(session))

    async def heads(self, **options):
        return [self.forge_head(head) for head in await super().heads(**options)]

    async def rows(self, session, kind, *, start=0, stop=None):
        return self.forge_rows(await super().rows(session, kind, start=start, stop=stop))

    async def close(self):
        pass


@asynccontextmanager
async def forged(**options):
    """A forger's store with one session, and a function that opens the store in a new process."""
    forger = Forger(await open_store("memory://"))
    async with AsyncExitStack() as stack:

        async def reopened():
            return await stack.enter_async_context(midturn.open(store=forger, **({"keys": KEYS} | options)))

        yield forger, reopened
