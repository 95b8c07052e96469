"""Tasks that a turn accepts and rejects, and the events of a turn while it runs."""

import asyncio
import math
from typing import Literal

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    BaseChatMessage,
    HandoffMessage,
    MultiModalMessage,
    StructuredMessage,
    TextMessage,
)
from autogen_agentchat.ui import Console
from autogen_core import Image
from autogen_core.models import CreateResult, RequestUsage, UserMessage
from cast import agents, expected, numbers, said, uninterrupted
from kinds import KINDS, anonymous, round_robin, swarm, transcript
from pydantic import BaseModel, create_model
from scripted import Scripted

import midturn


async def test_a_turn_without_a_task_goes_on(store):
    session = store.session("case", round_robin)
    said = [transcript(await session.run(task="one")), transcript(await session.run())]
    assert said == await uninterrupted(round_robin, "one", None)
    assert [turn.task is None async for turn in session.history()] == [False, True]


async def test_a_failed_turn_without_a_task_is_resumed_without_one(store):
    factory, model = agents("first", ConnectionError("503"))
    session = store.session("case", factory)
    await session.run(task="one")
    with pytest.raises(midturn.TurnFailed):
        await session.run()
    await session.resume()
    assert [len(messages) for messages in model.seen] == [2, 3, 3]


PIXEL = Image.from_base64(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Reading(BaseModel):
    celsius: float
    note: str = ""


class Odd(BaseChatMessage):
    """A message class that AutoGen's own factory does not know; an agent takes it all the same."""

    content: str
    type: Literal["Odd"] = "Odd"

    def to_text(self):
        return self.content

    def to_model_text(self):
        return self.content

    def to_model_message(self):
        return UserMessage(content=self.content, source=self.source)


TASKS = {
    "an empty text": "",
    "a text with NUL and emoji": "a\0b 🙂 é",
    "a long text": "long " * 10_000,
    "a message": TextMessage(content="one", source="boss", metadata={"urgent": "yes"}),
    "several messages": [TextMessage(content="one", source="a"), TextMessage(content="two", source="b")],
    "a picture": MultiModalMessage(content=["what is this?", PIXEL], source="user"),
    "a handoff": HandoffMessage(
        content="yours", source="user", target="assistant", context=[UserMessage(content="so far", source="user")]
    ),
}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
async def test_whatever_autogen_takes_as_a_task_is_taken_and_kept(store, task):
    factory, _ = agents()
    session = store.session("case", factory)
    one = transcript(await session.run(task=task))
    two = transcript(await store.session("case", factory).run(task="two"))
    assert [one, two] == await uninterrupted(factory, task, "two")
    first, _ = [turn async for turn in session.history()]
    assert anonymous(first.task) == one["messages"][: len(first.task)]


@pytest.mark.parametrize("task", [7, [], (), {}, b"one", [7], ["one"], [TextMessage(content="one", source="a"), None]])
async def test_what_is_not_a_task_is_refused_before_anything_is_written(store, task):
    factory, model = agents()
    session = store.session("case", factory)
    with pytest.raises(midturn.InvalidArgument, match=r"^task") as caught:
        await session.run(task=task)
    assert caught.value.path.startswith("task")
    with pytest.raises(midturn.InvalidArgument):
        async for _ in session.run_stream(task=task):
            pass
    assert await store.store.head("case") is None
    assert model.seen == []


# --- poison


def _bad_text():
    message = TextMessage(content="one", source="user")
    message.content = "half \ud800"
    return message


def _bad_metadata():
    message = TextMessage(content="one", source="user")
    message.metadata["note"] = math.nan
    return message


POISON = {
    "NaN": lambda: StructuredMessage[Reading](content=Reading(celsius=math.nan), source="user"),
    "infinity": lambda: StructuredMessage[Reading](content=Reading(celsius=-math.inf), source="user"),
    "NaN in metadata": _bad_metadata,
    "half a character in a message": _bad_text,
    "half a character in a text": lambda: "half \ud800",
    "half a character in a list": lambda: [TextMessage(content="one", source="user"), _bad_text()],
}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
async def test_a_poisoned_task_is_refused_with_its_path_and_nothing_has_changed(store, poison):
    factory, model = agents()
    session = store.session("case", factory)
    await session.run(task="one")
    head = await store.store.head("case")
    with pytest.raises(midturn.InvalidArgument) as caught:
        await session.run(task=poison())
    assert "content" in caught.value.path or "metadata" in caught.value.path or caught.value.path.startswith("task")
    assert (await store.store.head("case")).seq == head.seq
    assert len(model.seen) == 1
    assert said(await session.run(task="two")) == await expected("one", "two")


async def test_a_poisoned_answer_fails_the_turn_and_leaves_the_state_as_it_was(store):
    factory, _ = agents("first", lambda messages: _unchecked(object()))
    session = store.session("case", factory)
    await session.run(task="one")
    with pytest.raises((midturn.StateInvalid, midturn.TurnFailed)):
        await session.run(task="two")
    assert await numbers(session) == [(1, "done"), (2, "failed")]
    result = await session.run(task="three")
    assert [message["content"] for message in (await session.at(3).state())["llm_context"]["messages"]] == [
        "one",
        "first",
        "three",
        said(result),
    ]


def _unchecked(text):
    return CreateResult.model_construct(
        finish_reason="stop", content=text, usage=RequestUsage(1, 1), cached=False, logprobs=None, thought=None
    )


class Remembering(AssistantAgent):
    """An agent whose state has a value that cannot be stored."""

    async def save_state(self):
        return dict(await super().save_state()) | {"temperature": {"inside": [1.0, object()]}}


async def test_a_poisoned_state_is_refused_with_the_path_of_the_value(store):
    session = store.session("case", lambda: Remembering("assistant", Scripted()))
    with pytest.raises(midturn.StateInvalid, match="object") as caught:
        await session.run(task="one")
    assert caught.value.path == "$.state.temperature.inside[1]"
    assert await numbers(session) == [(1, "failed")]
    with pytest.raises(midturn.NotFound):
        await session.at(1).state()


async def test_an_error_with_half_a_character_in_its_message_is_a_failure_like_any_other(store):
    factory, _ = agents(ValueError("half \ud800"))
    session = store.session("case", factory)
    with pytest.raises(midturn.TurnFailed):
        await session.run(task="one")
    assert await numbers(session) == [(1, "failed")]
    assert said(await session.run(task="two")) == await expected("two")


OWN = {
    "a structured message": lambda: StructuredMessage[Reading](content=Reading(celsius=7.5), source="user"),
    "a message of ones own": lambda: Odd(content="one", source="user"),
}


@pytest.mark.parametrize("task", OWN.values(), ids=OWN)
async def test_an_agent_takes_a_message_of_a_users_own_type_and_another_process_finishes_its_turn(store, task):
    factory, _ = agents()
    plain = await uninterrupted(factory, task(), "two")
    with pytest.raises(midturn.TurnFailed):
        await store.session("case", agents(ConnectionError("503"))[0]).run(task=task())
    resumed = await store.session("case", factory).resume()
    assert [transcript(resumed), transcript(await store.session("case", factory).run(task="two"))] == plain
    turn = await anext(store.session("case", factory).history())
    assert [type(message) for message in turn.task] == [type(task())]


def _reading_of_another_module():
    return create_model("Reading", __module__="elsewhere", celsius=float)


async def test_a_type_whose_name_two_classes_have_is_taken_as_it_was_given(store):
    contents = Reading, _reading_of_another_module()
    tasks = [StructuredMessage[each](content=each(celsius=7.5), source="user") for each in contents]
    for number, task in enumerate(tasks):
        result = await store.session(f"case-{number}", agents()[0]).run(task=task)
        assert type(result.messages[0]) is type(task)


async def test_a_type_whose_name_two_classes_have_is_not_guessed_in_another_process(store):
    other = _reading_of_another_module()
    task = StructuredMessage[other](content=other(celsius=7.5), source="user")
    with pytest.raises(midturn.TurnFailed):
        await store.session("case", agents(ConnectionError("503"))[0]).run(task=task)
    with pytest.raises(midturn.StateInvalid, match="Reading"):
        await store.session("case", agents()[0]).resume()


@pytest.mark.parametrize("task", OWN.values(), ids=OWN)
async def test_a_team_rejects_a_message_type_that_it_does_not_list_in_autogens_words(store, task):
    with pytest.raises(ValueError, match="is not registered with the message factory") as plain:
        await round_robin().run(task=task())
    with pytest.raises(midturn.InvalidArgument, match="is not registered with the message factory") as ours:
        await store.session("case", round_robin).run(task=task())
    assert "custom_message_types" in str(plain.value)
    assert "custom_message_types" in str(ours.value)
    assert ours.value.path == "task[0]"
    assert await store.store.head("case") is None


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ([], "Task list cannot be empty"),
        (["one"], "All messages in task list must be valid BaseChatMessage types"),
        (7, "Task must be a string, a BaseChatMessage, or a list of BaseChatMessage"),
    ],
)
async def test_a_wrong_task_is_rejected_in_the_words_of_autogens_teams(store, task, words):
    with pytest.raises(ValueError, match=words):
        await round_robin().run(task=task)
    with pytest.raises(ValueError, match=words):
        await store.session("case", round_robin).run(task=task)


# --- streams


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_has_the_events_of_autogens_own_stream_and_ends_with_the_result(memory, kind):
    live = KINDS[kind]()
    plain = [item async for item in live.run_stream(task="one")]
    ours = [item async for item in memory.session("case", KINDS[kind]).run_stream(task="one")]
    assert [type(item) for item in ours[:-1]] == [type(item) for item in plain[:-1]]
    assert [anonymous(item.model_dump(mode="json")) for item in ours[:-1]] == [
        anonymous(item.model_dump(mode="json")) for item in plain[:-1]
    ]
    assert transcript(ours[-1]) == transcript(plain[-1])
    assert (ours[-1].turn, ours[-1].checkpoint) == (1, 1)


async def test_events_arrive_while_the_turn_runs(store):
    factory, _ = agents()
    stream = store.session("case", factory).run_stream(task="one")
    first = await anext(stream)
    assert first.content == "one"
    assert await numbers(store.session("case")) == [(1, "running")]
    rest = [item async for item in stream]
    assert isinstance(rest[-1], TaskResult)


async def test_the_console_shows_a_turn(store, capsys):
    result = await Console(store.session("case", round_robin).run_stream(task="one"))
    assert result.turn == 1
    out = capsys.readouterr().out
    assert "---------- TextMessage (ann) ----------" in out
    assert result.messages[-1].content in out


async def test_breaking_out_of_a_stream_leaves_a_usable_session(store):
    for kind, factory in {"agent": agents()[0], "team": round_robin}.items():
        session = store.session(kind, factory)
        await session.run(task="one")
        async for _ in session.run_stream(task="two"):
            break
        three = transcript(await session.run(task="three"))
        assert three == (await uninterrupted(factory, "one", "three"))[-1]
        assert await numbers(session) == [(1, "done"), (2, "cancelled"), (3, "done")]


async def test_breaking_out_at_every_event_leaves_a_usable_session(memory):
    for kind, factory in KINDS.items():
        after_one, alone = [(await uninterrupted(factory, *tasks))[-1] for tasks in (("one", "two"), ("two",))]
        whole = [item async for item in memory.session(f"{kind} whole", factory).run_stream(task="one")]
        for stop in range(len(whole)):
            session = memory.session(f"{kind} {stop}", factory)
            stream = session.run_stream(task="one")
            for _ in range(stop + 1):
                await anext(stream)
            await stream.aclose()
            done = stop == len(whole) - 1
            assert await numbers(session) == [(1, "done" if done else "cancelled")]
            assert transcript(await session.run(task="two")) == (after_one if done else alone)


async def test_a_stream_that_is_never_started_does_nothing(store):
    factory, _ = agents()
    stream = store.session("case", factory).run_stream(task="one")
    await stream.aclose()
    assert await store.store.head("case") is None


async def test_a_swarm_that_handed_over_to_the_user_goes_on_with_a_handoff(store):
    task = HandoffMessage(content="yours", source="user", target="bob")
    session = store.session("case", swarm)
    ours = [transcript(await session.run(task=item)) for item in ("one", task, "three")]
    assert ours == await uninterrupted(swarm, "one", task, "three")


async def test_a_team_that_refuses_its_task_leaves_a_usable_session(store):
    session = store.session("case", swarm)
    with pytest.raises(midturn.TurnFailed, match="nobody"):
        await session.run(task=HandoffMessage(content="yours", source="user", target="nobody"))
    assert transcript(await session.run(task="two")) == (await uninterrupted(swarm, "two"))[0]
    await asyncio.sleep(0)
