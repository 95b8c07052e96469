"""The cost of a turn that another process continues: its session is read once."""

import asyncio
from collections import Counter

import pytest
from desk import A1, Desk, Killed

import midturn
from midturn.autogen import adapter
from midturn.stores.memory import MemoryStore
from midturn.stores.wrapper import StoreWrapper


class Counting(StoreWrapper):
    """A store that counts reads, by kind, and writes."""

    def __init__(self, inner):
        super().__init__(inner)
        self.calls = Counter()

    async def rows(self, session, kind, **limits):
        self.calls[kind.name] += 1
        return await super().rows(session, kind, **limits)

    async def write(self, write):
        self.calls["write"] += 1
        return await super().write(write)


@pytest.fixture
async def counting():
    store = Counting(MemoryStore())
    async with midturn.open(store=store):
        yield store


async def test_an_answer_reads_the_session_once_and_opens_its_turn_with_the_write_that_records_it(counting):
    desk = Desk([A1], effects={"refund": midturn.tool(approval=True)}, max_tool_iterations=1)
    async with midturn.open(store=counting) as store:
        waiting = await store.session("case", desk).run(task="please")
        assert waiting.waiting is not None
        counting.calls.clear()
        await store.session("case", desk).answer("approve")
    assert desk.done == [("refund", "A1")]
    # The answer with the open turn, the start of the call, its end, and the commit.
    assert counting.calls == {"TURN": 1, "CALL": 1, "BODY": 1, "write": 4}


async def test_resume_reads_the_bodies_once(counting):
    desk = Desk([A1])
    async with midturn.open(store=counting) as store:
        await store.session("case", Desk()).run(task="hello")
        desk.fail = "refund"
        with pytest.raises(Killed):
            await store.session("case", desk).run(task="please")
        counting.calls.clear()
        result = await store.session("case", desk).resume()
    assert result.waiting.kind == "doubt"
    assert {kind: counting.calls[kind] for kind in ("TURN", "CALL", "BODY")} == {"TURN": 1, "CALL": 1, "BODY": 1}


async def test_a_turn_whose_run_cannot_begin_has_failed_and_leaves_nothing_running(counting, monkeypatch):
    def broken(*_):
        raise RuntimeError("cannot be looked at")

    async with midturn.open(store=counting) as store:
        case = store.session("case", Desk()())
        await case.run(task="hello")
        tasks = asyncio.all_tasks()
        monkeypatch.setattr(adapter, "InterceptedRun", broken)
        with pytest.raises(midturn.TurnFailed, match="cannot be looked at"):
            await case.run(task="again")
        assert asyncio.all_tasks() == tasks
        assert (await store.info("case")).status == "failed"
