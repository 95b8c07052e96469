"""The same turn delivered twice runs once."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage
from cast import Gate, agents, crash, expected, numbers, said
from kinds import KINDS, transcript
from pydantic import BaseModel
from scripted import Scripted

import midturn


def as_recorded(result):
    """The result as a later delivery of its key gets it."""
    return result.model_copy(update={"recorded": True})


async def test_a_known_key_returns_the_recorded_result_without_running(store):
    factory, model = agents()
    session = store.session("case", factory)
    first = await session.run(task="one", key="k1")
    await session.run(task="two", key="k2")
    again = await session.run(task="one", key="k1")
    assert (first.recorded, again.recorded) == (False, True)
    assert again == as_recorded(first)
    assert [message.dump() for message in again.messages] == [message.dump() for message in first.messages]
    assert len(model.seen) == 2
    assert await numbers(session) == [(1, "done"), (2, "done")]


async def test_a_key_is_known_to_another_session_object(store):
    factory, model = agents()
    first = await store.session("case", factory).run(task="one", key="k1")
    again = await store.session("case", factory).run(task="one", key="k1")
    assert again == as_recorded(first)
    assert len(model.seen) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_the_recorded_result_of_every_kind_is_the_result(memory, kind):
    first = await memory.session("case", KINDS[kind]).run(task="one", key="k1")
    again = await memory.session("case", KINDS[kind]).run(task="one", key="k1")
    assert transcript(again) == transcript(first)
    assert [type(message) for message in again.messages] == [type(message) for message in first.messages]


class Verdict(BaseModel):
    approved: bool
    score: float


async def test_the_recorded_result_of_structured_output_is_the_result(store):
    model = Scripted(lambda messages: '{"approved": true, "score": 0.5}')

    def build():
        return AssistantAgent("judge", model, output_content_type=Verdict)

    first = await store.session("case", build).run(task="one", key="k1")
    assert said(first) == Verdict(approved=True, score=0.5)
    assert said(await store.session("case", build).run(task="one", key="k1")) == said(first)
    assert len(model.seen) == 1


async def test_a_key_is_for_one_task_only(store):
    factory, _ = agents()
    session = store.session("case", factory)
    await session.run(task="one", key="k1")
    with pytest.raises(midturn.Conflict, match="'k1'") as caught:
        await session.run(task="two", key="k1")
    assert caught.value.session == "case"
    assert await numbers(session) == [(1, "done")]
    assert said(await session.run(task="two", key="k2")) == await expected("one", "two")


async def test_the_same_task_as_a_new_message_is_the_same_task(store):
    factory, model = agents()
    session = store.session("case", factory)
    for _ in range(2):
        await session.run(task=TextMessage(content="one", source="user"), key="k1")
    await session.run(task="one", key="k1")
    assert len(model.seen) == 1


async def test_the_same_text_from_another_source_is_another_task(store):
    factory, _ = agents()
    session = store.session("case", factory)
    await session.run(task="one", key="k1")
    with pytest.raises(midturn.Conflict):
        await session.run(task=TextMessage(content="one", source="boss"), key="k1")


async def test_no_task_is_a_task_of_its_own(store):
    factory, model = agents()
    session = store.session("case", factory)
    await session.run(key="k1")
    await session.run(key="k1")
    with pytest.raises(midturn.Conflict):
        await session.run(task="one", key="k1")
    assert len(model.seen) == 1


async def test_the_key_of_a_failed_turn_runs_it_again(store):
    factory, model = agents(ConnectionError("503"))
    session = store.session("case", factory)
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="one", key="k1")
    result = await session.run(task="one", key="k1")
    assert (result.turn, said(result)) == (1, await expected("one"))
    assert await session.run(task="one", key="k1") == as_recorded(result)
    assert len(model.seen) == 2


async def test_the_key_of_a_failed_turn_that_was_replaced_runs_it_as_a_new_one(store):
    factory, model = agents(ConnectionError("503"))
    session = store.session("case", factory)
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="one", key="k1")
    await session.run(task="two")
    result = await session.run(task="one", key="k1")
    assert (result.turn, said(result)) == (3, await expected("two", "one"))
    assert await session.run(task="one", key="k1") == as_recorded(result)
    assert len(model.seen) == 3


async def test_the_key_of_a_failed_turn_is_still_for_one_task_only(store):
    factory, _ = agents(ConnectionError("503"))
    session = store.session("case", factory)
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="one", key="k1")
    with pytest.raises(midturn.Conflict):
        await session.run(task="two", key="k1")


async def test_a_key_is_resumed_under_its_key(store):
    factory, model = agents(ConnectionError("503"))
    session = store.session("case", factory)
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="one", key="k1")
    result = await session.resume()
    assert await session.run(task="one", key="k1") == as_recorded(result)
    assert len(model.seen) == 2


async def test_five_deliveries_at_once_to_one_session_object_run_once(store):
    factory, model = agents()
    session = store.session("case", factory)
    results = await asyncio.gather(*(session.run(task="one", key="k1") for _ in range(5)))
    assert [result.recorded for result in results].count(False) == 1
    assert all(as_recorded(result) == as_recorded(results[0]) for result in results)
    assert len(model.seen) == 1


@pytest.mark.parametrize("turns_before", [0, 1])
async def test_five_deliveries_at_once_to_five_session_objects_run_once(store, turns_before):
    factory, model = agents()
    sessions = [store.session("case", factory) for _ in range(5)]
    for _ in range(turns_before):
        for session in sessions:
            await session.run(task="before")
    model.seen.clear()
    results = await asyncio.gather(*(session.run(task="one", key="k1") for session in sessions))
    assert {result.turn for result in results} == {5 * turns_before + 1}
    assert all(transcript(result) == transcript(results[0]) for result in results)
    assert len(model.seen) == 1


async def test_deliveries_while_the_turn_runs_wait_for_its_result(store):
    gate = Gate()
    factory, model = agents(gate)
    first = asyncio.create_task(store.session("case", factory).run(task="one", key="k1"))
    await gate.reached.wait()
    others = [asyncio.create_task(store.session("case", factory).run(task="one", key="k1")) for _ in range(4)]
    await asyncio.sleep(0.02)
    gate.open()
    result = await first
    assert [as_recorded(await other) == as_recorded(result) for other in others] == [True] * 4
    assert len(model.seen) == 1


async def test_other_keys_at_once_each_run(store):
    factory, model = agents()
    tasks = [f"task {n}" for n in range(4)]
    runs = [store.session("case", factory).run(task=task, key=task) for task in tasks for _ in range(2)]
    results = await asyncio.gather(*runs)
    assert [said(result) for result in results[::2]] == [said(result) for result in results[1::2]]
    assert len(model.seen) == 4


@pytest.mark.parametrize("key", ["", "k" * 501, 7, b"k1", "\ud800"])
async def test_a_bad_key_is_refused_before_anything_is_written(store, key):
    factory, model = agents()
    with pytest.raises(midturn.InvalidArgument, match="key"):
        await store.session("case", factory).run(task="one", key=key)
    assert await store.store.head("case") is None
    assert model.seen == []


@pytest.mark.parametrize("key", ["k" * 500, "a/../b", "ключ %s\n\0", "🙂"])
async def test_any_text_can_be_a_key(store, key):
    factory, _ = agents()
    session = store.session("case", factory)
    first = await session.run(task="one", key=key)
    assert await session.run(task="one", key=key) == as_recorded(first)
    assert [turn.key async for turn in session.history()] == [key]


async def test_keys_of_one_session_are_unknown_to_another(store):
    factory, model = agents()
    await store.session("one", factory).run(task="one", key="k1")
    await store.session("two", factory).run(task="another", key="k1")
    assert len(model.seen) == 2


async def test_keys_that_fall_on_the_same_number_are_kept_apart(store, monkeypatch):
    monkeypatch.setattr("midturn.lease.ledger.key_number", lambda key: 7)
    factory, model = agents()
    session = store.session("case", factory)
    first = [await session.run(task=task, key=task) for task in ("one", "two", "three")]
    again = [await session.run(task=task, key=task) for task in ("one", "two", "three")]
    assert again == [as_recorded(result) for result in first]
    assert len(model.seen) == 3


async def test_the_key_of_a_crashed_turn_finishes_it(store):
    await crash(store, None, task="one", key="k1")
    factory, model = agents("first")
    session = store.session("case", factory)
    result = await session.run(task="one", key="k1")
    assert (result.turn, said(result)) == (1, "first")
    assert said(await session.run(task="one", key="k1")) == "first"
    assert len(model.seen) == 1
