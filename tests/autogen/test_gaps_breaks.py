"""Plain AutoGen breaks when a run fails, is cancelled, is saved too early or loaded from a state that does not fit."""

import asyncio
from contextlib import suppress

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    UserMessage,
)
from gap_teams import (
    Gate,
    Outage,
    as_json,
    breathe,
    imported,
    joined,
    refusing,
    restarted,
    saved,
    speakers,
    uninterrupted,
)
from kinds import TASKS, assistant, lookup, transcript, weigh
from scripted import Scripted, calls, remembered

import midturn


@pytest.fixture
async def store():
    async with midturn.open("memory://") as store:
        yield store


# B1: saved while somebody speaks


def slow_team(gate):
    return RoundRobinGroupChat([assistant("ann", gate), assistant("bob")], max_turns=2)


def asking_team(gate):
    async def ask(prompt, token):
        return await gate([UserMessage(content=prompt, source="user")])

    return RoundRobinGroupChat([UserProxyAgent("ann", input_func=ask), assistant("bob")], max_turns=2)


def slow_inside(gate):
    return RoundRobinGroupChat([slow_team(gate), assistant("lead")], max_turns=2, name="outer")


speaking = pytest.mark.parametrize("build", [slow_team, asking_team])


@speaking
async def test_plain_autogen_loses_the_turn_of_who_speaks_while_it_is_saved(build):
    gate = Gate()
    live, fresh = build(gate), build(gate)
    running = asyncio.create_task(live.run(task=TASKS[0]))
    await gate.reached.wait()
    state = await saved(live)
    gate.open()
    assert speakers(transcript(await running))[-2:] == ["ann", "bob"]
    await fresh.load_state(state)
    assert speakers(transcript(await fresh.run()))[0] == "bob"


def told(turns):
    """Return who said what: the events of a UserProxyAgent have ids of their own."""
    return [(message["source"], message["content"]) for message in joined(turns)]


@pytest.mark.parametrize("build", [slow_team, asking_team, slow_inside])
async def test_a_team_is_neither_saved_nor_loaded_while_it_runs(store, build):
    gate = Gate()
    live, untouched = build(gate), build(gate)
    await store.save("case", live)
    running = asyncio.create_task(live.run(task=TASKS[0]))
    await gate.reached.wait()
    with pytest.raises(midturn.StateInvalid, match="run"):
        await store.save("case", live)
    with pytest.raises(midturn.StateInvalid, match="run"):
        await store.load("case", live)
    gate.open()
    said = [transcript(await running)]
    assert await store.save("case", live) == 2
    said += await restarted(store, lambda: build(gate), [TASKS[1]])
    assert told(said) == told(await uninterrupted(untouched, TASKS[:2]))


# B2: calls without results

WHERE = UserMessage(content="Where is it?", source="user")
HELLO = UserMessage(content="Hello?", source="user")
SORRY = AssistantMessage(content="Sorry.", source="assistant")
ONE = AssistantMessage(content=[FunctionCall("1", '{"order": "7"}', "lookup")], source="assistant")
TWO = AssistantMessage(content=[*ONE.content, FunctionCall("2", '{"parcel": "7"}', "weigh")], source="assistant")


def answered(number, name):
    result = FunctionExecutionResult(content="found", name=name, call_id=number, is_error=False)
    return FunctionExecutionResultMessage(content=[result])


BROKEN = {
    "at the end": ([WHERE, ONE], {"1"}),
    "two at the end": ([WHERE, TWO], {"1", "2"}),
    "the first of two answered": ([WHERE, TWO, answered("1", "lookup")], {"2"}),
    "the second of two answered": ([WHERE, TWO, answered("2", "weigh")], {"1"}),
    "in the middle": ([WHERE, ONE, HELLO, SORRY], {"1"}),
    "in the middle, one of two answered": ([WHERE, TWO, answered("1", "lookup"), HELLO, SORRY], {"2"}),
    "after a good one": ([WHERE, ONE, answered("1", "lookup"), SORRY, HELLO, TWO], {"1", "2"}),
}
WHOLE = {
    "no calls": [WHERE, SORRY],
    "answered at once": [
        WHERE,
        TWO,
        FunctionExecutionResultMessage(content=[*answered("1", "lookup").content, *answered("2", "weigh").content]),
        SORRY,
    ],
    "answered one by one": [WHERE, TWO, answered("1", "lookup"), answered("2", "weigh"), SORRY],
}
broken = pytest.mark.parametrize(("messages", "missing"), BROKEN.values(), ids=BROKEN)


def state_of(messages):
    dumped = [message.model_dump() for message in messages]
    return as_json({"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {"messages": dumped}})


def clerk(model=None, name="assistant"):
    return AssistantAgent(name, model or Scripted(refusing()), tools=[lookup, weigh])


def given_errors(messages):
    """The ids of the calls that an error answers, and the messages without those answers."""
    errors, rest = set(), []
    for message in messages:
        if isinstance(message, FunctionExecutionResultMessage):
            errors |= {result.call_id for result in message.content if result.is_error}
            good = [result for result in message.content if not result.is_error]
            rest += [FunctionExecutionResultMessage(content=good)] if good else []
        else:
            rest.append(message)
    return errors, rest


@broken
async def test_plain_autogen_shows_a_call_without_its_result_to_the_model(messages, missing):
    live = clerk()
    await live.load_state(state_of(messages))
    with pytest.raises(RuntimeError, match="400: "):
        await live.run(task=TASKS[0])


@broken
async def test_a_call_without_its_result_is_answered_with_an_error(store, messages, missing):
    model = Scripted(refusing())
    await imported(store, state_of(messages))
    await store.session("case", lambda: clerk(model)).run(task=TASKS[0])
    errors, rest = given_errors(model.seen[0][1:])
    assert errors == missing
    assert rest == [*messages, UserMessage(content=TASKS[0], source="user")]
    await store.session("case", lambda: clerk(model)).run(task=TASKS[1])
    turns = [turn async for turn in store.session("case").history()]
    assert [bool(turn.repairs) for turn in turns] == [False, True, False]
    for number, name in (("1", "lookup"), ("2", "weigh")):
        if number in missing:
            assert any(name in repair for repair in turns[1].repairs)


@pytest.mark.parametrize("messages", WHOLE.values(), ids=WHOLE)
async def test_a_context_without_such_calls_is_left_as_it_is(store, messages):
    model = Scripted(refusing())
    await imported(store, state_of(messages))
    await store.session("case", lambda: clerk(model)).run(task=TASKS[0])
    assert model.seen[0][1:-1] == messages
    assert [list(turn.repairs) async for turn in store.session("case").history()] == [[], []]


def clerks():
    return RoundRobinGroupChat([clerk(name="ann"), clerk(name="bob")], max_turns=2)


@broken
async def test_a_call_without_its_result_is_answered_in_a_team(store, messages, missing):
    live = clerks()
    await live.run(task=TASKS[0])
    state = await saved(live)
    state["agent_states"]["bob"]["agent_state"] = state_of(messages)
    await live.load_state(state)
    with pytest.raises(RuntimeError, match="400: "):
        await live.run(task=TASKS[1])
    await imported(store, state)
    [said] = await restarted(store, clerks, [TASKS[1]])
    assert speakers(said) == ["ann", "bob"]
    *_, turn = [turn async for turn in store.session("case").history()]
    assert any("bob" in repair for repair in turn.repairs)
    assert not any("ann" in repair.replace("answer", "") for repair in turn.repairs)


def _look_it_up(messages):
    asked = any(isinstance(message, AssistantMessage) for message in messages)
    return remembered(messages) if asked else calls(("lookup", '{"order": "7"}'))


class Stuck:
    """A tool that never answers."""

    def __init__(self):
        self.reached = asyncio.Event()

    def clerk(self):
        async def lookup(order: str) -> str:
            """Look an order up."""
            self.reached.set()
            await asyncio.Event().wait()

        return assistant(answer=refusing(_look_it_up), tools=[lookup])


async def test_an_agent_that_was_cancelled_in_a_tool_and_saved_by_hand_continues(store):
    stuck = Stuck()
    live = stuck.clerk()
    running = asyncio.create_task(live.run(task=TASKS[0]))
    await stuck.reached.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await store.save("case", live)
    with pytest.raises(RuntimeError, match="400: "):
        await live.run(task=TASKS[1])
    result = await store.session("case", stuck.clerk).run(task=TASKS[1])
    assert result.messages[-1].content.startswith("5 messages")
    assert [bool(turn.repairs) async for turn in store.session("case").history()] == [False, True]


# B3: cancelled in a tool


async def test_plain_autogen_does_not_return_when_it_is_cancelled_in_a_tool():
    stuck, token = Stuck(), CancellationToken()
    running = asyncio.create_task(stuck.clerk().run(task=TASKS[0], cancellation_token=token))
    await stuck.reached.wait()
    token.cancel()
    await breathe()
    assert not running.done()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("in_team", [False, True])
async def test_a_run_that_is_cancelled_in_a_tool_returns_and_leaves_nothing_behind(store, in_team):
    stuck, token = Stuck(), CancellationToken()

    def build(agent):
        return RoundRobinGroupChat([agent], max_turns=1) if in_team else agent

    running = asyncio.create_task(
        store.session("case", lambda: build(stuck.clerk())).run(task=TASKS[0], cancellation_token=token)
    )
    await stuck.reached.wait()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    said = await restarted(store, lambda: build(assistant()), TASKS[1:3])
    assert said == await uninterrupted(build(assistant()), TASKS[1:3])


# B4 and B7: a team that failed


async def listen(live, task, heard):
    async for item in live.run_stream(task=task):
        heard.append(item)


async def heard_before_the_outage(live, task):
    heard = []
    with pytest.raises(RuntimeError, match="503"):
        await listen(live, task, heard)
    return heard


def counted(outage, **options):
    agents = [assistant(name, outage) for name in ("ann", "bob", "cid")]
    return RoundRobinGroupChat(agents, **{"termination_condition": MaxMessageTermination(5)} | options)


@pytest.mark.parametrize("after", ["nothing", "reset", "load_state"])
async def test_a_plain_team_that_failed_once_does_not_work_any_more(after):
    live, healthy = counted(Outage(2)), counted(Outage())
    before = await saved(live)
    await heard_before_the_outage(live, TASKS[0])
    if after == "reset":
        await live.reset()
    elif after == "load_state":
        await live.load_state(before)
    [found], [expected] = await uninterrupted(live, [TASKS[1]]), await uninterrupted(healthy, [TASKS[1]])
    assert found["stop_reason"] == "The group chat is stopped."
    assert len(found["messages"]) < len(expected["messages"])


async def test_a_plain_team_restored_from_the_middle_of_a_run_counts_from_zero():
    outage = Outage(3)
    live, fresh = counted(outage), counted(outage)
    heard = await heard_before_the_outage(live, TASKS[0])
    await fresh.load_state(await saved(live))
    assert len(heard) + len((await fresh.run()).messages) > 5


@pytest.mark.parametrize("given", [False, True], ids=["built", "given"])
@pytest.mark.parametrize("call", [1, 2, 3, 4])
async def test_a_team_that_failed_is_resumed_and_counts_as_if_it_had_not(store, call, given):
    expected = await uninterrupted(counted(Outage()), TASKS[:3])
    outage = Outage(call + 4)

    def build():
        return counted(outage)

    live = build()
    said = [transcript(await store.session("case", live if given else build).run(task=TASKS[0]))]
    case = store.session("case", live if given else build)
    with pytest.raises(midturn.TurnFailed, match="503"):
        await case.run(task=TASKS[1])
    if not given:
        case = store.session("case", build)
    said += [transcript(await case.resume()), transcript(await case.run(task=TASKS[2]))]
    assert said == expected


async def test_a_plain_team_whose_stream_is_left_runs_for_ever():
    live = counted(Outage())
    async for _ in (stream := live.run_stream(task=TASKS[0])):
        break
    with pytest.raises(ValueError, match="already running"):
        await live.run(task=TASKS[1])
    await stream.aclose()


@pytest.mark.parametrize("given", [False, True], ids=["built", "given"])
async def test_a_team_whose_stream_is_left_continues(store, given):
    live = counted(Outage())
    case = store.session("case", live if given else lambda: counted(Outage()))
    async for _ in case.run_stream(task=TASKS[0]):
        break
    assert transcript(await case.run(task=TASKS[1])) == (await uninterrupted(counted(Outage()), [TASKS[1]]))[0]


async def test_a_plain_team_that_was_cancelled_does_not_work_any_more():
    gate, token = Gate(), CancellationToken()
    live = slow_team(gate)
    running = asyncio.create_task(live.run(task=TASKS[0], cancellation_token=token))
    await gate.reached.wait()
    token.cancel()
    gate.open()
    with pytest.raises((asyncio.CancelledError, RuntimeError)):
        await running
    [found], [expected] = await uninterrupted(live, [TASKS[1]]), await uninterrupted(slow_team(gate), [TASKS[1]])
    assert len(found["messages"]) < len(expected["messages"])


@pytest.mark.parametrize("given", [False, True], ids=["built", "given"])
async def test_a_team_that_was_cancelled_continues(store, given):
    gate, token = Gate(), CancellationToken()
    live = slow_team(gate)
    case = store.session("case", live if given else lambda: slow_team(gate))
    running = asyncio.create_task(case.run(task=TASKS[0], cancellation_token=token))
    await gate.reached.wait()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    gate.open()
    said = [transcript(await case.run(task=task)) for task in TASKS[1:3]]
    assert said == await uninterrupted(slow_team(gate), TASKS[1:3])
