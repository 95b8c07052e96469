"""Thousands of calls at once: no round of the event loop, and no write, has the work of all of them."""

import asyncio
import sys
from collections import Counter

import pytest
from desk import Desk, results

from midturn.framework import Answer, Request
from midturn.journal.appender import MAX_BYTES, MAX_ROWS, Appender
from midturn.journal.divergence import Divergence
from midturn.journal.journal import Journal
from midturn.journal.order import ROUND, Gate, Order
from midturn.journal.recorded import Delivery, Recorded
from midturn.lease.ledger import Ledger
from midturn.record.head import Kind
from midturn.record.packing import Archive
from midturn.record.rows import CallRow
from midturn.stores.memory import MemoryStore

MANY = 200


class Rounds:
    """Counts the rounds of the event loop."""

    def __init__(self):
        self.now = 0
        self._next()

    def _next(self):
        self.now += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def end(self):
        self._handle.cancel()


@pytest.fixture
async def rounds():
    rounds = Rounds()
    yield rounds
    rounds.end()


def request(number):
    return Request(
        path="clerk/tools", agent="clerk", what="tool", key=str(number), name="look", effect="idempotent", arguments={}
    )


def recorded(count):
    """The journal of an attempt that made so many calls."""
    rows = [
        CallRow(path="clerk/tools", what="tool", key=str(n), name="look", effect="idempotent", spent=1.0, at=1.0)
        for n in range(count)
    ]
    return Recorded([(row, {"text": row.key}) for row in rows])


async def journal_of(known):
    ledger = Ledger(MemoryStore(), "case")
    await ledger.write(status="running", progress=ledger.progress)
    halt = asyncio.get_running_loop().create_future()
    return Journal(
        ledger, Archive(), known, delivery=Delivery(born=1.0), halt=halt, divergence=Divergence(ledger, known)
    )


async def test_calls_that_start_together_are_made_in_many_rounds_of_the_event_loop(memory, rounds, monkeypatch):
    desk = Desk([("look", {"order": str(n)}) for n in range(MANY)])
    made = []
    tool = Desk._tool

    def noted(self, name):
        work = tool(self, name)

        async def call(order: str) -> str:
            made.append(rounds.now)
            return await work(order)

        return call

    monkeypatch.setattr(Desk, "_tool", noted)
    result = await memory.session("case", desk).run(task="please")
    assert results(result) == [f"look of {n} is done" for n in range(MANY)]
    assert len(made) == MANY
    assert max(Counter(made).values()) <= ROUND


async def test_calls_that_end_together_are_recorded_in_many_rounds_of_the_event_loop(rounds, monkeypatch):
    journal = await journal_of(Recorded())
    begun, kept = asyncio.Semaphore(0), []
    end = asyncio.Event()
    inline = Archive.inline

    def noted(self, *args):
        kept.append(rounds.now)
        return inline(self, *args)

    monkeypatch.setattr(Archive, "inline", noted)

    async def make(_arguments):
        begun.release()
        await end.wait()
        return Answer(value={"text": "done"})

    calls = asyncio.gather(*(journal.call(request(n), make) for n in range(MANY)))
    for _ in range(MANY):
        await begun.acquire()
    end.set()
    await calls
    await journal.close()
    assert len(kept) == MANY
    assert max(Counter(kept).values()) <= ROUND


async def test_equal_calls_that_start_together_get_their_own_results_again(memory):
    """However many wait at the gate, no call overtakes an equal one."""
    order = []

    async def work(journal, number):
        async def make(_arguments):
            return Answer(value={"text": str(number)})

        answer = await journal.call(request("same"), make)
        order.append((number, answer.value["text"]))

    journal = await journal_of(Recorded())
    await asyncio.gather(*(work(journal, n) for n in range(MANY)))
    await journal.close()
    assert order == [(n, str(n)) for n in range(MANY)]


async def test_a_gate_lets_callers_through_in_the_order_in_which_they_came(rounds):
    gate, passed = Gate(), []

    async def caller(number):
        await gate.enter()
        passed.append((number, rounds.now))

    first = [asyncio.create_task(caller(n)) for n in range(3 * ROUND)]
    for n in range(3 * ROUND, 8 * ROUND):  # these come while others wait
        await asyncio.sleep(0)
        first.append(asyncio.create_task(caller(n)))
    await asyncio.gather(*first)
    assert [number for number, _ in passed] == list(range(8 * ROUND))
    assert max(Counter(when for _, when in passed).values()) <= ROUND


async def test_a_caller_that_is_cancelled_at_the_gate_holds_nobody_up():
    gate = Gate()
    callers = [asyncio.create_task(gate.enter()) for _ in range(5 * ROUND)]
    await asyncio.sleep(0)
    for caller in callers[2 * ROUND : 4 * ROUND]:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    assert [n for n, caller in enumerate(callers) if caller.cancelled()] == list(range(2 * ROUND, 4 * ROUND))
    await gate.quiet()


async def test_finishing_a_turn_takes_as_much_work_for_each_call_however_many_there_are():
    async def work(count):
        journal = await journal_of(recorded(count // 2))
        made, steps = [], 0

        async def make(_arguments):
            made.append(1)
            return Answer(value={"text": "done"})

        def step(_frame, event, _argument):
            nonlocal steps
            steps += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(step)
        try:
            await asyncio.gather(*(journal.call(request(n), make) for n in reversed(range(count))))
        finally:
            sys.setprofile(before)
        await journal.close()
        assert journal.finish() == []
        assert len(made) == count // 2
        return steps

    assert await work(800) < 6 * await work(200)


class Counting(MemoryStore):
    def __init__(self):
        super().__init__()
        self.calls, self.bytes = [], []

    async def write(self, write):
        self.calls.append(sum(row.kind is Kind.CALL for row in write.rows))
        self.bytes.append(sum(len(row.data) for row in write.rows if row.kind is Kind.BODY))
        return await super().write(write)


async def written(texts):
    """Return what is written when calls with these results end at once."""
    store, archive = Counting(), Archive()
    ledger = Ledger(store, "case")
    await ledger.write(status="running", progress=ledger.progress)
    order = Order((), lambda: None)
    appender = Appender(ledger, archive, order, asyncio.get_running_loop().create_future())

    async def append(n, text):
        value = archive.inline({"text": text}, "$")
        await appender.append(CallRow(path="p", what="tool", key=str(n), spent=1.0, at=1.0, value=value))

    await asyncio.gather(*(append(n, text) for n, text in enumerate(texts)))
    await appender.close()
    await order.close()
    kept = await store.rows("case", Kind.CALL)
    assert [row.n for row in kept] == list(range(len(texts)))
    assert ledger.progress.bodies == archive.stored == archive.bodies
    return store.calls[1:], store.bytes[1:]


async def test_a_write_has_a_limited_number_of_calls():
    calls, _ = await written(["a result"] * (2 * MAX_ROWS + 1))
    assert calls == [MAX_ROWS, MAX_ROWS, 1]


async def test_a_write_has_a_limited_number_of_bytes():
    calls, sizes = await written([str(n) * (MAX_BYTES // 3) for n in range(7)])
    assert calls == [2, 2, 2, 1]
    assert max(sizes) <= MAX_BYTES


async def test_a_result_that_is_larger_than_the_limit_is_written_alone():
    calls, _ = await written(["a" * 3 * MAX_BYTES, "b" * 2 * MAX_BYTES, "short", "c" * MAX_BYTES])
    assert calls == [1, 2, 1]
