"""Generated states and generated chains: step by step, all at once, when used or in bulk, it comes to the same."""

import asyncio
import os
from dataclasses import dataclass, replace

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted, calls, remembered
from tools.many import multiply

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.maintenance.migrating import MigrationRun
from midturn.record.packing import as_json
from midturn.versions.migrations import migrate

LONG = bool(os.environ.get("MIDTURN_LONG"))

KINDS = ("RoundRobinGroupChat", "SelectorGroupChat", "Swarm", "agent")
NAMES = ("ann", "bob", "cid", "dan", "eve")
TOOLS = ("look", "seek", "find")


@dataclass(frozen=True)
class Spec:
    """A spec: a kind of team or one agent, its agents, and the name of the tool that each has."""

    kind: str
    names: tuple[str, ...]
    tool: str | None

    def build(self, seen=None):
        def answer(messages):
            if seen is not None:
                seen.append(list(messages))
            last = messages[-1]
            if self.tool and last.type == "UserMessage" and "look" in str(last.content):
                return calls((self.tool, '{"order": "A1"}'))
            return f"card 1234-5678, {remembered(messages)}"

        def agent(name):
            return AssistantAgent(name, Scripted(answer), tools=[_tool(self.tool)] if self.tool else [])

        agents = [agent(name) for name in self.names]
        match self.kind:
            case "agent":
                return agents[0]
            case "RoundRobinGroupChat":
                return RoundRobinGroupChat(agents, max_turns=2)
            case "SelectorGroupChat":
                return SelectorGroupChat(agents, Scripted(lambda _: self.names[-1]), max_turns=2)
            case _:
                return Swarm(agents, max_turns=2)


def _tool(name):
    async def work(order: str) -> str:
        return f"{order} is on its way"

    work.__name__ = name
    work.__doc__ = name
    return work


@st.composite
def specs(draw):
    kind = draw(st.sampled_from(KINDS))
    count = 1 if kind == "agent" else draw(st.integers(2, 3))
    return Spec(kind, NAMES[:count], draw(st.sampled_from((None, "look"))))


@st.composite
def steps(draw, spec):  # noqa: PLR0911 - one for each verb
    """A migration, and the spec after it."""
    verbs = ["redact", "truncate", "nothing"]
    verbs += ["rename_agent"] if spec.kind != "agent" else []
    verbs += ["add_agent"] if spec.kind != "agent" and len(spec.names) < len(NAMES) else []
    verbs += ["remove_agent"] if spec.kind != "agent" and len(spec.names) > 2 else []
    verbs += ["rename_tool", "drop_tool"] if spec.tool else []
    verbs += ["change_team"] if spec.kind in ("RoundRobinGroupChat", "SelectorGroupChat") else []
    free = [name for name in NAMES if name not in spec.names]
    match draw(st.sampled_from(verbs)):
        case "redact":
            return (lambda state: state.redact(r"\d{4}-\d{4}", "[card]")), spec
        case "truncate":
            last = draw(st.integers(1, 6))
            return (lambda state: state.truncate(last=last)), spec
        case "rename_agent":
            old, new = draw(st.sampled_from(spec.names)), free[0] if free else "zed"
            names = tuple(new if name == old else name for name in spec.names)
            return (lambda state: state.rename_agent(old, new)), replace(spec, names=names)
        case "add_agent":
            return (lambda state: state.add_agent(free[0])), replace(spec, names=(*spec.names, free[0]))
        case "remove_agent":
            gone = draw(st.sampled_from(spec.names))
            names = tuple(name for name in spec.names if name != gone)
            return (lambda state: state.remove_agent(gone)), replace(spec, names=names)
        case "rename_tool":
            new = draw(st.sampled_from([name for name in TOOLS if name != spec.tool]))
            return (lambda state: state.rename_tool(spec.tool, new)), replace(spec, tool=new)
        case "drop_tool":
            how = draw(st.sampled_from(("text", "remove")))
            return (lambda state: state.drop_tool(spec.tool, calls=how)), replace(spec, tool=None)
        case "change_team":
            kind = {"RoundRobinGroupChat": "SelectorGroupChat"}.get(spec.kind, "RoundRobinGroupChat")
            return (lambda state: state.change_team(kind)), replace(spec, kind=kind)
        case _:
            return (lambda state: state), spec


@st.composite
def histories(draw):
    """Return the tasks of a session, and the specs of its versions with the migrations between them."""
    spec = draw(specs())
    chain = [(None, spec)]
    for _ in range(draw(st.integers(1, 3))):
        chain.append(draw(steps(chain[-1][1])))
    tasks = draw(st.lists(st.sampled_from(("look it up", "thanks", "my card is 1234-5678")), min_size=1, max_size=3))
    return tasks, chain


def blueprint(chain, seen=None):
    found = midturn.Blueprint("desk", lambda: chain[-1][1].build(seen), version=len(chain))
    for number, (migration, _) in enumerate(chain[1:], start=1):
        found.migration(number, number + 1)(migration)
    return found


async def fitted(spec, tree):
    """Return the tree as the built agents have it."""
    framework, live = AutoGen(), spec.build()
    tree = await framework.fill(live, tree)
    return tree, as_json((await framework.load(live, await framework.fit(live, tree))).captured)


@pytest.mark.timeout(7_200 if LONG else 300)
@given(histories())
@settings(max_examples=1000 if LONG else 60, deadline=None)
def test_step_by_step_at_once_when_used_or_in_bulk(history):
    tasks, chain = history

    async def check():
        async with midturn.open("memory://") as store:
            case = store.session("used", blueprint(chain[:1]))
            for task in tasks:
                await case.run(task=task)
            await multiply(store.store, "used", ["bulk"])
            tree = await case.at(len(tasks)).tree()
            # Step by step, each of which is a state that fits what its version builds.
            stepwise = tree
            for number, (_, spec) in enumerate(chain[1:], start=1):
                step = blueprint(chain[: number + 1]).migrations(number)
                stepwise = migrate(stepwise, step, AutoGen(), "case").tree
                await fitted(spec, stepwise)
            newest = blueprint(chain)
            whole = migrate(tree, newest.migrations(1), AutoGen(), "case").tree
            assert whole == stepwise
            assert await case.at(len(tasks)).tree() == tree
            # In bulk, or when used: the next turn is shown the same.
            result = await MigrationRun(store.store, newest, AutoGen(), run="r")("bulk")
            assert result.became == "changed"
            filled, _ = await fitted(chain[-1][1], whole)
            assert result.after == filled == await store.session("bulk").at(len(tasks) + 1).tree()
            shown = []
            for name in ("used", "bulk"):
                seen = []
                await store.session(name, blueprint(chain, seen)).run(task="look again")
                shown.append(seen)
            assert shown[0] == shown[1]
            assert shown[0], "nobody was asked"

    asyncio.run(check())
