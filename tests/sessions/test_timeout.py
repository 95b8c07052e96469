"""A turn that takes longer than its timeout is stopped, and can be continued."""

import asyncio
import math

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import FunctionExecutionResultMessage
from autogen_core.tools import FunctionTool
from cast import Gate, agents, crash, expected, numbers, said
from scripted import Scripted, calls

import midturn

pytestmark = pytest.mark.fault("F27")

SHORT, LONG = 0.05, 600.0


async def test_a_turn_that_takes_too_long_is_stopped_and_continued(store):
    slow, _ = agents(Gate())
    with pytest.raises(midturn.TurnTimeout, match="turn 1 of session 'case' took longer") as stopped:
        await store.session("case", slow, turn_timeout=SHORT).run(task="hello", key="mail-1")
    assert (stopped.value.session, stopped.value.turn, stopped.value.timeout) == ("case", 1, SHORT)
    info = await store.info("case")
    assert (info.status, info.owner) == ("failed", None)
    session = store.session("case", agents()[0], turn_timeout=LONG)
    assert said(await session.run(task="hello", key="mail-1")) == await expected("hello")
    assert await numbers(session) == [(1, "done")]


@pytest.mark.parametrize("shape", ["agent", "team"])
@pytest.mark.parametrize("stream", [False, True])
async def test_the_next_attempt_repeats_nothing_and_asks_about_a_tool_that_was_stopped(
    memory, pass_time, shape, stream
):
    done = []

    async def look() -> str:
        done.append("look")
        return "here"

    async def pay() -> str:
        done.append("pay")
        pass_time(LONG)
        await asyncio.Event().wait()

    def answer(messages):
        rounds = sum(isinstance(message, FunctionExecutionResultMessage) for message in messages)
        return [calls(("look", "{}")), calls(("pay", "{}")), "done"][rounds]

    def build():
        tools = [FunctionTool(each, name=each.__name__, description="") for each in (look, pay)]
        agent = AssistantAgent(
            "clerk", Scripted(answer), tools=tools, max_tool_iterations=3, model_client_stream=stream
        )
        return agent if shape == "agent" else RoundRobinGroupChat([agent], max_turns=1)

    session = memory.session("case", midturn.Blueprint("desk", build, timeout=LONG))
    with pytest.raises(midturn.TurnTimeout):
        await session.run(task="go")
    asked = await session.resume()
    assert asked.waiting.question == "pay({}) was interrupted. Did it take effect?"
    assert said(await session.answer("done: paid")) == "done"
    assert done == ["look", "pay"]


async def test_the_option_of_the_session_wins_over_that_of_the_blueprint(memory):
    build, _ = agents()
    gate = Gate()
    waiting, _ = agents(gate)
    with pytest.raises(midturn.TurnTimeout):
        await memory.session("one", midturn.Blueprint("b", waiting, timeout=LONG), turn_timeout=SHORT).run(task="hi")
    blueprint = midturn.Blueprint("b", build, timeout=1e-9)
    with pytest.raises(midturn.TurnTimeout):
        await memory.session("two", blueprint).run(task="hi")
    assert said(await memory.session("two", blueprint, turn_timeout=LONG).resume()) == await expected("hi")


async def test_a_tool_that_does_not_let_go_is_left_behind(memory):
    async def pay() -> str:
        for _ in range(12):  # longer than midturn waits for it
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue
        return "paid"

    def build():
        tools = [FunctionTool(pay, name="pay", description="pay")]
        return AssistantAgent("clerk", Scripted(lambda _: calls(("pay", "{}"))), tools=tools)

    with pytest.raises(midturn.TurnTimeout):
        await memory.session("case", build, turn_timeout=SHORT).run(task="go")


async def test_a_turn_that_had_to_be_finished_first_may_take_too_long(memory):
    await crash(memory, agents()[0], task="first")
    with pytest.raises(midturn.TurnTimeout) as stopped:
        await memory.session("case", agents(Gate())[0], turn_timeout=SHORT).run(task="second")
    assert "Your task was not accepted" in stopped.value.__notes__[0]
    assert said(await memory.session("case", agents()[0]).run(task="second")) == await expected("second")


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan, True, "3"])
async def test_a_timeout_is_a_positive_number_of_seconds(memory, seconds):
    with pytest.raises(midturn.InvalidArgument, match="turn_timeout"):
        memory.session("case", agents()[0], turn_timeout=seconds)
    with pytest.raises(midturn.InvalidArgument, match="timeout"):
        midturn.Blueprint("b", agents()[0], timeout=seconds)
