"""Saving and loading by hand, labels, blueprints and factories."""

import asyncio

import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from cast import Gate, agents, expected, numbers, said, uninterrupted
from kinds import KINDS, assistant, round_robin, selector, transcript
from scripted import Scripted

import midturn

# --- store.save and store.load


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_saved_by_hand_is_loaded_into_a_fresh_instance(memory, kind):
    live = KINDS[kind]()
    for n, task in enumerate(("one", "two"), start=1):
        await live.run(task=task)
        assert await memory.save("case", live) == n
        assert await memory.session("case").at(n).state() == await live.save_state()
    fresh = KINDS[kind]()
    assert await memory.load("case", fresh) == 2
    assert await fresh.save_state() == await live.save_state()
    assert transcript(await fresh.run(task="three")) == transcript(await live.run(task="three"))


async def test_saving_and_loading_work_on_every_store(store):
    live = assistant()
    await live.run(task="one")
    await store.save("case", live)
    fresh = assistant()
    assert await store.load("case", fresh) == 1
    assert transcript(await fresh.run(task="two")) == (await uninterrupted(assistant, "one", "two"))[-1]
    assert [(turn.number, turn.status, turn.origin) async for turn in store.session("case").history()] == [
        (1, "done", "save")
    ]


async def test_saving_does_not_change_what_is_saved(store):
    live = round_robin()
    await live.run(task="one")
    before = await live.save_state()
    await store.save("case", live)
    assert await live.save_state() == before
    assert transcript(await live.run(task="two")) == (await uninterrupted(round_robin, "one", "two"))[-1]


async def test_loading_what_was_never_saved_changes_nothing(store):
    live = assistant()
    await live.run(task="one")
    before = await live.save_state()
    assert await store.load("case", live) == 0
    assert await live.save_state() == before


async def test_a_session_goes_on_from_a_state_saved_by_hand_and_back(store):
    live = assistant()
    await live.run(task="one")
    await store.save("case", live)
    assert said(await store.session("case", assistant).run(task="two")) == await expected("one", "two")
    fresh = assistant()
    assert await store.load("case", fresh) == 2
    assert said(await fresh.run(task="three")) == await expected("one", "two", "three")


async def test_a_session_object_in_use_notices_a_state_saved_by_hand(store):
    session = store.session("case", assistant)
    await session.run(task="one")
    live = assistant()
    await live.run(task="other")
    await store.save("case", live)
    assert said(await session.run(task="two")) == await expected("other", "two")


async def test_saving_replaces_a_failed_turn(store):
    factory, _ = agents(ConnectionError("503"))
    session = store.session("case", factory)
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="one")
    assert await store.save("case", assistant()) == 2
    assert await session.resume() is None
    assert await numbers(session) == [(1, "failed"), (2, "done")]


MISFITS = {
    "an agent's into a team": (assistant, round_robin),
    "a team's into an agent": (round_robin, assistant),
    "a team's into another team": (round_robin, selector),
    "a team's into one with other members": (
        round_robin,
        lambda: type(round_robin())([assistant("ann"), assistant("zoe")], max_turns=2),
    ),
}


@pytest.mark.parametrize(("saved", "loaded"), MISFITS.values(), ids=MISFITS)
async def test_a_state_that_does_not_fit_is_refused_and_the_instance_is_as_it_was(store, saved, loaded):
    live = saved()
    await live.run(task="one")
    await store.save("case", live)
    victim = loaded()
    await victim.run(task="mine")
    before = await victim.save_state()
    with pytest.raises(midturn.StateInvalid) as caught:
        await store.load("case", victim)
    assert caught.value.session == "case"
    assert await victim.save_state() == before
    assert transcript(await victim.run(task="two")) == (await uninterrupted(loaded, "mine", "two"))[-1]


@pytest.mark.parametrize(("saved", "loaded"), MISFITS.values(), ids=MISFITS)
async def test_a_session_does_not_run_what_its_state_does_not_fit(store, saved, loaded):
    await store.session("case", saved).run(task="one")
    head = await store.store.head("case")
    with pytest.raises(midturn.StateInvalid):
        await store.session("case", loaded).run(task="two")
    assert (await store.store.head("case")).seq == head.seq
    assert (
        transcript(await store.session("case", saved).run(task="two")) == (await uninterrupted(saved, "one", "two"))[-1]
    )


async def test_saving_by_hand_needs_a_live_instance(store):
    for what in (assistant, None):
        with pytest.raises(midturn.InvalidArgument, match="live agent or team"):
            await store.save("case", what)
        with pytest.raises(midturn.InvalidArgument, match="live agent or team"):
            await store.load("case", what)


async def test_two_saves_at_once_are_two_checkpoints(store):
    live = assistant()
    assert sorted(await asyncio.gather(*(store.save("case", live) for _ in range(4)))) == [1, 2, 3, 4]


# --- labels


async def test_sessions_are_found_by_their_labels(store):
    await store.session("a", assistant, labels={"team": "claims", "tier": "1"}).run(task="one")
    await store.session("b", assistant, labels={"team": "claims"}).run(task="one")
    await store.session("c", assistant).run(task="one")
    assert [info.id async for info in store.sessions(labels={"team": "claims"})] == ["a", "b"]
    assert [info.id async for info in store.sessions(labels={"team": "claims", "tier": "1"})] == ["a"]
    assert [dict(info.labels) async for info in store.sessions(prefix="c")] == [{}]


async def test_labels_stay_until_they_are_given_anew(store):
    await store.session("case", assistant, labels={"team": "claims"}).run(task="one")
    await store.session("case", assistant).run(task="two")
    assert [dict(info.labels) async for info in store.sessions()] == [{"team": "claims"}]
    await store.session("case", assistant, labels={"team": "back office"}).run(task="three")
    assert [dict(info.labels) async for info in store.sessions()] == [{"team": "back office"}]
    await store.session("case", assistant, labels={}).run(task="four")
    assert [dict(info.labels) async for info in store.sessions()] == [{}]


@pytest.mark.parametrize("labels", [{"team": 7}, {7: "team"}, {"team": None}, {"team": "\ud800"}])
async def test_labels_are_texts(store, labels):
    with pytest.raises(midturn.InvalidArgument, match="label"):
        await store.session("case", assistant, labels=labels).run(task="one")
    assert await store.store.head("case") is None


async def test_labels_are_set_without_a_turn(store):
    await store.session("case", assistant, labels={"team": "claims", "tier": "1"}).run(task="one")
    await store.label("case", {"team": "back office", "tier": None, "seen": "yes"})
    info = await store.info("case")
    assert (info.labels, info.turns, info.status) == ({"team": "back office", "seen": "yes"}, 1, "idle")
    assert [each.id async for each in store.sessions(labels={"seen": "yes"})] == ["case"]
    assert [each.id async for each in store.sessions(labels={"tier": "1"})] == []
    await store.session("case", assistant).run(task="two")
    assert (await store.info("case")).labels == {"team": "back office", "seen": "yes"}


async def test_labels_of_a_session_in_use_or_that_is_not_there_are_refused(memory):
    gate = Gate()
    factory, _ = agents(gate)
    running = asyncio.ensure_future(memory.session("case", factory).run(task="one"))
    await gate.reached.wait()
    with pytest.raises(midturn.SessionBusy):
        await memory.label("case", {"team": "claims"})
    gate.open()
    await running
    with pytest.raises(midturn.NotFound):
        await memory.label("other", {"team": "claims"})
    for wrong in ({"team": 7}, {7: "team"}):
        with pytest.raises(midturn.InvalidArgument, match="label"):
            await memory.label("case", wrong)


async def test_a_decision_about_an_older_session_is_refused_by_the_write_itself(store):
    case = store.session("case", assistant)
    await case.run(task="one")
    seen = await store.info("case")
    await case.run(task="two")
    before = await store.info("case")
    for act in (
        store.label("case", {"a": "b"}, seq=seen.seq),
        case.discard(seq=seen.seq),
        store.delete("case", seq=seen.seq),
        store.delete("nowhere", seq=1),
    ):
        with pytest.raises(midturn.Conflict):
            await act
    assert await store.info("case") == before
    await store.label("case", {"a": "b"}, seq=before.seq)
    assert await case.discard(seq=before.seq + 1) is False
    assert await store.delete("case", seq=before.seq + 1, by="ann") is True
    gone = await store.info("case")
    assert (gone.status, gone.deleted.by) == ("deleted", "ann")


async def test_labels_of_a_turn_that_waits_leave_it_waiting(memory):
    def build():
        return RoundRobinGroupChat([UserProxyAgent("person", input_func=midturn.human)], max_turns=1)

    await memory.session("case", build).run(task="one")
    await memory.label("case", {"team": "claims"})
    info = await memory.info("case")
    assert (info.status, info.labels) == ("waiting", {"team": "claims"})
    assert (await memory.session("case", build).answer("yes")).messages[-1].content == "yes"


async def test_a_store_can_be_opened_and_closed_by_hand(tmp_path):
    store = await midturn.open(f"sqlite:///{tmp_path}/x.db")
    await store.session("case", assistant).run(task="one")
    async with store:
        assert (await store.info("case")).turns == 1
    await store.aclose()
    with pytest.raises(midturn.StoreUnavailable, match="closed"):
        await store.info("case")


# --- blueprints and factories


async def test_a_blueprint_builds_what_runs(store):
    blueprint = midturn.Blueprint("support", assistant, version=2)
    await store.session("case", blueprint).run(task="one")
    assert said(await store.session("case", blueprint).run(task="two")) == await expected("one", "two")


@pytest.mark.parametrize(("written", "found", "error"), [(1, 2, "MissingMigration"), (2, 1, "UnknownVersion")])
async def test_another_version_of_the_blueprint_is_refused(store, written, found, error):
    await store.session("case", midturn.Blueprint("support", assistant, version=written)).run(task="one")
    head = await store.store.head("case")
    session = store.session("case", midturn.Blueprint("support", assistant, version=found))
    with pytest.raises(getattr(midturn, error), match=f"version {written}[^0-9]*{found}") as caught:
        await session.run(task="two")
    assert caught.value.session == "case"
    assert (await store.store.head("case")).seq == head.seq
    await store.session("case", midturn.Blueprint("support", assistant, version=written)).run(task="two")


async def test_a_failed_turn_of_another_version_is_not_resumed_and_stays_as_it_is(store):
    factory, _ = agents("first", ConnectionError("503"))
    old = store.session("case", midturn.Blueprint("support", factory, version=1))
    await old.run(task="one")
    with pytest.raises(midturn.TurnFailed):
        await old.run(task="two")
    with pytest.raises(midturn.MissingMigration):
        await store.session("case", midturn.Blueprint("support", factory, version=2)).resume()
    assert (await store.store.head("case")).owner is None
    assert (await old.resume()).turn == 2


async def test_a_factory_may_be_async(store):
    async def build():
        await asyncio.sleep(0)
        return assistant()

    assert said(await store.session("case", build).run(task="one")) == await expected("one")


WRONG = {"a text": lambda: "agent", "a class": lambda: type(assistant()), "a model": Scripted, "nothing": lambda: None}


@pytest.mark.parametrize("factory", WRONG.values(), ids=WRONG)
async def test_a_factory_that_builds_something_else_is_refused_before_anything_is_written(store, factory):
    with pytest.raises(midturn.InvalidArgument):
        await store.session("case", factory).run(task="one")
    assert await store.store.head("case") is None


@pytest.mark.parametrize("what", ["assistant", 7, Scripted()])
async def test_what_is_neither_live_nor_a_factory_is_refused_at_once(store, what):
    with pytest.raises(midturn.InvalidArgument):
        store.session("case", what)


async def test_a_factory_that_fails_is_reported_as_it_is_and_nothing_is_written(store):
    def build():
        raise LookupError("no such prompt")

    session = store.session("case", build)
    with pytest.raises(LookupError, match="no such prompt"):
        await session.run(task="one")
    assert await store.store.head("case") is None


async def test_a_session_without_a_factory_can_be_read_and_not_run(store):
    await store.session("case", assistant).run(task="one")
    session = store.session("case")
    assert await numbers(session) == [(1, "done")]
    with pytest.raises(midturn.InvalidArgument, match="an agent, a team or a factory"):
        await session.run(task="two")
    assert await numbers(session) == [(1, "done")]


async def test_a_factory_that_fails_after_a_crash_leaves_the_turn_to_be_finished(store):
    factory, _ = agents("first", ConnectionError("503"))
    await store.session("case", factory).run(task="one")
    with pytest.raises(midturn.TurnFailed):
        await store.session("case", factory).run(task="two")

    def broken():
        raise LookupError("no such prompt")

    with pytest.raises((LookupError, midturn.TurnFailed), match="no such prompt"):
        await store.session("case", broken).resume()
    assert said(await store.session("case", factory).resume())
