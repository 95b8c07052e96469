"""A tool that works in the store's own transaction happens exactly once."""

import json
import sqlite3
from contextlib import asynccontextmanager, closing

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool
from desk import A1, B2, Desk, Killed, results
from scripted import Scripted

import midturn
from midturn.errors import InvalidArgument
from midturn.record.head import Kind, Write
from midturn.stores.wrapper import innermost


class Bank(Desk):
    """A desk whose refunds are rows of a table in the store's database."""

    def __init__(self, store, *script):
        super().__init__(*script)
        self.mark = "?" if "sqlite" in repr(store) else "%s"
        self.calls = 0
        self.die = None

    def __call__(self):
        @midturn.tool(effect="transactional")
        async def refund(order: str) -> str:
            self.calls += 1
            sql = f"INSERT INTO refunds (order_id, call) VALUES ({self.mark}, {self.mark})"
            await midturn.transaction().execute(sql, (order, midturn.call_key()))
            if self.die == "inside":
                self.die = None
                raise Killed
            if self.die == "error":
                self.die = None
                raise RuntimeError("the bank is closed")
            return f"refund of {order} is done"

        return AssistantAgent(
            "clerk",
            Scripted(self._answer),
            tools=[FunctionTool(refund, name="refund", description="refund")],
            max_tool_iterations=5,
        )


async def execute(store, sql):
    """Run a statement in the store's database, by itself."""
    if "sqlite" in repr(store):
        with closing(sqlite3.connect(innermost(store.store)._path, isolation_level=None)) as db:
            return db.execute(sql).fetchall()
    import psycopg

    async with await psycopg.AsyncConnection.connect(store._opens.reveal().partition("?")[0], autocommit=True) as db:
        cursor = await db.execute(sql)
        return await cursor.fetchall() if cursor.description else []


@pytest.fixture
async def bank(database):
    await execute(database, "DROP TABLE IF EXISTS refunds")
    await execute(database, "CREATE TABLE refunds (order_id text, call text)")
    return database


async def refunds(store):
    return [order for (order,) in await execute(store, "SELECT order_id FROM refunds ORDER BY order_id")]


async def test_its_effect_and_its_record_are_written_together(bank):
    desk = Bank(bank, [A1], [B2])
    result = await bank.session("case", desk).run(task="please")
    assert results(result) == ["refund of A1 is done", "refund of B2 is done"]
    assert await refunds(bank) == ["A1", "B2"]
    rows = [json.loads(row.data) for row in await bank.store.rows("case", Kind.CALL)]
    assert [row["what"] for row in rows] == ["model", "tool", "model", "tool", "model"]


async def test_a_crash_inside_it_leaves_nothing_and_it_is_made_again_without_a_question(bank):
    desk = Bank(bank, [A1])
    desk.die = "inside"
    with pytest.raises(Killed):
        await bank.session("case", desk).run(task="please")
    assert await refunds(bank) == []
    result = await bank.session("case", desk).resume()
    assert result.waiting is None
    assert await refunds(bank) == ["A1"]
    assert desk.calls == 2


async def test_a_crash_after_it_does_not_repeat_it(bank):
    desk = Bank(bank, [A1])
    desk.model_error_at = 2
    with pytest.raises(midturn.TurnFailed):
        await bank.session("case", desk).run(task="please")
    assert await refunds(bank) == ["A1"]
    await bank.session("case", desk).resume()
    assert (await refunds(bank), desk.calls) == (["A1"], 1)


async def test_a_tool_that_fails_has_done_nothing_and_the_model_is_told(bank):
    desk = Bank(bank, [A1])
    desk.die = "error"
    result = await bank.session("case", desk).run(task="please")
    assert results(result) == ["the bank is closed"]
    assert await refunds(bank) == []


async def test_what_the_database_refuses_at_the_end_is_undone_and_told_and_the_session_goes_on(bank):
    await execute(bank, "DROP TABLE IF EXISTS kids")
    await execute(bank, "DROP TABLE IF EXISTS parents")
    await execute(bank, "CREATE TABLE parents (id integer PRIMARY KEY)")
    later = "parent integer REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED"
    await execute(bank, f"CREATE TABLE kids ({later})")
    desk = Bank(bank, [A1], [B2])

    def build():
        @midturn.tool(effect="transactional")
        async def refund(order: str) -> str:
            await midturn.transaction().execute("INSERT INTO kids VALUES (7)")
            return "a long text that is stored by itself, because it is as long as this one is, and longer"

        tool = FunctionTool(refund, name="refund", description="refund")
        return AssistantAgent("clerk", Scripted(desk._answer), tools=[tool], max_tool_iterations=5)

    result = await bank.session("case", build).run(task="please")
    assert ["foreign key" in told.lower() for told in results(result)] == [True, True]
    assert await execute(bank, "SELECT * FROM kids") == []
    assert (await bank.session("case", build).run(task="again")).turn == 2
    assert len([turn async for turn in bank.session("case").history()]) == 2


async def test_one_that_has_lost_its_lease_has_done_nothing(bank):
    desk = Bank(bank, [A1])
    store = bank.store

    real = midturn.lease.ledger.Ledger.transaction

    @asynccontextmanager
    async def stolen(self, transactional):
        head = await store.head("case")
        if head.owner != "a thief":  # between two writes of the turn
            facts = {name: getattr(head, name) for name in ("session", "seq", "status", "labels", "data")}
            theft = {"after": head.token, "epoch": head.epoch + 1, "owner": "a thief", "lease": 60.0, "token": "theft"}
            await store.write(Write(**facts, **theft))
        async with real(self, transactional) as transaction:
            yield transaction

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(midturn.lease.ledger.Ledger, "transaction", stolen)
        with pytest.raises(midturn.LeaseLost):
            await bank.session("case", desk).run(task="please")
    assert await refunds(bank) == []


async def test_several_at_once_are_all_done_once(bank):
    desk = Bank(bank, [A1, B2, ("refund", {"order": "C3"})])
    await bank.session("case", desk).run(task="please")
    assert await refunds(bank) == ["A1", "B2", "C3"]


async def test_a_store_without_transactions_says_so(memory):
    with pytest.raises(InvalidArgument, match="SQLite or Postgres"):
        await memory.session("case", Bank(memory, [A1])).run(task="please")


async def test_a_transaction_is_for_the_inside_of_such_a_tool():
    with pytest.raises(LookupError, match="transactional"):
        midturn.transaction()
