"""The model for tests: what it answers to what, in one piece and in a stream, and what it counts."""

import asyncio
import json

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken, Image
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    RequestUsage,
    UserMessage,
)

from midturn.testing import ScriptedModel, ToolCall, scripted_model

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"


def said(*texts):
    return [UserMessage(content=text, source="user") for text in texts]


async def look_up(what: str = "answer") -> str:
    """Look it up."""
    return f"the {what} is 42"


async def test_the_first_rule_whose_text_is_in_the_last_message_answers():
    model = ScriptedModel({"order": "It is on its way.", "A1": "Never said.", "": "I do not know."})
    assert (await model.create(said("What is this?", "Where is order A1?"))).content == "It is on its way."
    assert (await model.create(said("Where is order A1?", "What is this?"))).content == "I do not know."


async def test_a_message_without_a_rule_is_an_error_that_shows_both():
    with pytest.raises(LookupError, match=r"no answer to 'Hello\.'; it has answers to 'order', 'refund'"):
        await ScriptedModel({"order": "Yes.", "refund": "No."}).create(said("Hello."))


async def test_rules_call_tools_and_answer_from_their_results():
    model = ScriptedModel(
        {
            "What": ToolCall("look_up", {"what": "question"}),
            "Both": [ToolCall("look_up"), ToolCall("look_up", {"what": "number"})],
            "42": "Done.",
        }
    )
    agent = AssistantAgent("agent", model, tools=[look_up], reflect_on_tool_use=True)
    result = await agent.run(task="What is it?")
    assert result.messages[-1].content == "Done."
    assert result.messages[2].content[0].content == "the question is 42"
    both = (await agent.run(task="Both.")).messages[1].content
    assert [json.loads(call.arguments) for call in both] == [{}, {"what": "number"}]
    assert both[0].id != both[1].id


async def test_a_script_can_be_a_function_that_can_be_async():
    async def count(messages):
        await asyncio.sleep(0)
        return f"{len(messages)} messages"

    assert (await ScriptedModel(count).create(said("One.", "Two."))).content == "2 messages"
    own = CreateResult(
        finish_reason="length", content="a", usage=RequestUsage(prompt_tokens=7, completion_tokens=9), cached=True
    )
    assert await ScriptedModel(lambda _: own).create(said("One.")) is own


@pytest.mark.parametrize("reply", [None, 42, [], ["text"]])
async def test_an_answer_that_is_none_is_an_error_that_says_what_can_be_one(reply):
    with pytest.raises(TypeError, match=r"can return a text, a ToolCall, a list of them, or a CreateResult, not"):
        await ScriptedModel(lambda _: reply).create(said("Go."))


async def test_the_same_messages_get_the_same_calls_from_another_model_and_other_messages_get_others():
    def ids(result):
        return [call.id for call in result.content]

    one, other = (ScriptedModel({"": ToolCall("look_up")}) for _ in range(2))
    first = ids(await one.create(said("Go.")))
    assert first != ids(await one.create(said("Go on.")))
    assert first == ids(await other.create(said("Go.")))
    assert first != ids(await one.create(said("Before.", "Go.")))
    half = [AssistantMessage(content="half a character: \ud83d", source="ann")]
    assert first != ids(await one.create(half)) == ids(await other.create(half))
    assert (await one.create(said("Go."))).finish_reason == "function_calls"


async def test_a_stream_is_the_answer_word_by_word():
    model = ScriptedModel(lambda _: "one two\nthree")
    *words, result = [part async for part in model.create_stream(said("Go."))]
    assert words == ["one ", "two\n", "three"]
    assert isinstance(result, CreateResult)
    assert result.content == "one two\nthree"


async def test_only_completed_calls_are_counted():
    model = ScriptedModel(lambda _: "one two three four")
    result = await model.create(said("Count to four."))
    await anext(model.create_stream(said("Count to four.")))
    assert model.total_usage() == model.actual_usage() == result.usage
    assert result.usage == RequestUsage(prompt_tokens=3, completion_tokens=4)
    async for _ in model.create_stream(said("Count to four.")):
        pass
    assert model.total_usage() == model.actual_usage() == RequestUsage(prompt_tokens=6, completion_tokens=8)
    assert model.remaining_tokens(said("Count to four.")) == scripted_model.CONTEXT - 3


async def test_a_stream_spreads_its_delay_over_the_words(monkeypatch):
    pauses = []

    async def pause(seconds, token):
        pauses.append(seconds)

    monkeypatch.setattr(scripted_model, "_sleep", pause)
    async for _ in ScriptedModel(lambda _: "one two three", delay=8).create_stream(said("Go.")):
        pass
    assert pauses == [2, 2, 2, 2]
    await ScriptedModel(lambda _: "one two three", delay=8).create(said("Go."))
    assert pauses[4:] == [8]


async def test_the_results_of_tools_and_the_texts_beside_pictures_are_read():
    results = [FunctionExecutionResult(content=text, name="t", call_id="1", is_error=False) for text in ("one", "two")]
    model = ScriptedModel({"one\ntwo": "Both.", "left right": "A picture.", "": "Nothing."})
    assert (await model.create([FunctionExecutionResultMessage(content=results)])).content == "Both."
    picture = Image.from_base64(PIXEL)
    assert (
        await model.create([UserMessage(content=["left", picture, "right"], source="user")])
    ).content == "A picture."
    assert (await model.create([])).content == "Nothing."


async def test_an_error_shows_the_beginning_of_a_long_message():
    with pytest.raises(LookupError, match=f"no answer to '{'x' * 200}'"):
        await ScriptedModel({"order": "Yes."}).create(said("x" * 201))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_slow_call_can_be_cancelled(stream):
    model, token = ScriptedModel({"": "Never said."}, delay=60), CancellationToken()
    call = (
        anext(model.create_stream(said("Go."), cancellation_token=token))
        if stream
        else model.create(said("Go."), cancellation_token=token)
    )
    asyncio.get_running_loop().call_later(0.05, token.cancel)
    with pytest.raises(asyncio.CancelledError):
        await call
