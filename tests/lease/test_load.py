"""A turn under load keeps its lease; a turn whose event loop is blocked for longer than that loses it safely."""

import asyncio
import json
import os
import threading
import time
from contextlib import contextmanager, nullcontext

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, FunctionExecutionResultMessage, RequestUsage
from tools.servers.shared import STORES, store_url

import midturn
from midturn.stores.memory import MemoryStore
from midturn.stores.wrapper import StoreWrapper
from midturn.testing import ScriptedModel

pytestmark = pytest.mark.fault("F35")

CALLS, SIZE = (10_000, 50_000_000) if os.environ.get("MIDTURN_LONG") else (1_000, 500_000)
SHORTEST = 3.0
"""Seconds: the shortest lease in the test of many calls."""


def desk(tool, count):
    """An agent whose model asks for so many calls of a tool at once."""

    def answer(messages):
        usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return CreateResult(finish_reason="stop", content="done", usage=usage, cached=False)
        calls = [FunctionCall(id=str(n), name="look", arguments=json.dumps({"order": str(n)})) for n in range(count)]
        return CreateResult(finish_reason="function_calls", content=calls, usage=usage, cached=False)

    return lambda: AssistantAgent(
        "clerk", ScriptedModel(answer), tools=[tool], max_tool_iterations=2, reflect_on_tool_use=False
    )


def in_a_thread(work):
    """Start work in an event loop of its own, which a blocked one does not stop."""
    thread = threading.Thread(target=asyncio.run, args=(work,))
    thread.start()
    return thread


@contextmanager
def watching(url):
    """See from another event loop whether the lease of the session is held while its turn runs; yield what was seen."""
    ended, seen = threading.Event(), []

    async def watch():
        async with midturn.open(url) as store:
            while not ended.is_set():
                head = await store.store.head("case")
                if head is not None and head.status == "running":
                    seen.append((head.epoch, head.expires > head.now))
                await asyncio.sleep(0.01)

    thread = in_a_thread(watch())
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
async def test_many_calls_at_once_do_not_cost_the_lease(kind, tmp_path, monkeypatch, record_property):
    async def look(order: str) -> str:
        return f"order {order} is on its way"

    # Plain AutoGen makes all calls in one round of the event loop. A lease of three such rounds does not depend on the
    # machine, nor on what else runs there: a round of that kind leaves it enough time, ours must leave it no less.
    begun = time.monotonic()
    await desk(look, CALLS)().run(task="Look all orders up.")
    plain = time.monotonic() - begun
    monkeypatch.setattr("midturn.lease.ledger.LEASE", max(SHORTEST, 3 * plain))
    url, begun = store_url(kind, tmp_path / "store"), time.monotonic()
    with watching(url) as seen:
        async with midturn.open(url) as store:
            result = await store.session("case", desk(look, CALLS)).run(task="Look all orders up.")
    took = time.monotonic() - begun
    assert result.messages[-1].content == "done"
    assert len(result.messages[2].content) == CALLS
    assert set(seen) == {(1, True)}, "somebody else could have taken the session over"
    record_property(
        "figures", f"{kind}: {CALLS:,} calls at once in {took:.1f} s ({plain:.1f} s without midturn), lease kept"
    )


@pytest.mark.parametrize("kind", STORES)
async def test_a_large_message_is_kept_and_does_not_cost_the_lease(kind, tmp_path, monkeypatch, record_property):
    monkeypatch.setattr("midturn.lease.ledger.LEASE", 3 * SHORTEST)  # a busy disk may take a second for such a write
    url, task, begun = (
        store_url(kind, tmp_path / "store"),
        "The customer prefers email.\n" * (SIZE // 28),
        time.monotonic(),
    )

    def clerk():
        return AssistantAgent("clerk", ScriptedModel({"": "Noted."}))

    with watching(url) if kind != "memory" else nullcontext([(1, True)]) as seen:
        async with midturn.open(url) as store:
            await store.session("case", clerk).run(task=task)
            took = time.monotonic() - begun
            [turn] = [turn async for turn in store.session("case").history()]
            assert turn.task[0].content == task
            assert (await store.session("case", clerk).run(task="Still there?")).turn == 2
    assert set(seen) <= {(1, True), (2, True)}
    record_property("figures", f"{kind}: a message of {len(task):,} bytes in {took:.1f} s, lease kept")


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
async def test_a_tool_that_blocks_the_event_loop_for_longer_than_the_lease_loses_the_turn(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("midturn.lease.ledger.LEASE", 0.2)
    url = store_url(kind, tmp_path / "store")
    blocked, others = [], []

    async def finish():
        async with midturn.open(url) as store:
            others.append(await store.session("case", desk(look, 1), timeout=60).resume())

    @midturn.tool(effect="idempotent")
    async def look(order: str) -> str:
        if not blocked:
            blocked.append(order)
            in_a_thread(finish()).join()  # the loop of this turn stands still until another worker is done
        return f"order {order} is on its way"

    async with midturn.open(url) as store:
        session = store.session("case", desk(look, 1))
        with pytest.raises(midturn.LeaseLost):
            await session.run(task="Look the order up.")
        assert [result.messages[-1].content for result in others] == ["done"]
        assert [turn.status async for turn in session.history()] == ["done"]


class Renewed(StoreWrapper):
    """Notes when a lease is renewed: such a write has no rows."""

    def __init__(self, inner):
        super().__init__(inner)
        self.renewed = asyncio.Event()

    async def write(self, write):
        head = await super().write(write)
        if not write.rows:
            self.renewed.set()
        return head


async def test_the_lease_is_renewed_while_the_state_is_captured(monkeypatch):
    monkeypatch.setattr("midturn.lease.ledger.LEASE", 0.2)
    inner = Renewed(MemoryStore())

    class Slow(AssistantAgent):
        async def save_state(self):
            inner.renewed.clear()
            async with asyncio.timeout(30):
                await inner.renewed.wait()
            return await super().save_state()

    async with midturn.open(store=inner) as store:
        session = store.session("case", lambda: Slow("clerk", ScriptedModel({"": "Noted."})))
        result = await session.run(task="Remember that the customer prefers email.")
        assert result.turn == 1
        head = await inner.head("case")
        assert (head.status, head.owner, head.epoch) == ("idle", None, 1)
