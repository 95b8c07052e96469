"""The promises of a turn: its input is kept, it is atomic, and a failed turn changes nothing."""

import asyncio
from unittest.mock import AsyncMock

import pytest
from autogen_agentchat.teams import SelectorGroupChat
from autogen_core.model_context import UnboundedChatCompletionContext
from cast import Gate, agents, expected, numbers, said, uninterrupted
from kinds import KINDS, assistant, round_robin, select, transcript
from scripted import Scripted

import midturn

# --- the input


async def test_the_input_is_durable_before_the_model_is_asked(store):
    found = []

    async def look(messages):
        head = await store.store.head("case")
        turns = [turn async for turn in store.session("case").history()]
        found.append((head.status, [(turn.status, turn.task[0].content) for turn in turns]))
        return "looked"

    factory, _ = agents(look)
    await store.session("case", factory).run(task="Keep this.")
    assert found == [("running", [("running", "Keep this.")])]


async def test_an_input_is_durable_before_the_first_agent_of_a_team_is_asked(store, monkeypatch):
    found = []
    create = Scripted.create

    async def look(self, messages, **options):
        found.append((await store.store.head("case")).status)
        return await create(self, messages, **options)

    monkeypatch.setattr(Scripted, "create", look)
    await store.session("case", round_robin).run(task="Keep this.")
    assert found == ["running", "running"]


# --- atomicity


async def test_a_reader_sees_the_turn_before_until_the_turn_is_done(store):
    gate = Gate()
    factory, _ = agents("first", gate)
    session, reader = store.session("case", factory), store.session("case")
    await session.run(task="one")
    before = await reader.at(1).state()
    running = asyncio.create_task(session.run(task="two"))
    await gate.reached.wait()
    assert await numbers(reader) == [(1, "done"), (2, "running")]
    assert await reader.at(1).state() == before
    with pytest.raises(midturn.NotFound):
        await reader.at(2).state()
    assert [(info.status, info.turns, info.checkpoint) async for info in store.sessions()] == [("running", 2, 1)]
    gate.open()
    result = await running
    assert result.checkpoint == 2
    assert await numbers(reader) == [(1, "done"), (2, "done")]
    assert [(info.status, info.turns, info.checkpoint) async for info in store.sessions()] == [("idle", 2, 2)]


async def test_a_reader_that_looks_all_the_time_never_sees_half_a_turn(store):
    factory, _ = agents()
    session, reader = store.session("case", factory), store.session("case")
    await session.run(task="one")
    running = asyncio.create_task(session.run(task="two"))
    states = []
    while not running.done():
        turns = [turn async for turn in reader.history()]
        if turns[-1].number == 2 and turns[-1].status == "done":
            assert len(turns[-1].messages) == 2
            states.append(await reader.at(2).state())
        else:
            assert turns[-1].messages == (() if turns[-1].number == 2 else turns[-1].messages)
        await asyncio.sleep(0)
    await running
    final = await reader.at(2).state()
    assert all(state == final for state in states)
    assert len(final["llm_context"]["messages"]) == 4


# --- failing


async def test_a_failed_turn_says_why_and_what_to_do_next(store):
    cause = ConnectionError("503")
    factory, _ = agents(cause)
    with pytest.raises(midturn.TurnFailed, match=r"503[\s\S]*resume\(\)") as caught:
        await store.session("case", factory).run(task="one")
    assert caught.value.__cause__ is cause
    assert (caught.value.session, caught.value.turn) == ("case", 1)


async def test_a_failed_turn_leaves_the_state_as_it_was(store):
    factory, _ = agents("hello", ConnectionError("503"))
    session = store.session("case", factory)
    await session.run(task="one")
    before = await session.at(1).state()
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="two")
    assert await numbers(session) == [(1, "done"), (2, "failed")]
    assert [turn.error async for turn in session.history()] == [None, "ConnectionError: 503"]
    assert [(info.status, info.checkpoint) async for info in store.sessions()] == [("failed", 1)]
    await session.run(task="three")
    assert (await session.at(3).state())["llm_context"]["messages"][:2] == before["llm_context"]["messages"]


async def test_the_task_of_a_failed_turn_is_not_in_the_next_one(store):
    factory, _ = agents(ConnectionError("503"))
    session = store.session("case", factory)
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="one")
    assert said(await session.run(task="two")) == await expected("two")


async def test_a_task_given_again_after_it_failed_is_not_doubled(store):
    factory, _ = agents("ready", ConnectionError("503"), ConnectionError("503"))
    session = store.session("case", factory)
    await session.run(task="one")
    for _ in range(2):
        with pytest.raises(midturn.TurnFailed):
            await session.run(task="two")
    result = await session.run(task="two")
    assert [message["content"] for message in (await session.at(result.turn).state())["llm_context"]["messages"]] == [
        "one",
        "ready",
        "two",
        said(result),
    ]


async def test_resume_tries_a_failed_turn_again_until_it_succeeds(store):
    factory, _ = agents(ConnectionError("503"), ConnectionError("504"))
    session = store.session("case", factory)
    with pytest.raises(midturn.TurnFailed, match="503"):
        await session.run(task="one")
    with pytest.raises(midturn.TurnFailed, match="504"):
        await session.resume()
    result = await session.resume()
    assert (result.turn, said(result)) == (1, await expected("one"))
    assert await numbers(session) == [(1, "done")]
    assert await session.resume() is None


async def test_resume_works_in_a_session_object_that_did_not_fail(store):
    factory, _ = agents(ConnectionError("503"))
    with pytest.raises(midturn.TurnFailed):
        await store.session("case", factory).run(task="one")
    assert said(await store.session("case", factory).resume()) == await expected("one")


async def test_resume_notices_a_turn_that_another_worker_left_open(store):
    factory, _ = agents("first", ConnectionError("503"))
    one, other = store.session("case", factory), store.session("case", factory)
    await one.run(task="one")
    with pytest.raises(midturn.TurnFailed):
        await other.run(task="two")
    result = await one.resume()
    assert result is not None
    assert result.turn == 2


async def test_a_new_task_replaces_a_failed_turn_and_resume_has_nothing_to_do(store):
    factory, _ = agents(ConnectionError("503"))
    session = store.session("case", factory)
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="one")
    await session.run(task="two")
    assert await session.resume() is None
    assert await numbers(session) == [(1, "failed"), (2, "done")]


async def test_a_turn_that_is_tried_again_is_running_in_the_history(store):
    gate = Gate()
    factory, _ = agents(ConnectionError("503"), gate)
    session = store.session("case", factory)
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="one")
    resuming = asyncio.create_task(session.resume())
    await gate.reached.wait()
    assert await numbers(store.session("case")) == [(1, "running")]
    gate.open()
    await resuming


@pytest.mark.parametrize("given", ["a factory", "a live object"])
@pytest.mark.parametrize("kind", KINDS)
async def test_whichever_model_call_fails_the_next_turn_is_as_if_it_had_not_been(memory, monkeypatch, kind, given):
    create, calls, failing = Scripted.create, 0, None

    async def sometimes(self, messages, **options):
        nonlocal calls
        calls += 1
        if calls == failing:
            raise ConnectionError("503")
        return await create(self, messages, **options)

    factory = KINDS[kind]
    monkeypatch.setattr(Scripted, "create", sometimes)
    one, three = await uninterrupted(factory, "one", "three")
    session = memory.session("untouched", factory)
    await session.run(task="one")
    calls = 0
    await session.run(task="two")
    for nth in range(1, calls + 1):
        failing = None
        session = memory.session(f"fails at {nth}", factory if given == "a factory" else factory())
        assert transcript(await session.run(task="one")) == one
        calls, failing = 0, nth
        with pytest.raises(midturn.TurnFailed, match="503"):
            await session.run(task="two")
        assert transcript(await session.run(task="three")) == three


async def test_a_selector_with_a_context_of_its_own_is_as_it_was_after_a_failed_turn(memory, monkeypatch):
    def build():
        return SelectorGroupChat(
            [assistant("ann"), assistant("bob"), assistant("cid")],
            Scripted(select),
            max_turns=3,
            allow_repeated_speaker=True,
            model_context=UnboundedChatCompletionContext(),
        )

    _, three = await uninterrupted(build, "one", "three")
    session = memory.session("case", build())
    await session.run(task="one")
    with monkeypatch.context() as patch:
        patch.setattr(Scripted, "create", AsyncMock(side_effect=ConnectionError("503")))
        with pytest.raises(midturn.TurnFailed):
            await session.run(task="two")
    assert transcript(await session.run(task="three")) == three


# --- the live object


async def test_a_live_agent_keeps_what_it_knew_before_its_first_turn(store):
    factory, _ = agents()
    live = factory()
    await live.run(task="before")
    assert said(await store.session("case", live).run(task="one")) == await expected("before", "one")


async def test_a_live_agent_whose_first_turn_fails_still_knows_what_it_knew(store):
    factory, _ = agents("known", ConnectionError("503"))
    live = factory()
    await live.run(task="before")
    before = await live.save_state()
    session = store.session("case", live)
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="one")
    await session.run(task="two")
    messages = (await session.at(2).state())["llm_context"]["messages"]
    assert messages[:2] == before["llm_context"]["messages"]
    assert len(messages) == 4


async def test_the_state_is_what_the_agent_itself_saves(store):
    factory, _ = agents()
    live = factory()
    session = store.session("case", live)
    for task in ("one", "two", "three"):
        result = await session.run(task=task)
        assert await session.at(result.checkpoint).state() == await live.save_state()
