"""The live agent that a session runs, and the state in which a turn leaves it."""

import asyncio

import pytest
from cast import Gate, agents, said
from kinds import KINDS, assistant

import midturn


async def contents(agent):
    return [message["content"] for message in (await agent.save_state())["llm_context"]["messages"]]


async def test_one_live_agent_cannot_run_two_sessions(store):
    agent = assistant()
    await store.session("alice", agent).run(task="one")
    with pytest.raises(midturn.InvalidArgument, match="already runs session 'alice'"):
        await store.session("bob", agent).run(task="two")
    await store.session("alice", agent).run(task="three")


async def test_a_factory_that_always_returns_the_same_agent_is_refused_when_it_matters(store):
    factory, _ = agents(ConnectionError("503"))
    agent = factory()
    session = store.session("case", lambda: agent)
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="one")
    with pytest.raises(midturn.InvalidArgument, match="build a new one each time"):
        await session.run(task="two")


async def test_a_given_agent_is_brought_back_as_soon_as_its_turn_has_failed(store):
    factory, _ = agents("first", ConnectionError("503"))
    agent = factory()
    session = store.session("case", agent)
    await session.run(task="one")
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="two")
    assert await contents(agent) == ["one", "first"]
    await store.save("case", agent)
    assert len((await session.at(3).state())["llm_context"]["messages"]) == 2


async def test_the_agent_is_kept_when_the_stream_is_left_with_its_result(memory):
    built = []

    def factory():
        built.append(1)
        return assistant()

    session = memory.session("case", factory)
    for task in ("one", "two", "three"):
        async for item in session.run_stream(task=task):
            if isinstance(item, midturn.TurnResult):
                break
        await asyncio.sleep(0.01)
    assert len(built) == 1


async def test_deleting_a_session_in_its_own_turn_ends_the_turn_as_deleted(store):
    gate = Gate()
    factory, _ = agents(gate)
    session = store.session("case", factory)
    running = asyncio.create_task(session.run(task="one"))
    await gate.reached.wait()
    await session.delete()
    gate.open()
    with pytest.raises(midturn.SessionDeleted):
        await running


@pytest.mark.parametrize(
    "options", [{"busy": "rise"}, {"timeout": -1}, {"timeout": None}, {"timeout": "3"}, {"timeout": float("nan")}]
)
async def test_a_wrong_option_is_refused_by_its_name(memory, options):
    with pytest.raises(midturn.InvalidArgument) as caught:
        memory.session("case", assistant, **options)
    assert caught.value.path == next(iter(options))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_recorded_result_is_read_without_building_anything_of_the_users(memory, kind):
    result = await memory.session("case", KINDS[kind]).run(task="one", key="k1")

    def broken():
        raise RuntimeError("no API key")

    again = await memory.session("case", broken).run(task="one", key="k1")
    assert said(again) == said(result)
