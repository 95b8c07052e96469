"""The tokens that a turn has taken are counted, also if the turn has no result."""

import pytest
from autogen_agentchat.agents import AssistantAgent
from scripted import Scripted, calls

import midturn


def look() -> str:
    """Look."""
    return "seen"


def build(*steps):
    """An agent that answers with these steps: texts, calls and errors."""
    left = list(steps)

    def answer(messages):
        step = left.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    model = Scripted(answer)
    return lambda: AssistantAgent(
        "assistant", model, tools=[midturn.tool(effect="read")(look)], reflect_on_tool_use=True
    )


async def usage(session, number=1):
    """The tokens of a turn, which every reader shows."""
    turn = await session.turn(number)
    listed = [turn async for turn in session.history()][number - 1]
    assert listed.usage == turn.usage
    return turn.usage.prompt_tokens, turn.usage.completion_tokens


@pytest.mark.parametrize("durability", ["call", "turn"])
async def test_the_usage_of_a_failed_turn_counts_what_was_paid(store, durability):
    session = store.session("case", build(calls(("look", "{}")), ConnectionError("503")), durability=durability)
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="one")
    paid = await usage(session)
    whole = await store.session("other", build(calls(("look", "{}")), "done")).run(task="one")
    assert paid == (whole.messages[1].models_usage.prompt_tokens, whole.messages[1].models_usage.completion_tokens)
    assert sum(paid) > 0


async def test_the_usage_of_a_turn_that_failed_twice_counts_each_call_once(store):
    session = store.session("case", build(calls(("look", "{}")), ConnectionError("503"), ConnectionError("503")))
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="one")
    paid = await usage(session)
    with pytest.raises(midturn.TurnFailed):
        await session.resume()
    assert await usage(session) == paid
    await session.discard()
    assert await usage(session) == paid
    await store.session("case", build("fine")).run(task="two")
    assert await usage(session) == paid


async def test_the_usage_of_a_turn_that_waits_counts_what_was_paid(store):
    ask = midturn.tool(approval=True)(look)

    def factory():
        return AssistantAgent("assistant", Scripted(lambda messages: calls(("look", "{}"))), tools=[ask])

    session = store.session("case", factory)
    assert (await session.run(task="one")).waiting
    assert sum(await usage(session)) > 0
    with pytest.raises(midturn.Conflict):
        await session.answer("approve", question="other")
    done = await store.session("case", factory).answer("approve")
    assert await usage(session) == (done.usage.prompt_tokens, done.usage.completion_tokens)
