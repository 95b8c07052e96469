"""A wrapper that changes nothing is a store as good as the one inside, and no better."""

import inspect
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import midturn
from midturn import store as contract
from midturn.store import Transactional
from midturn.stores.files.store import FileStore
from midturn.stores.memory import MemoryStore
from midturn.stores.sqlite.store import SqliteStore
from midturn.stores.wrapper import StoreWrapper, wrap
from midturn.testing import StoreConformance, a_write

sys.path.insert(0, str(Path(__file__).parents[1] / "autogen"))


@asynccontextmanager
async def wrapped(inner):
    store = wrap(StoreWrapper, inner)
    try:
        yield store
    finally:
        await store.close()


class TestAroundMemory(StoreConformance):
    shared = False
    durable = False

    def open_store(self, where):
        return wrapped(MemoryStore())


class TestAroundSqlite(StoreConformance):
    @asynccontextmanager
    async def open_store(self, where):
        async with wrapped(await SqliteStore.open(where)) as store:
            yield store


def test_it_forwards_every_method_with_the_signature_of_the_contract():
    names = [name for name in vars(contract.Store) if not name.startswith("_")]
    assert names
    for name in names:
        mine, asked = vars(StoreWrapper)[name], vars(contract.Store)[name]
        assert inspect.signature(mine) == inspect.signature(asked)


async def test_it_is_transactional_only_if_the_store_inside_is(tmp_path):
    sqlite, files = await SqliteStore.open(tmp_path / "a.db"), await FileStore.open(tmp_path / "b")
    for inner, expected in ((sqlite, True), (files, False), (MemoryStore(), False)):
        store = wrap(StoreWrapper, inner)
        twice = wrap(StoreWrapper, store)
        assert [isinstance(found, Transactional) for found in (inner, store, twice)] == [expected] * 3
        assert store.profile == twice.profile == inner.profile
        await twice.close()
        with pytest.raises(midturn.StoreUnavailable):
            await inner.head("case")


class Counting(StoreWrapper):
    """Counts, as telemetry would, and takes an option."""

    def __init__(self, inner, *, unit="writes"):
        super().__init__(inner)
        self.unit = unit
        self.writes = self.transactions = 0

    async def write(self, write):
        self.writes += 1
        return await super().write(write)

    def wrap_transaction(self, transaction):
        self.transactions += 1
        return super().wrap_transaction(transaction)


def booking():
    from autogen_agentchat.agents import AssistantAgent
    from scripted import Scripted, calls, remembered

    @midturn.tool(effect="transactional")
    async def book(order: str) -> str:
        """Book an order."""
        await midturn.transaction().execute("INSERT INTO bookings VALUES (?)", (order,))
        return "booked"

    def answer(messages):
        return remembered(messages) if len(messages) > 2 else calls(("book", '{"order": "A1"}'))

    return AssistantAgent("clerk", Scripted(answer), tools=[book], max_tool_iterations=2)


async def test_a_transactional_tool_works_through_it(tmp_path):
    counting = wrap(Counting, await SqliteStore.open(tmp_path / "support.db"), unit="w")
    assert (type(counting).__name__, counting.unit) == ("Counting", "w")
    async with midturn.open(store=counting) as store:
        async with counting.transaction() as transaction:
            await transaction.execute("CREATE TABLE bookings (number TEXT)")
            await transaction.write(a_write("first"))
        await store.session("case", booking).run(task="Book A1.")
        async with counting.transaction() as transaction:
            assert await transaction.execute("SELECT number FROM bookings") == [("A1",)]
        assert (counting.transactions, counting.writes > 0) == (3, True)


async def test_a_transactional_tool_is_refused_around_a_store_without_transactions():
    async with midturn.open(store=wrap(Counting, MemoryStore())) as store:
        with pytest.raises(midturn.InvalidArgument, match="transaction"):
            await store.session("case", booking).run(task="Book A1.")
