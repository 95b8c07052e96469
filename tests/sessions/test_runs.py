"""A turn that continues when its caller goes away."""

import asyncio
import logging
from contextlib import aclosing

import pytest
from cast import Gate, agents, crash, expected, numbers, panel, said, seen

import midturn


def chat(*steps):
    return agents(*steps, model_client_stream=True)


async def test_a_run_goes_on_when_its_consumer_goes_away(store):
    gate = Gate()
    case = store.session("case", agents(gate)[0])
    run = await case.start("one", key="k1")
    assert (run.turn, run.key, run.status, run.done) == (1, "k1", "running", False)
    async with aclosing(run.events()) as events:
        first = await anext(events)
    assert (first.number, first.id, first.event.content) == (1, "1.1", "one")
    await gate.reached.wait()
    gate.open()
    result = await run.result()
    assert said(result) == await expected("one")
    assert (run.status, run.done) == ("done", True)
    assert [event.number async for event in run.events()] == [1, 2]
    assert await numbers(case) == [(1, "done")]


async def test_the_input_is_durable_when_start_returns(store):
    gate = Gate()
    case = store.session("case", agents(gate)[0])
    run = await case.start("one")
    assert (await case.open_turn()).status == "running"
    assert await run.cancel() is True
    assert run.status == "cancelled"
    assert await run.cancel() is False
    with pytest.raises(midturn.TurnFailed, match="turn 1 of session 'case' was cancelled"):
        await run.result()
    assert await numbers(case) == [(1, "cancelled")]
    gate.open()
    again = await case.start_resume()
    assert said(await again.result()) == await expected("one")


async def test_many_consumers_get_every_event_each_at_its_own_pace(store):
    gate = Gate()
    case = store.session("case", chat(gate)[0])
    run = await case.start("one")
    early = [asyncio.create_task(seen(run)) for _ in range(3)]
    await gate.reached.wait()
    gate.open()
    await run.result()
    late = await seen(run)
    assert [number for number, _ in late] == list(range(1, len(late) + 1))
    assert "ModelClientStreamingChunkEvent" in [event["type"] for _, event in late]
    assert await asyncio.gather(*early) == [late] * 3
    for after in range(len(late) + 2):
        assert await seen(run, after) == late[after:]


async def test_a_run_raises_what_the_turn_raised(store):
    case = store.session("case", agents(RuntimeError("503"))[0])
    run = await case.start("one")
    assert [event.event.content async for event in run.events()] == ["one"]
    for _ in range(2):
        with pytest.raises(midturn.TurnFailed, match="503") as failed:
            await run.result()
    assert isinstance(failed.value.__cause__, RuntimeError)
    assert run.status == "failed"


async def test_what_start_cannot_accept_it_raises(store):
    case = store.session("case", lambda: None)
    with pytest.raises(midturn.InvalidArgument, match="returned None"):
        await case.start("one")
    with pytest.raises(midturn.InvalidArgument, match="task"):
        await case.start(7)
    assert await case.start_resume() is None


async def test_a_key_is_one_run(store):
    gate = Gate()
    factory, model = agents(gate)
    case, other = store.session("case", factory), store.session("case", factory)
    runs = await asyncio.gather(*(session.start("one", key="k1") for session in (case, case, other, other)))
    assert {id(run) for run in runs} == {id(runs[0])}
    with pytest.raises(midturn.Conflict, match="belongs to another task"):
        await other.start("two", key="k1")
    assert await other.follow(key="k1") is runs[0]
    gate.open()
    first = await runs[0].result()
    again = await other.start("one", key="k1")
    assert again.status == "done"
    assert await again.result() == first
    assert len(model.seen) == 1
    with pytest.raises(midturn.Conflict, match="belongs to another task"):
        await other.start("two", key="k1")


async def test_a_run_that_waits_for_people_goes_on_with_their_answer(store):
    case = store.session("case", panel)
    run = await case.start("write")
    before = await seen(run)
    waiting = (await run.result()).waiting
    assert run.status == "waiting"
    assert waiting.kind == "human"
    assert await case.follow() is run
    with pytest.raises(midturn.InvalidArgument, match="can only be changed"):
        await case.start_answer("ACCEPT", arguments={})
    run = await case.start_answer("ACCEPT", by="ann")
    assert run.turn == 1
    events = await seen(run)
    assert events[: len(before)] == before
    assert (await run.result()).waiting is None
    assert [decision.by for decision in (await case.turn(1)).decisions] == ["ann"]


async def test_leaving_start_before_the_input_is_durable_leaves_nothing(store):
    gate = Gate()
    case = store.session("case", agents(gate)[0])
    first = await case.start("one")
    await gate.reached.wait()
    second = asyncio.create_task(case.start("two"))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.open()
    await first.result()
    assert await numbers(case) == [(1, "done")]


async def test_closing_the_store_waits_for_its_runs(url):
    gate = Gate()
    async with midturn.open(url) as store:
        case = store.session("case", agents(gate)[0])
        run = await case.start("one")
        await gate.reached.wait()
        asyncio.get_running_loop().call_later(0.1, gate.open)
    assert said(await run.result()) == await expected("one")


async def test_closing_the_store_interrupts_a_run_that_takes_too_long_and_names_it(tmp_path, caplog):
    gate, url = Gate(), f"sqlite:///{tmp_path}/store.db"
    with caplog.at_level(logging.WARNING):
        async with midturn.open(url, drain=0.05) as store:
            run = await store.session("case", agents(gate)[0]).start("one")
            reading = asyncio.create_task(seen(run))
            await gate.reached.wait()
    assert "interrupted turn 1 of 'case'" in caplog.text
    assert run.status == "interrupted"
    assert [number for number, _ in await reading] == [1]
    with pytest.raises(midturn.StoreUnavailable, match=r"resume\(\) continues"):
        await run.result()
    async with midturn.open(url) as store:
        assert (await store.info("case")).status == "interrupted"
        assert said(await store.session("case", agents()[0]).resume()) == await expected("one")


async def test_nothing_starts_when_the_store_is_closed(url):
    async with midturn.open(url) as store:
        case = store.session("case", agents()[0])
    with pytest.raises(midturn.StoreUnavailable, match="closed"):
        await case.start("one")


@pytest.mark.parametrize("drain", [-1, "10", None, True])
async def test_the_time_for_runs_is_a_number_of_seconds(drain):
    with pytest.raises(midturn.InvalidArgument, match="drain"):
        midturn.open("memory://", drain=drain)


async def test_finished_runs_are_forgotten(memory):
    case = memory.session("case", agents()[0])
    for _ in range(40):
        await (await case.start("one")).result()
    assert len(memory._runs._finished) == 16
    assert not memory._runs._running


async def test_an_interrupted_turn_is_finished_before_another_starts(memory):
    factory = agents()[0]
    await crash(memory, factory, task="one")
    case = memory.session("case", factory)
    run = await case.start("two")
    assert run.turn == 2
    assert said(await run.result()) == await expected("one", "two")
