"""A cancelled run ends at once, wherever it is, and the session is usable at once."""

import asyncio
import threading

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool
from cast import Gate, agents, crash, expected, numbers, said, uninterrupted
from kinds import assistant, transcript
from scripted import Scripted, calls, remembered

import midturn

SOON = 30
"""Seconds that no run takes that was cancelled; what is waited for in vain takes a minute."""

HOWS = ["token", "task", "timeout"]


async def cancelled(how, run, reached):
    """Start ``run(token)``, cancel it once ``reached`` is set, and see it end by that."""
    token, limits = CancellationToken(), []

    async def whole():
        async with asyncio.timeout(None) as limit:
            limits.append(limit)
            await run(token)

    task = asyncio.create_task(whole())
    async with asyncio.timeout(SOON):
        await reached.wait()
    if how == "token":
        token.cancel()
    elif how == "task":
        task.cancel()
    else:
        limits[0].reschedule(asyncio.get_running_loop().time())
    await asyncio.wait({task}, timeout=SOON)
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
        pytest.fail(f"the run continued after it was cancelled by {how}")
    if how == "timeout":
        assert isinstance(task.exception(), TimeoutError)
    else:
        assert task.cancelled(), task.exception()


class Slow:
    """Work that takes a minute when a message says "slow", and reports its beginning."""

    def __init__(self):
        self.reached = asyncio.Event()
        self.ended = []
        self.held = False
        self.free = threading.Event()
        self._loop = asyncio.get_running_loop()

    async def model(self, messages):
        if self._asked(messages):
            self.reached.set()
            await asyncio.sleep(60)
        return remembered(messages)

    def caller(self, messages):
        return calls(("tool", "{}")) if self._asked(messages) else remembered(messages)

    async def tool(self) -> str:
        """Wait."""
        self.reached.set()
        try:
            await asyncio.sleep(60)
        finally:
            self.ended.append("tool")
        return "late"

    def thread(self) -> str:
        """Wait in a thread."""
        self.held = True
        self._loop.call_soon_threadsafe(self.reached.set)
        self.free.wait(60)
        return "late"

    async def stubborn(self) -> str:
        """Wait and do not let go."""
        self.held = True
        self.reached.set()
        while not self.free.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                self.ended.append("cancelled")
        return "late"

    def _asked(self, messages):
        return any("slow" in str(message.content) for message in messages[-1:])


def _agent(slow, what, **options):
    if what == "model":
        return AssistantAgent("slow", Scripted(slow.model), **options)
    tool = FunctionTool(getattr(slow, what), "Wait.", name="tool")
    return AssistantAgent("slow", Scripted(slow.caller), tools=[tool], **options)


SHAPES = {
    "an agent": _agent,
    "a streaming agent": lambda slow, what: _agent(slow, what, model_client_stream=True),
    "a team": lambda slow, what: RoundRobinGroupChat([_agent(slow, what), assistant("bob")], max_turns=2),
    "a nested team": lambda slow, what: RoundRobinGroupChat(
        [RoundRobinGroupChat([_agent(slow, what), assistant("bob")], max_turns=2, name="inner"), assistant("lead")],
        max_turns=2,
    ),
}


@pytest.fixture
async def slow():
    slow = Slow()
    yield slow
    slow.free.set()
    if slow.held:  # what did not let go takes a moment to end
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("what", ["model", "tool", "thread"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_cancelled_turn_ends_at_once_and_leaves_the_state_as_it_was(memory, slow, shape, what, how):
    def build():
        return SHAPES[shape](slow, what)

    session = memory.session("case", build)
    await session.run(task="one")
    before = await session.at(1).state()
    await cancelled(how, lambda token: session.run(task="slow", cancellation_token=token), slow.reached)
    assert await numbers(session) == [(1, "done"), (2, "cancelled")]
    assert await session.at(1).state() == before
    async with asyncio.timeout(SOON):
        three = transcript(await session.run(task="three"))
        four = transcript(await memory.session("case", build, busy="raise").run(task="four"))
    assert [three, four] == (await uninterrupted(build, "one", "three", "four"))[1:]


@pytest.mark.parametrize("how", HOWS)
async def test_cancelling_works_on_every_store(store, slow, how):
    def build():
        return _agent(slow, "tool")

    session = store.session("case", build)
    await session.run(task="one")
    await cancelled(how, lambda token: session.run(task="slow", cancellation_token=token), slow.reached)
    assert slow.ended == ["tool"]
    other = store.session("case", build, busy="raise")
    async with asyncio.timeout(SOON):
        assert transcript(await other.run(task="two")) == (await uninterrupted(build, "one", "two"))[-1]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("what", ["model", "tool", "thread"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_live_object_is_usable_after_a_cancelled_turn(memory, slow, shape, what, how):
    live = SHAPES[shape](slow, what)
    session = memory.session("case", live)
    await session.run(task="one")
    await cancelled(how, lambda token: session.run(task="slow", cancellation_token=token), slow.reached)
    async with asyncio.timeout(SOON):
        two = transcript(await session.run(task="two"))
    assert two == (await uninterrupted(lambda: SHAPES[shape](slow, what), "one", "two"))[-1]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("shape", ["an agent", "a team"])
async def test_a_tool_that_does_not_let_go_does_not_hold_the_run(memory, slow, shape, how):
    def build():
        return SHAPES[shape](slow, "stubborn")

    session = memory.session("case", build)
    await cancelled(how, lambda token: session.run(task="slow", cancellation_token=token), slow.reached)
    assert slow.ended
    async with asyncio.timeout(SOON):
        assert transcript(await session.run(task="two")) == (await uninterrupted(build, "two"))[0]


@pytest.mark.parametrize("how", HOWS)
async def test_a_cancelled_stream_ends_at_once(memory, slow, how):
    session = memory.session("case", lambda: _agent(slow, "tool"))
    seen = []

    async def consume(token):
        async for item in session.run_stream(task="slow", cancellation_token=token):
            seen.append(item)  # noqa: PERF401 - what was seen before the end counts

    await cancelled(how, consume, slow.reached)
    assert seen[0].content == "slow"
    assert not any(isinstance(item, midturn.TurnResult) for item in seen)
    assert await numbers(session) == [(1, "cancelled")]


@pytest.mark.parametrize("how", HOWS)
async def test_a_cancelled_resume_ends_at_once_and_can_be_resumed(memory, slow, how):
    answer = slow.model
    session = memory.session("case", lambda: AssistantAgent("assistant", Scripted(answer)))
    await cancelled(how, lambda token: session.run(task="slow", cancellation_token=token), slow.reached)
    slow.reached.clear()
    await cancelled(how, lambda token: session.resume(cancellation_token=token), slow.reached)
    answer = remembered
    result = await session.resume()
    assert (result.turn, said(result)) == (1, await expected("slow"))


@pytest.mark.parametrize("how", HOWS)
async def test_a_cancelled_turn_that_was_to_finish_a_crashed_one_ends_at_once(memory, slow, how):
    factory, _ = agents()
    await crash(memory, factory, task="slow")
    session = memory.session("case", lambda: AssistantAgent("assistant", Scripted(slow.model)))
    await cancelled(how, lambda token: session.run(task="two", cancellation_token=token), slow.reached)
    head = await memory.store.head("case")
    assert head.owner is None
    assert said(await memory.session("case", factory).run(task="two")) in (
        await expected("two"),
        await expected("slow", "two"),
    )


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("holder", ["another session object", "the same session object"])
async def test_waiting_for_a_busy_session_is_cancelled_at_once(store, how, holder):
    gate, waiting = Gate(), asyncio.Event()
    factory, _ = agents(gate)
    session = store.session("case", factory, timeout=600)
    other = session if holder == "the same session object" else store.session("case", factory, timeout=600)
    running = asyncio.create_task(session.run(task="one"))
    await gate.reached.wait()
    asyncio.get_running_loop().call_later(0.05, waiting.set)
    try:
        await cancelled(how, lambda token: other.run(task="two", cancellation_token=token), waiting)
    finally:
        gate.open()
        await running
    assert await numbers(session) == [(1, "done")]
    assert said(await other.run(task="three")) == await expected("one", "three")


async def test_a_token_that_was_cancelled_before_cancels_before_the_model_is_asked(store):
    factory, model = agents()
    token = CancellationToken()
    token.cancel()
    session = store.session("case", factory)
    with pytest.raises(asyncio.CancelledError):
        await session.run(task="one", cancellation_token=token)
    assert model.seen == []
    assert said(await session.run(task="two")) == await expected("two")


async def test_a_token_can_be_cancelled_in_another_thread(store, slow):
    token = CancellationToken()
    session = store.session("case", lambda: _agent(slow, "tool"))
    task = asyncio.create_task(session.run(task="slow", cancellation_token=token))
    await slow.reached.wait()
    await asyncio.to_thread(token.cancel)
    async with asyncio.timeout(SOON):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_error_that_follows_a_cancellation_is_not_mistaken_for_a_failure(memory, slow):
    class Rude(AssistantAgent):
        async def on_messages_stream(self, messages, cancellation_token):
            try:
                async for item in super().on_messages_stream(messages, cancellation_token):
                    yield item
            except asyncio.CancelledError:
                raise RuntimeError("cleaning up failed") from None

    session = memory.session("case", lambda: Rude("assistant", Scripted(slow.model)))
    await cancelled("task", lambda token: session.run(task="slow"), slow.reached)
    assert await numbers(session) == [(1, "cancelled")]
    with pytest.raises(midturn.NotFound):
        await session.at(1).state()
