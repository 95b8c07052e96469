"""F17: parallel calls complete in any order; the keys and the outcome are the same when the turn is run again."""

import asyncio
import os
import random

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow
from desk import Desk
from interrupting import Mortal
from scripted import Scripted, remembered

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.errors import StoreUnavailable
from midturn.framework import Answer, Request
from midturn.history.checkpoints import read_bodies
from midturn.journal import recorded
from midturn.journal.divergence import Divergence
from midturn.journal.journal import Journal
from midturn.journal.recorded import Delivery, Recorded, digest
from midturn.lease.ledger import Ledger
from midturn.record.packing import Archive
from midturn.sessions.session import Session
from midturn.stores.memory import MemoryStore

LONG = bool(os.environ.get("MIDTURN_LONG"))

STEPS = {"ann": 6, "bob": 0, "cid": 3}
"""Rounds of the event loop that each branch takes from an answer to its consequence."""


class Chance:
    """Pauses that differ from call to call, and from run to run."""

    def __init__(self, seed, longest=0.0005):
        self.random = random.Random(seed)
        self.longest = longest

    async def pause(self):
        await asyncio.sleep(self.random.random() * self.longest)


class Attempt:
    """Three branches that call side by side, and ask for what depends on all that came before, in its order.

    It is interrupted when ``calls`` calls are recorded, or at its end.
    """

    def __init__(self, chance, calls):
        self.chance, self.left = chance, calls
        self.log, self.made = [], []

    async def branch(self, name):
        for step in range(3):
            key = digest(name, step, self.log)

            async def make(_arguments, key=key):
                await self.chance.pause()
                self.made.append(key)
                return Answer(value={"text": key})

            answer = await self.journal.call(Request(path=name, agent=name, what="model", key=key), make)
            for _ in range(STEPS[name]):
                await asyncio.sleep(0)
            self.log.append([name, step, answer.value["text"]])
            self.left -= 1
            if not self.left:
                self.halt.cancel()

    async def run(self, ledger):
        """Run, from what is recorded."""
        await ledger.refresh()
        archive = Archive()
        bodies = await read_bodies(ledger, ledger.progress.bodies)
        archive.learn_bodies(bodies, ledger.progress.bodies)
        known = await recorded.read(ledger, 0, ledger.progress.calls, bodies, born=0.0)
        self.known = [entry.row.key for entry in known.entries]
        self.halt = asyncio.get_running_loop().create_future()
        delivery, divergence = Delivery(born=1.0), Divergence(ledger, known)
        self.journal = Journal(ledger, archive, known, delivery=delivery, halt=self.halt, divergence=divergence)
        work = asyncio.gather(*(self.branch(name) for name in ("ann", "bob", "cid")))
        await asyncio.wait({work, self.halt}, return_when=asyncio.FIRST_COMPLETED)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await self.journal.close()
        self.notes = self.journal.finish() if self.left > 0 else []
        return self


async def test_a_thousand_shuffles_are_finished_in_the_order_in_which_they_were_begun():
    orders = set()
    for seed in range(1000):
        chance = random.Random(seed)
        ledger = Ledger(MemoryStore(), "case")
        await ledger.write(status="running", progress=ledger.progress)
        first = await Attempt(Chance(chance.random()), chance.randrange(1, 9)).run(ledger)
        second = await Attempt(Chance(chance.random()), 10).run(ledger)
        assert second.log[: len(first.log)] == first.log, f"seed {seed}: another order"
        assert not set(second.made) & set(second.known), f"seed {seed}: a recorded call was made again"
        assert second.notes == [], f"seed {seed}"
        third = await Attempt(Chance(chance.random()), 10).run(ledger)
        assert third.made == []
        assert third.log == second.log, f"seed {seed}"
        orders.add(str([name for name, _, _ in second.log]))
    assert len(orders) > 100, "the shuffles were to differ"


async def test_what_is_being_written_comes_to_its_end_however_often_one_is_cancelled():
    reached, free = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def write(self, write):
            if write.rows:
                reached.set()
                await free.wait()
            return await super().write(write)

    ledger = Ledger(Slow(), "case")
    await ledger.write(status="running", progress=ledger.progress)
    halt = asyncio.get_running_loop().create_future()
    delivery, divergence = Delivery(born=1.0), Divergence(ledger, Recorded())
    journal = Journal(ledger, Archive(), Recorded(), delivery=delivery, halt=halt, divergence=divergence)

    async def make(_arguments):
        return Answer(value={"text": "done"})

    caller = asyncio.create_task(journal.call(Request(path="ann", agent="ann", what="model", key="1"), make))
    await reached.wait()
    caller.cancel()
    await asyncio.wait({caller})
    closer = asyncio.create_task(journal.close())
    for _ in range(3):
        await asyncio.sleep(0)
        closer.cancel()
    await asyncio.wait({closer}, timeout=0.05)
    assert not closer.done()
    free.set()
    await asyncio.wait({closer})
    assert closer.cancelled()
    assert ledger.progress.calls == 1
    assert ledger.head.token == (await ledger.store.head("case")).token


def tools(chance, done):
    names = ("one", "two", "three", "four")

    def tool(name):
        async def work(order: str) -> str:
            await chance.pause()
            done.append(midturn.call_key())
            return f"{name} {len(order)}"

        work.__name__ = name
        return midturn.tool(effect="idempotent")(work)

    desk = Desk(*([(name, {"order": name * i}) for name in names] for i in (1, 2)))

    def build():
        return AssistantAgent(
            "clerk", Scripted(desk._answer), tools=[tool(name) for name in names], max_tool_iterations=5
        )

    return build


def branches(chance, done):
    def agent(name):
        async def answer(messages):
            await chance.pause()
            done.append((name, remembered(messages)))
            return remembered(messages)

        return AssistantAgent(name, Scripted(answer))

    def build():
        first, *middle, last = (agent(name) for name in ("first", "ann", "bob", "cid", "last"))
        builder = DiGraphBuilder()
        for node in (first, *middle, last):
            builder.add_node(node)
        for node in middle:
            builder.add_edge(first, node).add_edge(node, last)
        return GraphFlow(builder.get_participants(), builder.build())

    return build


@pytest.mark.parametrize("kind", [tools, branches])
async def test_a_turn_of_agents_is_finished_alike_whatever_came_first(memory, kind):
    said = set()
    for seed in range(1000 if LONG else 50):
        chance, done, name = Chance(seed, 0.004), [], f"{seed}"
        mortal = Mortal(memory.store, chance.random.randrange(2, 5), after=chance.random.random() < 0.5)
        with pytest.raises(StoreUnavailable):
            await Session(mortal, name, kind(chance, done), AutoGen()).run(task="go", key="k")
        ledger = Ledger(memory.store, name)
        await ledger.refresh()
        known = Recorded([])
        if ledger.progress.calls:
            known = await recorded.read(
                ledger, 0, ledger.progress.calls, await read_bodies(ledger, ledger.progress.bodies), born=0.0
            )
        before = len(done)
        case = Session(memory.store, name, kind(chance, done), AutoGen())
        result = await case.run(task="go", key="k")
        (turn,) = [turn async for turn in case.history()]
        assert turn.notes == (), seed
        whole = 3 + 8 if kind is tools else 5
        mine = len(done) - before
        assert mine == whole - len(known.entries) - (3 - sum(e.row.what == "model" for e in known.entries)) * (
            kind is tools
        ), f"seed {seed}: only what was not recorded is called"
        replayed = await Session(memory.store, name, kind(chance, done), AutoGen()).replay(turn=1)
        assert replayed.same, (seed, replayed.differences)
        assert replayed.notes == []
        said.add(
            str([(message.source, message.content) for message in result.messages if message.type == "TextMessage"])
        )
    assert (len(said) > 1) == (kind is branches), "the order is to matter to branches only"
