"""Reading a session: its turns and its checkpoints."""

from dataclasses import replace
from datetime import UTC

import pytest
from autogen_agentchat.base import TaskResult
from autogen_core.models import RequestUsage
from cast import agents, numbers

import midturn


async def test_the_result_is_a_task_result_that_knows_its_turn(store):
    factory, _ = agents()
    session = store.session("case", factory)
    await session.run(task="one")
    result = await session.run(task="two")
    assert isinstance(result, TaskResult)
    assert isinstance(result, midturn.TurnResult)
    assert (result.turn, result.checkpoint) == (2, 2)
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (4, 2)


async def test_the_history_says_what_happened_in_each_turn(store):
    factory, _ = agents("hello", ConnectionError("503"))
    session = store.session("case", factory)
    result = await session.run(task="one", key="k1")
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="two")
    first, second = [turn async for turn in session.history()]
    assert (first.number, first.status, first.origin, first.key, first.error) == (1, "done", "run", "k1", None)
    assert list(first.messages) == result.messages
    assert tuple(first.task) == first.messages[:1]
    assert first.usage == RequestUsage(prompt_tokens=2, completion_tokens=2)
    assert first.started <= first.ended <= second.started <= second.ended
    assert {at.tzinfo for at in (first.started, first.ended)} == {UTC}
    assert (second.number, second.status, second.messages) == (2, "failed", ())
    assert second.error == "ConnectionError: 503"
    assert replace(await session.turn(1), calls=None) == first


async def test_a_checkpoint_that_does_not_exist_is_named(store):
    factory, _ = agents()
    session = store.session("case", factory)
    with pytest.raises(midturn.NotFound, match="there is no session 'case'"):
        await session.at(1).state()
    await session.run(task="one")
    for number in (0, 2, -1):
        with pytest.raises(midturn.NotFound, match=f"no checkpoint {number}; the latest is 1"):
            await session.at(number).state()
        with pytest.raises(midturn.NotFound, match=f"session 'case' has no turn {number}; the latest is 1"):
            await session.turn(number)


async def test_the_history_is_read_page_by_page_from_its_end(memory):
    factory, _ = agents()
    session = memory.session("case", factory)
    for number in range(1, 6):
        await session.run(task=str(number))

    async def page(**options):
        return [turn.number async for turn in session.history(**options)]

    assert await page(last=2) == [4, 5]
    assert await page(last=2, before=4) == [2, 3]
    assert await page(last=2, before=2) == [1]
    assert await page(before=3) == [1, 2]
    assert await page(before=1) == await page(before=-7) == []
    assert await page(before=99) == [1, 2, 3, 4, 5]
    with pytest.raises(midturn.InvalidArgument, match="before"):
        await page(before="4")


async def test_the_history_of_a_session_that_never_ran_is_empty(store):
    assert await numbers(store.session("case")) == []


async def test_states_of_a_session_stay_readable_as_it_goes_on(store):
    factory, _ = agents()
    live = factory()
    session = store.session("case", live)
    states = []
    for n in range(5):
        await session.run(task=f"task {n}")
        states.append(await live.save_state())
    assert [await session.at(n).state() for n in range(1, 6)] == states


async def test_a_damaged_session_is_listed_with_its_problem_and_hides_no_other(memory):
    factory, _ = agents()
    for name in ("a", "b", "c"):
        await memory.session(name, factory).run(task="one")
    heads = memory.store._heads
    heads["b"] = replace(heads["b"], data=b"{")
    listed = {info.id: info.problem async for info in memory.sessions()}
    assert listed["a"] is None
    assert listed["c"] is None
    assert "not JSON" in listed["b"]
