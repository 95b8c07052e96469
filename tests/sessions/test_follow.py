"""The events of a turn that another process runs or has run: the same ones, with the same numbers."""

import asyncio
from contextlib import aclosing

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import FunctionTool
from cast import Gate, agents, crash, panel, said, seen
from kinds import KINDS, TASKS
from scripted import Scripted, calls

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.sessions.session import Session
from midturn.turns import session_options


def elsewhere(store, factory=None, **options):
    """The session as another process has it: nothing but the store is shared."""
    return Session(store.store, "case", factory, AutoGen(), session_options.Options(**options))


async def ids(run):
    """The ids of a run's messages, and those that the pieces of a streamed message name."""
    return [(each.event.id, getattr(each.event, "full_message_id", "")) async for each in run.events()]


@pytest.mark.filterwarnings("ignore::midturn.errors.NotKept")
@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_the_events_of_every_kind_are_the_same_elsewhere(memory, kind):
    for task in TASKS[:2]:
        run = await memory.session("case", KINDS[kind]).start(task)
        events = await seen(run)
        other = await elsewhere(memory, KINDS[kind]).follow()
        assert other is not run
        assert await seen(other) == events
        assert await ids(other) == await ids(run)
        assert other.status == "done"
        assert (await other.result()).turn == run.turn
        assert await seen(other, after=2) == events[2:]


async def test_a_turn_of_another_process_is_followed_while_it_runs(store):
    gates = [Gate(), Gate()]
    run = await store.session("case", agents(*gates, model_client_stream=True)[0]).start("one")
    follower = await elsewhere(store, agents(RuntimeError("no call"), model_client_stream=True)[0]).follow()
    assert (follower.turn, follower.status) == (1, "running")
    reading = [asyncio.create_task(seen(follower)) for _ in range(2)]
    waiting = asyncio.create_task(follower.result())
    await gates[0].reached.wait()
    gates[0].open()
    result = await run.result()
    assert await asyncio.gather(*reading) == [await seen(run)] * 2
    assert said(await waiting) == said(result)
    assert follower.status == "done"


async def test_a_key_that_is_under_way_elsewhere_is_attached_to(store):
    gate = Gate()
    factory, model = agents(gate)
    run = await store.session("case", factory).start("one", key="k1")
    await gate.reached.wait()
    attached = await elsewhere(store, factory).start("one", key="k1")
    assert (attached.turn, attached.key, attached.status) == (1, "k1", "running")
    with pytest.raises(midturn.Conflict, match="belongs to another task"):
        await elsewhere(store, factory).start("two", key="k1")
    with pytest.raises(midturn.SessionBusy, match="only that process can cancel it"):
        await attached.cancel()
    gate.open()
    assert said(await attached.result()) == said(await run.result())
    assert await attached.cancel() is False
    assert len(model.seen) == 1


async def test_a_turn_that_runs_is_not_resumed_but_followed(store):
    gate = Gate()
    factory, model = agents(gate)
    case = store.session("case", factory)
    run = await case.start("one")
    await gate.reached.wait()
    assert await case.start_resume() is run
    assert await store.session("case", factory).start_resume() is run
    resumed = [await elsewhere(store, factory).start_resume() for _ in range(2)]
    assert [(one.turn, one.status) for one in resumed] == [(1, "running")] * 2
    gate.open()
    assert {said(await one.result()) for one in resumed} == {said(await run.result())}
    assert len(model.seen) == 1


async def test_a_turn_that_waits_has_its_events_everywhere(store):
    run = await store.session("case", panel).start("write", key="k1")
    before = await seen(run)
    other = await elsewhere(store, panel).follow(key="k1")
    assert await seen(other) == before
    assert (await other.result()).waiting == (await run.result()).waiting
    await elsewhere(store, panel).answer("shorter")
    after = await seen(await elsewhere(store, panel).follow())
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert await seen(await store.session("case", panel).follow()) == after, "its own events are older"


async def test_the_turn_of_a_dead_worker_says_so_and_keeps_its_numbers(store):
    factory = agents()[0]
    await crash(store, factory, task="one")
    run = await elsewhere(store, factory).follow()
    assert [event["content"] for _, event in await seen(run)] == ["one"]
    assert run.status == "interrupted"
    with pytest.raises(midturn.TurnFailed, match=r"turn 1 of session 'case' was interrupted.*\n.*resume\(\) continues"):
        await run.result()
    again = await elsewhere(store, factory).start_resume()
    assert [number for number, _ in await seen(again, after=1)] == [2]


async def test_the_messages_of_a_turn_have_the_same_ids_wherever_it_continues(store):
    def factory(*steps):
        made, _ = agents(*steps, model_client_stream=True)
        return lambda: RoundRobinGroupChat([made()], max_turns=2)

    with pytest.raises(midturn.TurnFailed):
        await store.session("case", factory("some words", RuntimeError("503"))).run(task="one")
    before = await ids(await elsewhere(store, factory()).follow())
    result = await elsewhere(store, factory("some words", "and more")).resume()
    after = await ids(await elsewhere(store, factory()).follow())
    assert len(before) > 3
    assert after[: len(before)] == before
    assert len({id_ for id_, _ in after}) == len(after)
    assert [message.id for message in result.messages] == [id_ for id_, whole in after if not whole]
    assert {whole for _, whole in after if whole} == {message.id for message in result.messages[1:]}
    state = await store.session("case").at(result.checkpoint).state()
    thread = state["agent_states"]["RoundRobinGroupChatManager"]["message_thread"]
    assert [message["id"] for message in thread] == [message.id for message in result.messages]


async def test_turns_that_failed_or_were_cancelled_say_so(store):
    failing = agents(RuntimeError("503"))[0]
    with pytest.raises(midturn.TurnFailed):
        await store.session("case", failing).run(task="one")
    run = await elsewhere(store, failing).follow()
    assert [event["content"] for _, event in await seen(run)] == ["one"]
    with pytest.raises(midturn.TurnFailed, match=r"failed: RuntimeError: 503"):
        await run.result()
    started = await store.session("case", agents(Gate())[0]).start("two")
    await started.cancel()
    for case in (store.session("case", failing), elsewhere(store, failing)):
        with pytest.raises(midturn.TurnFailed, match="turn 2 of session 'case' was cancelled"):
            await (await case.follow(2)).result()
        with pytest.raises(midturn.TurnFailed, match="turn 1 of session 'case' failed"):
            await (await case.follow(1)).result()


async def test_the_events_need_a_factory_and_the_result_does_not(store):
    done = await store.session("case", agents()[0]).run(task="one")
    run = await elsewhere(store).follow()
    with pytest.raises(midturn.InvalidArgument, match="needs a function that builds"):
        await seen(run)
    assert (await run.result()).messages == done.messages


async def test_what_is_not_there_is_not_found(store):
    with pytest.raises(midturn.NotFound, match="there is no session"):
        await elsewhere(store).follow()
    await store.session("case", agents()[0]).run(task="one")
    with pytest.raises(midturn.NotFound, match="no turn 2"):
        await elsewhere(store).follow(2)
    with pytest.raises(midturn.NotFound, match="no turn with the key 'k1'"):
        await elsewhere(store).follow(key="k1")
    with pytest.raises(midturn.InvalidArgument, match="after: is -1"):
        await seen(await store.session("case", agents()[0]).follow(), after=-1)


async def test_a_turn_without_recorded_calls_has_no_events_elsewhere(store):
    factory = agents()[0]
    await store.session("case", factory, durability="turn").run(task="one")
    with pytest.raises(midturn.NotFound, match="has no recorded calls"):
        await seen(await elsewhere(store, factory).follow())


async def test_removed_calls_are_missed(memory):
    factory = agents()[0]
    case = memory.session("case", factory, journals=0)
    for task in ("one", "two", "three"):
        await case.run(task=task)
    with pytest.raises(midturn.NotFound, match="no longer has its calls"):
        await seen(await elsewhere(memory, factory).follow(1))


async def test_changed_code_cannot_make_the_events_again(store):
    def pay(amount: int) -> str:
        return f"paid {amount}"

    def desk(name):
        tools = [FunctionTool(pay, name=name, description="")]
        answers = iter([calls((name, '{"amount": 3}')), "done"])
        return AssistantAgent("clerk", Scripted(lambda _: next(answers)), tools=tools, max_tool_iterations=3)

    await store.session("case", lambda: desk("pay")).run(task="one")
    run = await elsewhere(store, lambda: desk("refund")).follow()
    with pytest.raises(midturn.ReplayDiverged, match="the code has changed since"):
        await seen(run)


async def test_a_deleted_session_ends_its_followers(store):
    gate = Gate()
    factory = agents(gate)[0]
    run = await store.session("case", factory).start("one")
    events = (await elsewhere(store, factory).follow()).events()
    await anext(events)
    reading = asyncio.ensure_future(anext(events))
    await gate.reached.wait()
    await store.delete("case")
    with pytest.raises(midturn.SessionDeleted):
        await reading
    gate.open()
    with pytest.raises(midturn.SessionDeleted):
        await run.result()
    assert run.status == "interrupted"


async def test_following_writes_nothing(store):
    factory = agents()[0]
    await crash(store, factory, task="one")
    before = await store.store.head("case")
    await seen(await elsewhere(store, factory).follow())
    assert (await store.store.head("case")).seq == before.seq


async def test_leaving_the_events_ends_their_making(store, monkeypatch):
    monkeypatch.setattr("midturn.lease.ledger.LEASE", 3600.0)  # no renewal, which would be a task
    gate = Gate()
    factory = agents(gate)[0]
    run = await store.session("case", factory).start("one")
    follower = await store.session("case", agents()[0]).follow()
    assert follower is run
    await gate.reached.wait()  # from here on, the turn itself begins no other task
    tasks = asyncio.all_tasks()
    follower = await elsewhere(store, factory).follow()
    async with aclosing(follower.events()) as events:
        assert (await anext(events)).number == 1
        assert asyncio.all_tasks() - tasks
    async with asyncio.timeout(60):
        while left := asyncio.all_tasks() - tasks:
            await asyncio.wait(left, timeout=1)
    async with aclosing(follower.events()) as events:
        assert (await anext(events)).number == 1, "it can begin again"
    gate.open()
    await run.result()


@pytest.mark.usefixtures("nothing_left")
async def test_following_a_turn_that_waits_for_an_approval_leaves_no_task(store):
    @midturn.tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    def clerk():
        return AssistantAgent("clerk", Scripted(lambda _: calls(("pay", "{}"))), tools=[pay])

    run = await store.session("case", clerk).start("one")
    assert (await run.result()).waiting
    assert await seen(await elsewhere(store, clerk).follow()) == await seen(run)


async def test_closing_the_store_ends_its_followers(tmp_path):
    gate, url = Gate(), f"sqlite:///{tmp_path}/store.db"
    factory = agents(gate)[0]
    async with midturn.open(url) as store:
        run = await store.session("case", factory).start("one")
        await gate.reached.wait()
        async with midturn.open(url) as other:
            follower = await other.session("case", factory).follow()
            async with aclosing(follower.events()) as events:
                assert (await anext(events)).number == 1
                reading = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0)
                await other._runs.close()
                with pytest.raises(midturn.StoreUnavailable, match="closed"):
                    await reading
            with pytest.raises(midturn.StoreUnavailable, match="closed"):
                await seen(follower)
        gate.open()
        await run.result()
