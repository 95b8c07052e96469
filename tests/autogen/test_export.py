"""Other libraries continue what is exported, with tool results, images and everybody's words."""

import json
import subprocess
from pathlib import Path

import kinds
import pytest
from autogen_agentchat.messages import MultiModalMessage
from autogen_core import FunctionCall, Image
from autogen_core.models import AssistantMessage, FunctionExecutionResult, FunctionExecutionResultMessage, UserMessage
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

import midturn

HERE = Path(__file__).parent
OTHER = HERE.parents[1] / ".venv" / "agent-framework" / "bin" / "python"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
ACCEPTED = {
    "responses": TypeAdapter(list[ResponseInputItemParam]),
    "openai-chat": TypeAdapter(list[ChatCompletionMessageParam]),
}


@pytest.fixture
async def store():
    async with midturn.open("memory://") as store:
        yield store


async def exported(store, build, *tasks, to):
    for task in tasks:
        await store.session("case-42", build).run(task=task)
    return (await midturn.export(store, "case-42", to=to)).json()


def continued(document):
    """Continue an export with Microsoft Agent Framework, in an environment of its own."""
    assert OTHER.exists(), "make .venv/agent-framework/.installed makes the environment that this test needs"
    done = subprocess.run(
        [OTHER, "-I", HERE / "agent_framework_chat.py"],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def picture():
    return MultiModalMessage(content=["What is this?", Image.from_base64(PIXEL)], source="user")


async def test_agent_framework_continues_with_the_old_tool_results(store):
    document = await exported(store, kinds.assistant_with_tools, "Where is it?", to="agent-framework")
    found = continued(document)["assistant"]
    assert found["session"] == "case-42/assistant"
    assert found["answer"].startswith("I was told: order ")
    assert found["answer"].endswith("is on its way, 8 kg")
    assert [role for role, *_ in found["seen"]] == ["user", "assistant", "tool", "assistant", "user"]
    assert [name for _, name, _ in found["seen"][:4]] == ["user", "assistant", "assistant", "assistant"]


async def test_agent_framework_continues_each_agent_of_a_team_and_its_thread(store):
    document = await exported(store, kinds.round_robin, "Hello", picture(), to="agent-framework")
    found = continued(document)
    assert list(found) == ["ann", "bob", "cid", "team"]
    for name, each in found.items():
        told = [content for *_, contents in each["seen"] for content in contents]
        assert [content["uri"] for content in told if content["type"] == "data"] == [f"data:image/png;base64,{PIXEL}"]
        own = "assistant" if name == "team" else "user"
        assert {role for role, author, _ in each["seen"] if author == "ann"} == {own if name != "ann" else "assistant"}
    thread = found["team"]["seen"]
    assert [author for _, author, _ in thread[:3]] == ["user", "ann", "bob"]


@pytest.mark.parametrize("to", ACCEPTED)
@pytest.mark.parametrize("kind", kinds.KINDS)
async def test_the_types_of_the_openai_client_accept_every_item(store, kind, to):
    document = await exported(store, kinds.KINDS[kind], *kinds.TASKS[:2], picture(), to=to)
    for each in (document["agents"] | document["threads"]).values():
        assert each
        ACCEPTED[to].validate_python(each, strict=False, extra="forbid")
    json.dumps(document, allow_nan=False)


async def test_the_types_of_the_openai_client_notice_what_is_wrong():
    for adapter in ACCEPTED.values():
        with pytest.raises(ValueError, match="validation error"):
            adapter.validate_python([{"role": "nobody", "content": "?"}], extra="forbid")


@pytest.mark.parametrize("to", ["agent-framework", *ACCEPTED])
async def test_calls_without_results_are_closed(store, to):
    call = FunctionCall(id="call-1", name="refund", arguments='{"order": "7"}')
    agent = kinds.assistant("ann")
    for message in (
        UserMessage(content="Refund it.", source="user"),
        AssistantMessage(content=[call], thought="It is theirs.", source="ann"),
        UserMessage(content="Well?", source="user"),
        AssistantMessage(content=[call], source="ann"),
        FunctionExecutionResultMessage(
            content=[FunctionExecutionResult(content="done", name="refund", call_id="call-1", is_error=False)]
        ),
    ):
        await agent._model_context.add_message(message)
    await store.save("case-42", agent)
    document = (await midturn.export(store, "case-42", to=to)).json()
    text = json.dumps(document["agents"]["ann"])
    # A result belongs to the call right before it. AutoGen's model repeats the id; here each call has its own.
    assert text.index('"call-1"') < text.index("interrupted") < text.index("Well?") < text.index('"call-1-2"')
    assert text.count('"call-1"') == text.count('"call-1-2"') == 2
    assert text.index('"call-1-2"') < text.index('"done"')
    assert any("'refund' by 'ann': there is none" in line for line in document["left_out"])
    assert ("It is theirs." in text) == (to == "agent-framework")
    assert any("reasoning" in line for line in document["left_out"]) == (to != "agent-framework")


async def test_what_has_no_place_is_reported(store):
    from autogen_agentchat.agents import UserProxyAgent
    from autogen_agentchat.conditions import MaxMessageTermination
    from autogen_agentchat.teams import RoundRobinGroupChat
    from autogen_core.memory import ListMemory, MemoryContent

    def build():
        memory = ListMemory("notes", [MemoryContent(content="prefers email", mime_type="text/plain")])
        ann = kinds.assistant("ann", memory=[memory])
        return RoundRobinGroupChat([ann, UserProxyAgent("desk")], termination_condition=MaxMessageTermination(2))

    left = (await exported(store, build, "Hello", to="responses"))["left_out"]
    assert any(line.startswith("whose turn it is in 'team': ") and "next_speaker_index" in line for line in left)
    assert "agent 'desk' keeps no conversation of its own" in left
    assert "messages that 'desk' has not read yet: 2" in left
    assert any("memory" in line for line in left)
    assert "1 of the type MemoryQueryEvent in the thread of 'team'" in left


async def test_an_agent_knows_what_it_has_not_read_yet(store):
    document = await exported(store, kinds.round_robin, "Hello", to="responses")
    answer = document["threads"]["team"][-1]["content"]
    assert answer.startswith("bob: ")
    assert document["agents"]["ann"][-1] == {"type": "message", "role": "user", "content": answer}


async def test_the_openai_client_sends_what_was_exported(store):
    """The real client, with a transport of the test's own, sends the items as they are."""
    import httpx
    from openai import AsyncOpenAI

    items = (await exported(store, kinds.assistant_with_tools, "Where is it?", to="responses"))["agents"]["assistant"]
    sent = []

    def answer(request):
        sent.append(json.loads(request.content))
        return httpx.Response(400, json={"error": {"message": "enough"}})

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    async with AsyncOpenAI(api_key="none", http_client=http, max_retries=0) as client:
        with pytest.raises(Exception, match="enough"):
            await client.responses.create(model="gpt-4o-mini", input=[*items, {"role": "user", "content": "And?"}])
    assert sent[0]["input"] == [*items, {"role": "user", "content": "And?"}]


async def test_wrong_arguments_are_refused(store):
    await store.session("case-42", kinds.assistant).run(task="Hello")
    with pytest.raises(midturn.InvalidArgument, match="agent-framework, responses, openai-chat"):
        await midturn.export(store, "case-42", to="crewai")
    with pytest.raises(midturn.NotFound, match="no checkpoint 7"):
        await midturn.export(store, "case-42", to="responses", at=7)
    with pytest.raises(midturn.NotFound, match="case-43"):
        await midturn.export(store, "case-43", to="responses")
    await store.delete("case-42")
    with pytest.raises(midturn.SessionDeleted):
        await midturn.export(store, "case-42", to="responses")


async def test_a_state_without_a_conversation_is_refused(store):
    class Counter:
        async def save_state(self):
            return {"count": 1}

        async def load_state(self, state):
            pass

    await store.save("case-42", Counter())
    with pytest.raises(midturn.NotFound, match="has no conversation"):
        await midturn.export(store, "case-42", to="responses")
