"""Tools are renamed, dropped and altered, and models are shown only what a provider takes."""

import json
from pathlib import Path

import pytest
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import HandoffMessage
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_core.models import FunctionExecutionResultMessage
from autogen_core.tools import BaseToolWithState, FunctionTool
from moving import FACT, World, acceptable, agent_tool, go_on, magentic, nested, ran, society, team_tool, text
from pydantic import BaseModel

import midturn
from midturn.autogen.edits import State, mentions


@pytest.fixture
def world():
    return World()


def look(order: str) -> str:
    """Look an order up."""
    return f"{order} is on its way"


def weigh(parcel: str) -> str:
    """Weigh a parcel."""
    if parcel == "none":
        raise ValueError("there is no parcel")
    return f"{parcel} weighs 3 kg"


def tool(name, function=look):
    return FunctionTool(function, name=name, description="x")


BOTH = (("look", {"order": "A1"}), ("weigh", {"parcel": "P7"}))


def clerk(world, *wanted, tools=None, name="clerk", **options):
    """An agent that calls tools once for each task."""
    tools = [tool("look"), tool("weigh", weigh)] if tools is None else tools
    options = {"max_tool_iterations": 3} | options
    return world.agent(name, world.using(*wanted) if wanted else None, tools=tools, **options)


def single(world, *wanted, **options):
    return lambda: clerk(world, *wanted, **options)


def _round_robin(world, *wanted, **options):
    return lambda: RoundRobinGroupChat([clerk(world, *wanted, **options), world.agent("bob")], max_turns=2)


def _selector(world, *wanted, **options):
    def build():
        def pick(thread):
            return "bob" if thread[-1].source == "clerk" else "clerk"

        agents = [clerk(world, *wanted, **options), world.agent("bob")]
        return SelectorGroupChat(agents, world.model("selector"), selector_func=pick, max_turns=2)

    return build


def _swarm(world, *wanted, **options):
    def build():
        agents = [clerk(world, *wanted, **options), world.agent("bob")]
        return Swarm(agents, max_turns=1)

    return build


def _magentic(world, *wanted, **options):
    def build():
        team = magentic(world, speaker="clerk")()
        agents = [clerk(world, *wanted, **options), world.agent("bob")]
        return MagenticOneGroupChat(agents, team._model_client, max_turns=1)

    return build


def _graph(world, *wanted, **options):
    def build():
        first, second = clerk(world, *wanted, **options), world.agent("bob")
        builder = DiGraphBuilder().add_node(first).add_node(second).add_edge(first, second)
        return GraphFlow(builder.get_participants(), builder.build())

    return build


def _nested(world, *wanted, **options):
    def build():
        inner = RoundRobinGroupChat([clerk(world, *wanted, **options)], max_turns=1, name="crew")
        return RoundRobinGroupChat([inner, world.agent("bob")], max_turns=2)

    return build


ITERATING = {"max_tool_iterations": 3}
SUMMING = {"max_tool_iterations": 1}
KINDS = [
    (single, ITERATING),
    (single, SUMMING),
    (_round_robin, ITERATING),
    (_round_robin, SUMMING),
    (_selector, SUMMING),
    (_swarm, SUMMING),
    (_magentic, SUMMING),
    (_graph, SUMMING),
    (_nested, SUMMING),
]
every_kind = pytest.mark.parametrize(("build", "options"), KINDS)


def task(build):
    """An orchestrator begins again with a task, and continues without one."""
    return None if build is _magentic else "And now?"


def request(asked, name="clerk"):
    return next(messages for agent, messages in asked if agent == name)


def called(messages):
    """The names of the calls and of the results in a request."""
    calls = [call.name for each in messages if isinstance(each.content, list) for call in each.content]
    return set(calls)


def everywhere(state):
    return json.dumps(state.tree)


@every_kind
async def test_a_tool_is_renamed_in_all_its_calls(store, world, build, options):
    before = await ran(store, build(world, *BOTH, **options))
    state = before.rename_tool("look", "find")
    assert mentions(state.tree, "look") == 0
    assert mentions(state.tree, "find") == mentions(before.tree, "look") > 0
    assert '"look"' not in everywhere(state)
    tools = [tool("find"), tool("weigh", weigh)]
    asked, _ = await go_on(store, state, build(world, tools=tools, **options), world, task(build))
    assert called(request(asked)) == {"find", "weigh"}
    assert FACT in text(request(asked))


@every_kind
async def test_one_of_two_parallel_calls_is_dropped(store, world, build, options):
    before = await ran(store, build(world, *BOTH, **options))
    for calls in ("text", "remove"):
        state = before.drop_tool("look", calls)
        assert mentions(state.tree, "look") == 0
        assert mentions(state.tree, "weigh") == mentions(before.tree, "weigh") > 0
        summaries = [each for each in state.messages() if each["type"] == "ToolCallSummaryMessage"]
        assert all(("A1" in each["content"]) is (calls == "text") for each in summaries)
        last = build(world, tools=[tool("weigh", weigh)], **options)
        asked, _ = await go_on(store, state, last, world, task(build), session=calls)
        shown = request(asked)
        assert called(shown) == {"weigh"}
        assert FACT in text(shown)
        assert ("A1 is on its way" in text(shown)) is (calls == "text")
        assert "P7 weighs 3 kg" in text(shown)


@every_kind
async def test_the_only_call_is_dropped(store, world, build, options):
    before = await ran(store, build(world, BOTH[0], **options))
    for calls in ("text", "remove"):
        state = before.drop_tool("look", calls)
        assert mentions(state.tree, "look") == 0
        assert '"look"' not in everywhere(state)
        last = build(world, tools=[], **options)
        asked, _ = await go_on(store, state, last, world, task(build), session=calls)
        shown = request(asked)
        assert called(shown) == set()
        assert FACT in text(shown)
        assert ("A1 is on its way" in text(shown)) is (calls == "text")


@every_kind
async def test_the_arguments_of_old_calls_are_altered(store, world, build, options):
    def alter(arguments):
        return {"number": arguments["order"], "country": "DE"}

    state = (await ran(store, build(world, *BOTH, **options))).alter_tool("look", alter)
    asked, _ = await go_on(store, state, build(world, **options), world, task(build))
    found = [
        json.loads(call.arguments)
        for message in request(asked)
        if isinstance(message.content, list) and not isinstance(message, FunctionExecutionResultMessage)
        for call in message.content
    ]
    assert found[:2] == [{"number": "A1", "country": "DE"}, {"parcel": "P7"}]
    assert '\\"order\\"' not in everywhere(state)
    assert state.touched == {"look"}


async def test_what_was_dropped_is_told_in_words(store, world):
    wanted = (("look", {"order": "A1"}), ("weigh", {"parcel": "none"}))
    state = await ran(store, single(world, *wanted))
    said = [message["content"] for message in state.drop_tool("look").drop_tool("weigh").messages()]
    assert said[0] == FACT
    assert 'Called look with {"order": "A1"}: A1 is on its way' in said
    assert 'Called weigh with {"parcel": "none"}, which failed: there is no parcel' in said


async def test_what_was_thought_with_a_removed_call_stays(store, world):
    state = await ran(store, single(world, BOTH[0]))

    def think(tree):
        for message in tree["state"]["llm_context"]["messages"]:
            if isinstance(message["content"], list) and message["type"] == "AssistantMessage":
                message["thought"] = "I have to look."

    removed = state.edit(think).drop_tool("look", "remove")
    assert [message["content"] for message in removed.messages()] == [FACT, "I have to look.", "that is done"]


async def test_a_call_that_was_never_answered_is_dropped_or_left_as_it_is(store, world):
    tree = (await ran(store, single(world, *BOTH))).tree

    def interrupt(tree):
        messages = tree["state"]["llm_context"]["messages"]
        del messages[2:]

    broken = json.loads(json.dumps(tree))
    interrupt(broken)
    state = State(broken)
    state.check()  # it is answered before the next turn
    assert "there was no answer" in str(state.drop_tool("look").messages())
    asked, _ = await go_on(store, state.rename_tool("look", "find"), single(world, tools=[tool("find")]), world)
    assert called(request(asked)) == {"find", "weigh"}
    with pytest.raises(midturn.StateInvalid, match="has no result") as caught:
        State(tree).edit(interrupt)
    assert caught.value.path == "$.state.llm_context.messages[1]"


async def test_calls_of_one_agent_only(store, world):
    def build():
        both = [clerk(world, BOTH[0], name=name) for name in ("ann", "bob")]
        return RoundRobinGroupChat(both, max_turns=2)

    state = await ran(store, build)
    assert mentions(state.tree, "look") == 2
    assert mentions(state.rename_tool("look", "find", agent="ann").tree, "look") == 1
    assert mentions(state.drop_tool("look", "remove", agent="bob").tree, "look") == 1
    assert mentions(state.drop_tool("look", agent="bob").tree, "look") == 1
    altered = state.alter_tool("look", lambda arguments: {"x": 1}, agent="ann")
    assert everywhere(altered).count('{\\"x\\": 1}') == everywhere(altered).count('{\\"order\\": \\"A1\\"}')
    state.drop_tool("look", agent="bob").check()


class Count(BaseModel):
    n: int = 0


class Nothing(BaseModel):
    pass


class Counter(BaseToolWithState[Nothing, Count, Count]):
    """Counts its calls."""

    def __init__(self, name):
        super().__init__(Nothing, Count, Count, name, "counts")
        self.count = 0

    async def run(self, args, cancellation_token):
        self.count += 1
        return Count(n=self.count)

    def save_state(self):
        return Count(n=self.count)

    def load_state(self, state):
        self.count = state.n


async def test_what_a_tool_keeps_moves_with_its_name_and_goes_with_it(store, world):
    def build(name):
        return lambda: clerk(world, (name, {}), tools=[Counter(name), tool("look")])

    state = await ran(store, build("count"))
    assert state.tree["beside"] == {"tools/count": {"n": 1}}
    dropped = state.drop_tool("count")
    assert dropped.tree["beside"] == {}
    assert dropped.tree["kept"] == 0
    asked, _ = await go_on(store, state.rename_tool("count", "tally"), build("tally"), world)
    assert asked[-1][1][-1].content[0].content == '{"n": 2}'
    with pytest.raises(midturn.StateInvalid, match="is there already"):
        state.edit(lambda tree: tree["beside"].update({"tools/x": {"n": 5}})).rename_tool("count", "x")


async def test_an_agent_in_a_tool_is_renamed_with_the_tool(store, world):
    state = (await ran(store, agent_tool(world))).rename_tool("helper", "aide")
    assert state.agents == ["boss", "aide"]
    asked, _ = await go_on(store, state, agent_tool(world, "aide"), world)
    assert len(request(asked, "aide")) > 3


async def test_a_tool_with_a_team_is_renamed_or_dropped_with_all_that_is_in_it(store, world):
    state = await ran(store, team_tool(world))
    renamed = state.rename_tool("crew", "squad")
    assert renamed.agents == ["boss", "squad", "squad/ann", "squad/bob"]
    asked, _ = await go_on(store, renamed, team_tool(world, "squad"), world)
    assert "look it up" in text(request(asked, "bob"))
    dropped = state.drop_tool("crew")
    assert dropped.agents == ["boss"]
    assert dropped.touched == {"crew", "ann", "bob"}
    asked, _ = await go_on(store, dropped, lambda: world.agent("boss"), world, session="dropped")
    assert FACT in text(request(asked, "boss"))


async def test_the_calls_that_led_to_a_handover_are_changed_with_it(store, world):
    def build():
        ann = world.agent("ann", world.using(BOTH[0], ("transfer_to_bob", {})), tools=[tool("look")], handoffs=["bob"])
        return Swarm([ann, world.agent("bob")], termination_condition=MaxMessageTermination(4))

    state = await ran(store, build)
    handover = next(message for message in state.messages() if message["type"] == "HandoffMessage")
    assert HandoffMessage.model_validate(handover).context
    assert mentions(state.rename_tool("look", "find").tree, "look") == 0
    for calls in ("text", "remove"):
        dropped = state.drop_tool("look", calls)
        assert '"look"' not in everywhere(dropped)
        asked, _ = await go_on(store, dropped, build, world, session=calls)
        assert ("A1 is on its way" in text(request(asked, "bob"))) is (calls == "text")


async def test_a_society_of_mind_and_nested_teams_have_their_tools_changed(store, world):
    for number, build in enumerate((society(world), nested(world))):
        state = await ran(store, build, session=f"s{number}")
        assert state.rename_tool("never_called", "x").tree == state.tree  # a state knows only tools that were called
        assert state.drop_tool("never_called").tree == state.tree


def _raw(version, kind):
    """A state that an older AutoGen wrote."""
    return json.loads((Path(__file__).parents[1] / "golden" / "autogen" / version / f"{kind}.json").read_text())


def _with_another_call(state):
    """The same where the model called two tools at once."""

    def visit(value):
        if isinstance(value, dict):
            if isinstance(items := value.get("content"), list):
                items += [json.loads(json.dumps(item).replace("look_up", "weigh")) for item in items]
            value = list(value.values())
        for item in value if isinstance(value, list) else ():
            visit(item)

    visit(state)
    return state


@pytest.mark.parametrize("parallel", [False, True])
async def test_messages_of_an_older_autogen_get_no_ids_when_a_tool_is_dropped(store, world, parallel):
    raw = _raw("0.5.7", "round_robin")
    before = State({"state": _with_another_call(raw) if parallel else raw, "beside": {}, "kept": 0})
    state = before.drop_tool("look_up", "text")
    assert mentions(state.tree, "look_up") == 0
    thread = state.tree["state"]["agent_states"]["RoundRobinGroupChatManager"]["message_thread"]
    assert all("id" not in message for message in thread)
    assert "None" not in everywhere(state)
    [told] = [each for each in thread if str(each["content"]).startswith("Called look_up")]
    assert told["type"] == "TextMessage"

    def build():
        ann = world.agent("ann", tools=[tool("weigh", weigh)] if parallel else [])
        return RoundRobinGroupChat([ann, world.agent("bob")], max_turns=2)

    support = midturn.Blueprint("support", build, version=2)
    support.migration(1, 2)(lambda state: state.drop_tool("look_up", "text"))
    await store.session("case").save({"state": before.tree["state"]}, origin="import")
    result = await store.session("case", support).run(task="And now?")
    assert [message.source for message in result.messages] == ["user", "bob", "ann"]
    assert all(acceptable(messages) for _, messages in world.asked)
    shown = request(world.asked, "ann")
    assert called(shown) == ({"weigh"} if parallel else set())
    assert "Called look_up" in text(shown)
    now = (await store.session("case").at(2).state())["agent_states"]["RoundRobinGroupChatManager"]["message_thread"]
    assert len({message["id"] for message in now}) == len(now)
    assert not any("None" in message["id"] for message in now)


async def test_what_is_no_tool_or_no_way_to_drop_it_is_refused(store, world):
    state = await ran(store, single(world, *BOTH))
    for verb in (
        lambda: state.rename_tool("", "x"),
        lambda: state.rename_tool("look", ""),
        lambda: state.rename_tool("look", None),
        lambda: state.rename_tool("look", "x", agent="nobody"),
        lambda: state.drop_tool("look", "burn"),
        lambda: state.drop_tool(7),
        lambda: state.alter_tool("look", lambda arguments: [arguments]),
        lambda: state.alter_tool("look", lambda arguments: {"x": float("nan")}),
        lambda: state.alter_tool("", dict),
    ):
        with pytest.raises((midturn.InvalidArgument, midturn.StateInvalid)) as caught:
            verb()
        assert caught.value.path
