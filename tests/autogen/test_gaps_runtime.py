"""Runtimes and their agents saved and loaded by hand, teams inside a runtime, and two runs at once."""

import ast
import asyncio
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import (
    AgentId,
    DefaultTopicId,
    MessageContext,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    default_subscription,
    message_handler,
)
from gap_teams import Gate, as_json, breathe, restarted, saved, speakers, uninterrupted
from kinds import TASKS, anonymous, assistant, transcript
from scripted import remembered

import midturn


@pytest.fixture
async def store():
    async with midturn.open("memory://") as store:
        yield store


@dataclass
class Add:
    amount: int


@default_subscription
class Counter(RoutedAgent):
    """Counts what it is told, and keeps the count as its state."""

    def __init__(self):
        super().__init__("counts")
        self.total = 0

    @message_handler
    async def add(self, message: Add, ctx: MessageContext) -> int:
        self.total += message.amount
        return self.total

    async def save_state(self):
        return {"total": self.total}

    async def load_state(self, state):
        self.total = state["total"]


class Tally(Counter):
    """Another agent, of another type in the runtime."""


async def runtime_with(**agents):
    runtime = SingleThreadedAgentRuntime()
    for kind, cls in agents.items():
        await cls.register(runtime, kind, cls)
    return runtime


async def add(runtime, amount, kind="counter", key="default"):
    """Tell an agent something, and what it answers."""
    runtime.start()
    try:
        return await runtime.send_message(Add(amount), AgentId(kind, key))
    finally:
        await runtime.stop_when_idle()


async def used_runtime():
    runtime = await runtime_with(counter=Counter, tally=Tally)
    assert await add(runtime, 2) == 2
    assert await add(runtime, 3, key="other") == 3
    assert await add(runtime, 4, kind="tally") == 4
    return runtime


async def test_a_runtime_continues_with_the_agents_that_have_stable_ids(store):
    live = await used_runtime()
    assert await store.save("case", live) == 1
    fresh = await runtime_with(counter=Counter, tally=Tally)
    assert await store.load("case", fresh) == 1
    assert await fresh.save_state() == await live.save_state()
    assert await store.session("case").at(1).state() == as_json(await live.save_state())
    for runtime in (live, fresh):
        assert await add(runtime, 1) == 3
        assert await add(runtime, 1, key="other") == 4
        assert await add(runtime, 1, kind="tally") == 5


async def test_a_runtime_is_saved_again_after_a_restart(store):
    await store.save("case", await used_runtime())
    fresh = await runtime_with(counter=Counter, tally=Tally)
    await store.load("case", fresh)
    await add(fresh, 5)
    assert await store.save("case", fresh) == 2
    states = [await store.session("case").at(n).state() for n in (1, 2)]
    assert [state["counter/default"] for state in states] == [{"total": 2}, {"total": 7}]


async def test_a_plain_runtime_skips_an_agent_type_that_is_not_registered():
    fresh = await runtime_with(counter=Counter)
    await fresh.load_state(await (await used_runtime()).save_state())
    assert set(await fresh.save_state()) == {"counter/default", "counter/other"}


async def test_an_agent_type_that_is_not_registered_is_refused_by_name(store):
    await store.save("case", await used_runtime())
    fresh = await runtime_with(counter=Counter)
    await add(fresh, 9)
    before = await fresh.save_state()
    with pytest.raises(midturn.Drifted, match="tally") as caught:
        await store.load("case", fresh)
    assert any("tally" in f"{path} {message}" for path, message in caught.value.differences)
    assert await fresh.save_state() == before
    assert await add(fresh, 1) == 10


class NoFours(Tally):
    async def load_state(self, state):
        if state["total"] == 4:
            raise ValueError("no fours")
        await super().load_state(state)


async def test_a_plain_runtime_has_overwritten_agents_when_another_refuses_its_state():
    fresh = await runtime_with(counter=Counter, tally=NoFours)
    await add(fresh, 9)
    with pytest.raises(ValueError, match="no fours"):
        await fresh.load_state(await (await used_runtime()).save_state())
    assert (await fresh.save_state())["counter/default"] == {"total": 2}


async def test_no_agent_is_changed_when_another_refuses_its_state(store):
    await store.save("case", await used_runtime())
    fresh = await runtime_with(counter=Counter, tally=NoFours)
    await add(fresh, 9)
    with pytest.raises(midturn.StateInvalid, match="no fours"):
        await store.load("case", fresh)
    assert (await fresh.save_state())["counter/default"] == {"total": 9}


async def test_a_plain_runtime_loses_the_messages_that_wait_in_it():
    live, fresh = await used_runtime(), await runtime_with(counter=Counter, tally=Tally)
    await live.publish_message(Add(100), DefaultTopicId())
    await fresh.load_state(await live.save_state())
    for runtime in (live, fresh):
        runtime.start()
        await runtime.stop_when_idle()
    assert (await live.save_state())["counter/default"] == {"total": 102}
    assert (await fresh.save_state())["counter/default"] == {"total": 2}


async def test_a_runtime_is_not_saved_while_messages_wait_in_it(store):
    live = await used_runtime()
    await live.publish_message(Add(100), DefaultTopicId())
    with pytest.raises(midturn.StateInvalid, match="message"):
        await store.save("case", live)
    live.start()
    await live.stop_when_idle()
    assert await store.save("case", live) == 1
    assert (await store.session("case").at(1).state())["counter/default"] == {"total": 102}


async def test_a_running_runtime_without_messages_is_saved(store):
    live = await used_runtime()
    live.start()
    await live.publish_message(Add(100), DefaultTopicId())
    await breathe()
    assert await store.save("case", live) == 1
    await live.stop()
    assert (await store.session("case").at(1).state())["counter/default"] == {"total": 102}


async def test_an_agent_of_a_runtime_is_saved_by_itself(store):
    live = await used_runtime()
    counter = await live.try_get_underlying_agent_instance(AgentId("counter", "default"), Counter)
    await store.save("case", counter)
    fresh = await runtime_with(counter=Counter)
    other = await fresh.try_get_underlying_agent_instance(AgentId("counter", "elsewhere"), Counter)
    await store.load("case", other)
    assert await add(fresh, 1, key="elsewhere") == 3


class Distant(SingleThreadedAgentRuntime):
    """Keeps no state, as the runtime of distributed agents does not."""

    async def save_state(self):
        raise NotImplementedError("Saving state is not yet implemented.")

    async def load_state(self, state):
        raise NotImplementedError("Loading state is not yet implemented.")


def test_the_runtime_of_distributed_agents_cannot_be_saved():
    """Read, not run: it needs a package that nothing else here needs."""
    [package] = find_spec("autogen_ext").submodule_search_locations
    tree = ast.parse(Path(package, "runtimes", "grpc", "_worker_runtime.py").read_text(encoding="utf-8"))
    bodies = {node.name: node.body for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    for name in ("save_state", "load_state"):
        assert ast.unparse(bodies[name][-1]).startswith("raise NotImplementedError")


async def test_a_runtime_that_cannot_be_saved_is_refused(store):
    with pytest.raises(midturn.StateInvalid, match="state"):
        await store.save("case", Distant())
    await store.save("case", await used_runtime())
    with pytest.raises(midturn.StateInvalid, match="state"):
        await store.load("case", Distant())
    assert [info.checkpoint async for info in store.sessions()] == [1]


# A team inside a runtime that is not its own


@pytest.fixture
async def runtimes():
    """Runtimes that run until the test ends."""
    started = []

    def start():
        runtime = SingleThreadedAgentRuntime()
        runtime.start()
        started.append(runtime)
        return runtime

    yield start
    for runtime in started:
        await runtime.stop()


def hosted(runtime, answer=remembered):
    agents = [assistant(name, answer) for name in ("ann", "bob", "cid")]
    return RoundRobinGroupChat(agents, max_turns=2, runtime=runtime)


async def test_the_state_of_a_plain_runtime_does_not_find_the_team_again(runtimes):
    first, second = runtimes(), runtimes()
    await hosted(first).run(task=TASKS[0])
    fresh = hosted(second)
    before = await saved(fresh)
    await second.load_state(await first.save_state())
    assert await saved(fresh) == before


async def test_a_team_in_a_runtime_of_its_own_is_saved_as_a_team(store, runtimes):
    live, fresh = hosted(runtimes()), hosted(runtimes())
    await live.run(task=TASKS[0])
    await store.save("case", live)
    assert await store.session("case").at(1).state() == await saved(live)
    await store.load("case", fresh)
    assert await saved(fresh) == await saved(live)
    assert await uninterrupted(fresh, TASKS[1:3]) == await uninterrupted(live, TASKS[1:3])


async def test_a_team_in_a_runtime_continues_after_restarts(store, runtimes):
    said = await restarted(store, lambda: hosted(runtimes()), TASKS)
    assert said == await uninterrupted(hosted(None), TASKS)


async def test_two_teams_in_one_runtime_are_two_sessions(store, runtimes):
    shared = runtimes()
    cases = [store.session(name, hosted(shared)) for name in ("one", "two")]
    for task in TASKS[:2]:
        for case in cases:
            await case.run(task=task)
    one, two = [anonymous(await case.at(2).state()) for case in cases]
    assert one == two
    live = hosted(None)
    await uninterrupted(live, TASKS[:2])
    assert one == anonymous(await saved(live))


async def test_a_team_in_a_runtime_is_not_saved_while_it_runs(store, runtimes):
    gate = Gate()
    live = hosted(runtimes(), gate)
    running = asyncio.create_task(live.run(task=TASKS[0]))
    await gate.reached.wait()
    with pytest.raises(midturn.StateInvalid, match="run"):
        await store.save("case", live)
    gate.open()
    assert speakers(transcript(await running)) == ["ann", "bob"]


# Two runs at once


class Turnstile:
    """Lets the first call wait until another one was made, or until it is opened."""

    def __init__(self):
        self.reached, self._second, self._calls = asyncio.Event(), asyncio.Event(), 0

    def open(self):
        self._second.set()

    async def __call__(self, messages):
        self._calls += 1
        self.reached.set()
        if self._calls > 1:
            self._second.set()
        await self._second.wait()
        return remembered(messages)


async def test_two_runs_at_once_of_a_plain_agent_mix():
    live = assistant(answer=Turnstile())
    await asyncio.gather(*(live.run(task=task) for task in TASKS[:2]))
    kinds = [message["type"] for message in (await saved(live))["llm_context"]["messages"]]
    assert kinds == ["UserMessage", "UserMessage", "AssistantMessage", "AssistantMessage"]


@pytest.mark.parametrize("in_team", [False, True])
@pytest.mark.parametrize("objects", [1, 2], ids=["one session object", "two session objects"])
async def test_two_runs_at_once_of_a_session_are_one_after_the_other(store, objects, in_team):
    turnstile = Turnstile()

    def build(answer=turnstile):
        agent = assistant("ann", answer)
        return RoundRobinGroupChat([agent, assistant("bob")], max_turns=2) if in_team else agent

    case = store.session("case", build)
    cases = [case, case if objects == 1 else store.session("case", build)]
    running = [asyncio.create_task(cases[0].run(task=TASKS[0]))]
    await turnstile.reached.wait()
    running.append(asyncio.create_task(cases[1].run(task=TASKS[1])))
    await breathe()
    turnstile.open()
    said = [transcript(result) for result in await asyncio.gather(*running)]
    assert said == await uninterrupted(build(remembered), TASKS[:2])
