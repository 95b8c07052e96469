"""Teams become teams of another kind, with all that was said."""

import itertools

import pytest
from autogen_agentchat.agents import SocietyOfMindAgent
from autogen_agentchat.messages import HandoffMessage
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_agentchat.tools import TeamTool
from moving import (
    FACT,
    World,
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

import midturn
from midturn.autogen.edits import FRESH, State, fill


@pytest.fixture
def world():
    return World()


def teams(world):
    return {
        "RoundRobinGroupChat": round_robin(world, "ann bob"),
        "SelectorGroupChat": asking_selector(world, "ann bob", "ann"),
        "Swarm": swarm(world, "ann bob", hands=[("ann", "bob")]),
        "MagenticOneGroupChat": magentic(world, "ann bob"),
        "GraphFlow": graph(world, "ann>bob", turns=1),
    }


NAMES = list(teams(World()))
NEXT = {
    ("RoundRobinGroupChat", "Swarm"): "bob",
    ("SelectorGroupChat", "RoundRobinGroupChat"): "bob",
    ("SelectorGroupChat", "Swarm"): "bob",
    ("Swarm", "RoundRobinGroupChat"): "bob",
    ("GraphFlow", "RoundRobinGroupChat"): "bob",
    ("GraphFlow", "Swarm"): "bob",
    ("MagenticOneGroupChat", "RoundRobinGroupChat"): "ann",
}
"""The next speaker after one kind of team has become the other."""


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(NAMES, 2)))
async def test_a_team_becomes_one_of_another_kind(store, world, old, new):
    before = await ran(store, teams(world)[old])
    state = before.change_team(new)
    assert state.messages() == before.messages()
    assert state.touched == {"ann", "bob"}
    task = None if new == "MagenticOneGroupChat" else "And now?"
    asked, result = await go_on(store, state, teams(world)[new], world, task=task)
    assert any(FACT in text(messages) for _, messages in asked)
    if (old, new) in NEXT:
        assert sources(result)[1] == NEXT[old, new]
    state.change_team(old).check()


async def test_an_orchestrator_that_was_none_for_a_while_still_has_a_task(store, world):
    build = teams(world)["MagenticOneGroupChat"]
    state = (await ran(store, build)).change_team("Swarm").change_team("MagenticOneGroupChat")
    asked, _ = await go_on(store, state, build, world, task=None)
    assert FACT in text(asked[0][1])


async def test_a_team_that_stays_of_its_kind_stays_as_it_is(store, world):
    for name, build in teams(world).items():
        state = await ran(store, build, session=name)
        assert state.change_team(name) == state


async def test_a_selector_is_shown_what_was_said_with_the_calls_that_led_to_a_handover(store, world):
    state = await ran(store, teams(world)["Swarm"])

    def add(tree):
        for message in tree["state"]["agent_states"]["SwarmGroupChatManager"]["message_thread"]:
            if message["type"] == "HandoffMessage":
                message["context"] = [{"type": "UserMessage", "content": "in context", "source": "x"}]

    state = state.edit(add).change_team("SelectorGroupChat")
    assert HandoffMessage.model_validate(next(m for m in state.messages() if m["type"] == "HandoffMessage")).context
    asked, _ = await go_on(store, state, teams(world)["SelectorGroupChat"], world)
    prompt = text(next(messages for agent, messages in asked if agent == "selector"))
    assert "in context" in prompt
    assert FACT in prompt


async def test_a_handover_to_somebody_outside_does_not_stop_a_swarm(store, world):
    state = await ran(store, round_robin(world, "ann bob"))
    message = {**state.messages()[-1], "type": "HandoffMessage", "target": "customer", "context": []}

    def add(tree):
        tree["state"]["agent_states"]["RoundRobinGroupChatManager"]["message_thread"].append(message)

    state = state.edit(add).change_team("Swarm")
    _, result = await go_on(store, state, swarm(world, "ann bob", limit=2), world)
    assert sources(result)[-1] == "ann"


async def test_a_team_inside_a_team_becomes_one_of_another_kind(store, world):
    def build():
        inner = asking_selector(world, "ann bob", "bob", name="crew")()
        return RoundRobinGroupChat([world.agent("lead"), inner], max_turns=2)

    state = (await ran(store, nested(world))).change_team("SelectorGroupChat", "crew")
    asked, _ = await go_on(store, state, build, world)
    assert FACT in text(next(messages for agent, messages in asked if agent == "selector"))
    assert FACT in text(next(messages for agent, messages in asked if agent == "bob"))


async def test_the_team_of_a_society_of_mind_becomes_one_of_another_kind(store, world):
    def build():
        return SocietyOfMindAgent("mind", asking_selector(world, "ann bob", "bob")(), world.model("mind"))

    state = await ran(store, society(world, others=""))
    assert state.agents == ["ann", "bob"]
    asked, _ = await go_on(store, state.change_team("SelectorGroupChat"), build, world)
    assert FACT in text(next(messages for agent, messages in asked if agent == "bob"))


async def test_a_team_in_a_tool_becomes_one_of_another_kind(store, world):
    def build():
        team = asking_selector(world, "ann bob", "bob", name="inner")()
        assert isinstance(team, SelectorGroupChat)
        answer = world.using(("crew", {"task": "look it up"}))
        return world.agent("boss", answer, tools=[TeamTool(team, name="crew", description="x")], max_tool_iterations=2)

    state = (await ran(store, team_tool(world))).change_team("SelectorGroupChat", team="crew")
    asked, _ = await go_on(store, state, build, world)
    assert text(next(messages for agent, messages in asked if agent == "bob")).count("look it up") == 2


async def test_the_graph_of_a_flow_comes_from_what_is_built(store, world):
    state = (await ran(store, round_robin(world, "ann bob"))).change_team("GraphFlow")
    assert state.tree["state"]["agent_states"]["GraphManager"]["ready"] == FRESH
    state.rename_agent("ann", "amy").remove_agent("bob").check()
    asked, _ = await go_on(store, state.rename_agent("ann", "amy"), graph(world, "amy>bob"), world)
    assert [agent for agent, _ in asked] == ["amy", "bob"]
    with pytest.raises(midturn.StateInvalid, match="GraphManager"):
        await fill(round_robin(world, "ann bob")(), state.tree)


async def test_a_graph_whose_first_node_is_removed_continues_with_the_second(store, world):
    """The first node has made the second one ready. Without it, nothing makes the second one ready."""
    state = (await ran(store, graph(world, "ann>bob bob>cid", turns=1))).remove_agent("ann")
    asked, _ = await go_on(store, state, graph(world, "bob>cid"), world)
    assert [agent for agent, _ in asked] == ["bob", "cid"]


async def test_the_state_that_autogen_saves_becomes_one_of_another_kind(store, world):
    for number, (old, new) in enumerate(
        itertools.permutations(("RoundRobinGroupChat", "SelectorGroupChat", "Swarm"), 2)
    ):
        whole = (await ran(store, teams(world)[old], session=old + new)).tree
        state = State({"state": whole["state"]}).change_team(new)
        assert set(state.tree) == {"state"}
        asked, _ = await go_on(store, state, teams(world)[new], world, session=f"after{number}")
        assert any(FACT in text(messages) for _, messages in asked)


async def test_what_is_no_team_or_no_kind_is_refused(store, world):
    state, single = await ran(store, nested(world)), await ran(store, lambda: world.agent("a"), session="s")
    for verb in (
        lambda: state.change_team("Society"),
        lambda: state.change_team(None),
        lambda: state.change_team("Swarm", "lead"),
        lambda: state.change_team("Swarm", "nobody"),
        lambda: single.change_team("Swarm"),
        lambda: state.rename_agent("lead", "SwarmGroupChatManager").change_team("Swarm"),
    ):
        with pytest.raises((midturn.InvalidArgument, midturn.StateInvalid)) as caught:
            verb()
        assert caught.value.path
    with pytest.raises(midturn.InvalidArgument, match="GraphFlow"):
        state.change_team("Society")
