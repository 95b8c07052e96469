"""Turns as readers show them: AutoGen's messages, also of a turn that has no result yet."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import StructuredMessage, TextMessage
from autogen_core.models import RequestUsage
from cast import Gate, agents, crash, panel, plain
from pydantic import BaseModel
from scripted import Scripted

import midturn
from midturn.autogen.messages import conversion
from midturn.testing import ScriptedModel, ToolCall


class Price(BaseModel):
    """A price."""

    euros: int


def pricing():
    return AssistantAgent("shop", Scripted(lambda messages: '{"euros": 7}'), output_content_type=Price)


@pytest.mark.parametrize("kind", [{"a": 1}, ["a"], None, 7])
def test_a_message_whose_type_is_no_name_is_damaged(kind):
    with pytest.raises(midturn.StateInvalid, match=r"turn 1.messages\[0\]: is not a message"):
        conversion.load_earlier(None, [{"type": kind, "source": "a", "content": "b"}], "turn 1.messages", as_text=True)


def told(messages):
    return [plain(message) for message in messages]


async def test_messages_usage_and_times_are_autogens_types(memory):
    case = memory.session("case", agents()[0])
    result = await case.run(task="one")
    [turn] = [turn async for turn in case.history()]
    assert list(turn.messages) == result.messages
    assert [type(message) for message in turn.task] == [TextMessage]
    assert turn.usage == result.usage
    assert type(turn.usage) is type(result.usage) is RequestUsage
    assert isinstance(turn, midturn.Turn)
    for found in (await memory.session("case").turn(1), await case.turn(1)):
        assert (found.messages, found.task) == (turn.messages, turn.task)


async def test_messages_of_a_users_type_need_the_agents_that_know_it(memory):
    result = await memory.session("case", pricing).run(task="How much?")
    assert isinstance(result.messages[-1], StructuredMessage)
    turn = await memory.session("case", pricing).turn(1)
    assert turn.messages[-1] == result.messages[-1]
    assert (await memory.session("case", pricing()).turn(1)).messages[-1] == result.messages[-1]
    assert (await memory.session("case").turn(1)).messages[-1].content == '{"euros": 7}'


@pytest.mark.parametrize("live", [False, True], ids=["a factory", "a live team"])
async def test_a_turn_that_waits_shows_what_was_said_whoever_comes_back(memory, live):
    first = await memory.session("case", panel() if live else panel).run(task="write")
    assert [type(message).__name__ for message in first.messages][1:] == ["TextMessage", "UserInputRequestedEvent"]
    case = memory.session("case", panel() if live else panel)
    for again in (await case.resume(), await case.resume()):
        assert (again.waiting, told(again.messages)) == (first.waiting, told(first.messages))
    answered = await case.answer("shorter")
    assert told((await case.resume()).messages) == told(answered.messages)
    done = await case.answer("ACCEPT")
    assert done.stop_reason
    assert done.messages[-1].content == "ACCEPT"


async def test_the_key_of_a_turn_that_waits_returns_what_was_said(memory):
    first = await memory.session("case", panel).run(task="write", key="k")
    again = await memory.session("case", panel).run(task="write", key="k")
    assert told(again.messages) == told(first.messages)
    run = await memory.session("case", panel).follow()
    assert told((await run.result()).messages) == told(first.messages)


async def test_what_was_said_is_not_made_again_in_the_process_that_heard_it(memory):
    built = []
    case = memory.session("case", lambda: built.append(1) or panel())
    first = await case.run(task="write")
    before = len(built)
    assert (await case.resume()).messages == first.messages
    assert len(built) == before


async def test_an_open_turn_shows_its_messages_its_calls_and_its_questions(memory):
    first = await memory.session("case", panel).run(task="write")
    turn = await memory.session("case", panel).open_turn()
    assert told(turn.messages) == told(first.messages)
    assert [call.kind for call in turn.calls] == ["model"]
    assert turn.questions == first.waiting.questions
    assert turn.task[0].content == "write"
    assert not (await memory.session("case").open_turn()).messages  # nobody can make them again


async def test_a_turn_that_runs_shows_its_messages_and_the_reader_does_not_wait(memory):
    gate = Gate()

    def build():
        tools = [midturn.tool(effect="read")(look)]
        return AssistantAgent("clerk", Slow(gate), tools=tools, reflect_on_tool_use=True)

    case = memory.session("case", build)
    running = asyncio.create_task(case.run(task="look"))
    await gate.reached.wait()
    turn = await memory.session("case", build).open_turn()
    assert turn.status == "running"
    assert [type(message).__name__ for message in turn.messages] == [
        "TextMessage",
        "ToolCallRequestEvent",
        "ToolCallExecutionEvent",
    ]
    gate.open()
    result = await running
    assert told(turn.messages) == told(result.messages)[: len(turn.messages)]


async def look(page: int) -> str:
    """Look something up."""
    return f"page {page}"


class Slow(ScriptedModel):
    """A model that waits at a gate after its tool was called."""

    def __init__(self, gate):
        super().__init__({"page 3": "That is it.", "": ToolCall("look", {"page": 3})})
        self.gate = gate

    async def create(self, messages, **options):
        if len(messages) > 2:
            await self.gate(messages)
        return await super().create(messages, **options)


async def test_an_interrupted_and_a_failed_turn_show_their_messages(memory):
    await crash(memory, agents()[0], task="one")
    turn = await memory.session("case", agents()[0]).open_turn()
    assert (turn.status, [message.content for message in turn.messages]) == ("interrupted", ["one"])
    failed = memory.session("failed", agents(ConnectionError("503"))[0])
    with pytest.raises(midturn.TurnFailed):
        await failed.run(task="two")
    turn = await failed.open_turn()
    assert (turn.status, [message.content for message in turn.messages]) == ("failed", ["two"])


async def test_an_open_turn_is_shown_after_its_code_has_changed(memory):
    first = await memory.session("case", panel).run(task="write")
    other = memory.session(
        "case", lambda: AssistantAgent("another", Scripted(lambda messages: "no")), on_drift="ignore"
    )
    turn = await other.open_turn()
    assert turn.questions == first.waiting.questions
    assert (await other.resume()).waiting == first.waiting
