"""A restored state is equal, down to the types of its values: bytes, images, thoughts, errors, usage."""

import json

import pytest
from autogen_agentchat.messages import HandoffMessage, MemoryQueryEvent, MultiModalMessage, StopMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_core import FunctionCall, Image
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from gaps import exact, handles
from kinds import anonymous, assistant
from PIL import Image as Picture
from scripted import Scripted, calls, digest

import midturn
from midturn.autogen.messages.conversion import dump


def image():
    return Image(Picture.new("RGB", (5, 4), "teal"))


def gradient():
    return Image(Picture.frombytes("RGB", (5, 4), bytes(range(60))))


BINARY = {
    "bytes_that_are_no_text": MemoryContent(content=b"\xff\x00\xfe", mime_type=MemoryMimeType.BINARY),
    "bytes_that_are_text": MemoryContent(content=b"plain", mime_type=MemoryMimeType.BINARY),
    "no_bytes": MemoryContent(content=b"", mime_type="application/pdf"),
    "image": MemoryContent(content=image(), mime_type=MemoryMimeType.IMAGE),
    "gradient": MemoryContent(content=gradient(), mime_type="image/png", metadata={"from": "camera"}),
}
CONTENTS = BINARY | {
    "text": MemoryContent(content="the customer prefers email", mime_type=MemoryMimeType.TEXT),
    "text_with_a_plain_type": MemoryContent(content="the customer prefers email", mime_type="text/plain"),
    "text_of_an_own_type": MemoryContent(content="", mime_type="text/x-note"),
    "text_like_base64": MemoryContent(content="cGxhaW4=", mime_type="application/octet-stream"),
    "dict": MemoryContent(content={"a": [1, 2.0, True, None], "b": {"c": "d"}}, mime_type=MemoryMimeType.JSON),
    "empty_dict": MemoryContent(content={}, mime_type="application/json"),
    "dict_like_an_image": MemoryContent(content={"data": image().to_base64()}, mime_type=MemoryMimeType.JSON),
    "dict_like_bytes": MemoryContent(content={"bytes": "cGxhaW4=", "type": "bytes"}, mime_type=MemoryMimeType.JSON),
    "metadata": MemoryContent(
        content="x",
        mime_type=MemoryMimeType.MARKDOWN,
        metadata={"score": 0.5, "tags": ["a", "b"], "none": None, "deep": {"n": 1}},
    ),
    "empty_metadata": MemoryContent(content="x", mime_type=MemoryMimeType.TEXT, metadata={}),
}


def counted(messages):
    """ListMemory shows a model the address of an image, so the answers here depend on no content."""
    return f"{len(messages)} messages"


def with_memory(*contents):
    memory = ListMemory(memory_contents=list(contents))
    found = assistant("ann", counted, memory=[memory])
    handles[found] = memory
    return found


def team_with_memory(*contents):
    ann = with_memory(*contents)
    found = RoundRobinGroupChat([ann, assistant("bob", counted)], max_turns=2)
    handles[found] = handles[ann]
    return found


BUILDERS = {"agent": with_memory, "team": team_with_memory}


@pytest.fixture(params=BUILDERS)
def builder(request):
    return BUILDERS[request.param]


@pytest.mark.parametrize("name", CONTENTS)
async def test_a_memory_that_was_saved_by_hand_comes_back_exactly(name, builder):
    live, fresh = builder(CONTENTS[name], CONTENTS["text"]), builder()
    async with midturn.open("memory://") as store:
        await store.save("case", live)
        await store.load("case", fresh)
    assert exact(handles[fresh].content) == exact([CONTENTS[name], CONTENTS["text"]])


@pytest.mark.parametrize("name", CONTENTS)
async def test_a_memory_that_was_used_in_a_turn_comes_back_exactly(name, builder):
    live, fresh = builder(CONTENTS[name]), builder()
    async with midturn.open("memory://") as store:
        await store.session("case", live).run(task="Hello.")
        await store.load("case", fresh)
        assert exact(handles[fresh].content) == exact([CONTENTS[name]])
        result = await store.session("case", builder).run(task="And now?")
    assert [exact(message.content) for message in result.messages if isinstance(message, MemoryQueryEvent)] == [
        exact([CONTENTS[name]])
    ]


@pytest.mark.parametrize("url", ["sqlite", "file"])
async def test_every_content_of_a_memory_comes_back_exactly_from_the_disk(url, tmp_path):
    live, fresh = team_with_memory(*CONTENTS.values()), team_with_memory()
    async with midturn.open(f"{url}:///{tmp_path}/store") as store:
        await store.session("case", live).run(task="Hello.")
    async with midturn.open(f"{url}:///{tmp_path}/store") as store:
        await store.load("case", fresh)
    assert exact(handles[fresh].content) == exact(list(CONTENTS.values()))


async def test_plain_autogen_cannot_save_a_team_with_bytes_that_are_no_text_in_a_memory():
    live = team_with_memory(BINARY["bytes_that_are_no_text"])
    await live.run(task="Hello.")
    with pytest.raises(UnicodeDecodeError):
        await live.save_state()


@pytest.mark.parametrize(("name", "becomes"), [("bytes_that_are_text", str), ("image", dict)])
async def test_plain_autogen_changes_the_type_of_what_a_memory_brought_into_a_team(name, becomes):
    shown = []
    live, fresh = selecting(shown, BINARY[name]), selecting(shown, BINARY[name])
    await live.run(task="Hello.")
    await fresh.load_state(json.loads(json.dumps(await live.save_state())))
    await fresh.run(task="And now?")
    [content] = brought(shown[-1])
    assert type(content.content) is becomes


def selecting(shown, *contents):
    """A team that leaves in ``shown`` the thread of its manager as it is before each speaker."""

    def select(thread):
        shown.append(list(thread))
        return "ann"

    ann = with_memory(*contents)
    return SelectorGroupChat([ann, assistant("bob")], Scripted(), selector_func=select, max_turns=1)


def brought(thread):
    """Return what memories brought into a thread."""
    return [content for message in thread if isinstance(message, MemoryQueryEvent) for content in message.content]


@pytest.mark.parametrize("name", CONTENTS)
async def test_midturn_keeps_the_thread_of_a_team_with_memory_exactly(name):
    shown = []
    async with midturn.open("memory://") as store:
        first = await store.session("case", lambda: selecting(shown, CONTENTS[name])).run(task="Hello.")
        again = await store.session("case", lambda: selecting(shown, CONTENTS[name])).run(task="And now?")
    assert exact(shown[-1]) == exact([*first.messages, again.messages[0]])
    assert exact(brought(shown[-1])) == exact([CONTENTS[name]])


@pytest.mark.parametrize("name", CONTENTS)
async def test_midturn_returns_the_recorded_result_of_a_turn_with_memory_exactly(name, builder):
    async with midturn.open("memory://") as store:
        first = await store.session("case", lambda: builder(CONTENTS[name])).run(task="Hello.", key="mail-1")
        again = await store.session("case", lambda: builder(CONTENTS[name])).run(task="Hello.", key="mail-1")
    assert exact(brought(first.messages)) == exact([CONTENTS[name]])
    assert exact(again) == exact(first.model_copy(update={"recorded": True}))


@pytest.mark.parametrize("name", BINARY)
async def test_midturn_tells_of_a_turn_with_binary_memory_in_its_history(name, builder):
    async with midturn.open("memory://") as store:
        case = store.session("case", lambda: builder(BINARY[name]))
        result = await case.run(task="Hello.")
        [turn] = [turn async for turn in case.history()]
    assert [message.type for message in turn.messages] == [message.type for message in result.messages]
    assert [dump(message) for message in turn.messages] == [dump(message) for message in result.messages]


CONTEXT = [
    SystemMessage(content="Be kind."),
    UserMessage(content=["Which colour is this?", image()], source="user"),
    AssistantMessage(content=[FunctionCall(id="1", name="look", arguments='{"at": "it"}')], source="eve", thought="hm"),
    FunctionExecutionResultMessage(
        content=[FunctionExecutionResult(content="dark", name="look", call_id="1", is_error=True)]
    ),
    AssistantMessage(content="I cannot say.", source="eve", thought="It is dark."),
]
USAGE = RequestUsage(prompt_tokens=11, completion_tokens=5)
MESSAGES = {
    "text": TextMessage(content="Hello.", source="user", metadata={"ticket": "7"}, models_usage=USAGE),
    "multi_modal": MultiModalMessage(content=["Look:", image(), gradient()], source="user", metadata={"a": "b"}),
    "handoff": HandoffMessage(content="Yours.", target="ann", source="eve", context=CONTEXT, models_usage=USAGE),
    "stop": StopMessage(content="Enough.", source="user"),
}


def fail(what: str) -> str:
    """Never works."""
    raise ValueError(f"no {what} here")


def _think_and_fail(messages):
    if isinstance(messages[-1], FunctionExecutionResultMessage):
        return CreateResult(
            finish_reason="stop",
            content=f"{len(messages)} messages, {digest(messages)}",
            usage=RequestUsage(prompt_tokens=3, completion_tokens=1),
            cached=True,
            thought="That went wrong.",
        )
    return calls(("fail", '{"what": "light"}')).model_copy(update={"thought": "I shall look."})


def thinking():
    ann = assistant("ann", _think_and_fail, tools=[fail], reflect_on_tool_use=True)
    handles[ann] = ann
    return ann


def thinking_team():
    ann = thinking()
    team = RoundRobinGroupChat([ann, assistant("bob")], max_turns=2)
    handles[team] = ann
    return team


@pytest.fixture(params=[thinking, thinking_team])
def build(request):
    return request.param


@pytest.fixture(params=[*MESSAGES, "all"])
def task(request):
    return list(MESSAGES.values()) if request.param == "all" else MESSAGES[request.param]


async def test_the_state_after_a_restore_is_the_state_before(build, task):
    live, fresh = build(), build()
    result = await live.run(task=task)
    assert {"ThoughtEvent", "ToolCallExecutionEvent"} <= {message.type for message in result.messages}
    async with midturn.open("memory://") as store:
        await store.save("case", live)
        await store.load("case", fresh)
    assert await fresh.save_state() == await live.save_state()
    contexts = [await handles[found].model_context.get_messages() for found in (fresh, live)]
    assert exact(contexts[0]) == exact(contexts[1])


async def test_the_stored_state_is_what_plain_autogen_saves(build, task):
    live = build()
    await live.run(task=task)
    async with midturn.open("memory://") as store:
        case = store.session("case", build)
        await case.run(task=task)
        state = await case.at(1).state()
    assert anonymous(state) == anonymous(json.loads(json.dumps(await live.save_state())))


async def test_the_recorded_result_is_the_first_result(build, task):
    async with midturn.open("memory://") as store:
        first = await store.session("case", build).run(task=task, key="mail-1")
        again = await store.session("case", build).run(task=task, key="mail-1")
    assert exact(again) == exact(first.model_copy(update={"recorded": True}))
    assert first.usage.prompt_tokens > 0


async def test_the_next_turn_after_a_restart_says_what_it_says_without_one(build, task):
    said = []
    for restart in (False, True):
        async with midturn.open("memory://") as store:
            case = store.session("case", build)
            await case.run(task=task)
            case = store.session("case", build) if restart else case
            result = await case.run(task="And now?")
            said.append([anonymous(message.model_dump(mode="json")) for message in result.messages])
    assert said[0] == said[1]
