"""Agents that are built otherwise than those that a session was run with: seen, told, refused where it breaks."""

import logging
from itertools import pairwise

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat
from scripted import Scripted, calls

import midturn
from midturn.errors import Drifted, InvalidArgument


def agent(name="support_agent", *, prompt="Be kind.", tools=(), answer=None):
    return AssistantAgent(name, Scripted(*[answer] if answer else []), system_message=prompt, tools=list(tools))


def refund(order: str) -> str:
    """Give the money back."""
    return f"{order} is refunded"


def thrice(messages):
    """Ask for three refunds, then say so."""
    asked = any(message.type == "FunctionExecutionResultMessage" for message in messages)
    return "done" if asked else calls(*[("refund", f'{{"order": "A{i}"}}') for i in range(3)])


async def test_a_changed_prompt_is_told_and_kept_in_the_history(memory, caplog):
    await memory.session("case", agent).run(task="one")
    with caplog.at_level(logging.WARNING):
        await memory.session("case", lambda: agent(prompt="Be brief.")).run(task="two")
    (warning,) = [record.getMessage() for record in caplog.records if record.name.startswith("midturn.")]
    assert "'case'" in warning
    assert "prompt of support_agent changed" in warning
    turns = [turn async for turn in memory.session("case").history()]
    assert [list(turn.drift) for turn in turns] == [[], ["prompt of support_agent changed"]]
    case = memory.session("case")
    prompts = [(await case.at(n).fingerprint())["agents"][""]["prompt"] for n in (1, 2)]
    assert "Be kind." in str(prompts[0])
    assert "Be brief." in str(prompts[1])


async def test_nothing_is_told_when_nothing_has_changed(memory, caplog):
    for task in ("one", "two", "three"):
        await memory.session("case", agent, on_drift="raise").run(task=task)
    assert [record for record in caplog.records if record.name.startswith("midturn.")] == []


async def test_a_policy_may_refuse_and_nothing_is_run_or_written(memory):
    await memory.session("case", agent).run(task="one")
    before, client = (await memory.store.head("case")).seq, Scripted()
    case = memory.session("case", lambda: AssistantAgent("support_agent", client), on_drift="raise")
    with pytest.raises(Drifted, match="prompt of support_agent changed") as caught:
        await case.run(task="two")
    assert caught.value.session == "case"
    assert caught.value.drift.changes[0].text == "prompt of support_agent changed"
    assert ".migration(1, 2)" in "".join(caught.value.__notes__)
    assert client.seen == []
    assert (await memory.store.head("case")).seq == before


async def test_a_policy_may_ignore_it_and_the_history_still_knows(memory, caplog):
    await memory.session("case", agent).run(task="one")
    await memory.session("case", lambda: agent(prompt="Be brief."), on_drift="ignore").run(task="two")
    assert [record for record in caplog.records if record.name.startswith("midturn.")] == []
    assert [turn.drift async for turn in memory.session("case").history()][1] == ["prompt of support_agent changed"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_policy_may_be_a_function(memory, is_async):
    told = []

    async def later(drift):
        told.append(drift)

    await memory.session("case", agent).run(task="one")
    case = memory.session("case", lambda: agent(prompt="Be brief."), on_drift=later if is_async else told.append)
    await case.run(task="two")
    await case.run(task="three")
    (drift,) = told
    (change,) = drift.changes
    assert (change.what, change.breaking, bool(drift), drift.breaking) == ("prompt", False, True, False)

    def refuse(drift):
        raise RuntimeError(str(drift))

    with pytest.raises(RuntimeError, match="prompt of support_agent changed"):
        await memory.session("case", agent, on_drift=refuse).run(task="four")
    assert (await case.run(task="four")).turn == 4


@pytest.mark.parametrize("policy", ["shout", None, 3])
async def test_a_policy_that_is_none(memory, policy):
    with pytest.raises(InvalidArgument, match=r"on_drift: is .*'warn', 'raise', 'ignore' or a function"):
        memory.session("case", agent, on_drift=policy)


async def test_a_raised_version_says_that_it_is_meant(memory, caplog):
    await memory.session("case", midturn.Blueprint("support", agent)).run(task="one")
    new = midturn.Blueprint("support", lambda: agent(prompt="Be brief."), version=2)
    new.migration(1, 2)(lambda state: state)
    await memory.session("case", new, on_drift="raise").run(task="two")
    assert [record for record in caplog.records if record.name.startswith("midturn.")] == []


async def test_a_removed_tool_says_how_often_it_was_called(memory):
    await memory.session("case", lambda: agent(tools=[refund], answer=thrice)).run(task="one")
    told = []
    await memory.session("case", agent, on_drift=told.append).run(task="two")
    (drift,) = told
    assert drift.texts == ["tool refund of support_agent removed; 3 calls in the case mention it"]


def team(*names, kind=RoundRobinGroupChat):
    options = {"model_client": Scripted(lambda _: names[0])} if kind is SelectorGroupChat else {}
    return kind([agent(name) for name in names], max_turns=1, **options)


def graph(*names):
    builder = DiGraphBuilder()
    agents = [agent(name) for name in names]
    for each in agents:
        builder.add_node(each)
    for one, other in pairwise(agents):
        builder.add_edge(one, other)
    return GraphFlow(agents, builder.build())


class Mine(AssistantAgent):
    async def save_state(self):
        return {"mine": 1}

    async def load_state(self, state):
        assert state == {"mine": 1}


BREAKING = {
    "an agent is added": (lambda: team("ann", "bob", "router"), "agent router added", 'add_agent("router")'),
    "an agent is removed": (lambda: team("ann"), "agent bob removed", 'remove_agent("bob")'),
    "an agent is renamed": (lambda: team("ann", "zed"), "agent zed added", 'rename_agent("bob", "zed")'),
    "the team is of another kind": (
        lambda: team("ann", "bob", kind=SelectorGroupChat),
        "SelectorGroupChat",
        'change_team("SelectorGroupChat")',
    ),
    "everybody is replaced": (lambda: team("cid", "dan"), "agent dan added", 'remove_agent("bob")'),
    "an agent is of another class": (
        lambda: RoundRobinGroupChat([agent("ann"), Mine("bob", Scripted())], max_turns=1),
        "class of bob changed from AssistantAgent to Mine",
        'reset_agent("bob")',
    ),
    "an agent is a team now": (
        lambda: RoundRobinGroupChat(
            [agent("ann"), RoundRobinGroupChat([agent("cid")], name="bob", max_turns=1)], max_turns=1
        ),
        "agent bob is a team now",
        'reset_agent("bob")',
    ),
    "the team is a graph now": (lambda: graph("ann", "bob"), "GraphFlow", 'change_team("GraphFlow")'),
}


@pytest.mark.parametrize("how", BREAKING)
@pytest.mark.parametrize("policy", ["warn", "ignore"])
async def test_what_breaks_is_refused_with_the_code_to_write(memory, how, policy):
    build, text, verb = BREAKING[how]
    await memory.session("case", midturn.Blueprint("support", lambda: team("ann", "bob"))).run(task="one")
    before = (await memory.store.head("case")).seq
    changed = midturn.Blueprint("support", build)
    with pytest.raises(Drifted) as caught:
        await memory.session("case", changed, on_drift=policy).run(task="two")
    assert text in str(caught.value.drift)
    assert caught.value.drift.breaking
    assert (await memory.store.head("case")).seq == before
    advice = "\n".join(caught.value.__notes__)
    assert verb in advice
    code = advice[advice.index("@support.migration") :]
    new = midturn.Blueprint("support", build, version=2)
    exec(code, {"support": new, "midturn": midturn})
    result = await memory.session("case", new).run(task="two")
    assert result.turn == 2
    assert await memory.session("case").at(2).version() == 2


@pytest.mark.parametrize(
    ("names", "verb"), [(("ann", "bob", "cid"), 'add_agent("cid")'), (("ann", "zed"), 'rename_agent("bob", "zed")')]
)
async def test_what_breaks_in_a_graph_is_refused_alike(memory, names, verb):
    await memory.session("case", midturn.Blueprint("support", lambda: graph("ann", "bob"))).run(task="one")
    changed = midturn.Blueprint("support", lambda: graph(*names))
    with pytest.raises(Drifted) as caught:
        await memory.session("case", changed).run(task="two")
    advice = "\n".join(caught.value.__notes__)
    assert verb in advice
    new = midturn.Blueprint("support", lambda: graph(*names), version=2)
    exec(advice[advice.index("@support.migration") :], {"support": new})
    assert (await memory.session("case", new).run(task="two")).turn == 2


async def test_the_advice_to_those_without_a_blueprint_is_to_make_one(memory):
    await memory.session("case", lambda: team("ann", "bob")).run(task="one")
    with pytest.raises(Drifted) as caught:
        await memory.session("case", lambda: team("ann")).run(task="two")
    assert 'where support = midturn.Blueprint("support", ...) stands: version=2' in "\n".join(caught.value.__notes__)


async def test_it_is_seen_when_loading_by_hand_as_well(memory, caplog):
    first = agent()
    await first.run(task="one")
    await memory.save("case", first)
    await memory.load("case", agent(prompt="Be brief."))
    assert "prompt of support_agent changed" in caplog.text


async def test_a_checkpoint_that_says_nothing_of_its_agents_drifts_from_nothing(memory):
    await memory.session("case").save({"state": await agent().save_state()}, origin="import")
    case = memory.session("case", agent, on_drift="raise")
    assert (await case.run(task="one")).turn == 2
    assert await case.at(1).fingerprint() is None
    assert await case.at(2).fingerprint() is not None
