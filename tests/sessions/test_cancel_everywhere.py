"""A run can be cancelled at every step: it was committed or did not happen, and the session is usable at once."""

import asyncio
import os

import pytest
from autogen_core import CancellationToken
from cast import agents, expected, numbers, said, uninterrupted
from kinds import KINDS, assistant, transcript

from midturn.autogen.adapter import AutoGen
from midturn.journal import order as ordering
from midturn.sessions.session import Session
from midturn.turns.session_options import Options

LONG = bool(os.environ.get("MIDTURN_LONG"))
SOON = 30
"""Seconds that no run takes that was cancelled."""


class Yielding:
    """A store that gives way before and after each of its calls takes effect, as one with threads does."""

    def __init__(self, store, times=2):
        self._store = store
        self._times = times

    def __getattr__(self, name):
        method = getattr(self._store, name)

        async def call(*args, **options):
            for _ in range(self._times):
                await asyncio.sleep(0)
            result = await method(*args, **options)
            for _ in range(self._times):
                await asyncio.sleep(0)
            return result

        return call


async def _after(store, name, factory, history):
    """The session is usable at once, and its second turn was committed or did not happen."""
    assert (await store.head(name)).owner is None
    other = Session(store, name, factory, AutoGen(), Options(busy="raise"))
    turns = await numbers(other)
    assert turns in ([(1, "done")], [(1, "done"), (2, "done")], [(1, "done"), (2, "cancelled")])
    said = transcript(await other.run(task="three"))
    assert said == history[("one", "two", "three") if turns[1:] == [(2, "done")] else ("one", "three")]
    return turns


@pytest.mark.fault("F24")
@pytest.mark.parametrize("how", ["task", "token"])
@pytest.mark.parametrize("kind", ["assistant", "assistant_with_tools", "round_robin"])
async def test_a_turn_can_be_cancelled_at_every_step(memory, kind, how, monkeypatch):
    """In a long run, cancel in both ways at every step, else in one of them."""
    # With a test that counts its steps the loop is never quiet, and a hundred steps of waiting for that are all alike.
    monkeypatch.setattr(ordering, "PATIENCE", 5)
    factory, store = KINDS[kind], Yielding(memory.store)
    history = {
        tasks: (await uninterrupted(factory, *tasks))[-1] for tasks in (("one", "three"), ("one", "two", "three"))
    }
    ends = set()
    for steps in range(10_000) if LONG else range(how == "token", 10_000, 2):
        name, token = f"{kind} {steps}", CancellationToken()
        session = Session(store, name, factory, AutoGen())
        await session.run(task="one")
        task = asyncio.create_task(session.run(task="two", cancellation_token=token))
        for _ in range(steps):
            await asyncio.sleep(0)
        if task.done():
            break
        if how == "task":
            task.cancel()
        else:
            token.cancel()
        await asyncio.wait({task}, timeout=SOON)
        assert task.done()
        if how == "task":
            assert task.cancelled(), (steps, task)
        elif not task.cancelled():
            task.result()
        turns = await _after(store, name, factory, history)
        ends.add((task.cancelled(), turns[-1][1] if turns[1:] else None))
    assert steps > 20
    assert (True, "cancelled") in ends


@pytest.mark.parametrize("gap", [1, 2, 3, 5, 8])
async def test_a_turn_can_be_cancelled_twice(memory, gap):
    factory, store = KINDS["round_robin"], Yielding(memory.store)
    history = {
        tasks: (await uninterrupted(factory, *tasks))[-1] for tasks in (("one", "three"), ("one", "two", "three"))
    }
    for steps in range(0, 10_000, 3):
        name = f"{steps}"
        session = Session(store, name, factory, AutoGen())
        await session.run(task="one")
        task = asyncio.create_task(session.run(task="two"))
        for _ in range(steps):
            await asyncio.sleep(0)
        if task.done():
            break
        task.cancel()
        for _ in range(gap):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=SOON)
        assert task.done()
        assert task.cancelled(), (steps, task)
        other = Session(store, name, factory, AutoGen(), Options(busy="raise"))
        assert transcript(await other.run(task="three")) in history.values()


@pytest.mark.parametrize("delay", [0.0005 * n for n in range(12)])
async def test_a_turn_can_be_cancelled_at_any_time_on_every_store(store, delay):
    factory, _ = agents()
    session = store.session("case", factory)
    await session.run(task="one")
    task = asyncio.create_task(session.run(task="two"))
    await asyncio.sleep(delay)
    task.cancel()
    await asyncio.wait({task}, timeout=SOON)
    assert task.cancelled() or task.result().turn == 2
    turns = await numbers(session)
    assert turns in ([(1, "done")], [(1, "done"), (2, "done")], [(1, "done"), (2, "cancelled")])
    wanted = ["one", "two", "three"] if turns[1:] == [(2, "done")] else ["one", "three"]
    assert said(await store.session("case", factory, busy="raise").run(task="three")) == await expected(*wanted)
    assert said(await session.run(task="four")) == await expected(*wanted, "four")


async def test_cancelling_a_save_by_hand_saves_or_does_not(memory):
    store = Yielding(memory.store)
    live = assistant()
    await live.run(task="one")
    for steps in range(10_000):
        session = Session(store, f"{steps}", live, AutoGen())
        task = asyncio.create_task(session.save())
        for _ in range(steps):
            await asyncio.sleep(0)
        if task.done():
            break
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        head = await memory.store.head(f"{steps}")
        assert head is None or head.owner is None
        assert await session.save() in (1, 2)
    assert steps > 5
