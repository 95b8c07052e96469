"""Agents are renamed, removed, added and reset, and the next turn continues the whole conversation."""

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.memory import ListMemory, MemoryContent
from moving import (
    FACT,
    World,
    agent_tool,
    asking_selector,
    go_on,
    graph,
    magentic,
    nested,
    ran,
    round_robin,
    selector,
    society,
    sources,
    swarm,
    team_tool,
    text,
)

import midturn
from midturn.autogen.edits import FRESH, State, fill


@pytest.fixture
def world():
    return World()


def request(asked, name):
    """The last request of an agent."""
    return next(messages for agent, messages in reversed(asked) if agent == name)


async def test_a_single_agent_is_renamed(store, world):
    state = (await ran(store, lambda: world.agent("triage"))).rename_agent("triage", "router")
    assert state.agents == ["router"]
    asked, _ = await go_on(store, state, lambda: world.agent("router"), world)
    assert FACT in text(asked[0][1])
    assert "triage" not in [getattr(message, "source", None) for message in asked[0][1]]


async def test_an_agent_that_has_said_nothing_has_any_name(store, world):
    agent = world.agent("triage")
    await store.save("empty", agent)
    state = State(await store.session("empty", None).at(1).tree())
    assert state.agents == []
    assert state.rename_agent("triage", "router").tree == state.tree
    assert state.reset_agent("triage").tree["state"] == FRESH


async def test_the_next_of_a_round_robin_is_renamed(store, world):
    state = await ran(store, round_robin(world))
    state = state.rename_agent("bob", "zoe").rename_agent("ann", "amy")
    assert state.agents == ["amy", "zoe", "cid"]
    assert state.touched >= {"bob", "zoe", "ann", "amy"}
    asked, result = await go_on(store, state, round_robin(world, "amy zoe cid"), world)
    assert sources(result)[-1] == "zoe"
    assert FACT in text(asked[0][1])
    assert "ann" not in [getattr(message, "source", None) for message in asked[0][1]]


async def test_the_previous_speaker_of_a_selector_is_renamed(store, world):
    state = (await ran(store, asking_selector(world))).rename_agent("bob", "zoe")
    asked, result = await go_on(store, state, asking_selector(world, "ann zoe cid", "zoe"), world)
    assert sources(result)[-1] == "zoe"
    prompt = text(request(asked, "selector"))
    assert FACT in prompt
    assert "bob:" not in prompt
    assert "zoe: bob has heard" in prompt


async def test_who_has_been_handed_over_to_in_a_swarm_is_renamed(store, world):
    hands = [("ann", "bob")]
    state = (await ran(store, swarm(world, hands=hands))).rename_agent("bob", "Zoe")
    build = swarm(world, "ann Zoe", hands=[("ann", "Zoe")])
    asked, result = await go_on(store, state, build, world)
    assert sources(result)[1] == "Zoe"
    assert FACT in text(asked[0][1])
    told = state.messages("ann")
    assert [
        call["name"] for message in told if isinstance(message["content"], list) for call in message["content"]
    ] == [
        "transfer_to_zoe",
        "transfer_to_zoe",
    ]
    assert "transfer_to_zoe" in state.touched


async def test_an_agent_of_an_orchestrator_is_renamed_and_the_plan_goes_on(store, world):
    state = (await ran(store, magentic(world))).rename_agent("ann", "amy")
    asked, _ = await go_on(store, state, magentic(world, "amy bob", "amy"), world, task=None)
    assert FACT in text(request(asked, "amy"))


@pytest.mark.parametrize("turns", [1, 2, None])
async def test_nodes_of_a_graph_are_renamed_midway(store, world, turns):
    edges = "first>left first>right left>last right>last"
    state = await ran(store, graph(world, edges, turns=turns))
    state = state.rename_agent("last", "end").rename_agent("left", "west").rename_agent("first", "start")
    renamed = "start>west start>right west>end right>end"
    asked, result = await go_on(store, state, graph(world, renamed), world)
    expected = {1: {"west", "right", "end"}, 2: {"end"}, None: {"start", "west", "right", "end"}}
    assert set(sources(result)[1:]) - {"DiGraphStopAgent", "user"} == expected[turns]
    assert FACT in text(asked[-1][1])


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_nodes_of_a_cycle_are_renamed_midway(store, world, turns, groups):
    said = iter(["again", "again", "fine", "fine"])
    answers = {"check": lambda messages: next(said), "critic": lambda messages: next(said)}
    edges = "write>check check>write? check>done!"
    state = await ran(store, graph(world, edges, entry="write", turns=turns, answers=answers, groups=groups))
    state = state.rename_agent("check", "critic").rename_agent("write", "author")
    renamed = "author>critic critic>author? critic>done!"
    options = {"answers": answers, "turns": 8, "groups": groups}
    asked, result = await go_on(store, state, graph(world, renamed, entry="author", **options), world)
    assert "done" in sources(result)
    assert FACT in text(request(asked, "done"))


async def test_agents_and_teams_inside_a_team_are_renamed(store, world):
    state = await ran(store, nested(world))
    assert state.agents == ["lead", "crew", "crew/ann", "crew/bob"]
    state = state.rename_agent("crew", "squad").rename_agent("all/squad/ann", "amy").rename_agent("lead", "head")
    assert state.agents == ["head", "squad", "squad/amy", "squad/bob"]
    asked, result = await go_on(store, state, nested(world, "amy bob", "head", "squad"), world)
    assert sources(result)[-1] == "bob"  # it is the second time that the inner team is asked
    assert FACT in text(request(asked, "bob"))


async def test_two_agents_of_the_same_name_are_told_apart_by_their_paths(store, world):
    state = await ran(store, nested(world, inner="ann bob", outer="ann"))
    with pytest.raises(midturn.InvalidArgument, match="'crew/ann'"):
        state.rename_agent("zed", "x")
    renamed = state.rename_agent("crew/ann", "amy")
    assert renamed.messages("ann")[1]["source"] == "ann"
    assert renamed.messages("crew/amy")[-1]["source"] == "amy"
    assert renamed.agents == ["ann", "crew", "crew/amy", "crew/bob"]
    asked, _ = await go_on(store, renamed, nested(world, "amy bob", "ann"), world)
    assert FACT in text(request(asked, "bob"))
    outer = state.rename_agent("ann", "amy")
    assert outer.agents == ["amy", "crew", "crew/ann", "crew/bob"]


async def test_the_agents_of_a_society_of_mind_are_renamed(store, world):
    state = await ran(store, society(world))
    assert state.agents == ["mind", "mind/ann", "mind/bob", "lead"]
    state = state.rename_agent("mind", "brain").rename_agent("ann", "amy")
    asked, _ = await go_on(store, state, society(world, "amy bob", "brain"), world)
    assert FACT in text(request(asked, "amy"))  # the society tells its team what it was told before


async def test_an_agent_in_a_tool_gives_the_tool_its_name(store, world):
    state = (await ran(store, agent_tool(world))).rename_agent("helper", "aide")
    assert state.agents == ["boss", "aide"]
    asked, _ = await go_on(store, state, agent_tool(world, "aide"), world)
    assert "helper" not in [call["name"] for message in state.messages() for call in _calls(message)]
    assert len(request(asked, "aide")) > 3  # it knows what it was asked in the first turn


def _calls(message):
    return message["content"] if isinstance(message["content"], list) else []


async def test_an_agent_of_a_team_in_a_tool_is_renamed(store, world):
    state = (await ran(store, team_tool(world))).rename_agent("crew/ann", "amy")
    assert state.agents == ["boss", "crew", "crew/amy", "crew/bob"]
    asked, _ = await go_on(store, state, team_tool(world, inner="amy bob"), world)
    assert "look it up" in text(request(asked, "bob"))
    with pytest.raises(midturn.InvalidArgument, match="rename_tool"):
        state.rename_agent("crew", "squad")


def _team_with(world, name, notes):
    return RoundRobinGroupChat([world.agent(name, memory=[notes]), world.agent("bob")], max_turns=2)


async def test_what_an_agent_remembers_moves_with_its_name(store, world):
    state = await ran(store, lambda: _team_with(world, "ann", _notes(FACT)), "hello")
    state = state.rename_agent("ann", "amy")
    asked, _ = await go_on(store, state, lambda: _team_with(world, "amy", _notes()), world)
    assert FACT in request(asked, "amy")[-1].content


def _notes(*texts, name="notes"):
    return ListMemory(name, [MemoryContent(content=each, mime_type="text/plain") for each in texts])


def _sharing(world, names):
    def build():
        shared = _notes(name="notes")
        return RoundRobinGroupChat([world.agent(name, memory=[shared]) for name in names.split()], max_turns=2)

    return build


async def test_a_memory_that_was_shared_stays_with_those_who_stay(store, world):
    state = (await ran(store, _sharing(world, "ann bob cid"), "hello")).seed_memory("ann", FACT, "The PIN is 77.")
    with pytest.raises(midturn.InvalidArgument, match="those of 'ann'"):
        state.seed_memory("bob", "x")
    gone = state.remove_agent("ann").redact("77")
    assert "77" not in str(gone.tree["beside"])
    asked, _ = await go_on(store, gone, _sharing(world, "bob cid"), world)
    assert FACT in request(asked, "bob")[-1].content
    assert "The PIN is [redacted]." in request(asked, "bob")[-1].content
    await go_on(store, gone, round_robin(world, "bob cid"), world, session="none")  # nobody has one any more
    await go_on(store, gone.add_agent("ann"), _sharing(world, "bob cid ann"), world, session="again")


async def test_a_task_is_still_the_users_when_an_agent_of_that_name_is_renamed(store, world):
    state = (await ran(store, round_robin(world, "user bob"))).rename_agent("user", "customer")
    assert state.messages()[0]["source"] == "user"
    assert state.agents == ["customer", "bob"]


@pytest.mark.parametrize(("gone", "turns", "speaker"), [("bob", 1, "cid"), ("ann", 1, "bob"), ("cid", 2, "ann")])
async def test_the_turn_of_one_who_left_a_round_robin_goes_to_the_next(store, world, gone, turns, speaker):
    state = (await ran(store, round_robin(world, turns=turns))).remove_agent(gone)
    left = " ".join(name for name in ("ann", "bob", "cid") if name != gone)
    asked, result = await go_on(store, state, round_robin(world, left), world)
    assert sources(result)[-1] == speaker
    assert FACT in text(asked[0][1])
    assert "ann has heard" in text(asked[0][1])


async def test_a_selector_forgets_the_previous_speaker_who_left(store, world):
    state = (await ran(store, asking_selector(world))).remove_agent("bob")
    asked, _ = await go_on(store, state, asking_selector(world, "ann cid", "cid"), world)
    assert "bob has heard" in text(request(asked, "cid"))


@pytest.mark.parametrize(
    ("hands", "gone", "speaker"),
    [([("ann", "bob")], "bob", "ann"), ([("ann", "bob")], "ann", "bob"), ([("ann", "customer")], "ann", "bob")],
)
async def test_a_swarm_goes_on_without_one_who_left(store, world, hands, gone, speaker):
    state = (await ran(store, swarm(world, "ann bob cid", hands=hands))).remove_agent(gone)
    left = " ".join(name for name in ("ann", "bob", "cid") if name != gone)
    asked, result = await go_on(store, state, swarm(world, left, limit=2), world)
    assert sources(result)[-1] == speaker
    assert FACT in text(asked[0][1])


async def test_who_has_the_turn_in_a_swarm_without_handovers_may_leave(store, world):
    state = (await ran(store, swarm(world, "ann bob cid"))).remove_agent("ann")
    _, result = await go_on(store, state, swarm(world, "bob cid", limit=2), world)
    assert sources(result)[-1] == "bob"


def _graph_tree():
    stop = {"source": "bob", "content": "bob has stopped", "type": "StopMessage"}
    members = {
        name: {"type": "ChatAgentContainerState", "agent_state": {"type": "BaseState"}, "message_buffer": []}
        for name in ("ann", "bob", "cid")
    }
    chosen = {"type": "SelectSpeakerEvent", "source": "GraphManager", "content": ["ann", "bob"]}
    manager = {"message_thread": [chosen], "current_turn": 0, "remaining": {}, "enqueued_any": {}, "ready": ["ann"]}
    beside = {
        "graph/ann>bob%230": {"n": 1},
        "graph/bob>cid%230/inner": {"n": 2},
        "graph/ann>cid%231": {"n": 3},
        "termination_condition": {"stop_messages": [stop]},
    }
    return {
        "state": {"type": "TeamState", "agent_states": members | {"GraphManager": manager}},
        "beside": beside,
        "kept": 4,
    }


def test_what_edges_and_conditions_keep_goes_by_the_names_of_agents():
    state = State(_graph_tree())
    renamed = state.rename_agent("bob", "zoe")
    assert list(renamed.tree["beside"])[:3] == ["graph/ann>zoe%230", "graph/zoe>cid%230/inner", "graph/ann>cid%231"]
    assert renamed.tree["beside"]["termination_condition"]["stop_messages"][0]["source"] == "zoe"
    assert renamed.messages()[0]["content"] == ["ann", "zoe"]
    assert list(state.remove_agent("bob").tree["beside"]) == ["graph/ann>cid%231", "termination_condition"]
    redacted = state.redact("stopped").tree["beside"]["termination_condition"]["stop_messages"][0]
    assert redacted["content"] == "bob has [redacted]"


async def test_an_orchestrator_goes_on_without_one_who_left(store, world):
    state = (await ran(store, magentic(world))).remove_agent("ann")
    asked, _ = await go_on(store, state, magentic(world, "bob", "bob"), world, task=None)
    assert FACT in text(request(asked, "bob"))


@pytest.mark.parametrize(
    ("turns", "gone", "spoken"),
    [
        (None, "left", ["first", "right", "last"]),  # it rests, and begins again
        (1, "left", ["right", "last"]),
        (2, "left", ["last"]),
        (2, "last", ["first", "left", "right"]),  # nobody has the turn: it begins again
    ],
)
async def test_a_graph_goes_on_without_a_node(store, world, turns, gone, spoken):
    edges = "first>left first>right left>last right>last"
    state = (await ran(store, graph(world, edges, turns=turns))).remove_agent(gone)
    left = " ".join(edge for edge in edges.split() if gone not in edge.split(">"))
    asked, _ = await go_on(store, state, graph(world, left), world)
    assert sorted(agent for agent, _ in asked) == sorted(spoken)
    assert FACT in text(asked[-1][1])


async def test_a_cycle_goes_on_without_a_node(store, world):
    said = iter(["again", "fine", "fine"])
    answers = {"check": lambda messages: next(said)}
    options = {"entry": "write", "answers": answers, "turns": 2}
    state = await ran(store, graph(world, "write>check check>write? check>polish! polish>done", **options))
    state = state.remove_agent("polish")
    asked, _ = await go_on(
        store, state, graph(world, "write>check check>write? check>done!", **options | {"turns": 9}), world
    )
    assert [agent for agent, _ in asked] == ["write", "check", "done"]
    assert FACT in text(asked[-1][1])


async def test_an_agent_inside_a_team_is_removed(store, world):
    state = (await ran(store, nested(world, "ann bob cid"))).remove_agent("bob")
    asked, result = await go_on(store, state, nested(world, "ann cid"), world)
    assert sources(result)[-1] == "cid"
    assert FACT in text(request(asked, "cid"))


@pytest.mark.parametrize("informed", [True, False])
@pytest.mark.parametrize("kind", [round_robin, selector])
async def test_a_new_agent_knows_what_was_said_if_it_is_to(store, world, informed, kind):
    state = (await ran(store, kind(world))).add_agent("zoe", after="ann", informed=informed)
    assert state.agents == ["ann", "zoe", "bob", "cid"]
    build = kind(world, "ann zoe bob cid", turns=4)
    asked, result = await go_on(store, state, build, world)
    assert (FACT in text(request(asked, "zoe"))) is informed
    assert sources(result)[1] == ("bob" if kind is round_robin else "zoe")


async def test_a_new_agent_has_the_parts_that_it_is_built_with(store, world):
    state = (await ran(store, round_robin(world, "bob"))).add_agent("ann")
    tree = await fill(_team_with(world, "ann", _notes(FACT)), state.tree)
    assert [each["content"] for each in tree["beside"]["participants/ann/memory/notes"]] == [FACT]
    assert tree["kept"] == len(tree["beside"])
    assert FRESH in state.tree["beside"].values()


@pytest.mark.parametrize(("turns", "spoken"), [(None, {"first", "left", "new", "last"}), (1, {"left", "last"})])
async def test_a_graph_has_a_new_node(store, world, turns, spoken):
    state = (await ran(store, graph(world, "first>left left>last", turns=turns))).add_agent("new")
    asked, _ = await go_on(store, state, graph(world, "first>left left>last first>new"), world)
    assert {agent for agent, _ in asked} == spoken


async def test_a_node_waits_for_a_new_one_before_it(store, world):
    state = (await ran(store, graph(world, "first>left left>last"))).add_agent("new").add_agent("more")
    asked, _ = await go_on(store, state, graph(world, "first>left left>last first>new new>more more>last"), world)
    assert sorted(agent for agent, _ in asked) == ["first", "last", "left", "more", "new"]
    assert asked[-1][0] == "last"


async def test_a_new_agent_and_a_new_team_inside_a_team(store, world):
    state = (await ran(store, nested(world))).add_agent("crew/zoe", after="ann")
    assert state.agents == ["lead", "crew", "crew/ann", "crew/zoe", "crew/bob"]
    asked, _ = await go_on(store, state, nested(world, "ann zoe bob"), world)
    assert FACT in text(request(asked, "bob"))
    state = (await ran(store, round_robin(world, "lead"), session="flat")).add_agent("crew")
    asked, _ = await go_on(store, state, nested(world), world, session="deep")
    assert FACT in text(request(asked, "ann"))


async def test_an_agent_that_is_not_built_is_missed(store, world):
    state = (await ran(store, round_robin(world))).add_agent("zoe")
    with pytest.raises(midturn.Drifted) as caught:
        await fill(round_robin(world)(), state.tree)
    assert caught.value.path == "$.state.agent_states.zoe"


class Other(AssistantAgent):
    """An agent that keeps something else."""

    async def save_state(self):
        return {"mood": "good"}

    async def load_state(self, state):
        assert state["mood"]


async def test_an_agent_whose_class_has_changed_begins_anew(store, world):
    def build():
        team = round_robin(world, "bob")()
        return type(team)([Other("ann", world.model("ann")), *team._participants], max_turns=2)

    state = (await ran(store, lambda: _team_with(world, "ann", _notes()))).reset_agent("ann")
    asked, _ = await go_on(store, state, build, world)
    assert FACT in text(request(asked, "ann"))


async def test_a_single_agent_begins_anew(store, world):
    state = (await ran(store, lambda: world.agent("ann"))).reset_agent("ann")
    asked, _ = await go_on(store, state, lambda: world.agent("ann"), world)
    assert FACT not in text(asked[0][1])


async def test_an_agent_in_a_tool_begins_anew(store, world):
    state = (await ran(store, agent_tool(world))).reset_agent("helper")
    asked, _ = await go_on(store, state, agent_tool(world), world)
    assert len(request(asked, "helper")) == 2


async def test_agents_that_are_not_there_or_cannot_be_are_refused(store, world):
    state, single = await ran(store, nested(world)), await ran(store, lambda: world.agent("a"), session="s")
    for verb in (
        lambda: state.rename_agent("nobody", "x"),
        lambda: state.rename_agent("ann", "bob"),
        lambda: state.rename_agent("ann", "RoundRobinGroupChatManager"),
        lambda: state.rename_agent("ann", "not a name"),
        lambda: state.rename_agent("ann", ""),
        lambda: state.rename_agent("ann", 7),
        lambda: state.rename_agent(None, "x"),
        lambda: state.remove_agent("nobody"),
        lambda: state.remove_agent("bob").remove_agent("ann"),
        lambda: state.add_agent("lead"),
        lambda: state.add_agent("x", after="nobody"),
        lambda: state.add_agent("x", after=7),
        lambda: State({"state": {"agent/default": {"x": 1}}}).rename_agent("agent", "other"),
        lambda: state.add_agent("nowhere/x"),
        lambda: state.add_agent(7),
        lambda: state.reset_agent("nobody"),
        lambda: state.messages("nobody"),
        lambda: single.remove_agent("a"),
        lambda: single.add_agent("b"),
        lambda: single.rename_agent("b", "c"),
    ):
        with pytest.raises(midturn.InvalidArgument) as caught:
            verb()
        assert caught.value.path
    with pytest.raises(midturn.InvalidArgument, match="'lead', 'crew', 'crew/ann', 'crew/bob'"):
        state.remove_agent("nobody")


async def test_the_state_that_autogen_saves_is_migrated_like_any_other(store, world):
    whole = (await ran(store, round_robin(world))).tree
    state = State({"state": whole["state"]}).remove_agent("ann").rename_agent("bob", "zoe").add_agent("new")
    assert set(state.tree) == {"state"}
    asked, result = await go_on(store, state, round_robin(world, "zoe cid new"), world)
    assert sources(result)[-1] == "zoe"
    assert FACT in text(asked[0][1])
