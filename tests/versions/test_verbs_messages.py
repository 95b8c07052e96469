"""Messages and memories are changed, and the next turn continues with what is left of them."""

import json
from base64 import b64encode

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.models import SystemMessage
from moving import (
    FACT,
    World,
    acceptable,
    agent_tool,
    asking_selector,
    go_on,
    graph,
    magentic,
    nested,
    ran,
    round_robin,
    society,
    sources,
    swarm,
    team_tool,
    text,
)
from pydantic import BaseModel

import midturn
from midturn.autogen.edits import State

SECRET = "4111-1111"


@pytest.fixture
def world():
    return World()


def request(asked, name):
    return next(messages for agent, messages in reversed(asked) if agent == name)


def look(order: str) -> str:
    """Look an order up."""
    return f"{order} is paid with {SECRET}"


def clerk(world, name="clerk", **options):
    answer = world.using(("look", {"order": SECRET, "in": [{"a": SECRET}]}))
    return world.agent(name, answer, tools=[look], **options)


def kinds(world):
    return {
        "single": lambda: clerk(world, max_tool_iterations=2),
        "sums up": lambda: clerk(world),
        "round robin": lambda: RoundRobinGroupChat([clerk(world), world.agent("bob")], max_turns=2),
        "selector": asking_selector(world, choice="ann"),
        "swarm": swarm(world, hands=[("ann", "bob")]),
        "magentic": magentic(world),
        "graph": graph(world, "first>left first>right left>last right>last", turns=2),
        "nested": nested(world),
        "society": society(world),
        "agent in a tool": agent_tool(world),
        "team in a tool": team_tool(world),
    }


every_kind = pytest.mark.parametrize("kind", kinds(World()))
TASK = f"{FACT} The card is {SECRET}, the code PQ77Z."


@every_kind
async def test_what_is_secret_is_redacted_everywhere(store, world, kind):
    build = kinds(world)[kind]
    before = await ran(store, build, TASK)
    assert SECRET in json.dumps(before.tree)
    state = before.redact(r"4111-\d+").redact("PQ77Z", "****")
    assert SECRET not in json.dumps(state.tree)
    assert "PQ77Z" not in json.dumps(state.tree)
    asked, _ = await go_on(store, state, build, world, task=None if kind == "magentic" else "And now?")
    if kind not in ("agent in a tool", "team in a tool"):
        assert any(f"{FACT} The card is [redacted], the code ****" in text(messages) for _, messages in asked)


@every_kind
async def test_only_the_last_messages_are_kept(store, world, kind):
    build = kinds(world)[kind]
    before = await ran(store, build, FACT, *(() if kind == "magentic" else ("More.",)))
    for last in range(5):
        state = before.truncate(last=last)
        state.check()
        assert len(state.messages()) >= min(last, len(before.messages()))
        assert state.messages() == before.messages()[len(before.messages()) - len(state.messages()) :]
    await go_on(store, before.truncate(last=2), build, world, task=None if kind == "magentic" else "And now?")


DOOR = "The door is green."


@every_kind
async def test_what_was_said_is_corrected_everywhere(store, world, kind):
    build = kinds(world)[kind]
    before = await ran(store, build, *((DOOR,) if kind == "magentic" else (FACT, DOOR)))
    state = before.correct("green", "blue")
    assert "green" not in json.dumps(state.tree)
    assert "The door is blue." in json.dumps(state.tree)
    asked, _ = await go_on(store, state, build, world, task=None if kind == "magentic" else "And now?")
    assert not any("green" in text(messages) for _, messages in asked)


@every_kind
async def test_a_dropped_message_is_gone_everywhere_and_its_calls_with_it(store, world, kind):
    build = kinds(world)[kind]
    before = await ran(store, build, *((DOOR,) if kind == "magentic" else (FACT, DOOR)))
    state = before.drop_message("green")
    assert "green" not in json.dumps(state.messages())
    assert all("green" not in json.dumps(state.messages(agent)) for agent in state.agents)
    state.check()
    assert State(state.tree).broken == before.broken
    if kind != "magentic":
        assert "green" not in json.dumps(state.tree)
        await go_on(store, state, build, world)


def test_only_the_call_that_goes_with_a_result_is_dropped_though_its_id_occurs_again():
    def called(number):
        call = {"id": "1", "name": "look", "arguments": "{}"}
        result = {"call_id": "1", "content": f"result {number}", "name": "look", "is_error": False}
        return [
            {"type": "UserMessage", "content": f"task {number}", "source": "user"},
            {"type": "AssistantMessage", "content": [call], "thought": None, "source": "ann"},
            {"type": "FunctionExecutionResultMessage", "content": [result]},
        ]

    state = State({"state": {"llm_context": {"messages": [*called(1), *called(2), *called(3)]}}})
    dropped = state.drop_message("result 2")
    assert dropped.messages() == [*called(1), called(2)[0], *called(3)]


async def test_a_swarm_knows_whose_turn_it_is_when_the_handover_is_dropped(store, world):
    build = swarm(world, hands=[("ann", "bob")], limit=2)
    state = (await ran(store, build)).drop_message("Transferred to bob")
    _, result = await go_on(store, state, build, world)
    assert sources(result)[1] == "bob"


async def test_a_call_is_not_cut_from_its_result(store, world):
    state = await ran(store, lambda: clerk(world), FACT, "More.")
    assert [message["type"] for message in state.truncate(last=1).messages()] == [
        "AssistantMessage",
        "FunctionExecutionResultMessage",
    ]
    team = await ran(store, kinds(world)["round robin"], session="team")
    types = [message["type"] for message in team.messages()]
    executed = len(types) - types.index("ToolCallExecutionEvent")
    assert team.truncate(last=executed).messages() == team.messages()[types.index("ToolCallRequestEvent") :]


async def test_system_messages_and_what_was_not_heard_yet_stay(store, world):
    def build():
        return RoundRobinGroupChat([world.agent("ann", memory=[_notes(FACT)]), world.agent("bob")], max_turns=2)

    before = await ran(store, build, "hello")
    state = before.truncate(last=0)
    assert [message["type"] for message in state.messages("ann")] == ["SystemMessage"]
    assert state.messages() == []
    assert "manager/message_thread" not in state.tree["beside"]
    assert state.tree["kept"] == len(state.tree["beside"])
    asked, _ = await go_on(store, state, build, world)
    assert "bob has heard" in text(request(asked, "ann"))
    assert isinstance(request(asked, "ann")[1], SystemMessage)
    only = before.truncate(last=0, agent="ann")
    assert only.messages() == before.messages()
    assert only.messages("bob") == before.messages("bob")


async def test_a_swarm_knows_whose_turn_it_is_when_the_handover_is_cut(store, world):
    build = swarm(world, hands=[("ann", "bob")])
    state = (await ran(store, build)).truncate(last=0)
    _, result = await go_on(store, state, build, world)
    assert sources(result)[1] == "bob"


def _notes(*texts, mime="text/plain", name="notes"):
    return ListMemory(name, [MemoryContent(content=each, mime_type=mime) for each in texts])


@every_kind
async def test_messages_are_mapped(store, world, kind):
    build = kinds(world)[kind]

    def shout(message):
        if isinstance(message["content"], str):
            message["content"] = message["content"].replace("email", "EMAIL")
        return message

    before = await ran(store, build)
    state = before.map_messages(shout)
    assert "prefers email" in json.dumps(before.tree)
    asked, _ = await go_on(store, state, build, world, task=None if kind == "magentic" else "And now?")
    if kind not in ("agent in a tool", "team in a tool"):
        assert any("prefers EMAIL" in text(messages) for _, messages in asked)


async def test_messages_are_dropped_from_all_or_from_one(store, world):
    build = round_robin(world, turns=3)
    before = await ran(store, build)
    state = before.map_messages(lambda message: None if message["source"] == "bob" else message)
    asked, _ = await go_on(store, state, build, world)
    assert "bob has heard" not in text(request(asked, "ann"))
    one = before.map_messages(lambda message: None, agent="cid")
    assert one.messages("cid") == []
    assert one.messages("ann") == before.messages("ann")
    assert one.messages() == before.messages()


async def test_a_result_that_lost_its_call_is_refused_with_its_path(store, world):
    state = await ran(store, kinds(world)["round robin"])
    for gone in (
        "AssistantMessage",
        "FunctionExecutionResultMessage",
        "ToolCallRequestEvent",
        "ToolCallExecutionEvent",
    ):
        with pytest.raises(midturn.StateInvalid) as caught:
            state.map_messages(lambda message, gone=gone: None if message["type"] == gone else message)
        assert caught.value.path.startswith("$.state.agent_states.")
    for wrong in ([], "text", 7):
        with pytest.raises(midturn.StateInvalid, match="returned a"):
            state.map_messages(lambda message, wrong=wrong: wrong)
    with pytest.raises(midturn.StateInvalid):
        state.map_messages(lambda message: {**message, "metadata": {"x": float("nan")}})
    with pytest.raises(midturn.StateInvalid, match="has no content"):
        state.map_messages(lambda message: {**message, "content": [] if isinstance(message["content"], list) else "x"})


class Order(BaseModel):
    number: int


class Purchase(BaseModel):
    number: int
    country: str


def _buyers(world, model):
    def build():
        ann = world.agent(
            "ann", lambda messages: model(number=7, country="DE").model_dump_json(), output_content_type=model
        )
        return RoundRobinGroupChat([ann, world.agent("bob")], max_turns=1)

    return build


@pytest.mark.parametrize(
    ("old", "new"), [("Order", "Purchase"), ("StructuredMessage[Order]", "StructuredMessage[Purchase]")]
)
async def test_structured_messages_get_another_type_and_a_field(store, world, old, new):
    before = await ran(store, _buyers(world, Order))
    state = before.rename_message_type(old, new).add_field(new, "country", "FR").add_field(new, "number", 8)
    [message] = [message for message in state.messages() if message["type"] == "StructuredMessage[Purchase]"]
    assert message["content"] == {"number": 7, "country": "FR"}
    asked, _ = await go_on(store, state, _buyers(world, Purchase), world)
    assert '\\"country\\":\\"FR\\"' in text(request(asked, "bob"))
    assert before.add_field("TextMessage", "metadata", {"x": "y"}) == before
    assert before.add_field("TextMessage", "extra", [1]).messages()[0]["extra"] == [1]
    assert before.rename_message_type("Unknown", "Other") == before


@pytest.mark.parametrize("content", ["it is 4111-1111", b"it is 4111-1111", {"card": "it is 4111-1111"}])
async def test_what_is_remembered_is_redacted_exactly(store, world, content):
    mime = MemoryMimeType.BINARY if isinstance(content, bytes) else MemoryMimeType.JSON
    mime = MemoryMimeType.TEXT if isinstance(content, str) else mime

    def build(content=content):
        memory = ListMemory("notes", [MemoryContent(content=content, mime_type=mime, metadata={"by": "x 4111-1111"})])
        return RoundRobinGroupChat([world.agent("ann", memory=[memory]), world.agent("bob")], max_turns=1)

    state = (await ran(store, build, "hello")).redact("4111-1111")
    stored = json.dumps(state.tree)
    assert SECRET not in stored
    assert b64encode(b"it is 4111-1111").decode() not in stored
    await go_on(store, state, build, world)


async def test_bytes_that_are_no_text_are_left_as_they_are(store, world):
    def build():
        memory = ListMemory("notes", [MemoryContent(content=b"\xff\xfe4111", mime_type=MemoryMimeType.BINARY)])
        return RoundRobinGroupChat([world.agent("ann", memory=[memory]), world.agent("bob")], max_turns=1)

    before = await ran(store, build, "hello")
    state = before.redact("[A-Za-z]+").edit(lambda tree: None)
    assert (
        state.tree["beside"]["participants/ann/memory/notes"] == before.tree["beside"]["participants/ann/memory/notes"]
    )
    await go_on(store, state, build, world)


@pytest.mark.parametrize("mime", ["text/plain", MemoryMimeType.TEXT, "text/own"])
async def test_memories_in_a_thread_stay_with_their_messages(store, world, mime):
    def build():
        ann = world.agent("ann", memory=[_notes(FACT, "other", mime=mime)])
        return RoundRobinGroupChat([ann, world.agent("bob")], max_turns=2)

    before = await ran(store, build, "hello", "more")

    def change(message):
        if message["type"] == "MemoryQueryEvent":
            message["content"] = [each | {"content": each["content"].upper()} for each in message["content"][:1]]
        return None if message.get("source") == "bob" or message["content"] == "hello" else message

    state = before.map_messages(change)
    await go_on(store, state, build, world)
    if mime == "text/plain":  # AutoGen brings back the others
        index = [item["index"] for item in state.tree["beside"]["manager/message_thread"]]
        assert index == [i for i, message in enumerate(state.messages()) if message["type"] == "MemoryQueryEvent"]
        assert len(before.truncate(last=3).tree["beside"]["manager/message_thread"]) == 1
        enough = before.map_messages(lambda message: message | _other_mime(message))
        await go_on(store, enough, build, world, session="enough")


def _other_mime(message):
    if message["type"] != "MemoryQueryEvent":
        return {}
    return {"content": [each | {"mime_type": "text/own"} for each in message["content"]]}


async def test_numbers_and_escapes_in_arguments_are_redacted(store, world):
    def build():
        return world.agent("clerk", world.using(("look", {"order": "Zoë", "pin": 7788})), tools=[look])

    before = await ran(store, build)
    state = before.redact("Zoë|7788")
    [call] = next(message["content"] for message in state.messages() if isinstance(message["content"], list))
    assert json.loads(call["arguments"]) == {"order": "[redacted]", "pin": "[redacted]"}
    garbled = before.edit(_garble)
    assert "{Zoë" in json.dumps(garbled.tree, ensure_ascii=False)
    assert "{[redacted]" in json.dumps(garbled.redact("Zoë").tree)
    assert garbled.alter_tool("look", lambda arguments: {"x": 1}).tree == garbled.tree


def _garble(tree):
    for message in tree["state"]["llm_context"]["messages"]:
        if message["type"] == "AssistantMessage" and isinstance(message["content"], list):
            message["content"][0]["arguments"] = "{Zoë"


def test_messages_of_ones_own_are_redacted_and_images_are_left():
    image = {"data": "iVBOsecretRw0KGgo="}
    messages = [
        {"type": "UserMessage", "source": "secret", "content": ["a secret", image]},
        {"type": "Own", "source": "x", "content": [{"a": ["secret"]}, 7], "note": {"b": "secret"}, "id": "secret"},
        {"type": "SelectSpeakerEvent", "source": "x", "content": ["secret"]},
    ]
    state = State({"state": {"type": "AssistantAgentState", "llm_context": {"messages": messages}}}).redact(
        "secret", "-"
    )
    assert state.messages() == [
        {"type": "UserMessage", "source": "secret", "content": ["a -", image]},
        {"type": "Own", "source": "x", "content": [{"a": ["-"]}, 7], "note": {"b": "-"}, "id": "secret"},
        {"type": "SelectSpeakerEvent", "source": "x", "content": ["secret"]},
    ]


def test_results_of_calls_that_are_not_there_go_with_their_tool():
    result = {"content": "x", "name": "look", "call_id": "1", "is_error": False}
    messages = [
        {"type": "UserMessage", "source": "user", "content": FACT},
        {"type": "FunctionExecutionResultMessage", "content": [result, result | {"name": "weigh", "call_id": "2"}]},
        {"type": "FunctionExecutionResultMessage", "content": [result]},
    ]
    state = State({"state": {"type": "AssistantAgentState", "llm_context": {"messages": messages}}})
    for calls in ("text", "remove"):
        left = state.drop_tool("look", calls).messages()
        assert [len(message["content"]) for message in left] == [len(FACT), 1]


async def test_a_memory_is_seeded(store, world):
    def build():
        return RoundRobinGroupChat([world.agent("ann", memory=[_notes()]), world.agent("bob")], max_turns=1)

    state = (await ran(store, build, "hello", "more")).seed_memory("ann", FACT, "It is urgent.")
    asked, _ = await go_on(store, state, build, world)
    assert FACT in request(asked, "ann")[-1].content
    assert "It is urgent." in request(asked, "ann")[-1].content


async def test_one_of_several_memories_is_seeded(store, world):
    def build():
        return world.agent("ann", memory=[_notes(name="a"), _notes(name="b")])

    state = await ran(store, build)
    assert state.seed_memory("ann", "x", memory="b").tree["beside"]["memory/a"] == []
    with pytest.raises(midturn.InvalidArgument, match="'a', 'b'"):
        state.seed_memory("ann", "x")
    with pytest.raises(midturn.InvalidArgument, match="ListMemory"):
        (await ran(store, round_robin(world), session="other")).seed_memory("ann", "x")


async def test_a_tree_of_ones_own_making(store, world):
    state = await ran(store, round_robin(world))

    def change(tree):
        tree["state"]["agent_states"]["ann"]["agent_state"]["llm_context"]["messages"].append(
            {"type": "UserMessage", "source": "user", "content": "By the way, it is urgent."}
        )
        tree["beside"]["own"] = {}

    edited = state.edit(change)
    assert edited.tree["kept"] == state.tree["kept"] + 1
    assert "urgent" not in json.dumps(state.tree)
    assert state.edit(lambda tree: {"state": tree["state"]}).tree == {"state": state.tree["state"]}
    asked, _ = await go_on(store, edited, round_robin(world, turns=3), world)
    assert "it is urgent" in text(request(asked, "ann"))
    for wrong in (lambda tree: 7, lambda tree: {}, lambda tree: tree | {"beside": []}, lambda tree: tree | {"x": 1}):
        with pytest.raises(midturn.StateInvalid):
            state.edit(wrong)
    with pytest.raises(midturn.StateInvalid, match="not a JSON number"):
        state.edit(lambda tree: tree["beside"].update(x=float("inf")))
    gone = state.edit(lambda tree: tree["state"]["agent_states"].pop("cid") and None)
    assert gone.touched == {"cid"}


async def test_what_is_no_state_or_makes_no_sense_is_refused(store, world):
    state = await ran(store, round_robin(world))
    for tree in (None, [], {}, {"state": {}, "kept": 0}, state.tree | {"kept": 7}, state.tree | {"beside": None}):
        with pytest.raises(midturn.StateInvalid):
            State(tree)
    for verb in (
        lambda: state.redact("("),
        lambda: state.redact(""),
        lambda: state.redact(7),
        lambda: state.redact(b"x"),
        lambda: state.redact("x", ""),
        lambda: state.redact("x", None),
        lambda: state.correct("", "x"),
        lambda: state.correct("x", ""),
        lambda: state.correct(7, "x"),
        lambda: state.correct("nobody has said this", "x"),
        lambda: state.drop_message(""),
        lambda: state.drop_message(7),
        lambda: state.drop_message("nobody has said this"),
        lambda: state.drop_message("hello", agent="nobody"),
        lambda: state.truncate(last=-1),
        lambda: state.truncate(last=True),
        lambda: state.truncate(last="x"),
        lambda: state.truncate(last=1, agent="nobody"),
        lambda: state.rename_message_type("", "x"),
        lambda: state.rename_message_type("x", None),
        lambda: state.add_field("x", "", 1),
        lambda: state.add_field("x", "y", object()),
        lambda: state.seed_memory("nobody", "x"),
        lambda: state.seed_memory("ann", 7),
        lambda: state.seed_memory("ann", ""),
        lambda: state.map_messages(dict, agent="nobody"),
    ):
        with pytest.raises(midturn.InvalidArgument) as caught:
            verb()
        assert caught.value.path


def test_the_checker_of_requests_bites():
    from autogen_core import FunctionCall
    from autogen_core.models import (
        AssistantMessage,
        FunctionExecutionResult,
        FunctionExecutionResultMessage,
        UserMessage,
    )

    call = AssistantMessage(content=[FunctionCall(id="1", name="x", arguments="{}")], source="a")
    result = FunctionExecutionResultMessage(content=[FunctionExecutionResult(content="", name="x", call_id="1")])
    user = UserMessage(content="hello", source="user")
    assert acceptable([user, call, result])
    for wrong in (
        [call],
        [result],
        [call, user, result],
        [call, result, result],
        [UserMessage(content="", source="u")],
    ):
        with pytest.raises(AssertionError):
            acceptable(wrong)
