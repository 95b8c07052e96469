"""A stream loses nothing that was said, at whatever pace it is read, and runs no further than AutoGen's own."""

import asyncio
import subprocess
import sys

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, SocietyOfMindAgent, UserProxyAgent
from autogen_agentchat.base import Response, TaskResult
from autogen_agentchat.conditions import HandoffTermination, MaxMessageTermination
from autogen_agentchat.messages import TextMessage, ToolCallRequestEvent
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, Swarm
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken, SingleThreadedAgentRuntime
from cast import numbers
from scripted import Scripted, calls

import midturn


async def _at_once():
    pass


async def _a_round():
    await asyncio.sleep(0)


async def _many_rounds():
    for _ in range(300):
        await asyncio.sleep(0)


async def _a_pause():
    await asyncio.sleep(0.02)


PACES = {"at once": _at_once, "a round": _a_round, "many rounds": _many_rounds, "a pause": _a_pause}


class Talker(BaseChatAgent):
    """Says many things without waiting in between."""

    def __init__(self, name, count=20):
        super().__init__(name, "talks")
        self._count = count

    @property
    def produced_message_types(self):
        return (TextMessage,)

    async def on_messages(self, messages, cancellation_token):
        raise NotImplementedError

    async def on_messages_stream(self, messages, cancellation_token):
        for number in range(self._count):
            yield TextMessage(content=f"{self.name} {number}", source=self.name)
        yield Response(chat_message=TextMessage(content=f"{self.name} is done", source=self.name))

    async def on_reset(self, cancellation_token):
        pass


@midturn.tool(approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def _pays(messages):
    return calls(("pay", '{"amount": 3}'))


def _person(name="boss"):
    return UserProxyAgent(name, input_func=midturn.human)


def _payer(name="payer"):
    return AssistantAgent(name, Scripted(_pays), tools=[pay])


def _agent_with_an_agent_as_tool():
    inner = AssistantAgent("inner", Scripted(_pays), tools=[pay], description="pays")
    model = Scripted(lambda _: calls(("inner", '{"task": "pay"}')))
    return AssistantAgent("outer", model, tools=[AgentTool(inner)])


def _society():
    return SocietyOfMindAgent("society", RoundRobinGroupChat([Talker("ann"), _person()]), Scripted())


def _round_robin():
    return RoundRobinGroupChat([Talker("ann"), Talker("bob"), _person()])


def _nested(depth=2):
    team = _round_robin()
    for level in range(depth):
        team = RoundRobinGroupChat([Talker(f"lead{level}", 3), team], name=f"team{level}")
    return team


def _graph(last=_person):
    first, left, right, after = Talker("first", 2), Talker("left"), last("right"), Talker("after")
    builder = DiGraphBuilder()
    for node in (first, left, right, after):
        builder.add_node(node)
    builder.add_edge(first, left).add_edge(first, right).add_edge(left, after).add_edge(right, after)
    return GraphFlow(builder.get_participants(), builder.build())


def _swarm():
    ann = AssistantAgent("ann", Scripted(lambda _: calls(("transfer_to_bob", "{}"))), handoffs=["bob"])
    bob = AssistantAgent("bob", Scripted(_pays), tools=[pay], handoffs=["user"])
    return Swarm([ann, bob], termination_condition=HandoffTermination("user") | MaxMessageTermination(20))


ASKING = {
    "an agent": _payer,
    "a human": _person,
    "an agent with an agent as a tool": _agent_with_an_agent_as_tool,
    "a society": _society,
    "a round robin": _round_robin,
    "nested teams": _nested,
    "parallel branches": _graph,
    "a parallel branch that calls a tool": lambda: _graph(_payer),
    "a swarm": _swarm,
}


async def _read(stream, pace):
    """Read a stream: what was said, and the result or the error at its end."""
    said, end = [], None
    try:
        async for item in stream:
            if isinstance(item, TaskResult):
                end = item
            else:
                said.append(item)
            await pace()
    except (midturn.MidturnError, asyncio.CancelledError) as error:
        end = error
    return said, end


def _shown(messages):
    return [(type(message).__name__, message.source, message.to_text()) for message in messages]


def _ask_with(live, ask):
    """Let every agent ask this function in the place of a person."""
    if isinstance(live, UserProxyAgent):
        live.input_func, live._is_async = ask, True
    for bench in getattr(live, "_workbench", ()):
        for tool in bench._tools:
            if isinstance(tool, AgentTool):
                _ask_with(tool._agent, ask)
            elif tool.name == "pay":
                tool._func = ask
    for part in (*getattr(live, "_participants", ()), getattr(live, "_team", None)):
        if part is not None:
            _ask_with(part, ask)


async def _said_until_asked(live):
    """Return what plain AutoGen says before it asks a person who never answers."""
    asked, said = asyncio.Event(), []

    async def never(*_, **__):
        asked.set()
        await asyncio.Event().wait()

    async def read():
        async for item in live.run_stream(task="go"):
            said.append(item)  # noqa: PERF401 - it is cancelled in the middle

    _ask_with(live, never)
    reading = asyncio.create_task(read())
    async with asyncio.timeout(30):
        await asked.wait()
    await _many_rounds()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(reading, *others, return_exceptions=True)
    return said


@pytest.mark.parametrize("pace", PACES.values(), ids=PACES)
@pytest.mark.parametrize("build", ASKING.values(), ids=ASKING)
async def test_all_that_was_said_before_a_question_is_delivered_before_it(memory, build, pace):
    plain = await _said_until_asked(build())
    said, result = await _read(memory.session("case", build).run_stream(task="go"), pace)
    assert result.waiting
    assert sorted(_shown(said)) == sorted(_shown(plain))
    assert _shown(result.messages) == _shown(said)


@pytest.mark.parametrize("build", ASKING.values(), ids=ASKING)
async def test_the_result_of_a_run_that_waits_has_all_that_was_said(memory, build):
    plain = await _said_until_asked(build())
    result = await memory.session("case", build).run(task="go")
    assert result.waiting
    assert sorted(_shown(result.messages)) == sorted(_shown(plain))


# --- other ends


class Ender(BaseChatAgent):
    """Says something, and ends the turn."""

    def __init__(self, name, end):
        super().__init__(name, "ends the turn")
        self._end = end

    @property
    def produced_message_types(self):
        return (TextMessage,)

    async def on_messages(self, messages, cancellation_token):
        raise NotImplementedError

    async def on_messages_stream(self, messages, cancellation_token):
        yield TextMessage(content="the last words", source=self.name)
        await self._end()
        await asyncio.Event().wait()

    async def on_reset(self, cancellation_token):
        pass


async def _fail():
    raise RuntimeError("out of order")


TEAMS = {
    "a team": lambda end: RoundRobinGroupChat([Talker("ann"), Talker("bob"), Ender("cid", end)]),
    "nested teams": lambda end: RoundRobinGroupChat(
        [Talker("lead"), RoundRobinGroupChat([Talker("ann"), Ender("cid", end)], name="inner")]
    ),
    "parallel branches": lambda end: _graph(lambda _: Ender("right", end)),
    "a society": lambda end: SocietyOfMindAgent(
        "society", RoundRobinGroupChat([Talker("ann"), Ender("cid", end)]), Scripted()
    ),
}
SAID = {
    "a team": {"user": 1, "ann": 21, "bob": 21, "cid": 1},
    "nested teams": {"user": 1, "lead": 21, "ann": 21, "cid": 1},
    "parallel branches": {"user": 1, "first": 3, "left": 21, "right": 1},
    "a society": {"user": 1, "ann": 21, "cid": 1},
}


def _in_order(said):
    """Check that nothing that somebody said came out of turn; return how much each has said."""
    texts = {}
    for message in said:
        texts.setdefault(message.source, []).append(message.to_text())
    for name, found in texts.items():
        numbered = [text for text in found if text.startswith(f"{name} ") and text != f"{name} is done"]
        assert numbered == [f"{name} {number}" for number in range(len(numbered))]
    return {name: len(found) for name, found in texts.items()}


@pytest.mark.parametrize("pace", PACES.values(), ids=PACES)
@pytest.mark.parametrize("kind", TEAMS)
async def test_all_that_was_said_before_a_cancellation_is_delivered_before_it(memory, kind, pace):
    token = CancellationToken()

    async def cancel():
        token.cancel()

    session = memory.session("case", lambda: TEAMS[kind](cancel))
    said, end = await _read(session.run_stream(task="go", cancellation_token=token), pace)
    assert isinstance(end, asyncio.CancelledError)
    assert _in_order(said) == SAID[kind]


@pytest.mark.parametrize("pace", PACES.values(), ids=PACES)
@pytest.mark.parametrize("kind", TEAMS)
async def test_all_that_was_said_before_a_failure_is_delivered_before_it(memory, kind, pace):
    session = memory.session("case", lambda: TEAMS[kind](_fail))
    said, end = await _read(session.run_stream(task="go"), pace)
    assert isinstance(end, midturn.TurnFailed)
    assert _in_order(said) == SAID[kind]


@pytest.mark.parametrize("kind", TEAMS)
async def test_all_that_was_said_before_a_timeout_is_delivered_before_it(memory, kind, pass_time):
    async def take_too_long():
        pass_time(600)

    session = memory.session("case", lambda: TEAMS[kind](take_too_long), turn_timeout=600)
    said, end = await _read(session.run_stream(task="go"), _many_rounds)
    assert isinstance(end, midturn.TurnTimeout)
    assert _in_order(said) == SAID[kind]


async def test_what_was_said_is_delivered_while_other_work_keeps_the_event_loop_busy(memory):
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def busy():
        if not ended.is_set():
            loop.call_soon(busy)

    busy()
    try:
        said, result = await _read(memory.session("case", _nested).run_stream(task="go"), _a_round)
        assert result.waiting
        assert _in_order(said) == {"user": 1, "lead0": 4, "lead1": 4, "ann": 21, "bob": 21, "boss": 1}
    finally:
        ended.set()


async def test_a_stop_ends_a_run_whose_reader_does_not_come_back(memory):
    token, begun, ended = CancellationToken(), asyncio.Event(), asyncio.Event()

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    stream = memory.session("case", lambda: TEAMS["a team"](work)).run_stream(task="go", cancellation_token=token)
    await anext(stream)
    async with asyncio.timeout(30):
        await begun.wait()
        token.cancel()
        await ended.wait()
    said, end = await _read(stream, _at_once)
    assert isinstance(end, asyncio.CancelledError)
    assert len(said) == sum(SAID["a team"].values()) - 1


# --- laziness


def _agent_with_a_tool(done):
    async def act() -> str:
        """Act."""
        done.append("acted")
        return "done"

    return AssistantAgent("assistant", Scripted(lambda _: calls(("act", "{}"))), tools=[act])


async def _until_a_request(stream):
    async for item in stream:
        if isinstance(item, ToolCallRequestEvent):
            break
    await _many_rounds()


@pytest.mark.parametrize("durability", ["call", "turn"])
async def test_a_tool_is_not_called_before_the_reader_goes_on_as_in_plain_autogen(memory, durability):
    done = []
    live = _agent_with_a_tool(done)
    plain = live.run_stream(task="go")
    await _until_a_request(plain)
    assert done == []
    await plain.aclose()
    act = midturn.tool(effect="idempotent")
    session = memory.session(
        "case",
        midturn.Blueprint("case", lambda: _agent_with_a_tool(done), effects={"act": act}),
        durability=durability,
    )
    stream = session.run_stream(task="go")
    await _until_a_request(stream)
    assert done == []
    assert [item.source async for item in stream if not isinstance(item, TaskResult)] == ["assistant", "assistant"]
    assert done == ["acted"]


async def test_a_tool_is_not_called_when_the_reader_leaves_at_its_request(memory):
    done = []
    session = memory.session("case", lambda: _agent_with_a_tool(done))
    stream = session.run_stream(task="go")
    await _until_a_request(stream)
    await stream.aclose()
    assert done == []
    assert await numbers(session) == [(1, "cancelled")]


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_tool_is_not_called_after_a_stop_at_its_request(memory, leaves):
    done, token = [], CancellationToken()
    session = memory.session("case", lambda: _agent_with_a_tool(done))
    stream = session.run_stream(task="go", cancellation_token=token)
    await _until_a_request(stream)
    token.cancel()
    await _many_rounds()
    if leaves:
        await stream.aclose()
    else:
        said, end = await _read(stream, _at_once)
        assert isinstance(end, asyncio.CancelledError)
        assert said == []
    assert done == []
    assert await numbers(session) == [(1, "cancelled")]


class Worker(Talker):
    """Does something of its own between two things that it says."""

    done: list

    async def on_messages_stream(self, messages, cancellation_token):
        yield TextMessage(content="begins", source=self.name)
        self.done.append("worked")
        yield Response(chat_message=TextMessage(content="is done", source=self.name))


async def test_code_of_a_user_does_not_go_on_after_a_stop_without_its_reader(memory):
    token, worker = CancellationToken(), Worker("worker")
    worker.done = []
    stream = memory.session("case", worker).run_stream(task="go", cancellation_token=token)
    for text in ("go", "begins"):
        assert (await anext(stream)).content == text
    token.cancel()
    await _many_rounds()
    said, end = await _read(stream, _at_once)
    assert (said, worker.done) == ([], [])
    assert isinstance(end, asyncio.CancelledError)


async def test_a_team_works_on_while_its_reader_pauses_as_in_plain_autogen(memory):
    done = asyncio.Event()

    async def work():
        done.set()

    stream = memory.session("case", lambda: TEAMS["a team"](work)).run_stream(task="go")
    await anext(stream)
    async with asyncio.timeout(30):
        await done.wait()
    await stream.aclose()


# --- the result of a run and of a stream


async def _says(prompt, token=None):
    return "yes"


class OwnRun(AssistantAgent):
    """An agent whose ``run`` and ``run_stream`` do different things."""

    async def run(self, *, task=None, cancellation_token=None):
        return TaskResult(messages=[TextMessage(content="run alone", source=self.name)])


class OwnTeamRun(RoundRobinGroupChat):
    """The same for a team."""

    async def run(self, *, task=None, cancellation_token=None, output_task_messages=True):
        result = await super().run(task=task, cancellation_token=cancellation_token)
        return TaskResult(messages=result.messages[-1:], stop_reason="run alone")


DIFFERENT = {
    "an agent": lambda: AssistantAgent("assistant", Scripted()),
    "an agent that streams": lambda: AssistantAgent("assistant", Scripted(), model_client_stream=True),
    "a person": lambda: UserProxyAgent("boss", input_func=_says),
    "a society": lambda: SocietyOfMindAgent(
        "society", RoundRobinGroupChat([Talker("ann", 2)], max_turns=1), Scripted()
    ),
    "a team": lambda: RoundRobinGroupChat([Talker("ann", 2), UserProxyAgent("boss", input_func=_says)], max_turns=2),
    "an agent with a run of its own": lambda: OwnRun("assistant", Scripted()),
    "a team with a run of its own": lambda: OwnTeamRun([Talker("ann", 2)], max_turns=1),
}


@pytest.mark.parametrize("build", DIFFERENT.values(), ids=DIFFERENT)
async def test_a_run_returns_what_the_agents_own_run_returns(memory, build):
    plain = await build().run(task="go")
    ours = await memory.session("case", build).run(task="go")
    assert (_shown(ours.messages), ours.stop_reason) == (_shown(plain.messages), plain.stop_reason)


@pytest.mark.parametrize("build", DIFFERENT.values(), ids=DIFFERENT)
async def test_a_stream_yields_and_ends_with_what_the_agents_own_stream_does(memory, build):
    plain = [item async for item in build().run_stream(task="go")]
    ours = [item async for item in memory.session("case", build).run_stream(task="go")]
    assert _shown(ours[:-1]) == _shown(plain[:-1])
    assert (_shown(ours[-1].messages), ours[-1].stop_reason) == (_shown(plain[-1].messages), plain[-1].stop_reason)


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_interrupted_turn_ends_as_it_was_begun(store, streamed):
    team = RoundRobinGroupChat([Talker("ann", 2), _person()], max_turns=2)

    def build():
        return SocietyOfMindAgent(
            "society", RoundRobinGroupChat([Talker("ann", 2), _person()], max_turns=2), Scripted()
        )

    _ask_with(team, _says)
    live = SocietyOfMindAgent("society", team, Scripted())
    if streamed:
        plain = [item async for item in live.run_stream(task="go")][-1]
        await _read(store.session("case", build).run_stream(task="go"), _at_once)
        ours = await store.session("case", build).answer("yes")
    else:
        plain = await live.run(task="go")
        await store.session("case", build).run(task="go")
        ours = [item async for item in store.session("case", build).answer_stream("yes")][-1]
    assert _shown(ours.messages) == _shown(plain.messages)


@pytest.mark.parametrize("kind", ["an agent", "a team", "a society"])
async def test_the_messages_of_the_task_can_be_left_out(store, kind):
    build = DIFFERENT[kind]
    plain = await build().run(task="go", output_task_messages=False)
    ours = await store.session("run", build).run(task="go", output_task_messages=False)
    assert _shown(ours.messages) == _shown(plain.messages)
    plain = [item async for item in build().run_stream(task="go", output_task_messages=False)]
    stream = store.session("stream", build).run_stream(task="go", output_task_messages=False)
    ours = [item async for item in stream]
    assert _shown(ours[:-1]) == _shown(plain[:-1])
    assert _shown(ours[-1].messages) == _shown(plain[-1].messages)


async def test_the_messages_of_the_task_stay_out_when_the_turn_continues(store):
    def build():
        return RoundRobinGroupChat([Talker("ann", 2), _person()], max_turns=2)

    waiting = await store.session("case", build).run(task="go", output_task_messages=False)
    result = await store.session("case", build).answer("yes")
    assert _shown(result.messages)[: len(waiting.messages)] == _shown(waiting.messages)
    assert "user" not in {message.source for message in result.messages}


# --- a runtime of the user's own


@pytest.mark.parametrize("how", ["failed", "cancelled", "left", "waiting"])
async def test_a_live_team_on_a_runtime_of_its_own_runs_again_after_a_turn_that_did_not_end(memory, how):
    runtime, tries, token = SingleThreadedAgentRuntime(), [], CancellationToken()
    runtime.start()

    async def end():
        tries.append(how)
        if len(tries) == 1:
            if how == "failed":
                raise RuntimeError("503")
            if how == "cancelled":
                token.cancel()
            await asyncio.Event().wait()

    class Once(Ender):
        async def on_messages_stream(self, messages, cancellation_token):
            yield TextMessage(content="the last words", source=self.name)
            await self._end()
            yield Response(chat_message=TextMessage(content="once more", source=self.name))

    asking = [Talker("ann"), _person()] if how == "waiting" else [Talker("ann"), Once("cid", end)]
    case = memory.session("case", RoundRobinGroupChat(asking, max_turns=2, runtime=runtime))
    async with asyncio.timeout(60):
        if how == "left":
            stream = case.run_stream(task="go")
            async for item in stream:
                if item.source == "cid":
                    break
            await stream.aclose()
        else:
            await _read(case.run_stream(task="go", cancellation_token=token), _at_once)
        if how == "waiting":
            result = await case.answer("yes")
            assert result.messages[-1].source == "boss"
        else:
            result = await case.run(task="again")
            assert [message.to_text() for message in result.messages[-2:]] == ["the last words", "once more"]
        assert (await case.run(task="and again")).messages[1].content == "ann 0"
    await runtime.stop()


LEAVING = """
import asyncio
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
import midturn

left = []

class Agent(BaseChatAgent):
    produced_message_types = (TextMessage,)

    async def on_messages(self, messages, cancellation_token):
        if self.name == "bob":
            await asyncio.Event().wait()
        return Response(chat_message=TextMessage(content="hello", source=self.name))

    async def on_reset(self, cancellation_token): ...

def build():
    return RoundRobinGroupChat([Agent("ann", "says hello"), Agent("bob", "waits")])

async def main():
    left.append(midturn.open("memory://"))
    store = await left[0].__aenter__()
    left.append(store.session("case", build).run_stream(task="go"))
    async for item in left[1]:
        if item.source == "ann":
            return

asyncio.run(main())
print("ended")
"""


@pytest.mark.fault("F32")
def test_a_program_ends_though_it_left_a_stream_of_a_team_open():
    command = [sys.executable, "-c", LEAVING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "ended\n", done.stderr
