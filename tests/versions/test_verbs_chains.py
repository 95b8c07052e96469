"""Chains of verbs drawn at random, each followed by a turn of the team that the names and the kind stand for."""

import os
import random

import pytest
from moving import World, asking_selector, go_on, graph, magentic, ran, round_robin, swarm

from midturn.autogen.edits import State

KINDS = ["RoundRobinGroupChat", "SelectorGroupChat", "Swarm", "MagenticOneGroupChat", "GraphFlow"]
CHAINS = 300 if os.environ.get("MIDTURN_LONG") else 100


def team(world, kind, names, turns):
    """A factory; graphs lead from the first over all others to the last."""
    first, *between, last = names
    if kind == "RoundRobinGroupChat":
        return round_robin(world, " ".join(names), turns)
    if kind == "SelectorGroupChat":
        return asking_selector(world, " ".join(names), last, turns)
    if kind == "Swarm":
        return swarm(world, " ".join(names), hands=[(first, last)], limit=turns + 1)
    if kind == "MagenticOneGroupChat":
        return magentic(world, " ".join(names), first, turns)
    # In an order in which the nodes come up as the names do: that is the order of the agents.
    edges = [*(f"{first}>{name}" for name in between), *(f"{name}>{last}" for name in between)] or [f"{first}>{last}"]
    return graph(world, " ".join(edges), turns=turns)


def changed(drawn, state, kind, names, number):
    """The state, the kind and the names after one more verb."""
    verb, one = drawn.choice(["rename", "remove", "add", "reset", "change", "truncate"]), drawn.choice(names)
    at = names.index(one)
    if verb == "rename":
        return state.rename_agent(one, f"n{number}"), kind, [*names[:at], f"n{number}", *names[at + 1 :]]
    if verb == "remove" and len(names) > 2:
        return state.remove_agent(one), kind, [name for name in names if name != one]
    if verb == "add":
        informed = drawn.random() < 0.5
        new = [*names[: at + 1], f"a{number}", *names[at + 1 :]]
        return state.add_agent(f"a{number}", after=one, informed=informed), kind, new
    if verb == "reset":
        return state.reset_agent(one), kind, names
    if verb == "change":
        kind = drawn.choice(KINDS)
        return state.change_team(kind), kind, names
    return state.truncate(last=drawn.randint(0, 4)), kind, names


@pytest.mark.parametrize("seed", range(CHAINS))
async def test_a_team_goes_on_after_any_chain_of_verbs(store, seed):
    drawn, world = random.Random(seed), World()
    names, kind = ["ann", "bob", "cid", "dan"][: drawn.randint(2, 4)], KINDS[seed % len(KINDS)]
    state = await ran(store, team(world, kind, names, drawn.randint(1, 3)))
    if drawn.random() < 0.2:
        state = State({"state": state.tree["state"]})  # as AutoGen saves it
    for number in range(drawn.randint(2, 5)):
        state, kind, names = changed(drawn, state, kind, names, number)
        state.check()
        assert state.agents == names
    orchestrator = state.tree["state"]["agent_states"].get("MagenticOneOrchestrator", {})
    await go_on(store, state, team(world, kind, names, 2), world, None if orchestrator.get("task") else "And now?")
