"""The common part of stores behind a network, with a server that says what the test wants."""

import asyncio

import pytest

from midturn.errors import OutcomeUnknown, StoreFull
from midturn.stores.memory import MemoryStore
from midturn.stores.retrying import ServerStore, Unreached
from midturn.testing import a_write


class Flaky(ServerStore):
    """Keeps sessions in memory; ``answers`` says for each write whether it arrives and whether it is answered."""

    profile = "volatile"

    def __init__(self):
        super().__init__("the server", 30.0)
        self.kept = MemoryStore()
        self.answers = []
        self.pause = 0.0

    async def _head(self, session, tries):
        return await self.kept.head(session)

    async def _write(self, write, tries):
        await asyncio.sleep(self.pause)
        answer = self.answers.pop(0) if self.answers else "written"
        if answer == "full":
            raise StoreFull("no space")
        head = await self.kept.head(write.session)
        if tries.sent and head is not None and head.token == write.token:
            return head
        if answer != "lost":
            head = await self.kept.write(write)
        if answer in ("lost", "unanswered"):
            raise Unreached("cut", sent=True)
        return head

    async def _delete(self, session, by, data, tries):
        return await self.kept.delete(session, data=data)

    async def _forget(self, session, tries):
        return await self.kept.forget(session)

    async def close(self):
        self._closed = True


async def unknown(store, write):
    store.answers = ["lost"] * 1000
    with pytest.MonkeyPatch.context() as impatient:
        impatient.setattr(store, "_deadline", 0.2)
        with pytest.raises(OutcomeUnknown):
            await store.write(write)
    store.answers = []


async def test_two_readers_settle_a_write_and_none_forgets_another():
    store = Flaky()
    first, second = a_write(), a_write(seq=1)
    await unknown(store, first)
    store.pause = 0.02
    readers = [asyncio.ensure_future(store.head("case-42")) for _ in range(2)]
    await asyncio.sleep(0.03)
    store.pause = 0.0
    await unknown(store, second)
    await asyncio.gather(*readers)
    assert (await store.head("case-42")).token == second.token
    assert store._unsettled == {}


async def test_a_session_with_an_unknown_write_can_be_read_on_a_full_disk():
    store = Flaky()
    await unknown(store, a_write())
    store.answers = ["full"]
    assert await store.head("case-42") is None


async def test_a_deletion_settles_first():
    store = Flaky()
    await unknown(store, a_write())
    assert await store.delete("case-42")
    assert (await store.head("case-42")).status == "deleted"


async def test_closing_between_two_tries_of_a_write_leaves_its_outcome_unknown():
    store = Flaky()
    store.answers = ["lost"] * 1000
    task = asyncio.ensure_future(store.write(a_write()))
    await asyncio.sleep(0.03)
    await store.close()
    with pytest.raises(OutcomeUnknown, match="closed during the call"):
        await task
