"""The cost of a turn while its session lives: two writes and one for each call, and nothing is read or built again."""

import asyncio
from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from autogen_agentchat.messages import TextMessage
from cast import agents
from kinds import KINDS

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.history.picked_bodies import BACK
from midturn.history.turns import PAGE
from midturn.record.head import Kind
from midturn.record.rows import CheckpointRow, decode_record
from midturn.sessions.session import Session
from midturn.stores.memory import MemoryStore
from midturn.stores.wrapper import StoreWrapper
from midturn.turns.session_options import Options


class Counting:
    """A store that counts the calls it passes on."""

    def __init__(self, store):
        self._store = store
        self.calls = []

    def __getattr__(self, name):
        method = getattr(self._store, name)

        def call(*args, **options):
            self.calls.append(name)
            return method(*args, **options)

        return call


@pytest.mark.parametrize(
    ("kind", "durability", "writes"),
    [
        ("assistant", "turn", 2),
        ("assistant", "call", 3),
        ("round_robin", "turn", 2),
        ("round_robin", "call", 4),
    ],
)
async def test_a_turn_is_two_writes_and_one_for_each_call_and_reads_nothing(store, kind, durability, writes):
    counting = Counting(store.store)
    session = Session(counting, "case", KINDS[kind], AutoGen(), Options(durability=durability))
    await session.run(task="one")
    assert counting.calls.count("write") == writes
    counting.calls.clear()
    for task in ("two", "three", "four"):
        await session.run(task=task)
    assert counting.calls == ["write"] * 3 * writes


async def test_a_factory_is_called_once_while_the_session_lives(store):
    factory, _ = agents()
    built = []
    session = store.session("case", lambda: built.append(None) or factory())
    for task in ("one", "two", "three"):
        await session.run(task=task)
    assert len(built) == 1


NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Rows(StoreWrapper):
    """A store that counts the rows that it returns, by kind."""

    def __init__(self, inner):
        super().__init__(inner)
        self.read = Counter()

    async def rows(self, session, kind, **limits):
        found = await super().rows(session, kind, **limits)
        self.read[kind.name] += len(found)
        return found


async def last_turns(case):
    assert len([turn async for turn in case.history(last=5)]) == 5


async def one_turn(case):
    assert (await case.turn(7)).messages[-1].content == "6 " * 60


async def known_key(case):
    assert (await case.run(task="task 6 " * 10, key="key 6")).messages[-1].content == "6 " * 60


async def rows_read(turns):
    """Count the rows that readers get of a session with so many turns, each of which failed before and said much."""
    counted, read = Rows(MemoryStore()), {}
    factory, _ = agents(*[step for turn in range(turns) for step in (RuntimeError("busy"), f"{turn} " * 60)])
    async with midturn.open(store=counted) as store:
        case = store.session("case", factory)
        for turn in range(turns):
            with pytest.raises(midturn.TurnFailed):
                await case.run(task=f"task {turn} " * 10, key=f"key {turn}")
            await case.resume()
        for reader in (last_turns, one_turn, known_key):
            counted.read.clear()
            await reader(store.session("case", factory))
            read[reader.__name__] = counted.read.copy()
    return read


async def test_readers_get_no_more_rows_of_a_long_session_than_of_a_short_one():
    short, long = await rows_read(20), await rows_read(PAGE + 20)
    for reader, read in long.items():
        assert read["BODY"] <= short[reader]["BODY"] + 2, reader
        assert {kind: count for kind, count in read.items() if count > short[reader][kind] + PAGE} == {}, reader


@pytest.mark.parametrize("size", [1, 10, 300])
async def test_a_part_of_the_history_is_the_same_as_in_the_whole(memory, size):
    """Bodies of every size: many in one row, and one in many; old ones said again."""
    texts = [f"{number % 7} says {'x' * (number * size % 500)}" for number in range(40)]
    factory, _ = agents(*texts)
    case = memory.session("case", factory)
    for number in range(40):
        await case.run(task=[TextMessage(content=text, source="user") for text in texts[: number % 9 + 1]])
    whole = [turn async for turn in case.history()]
    for last in (1, 2, 7, 39, 40, 50):
        assert [turn async for turn in case.history(last=last)] == whole[-last:]
    for turn in whole:
        assert replace(await case.turn(turn.number), calls=None) == turn


async def test_a_body_is_found_in_a_row_with_many_others(memory):
    """A task of many short messages makes rows with dozens of bodies; a later task repeats one of them."""
    factory, _ = agents()
    case = memory.session("case", factory)
    task = [
        TextMessage(content=f"{number} " * 30, source="user", id=str(number), created_at=NOON) for number in range(60)
    ]
    await case.run(task=task)
    for number in range(60):
        await case.run(task=task[number])
    rows = await memory.store.rows("case", Kind.BODY)
    assert max(after.n - row.n for row, after in pairwise(rows)) > BACK
    whole = [turn async for turn in case.history()]
    for turn in whole:
        assert replace(await case.turn(turn.number), calls=None) == turn


async def test_a_damaged_turn_hides_none_before_it(memory, monkeypatch):
    factory, _ = agents()
    case = memory.session("case", factory)
    for number in range(4):
        await case.run(task=f"task {number} " * 20)
    inner = memory.store.rows
    third = (await memory.store.rows("case", Kind.CHECKPOINT))[1]
    lost = decode_record(CheckpointRow, third.data, "row").bodies

    async def without(session, kind, **limits):
        rows = await inner(session, kind, **limits)
        return [row for row in rows if kind is not Kind.BODY or row.n != lost]

    monkeypatch.setattr(memory.store, "rows", without)
    async with aclosing(case.history()) as turns:
        assert [(await anext(turns)).number, (await anext(turns)).number] == [1, 2]
        with pytest.raises(midturn.StateInvalid):
            await anext(turns)


async def test_parts_of_a_checkpoint_are_read_at_the_same_time(memory):
    factory, _ = agents()
    case = memory.session("case", factory)
    await case.run(task="one")
    checkpoint = case.at(1)
    state, version, tree = await asyncio.gather(checkpoint.state(), checkpoint.version(), checkpoint.tree())
    assert (tree["state"], version) == (state, 1)


async def test_turns_that_failed_are_found_by_bisection():
    """Most turns of a long session failed, some more than once; each reader finds those of its own turns."""
    async with midturn.open("memory://") as store:
        session = store.session("case", agents(*[RuntimeError("busy")] * 3 * PAGE)[0])
        for number in range(PAGE + 50):
            for again in range(1 + number % 2):
                with pytest.raises(midturn.TurnFailed):
                    await (session.resume() if again else session.run(task=f"task {number}"))
        whole = [turn async for turn in session.history()]
        assert [turn.attempts for turn in whole] == [1 + number % 2 for number in range(PAGE + 50)]
        for number in (1, 2, 3, PAGE, PAGE + 49, PAGE + 50):
            assert replace(await session.turn(number), calls=None) == whole[number - 1]
        assert [turn async for turn in session.history(last=3)] == whole[-3:]
