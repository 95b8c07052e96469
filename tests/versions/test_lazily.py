"""A session of an earlier version is migrated when it is used; open turns survive that, or refuse it."""

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from desk import A1, Desk
from scripted import Scripted, calls

import midturn
from midturn.errors import InvalidArgument, MigrationFailed, MissingMigration, UnknownVersion


async def seq(store):
    """Count the writes of the session."""
    return (await store.store.head("case")).seq


class Crew:
    """Builds a team of two, under names that may change; ``seen`` has what their models were shown."""

    def __init__(self, *names, prompt="Be kind."):
        self.names, self.prompt, self.seen = names, prompt, []

    def __call__(self):
        return RoundRobinGroupChat(
            [AssistantAgent(name, Scripted(self.answer), system_message=self.prompt) for name in self.names],
            max_turns=2,
        )

    def answer(self, messages):
        self.seen.append(list(messages))
        return f"noted: {len(messages)}"


def support(version, *names, **options):
    return midturn.Blueprint("support", Crew(*names), version=version, **options)


def renaming(*names):
    """Version 2, in which triage is router."""
    blueprint = support(2, *names)

    @blueprint.migration(1, 2)
    def rename_triage(state):
        return state.rename_agent("triage", "router")

    return blueprint


async def test_a_session_goes_on_under_a_new_name_and_its_history_says_so(memory):
    await memory.session("case", support(1, "triage", "clerk")).run(task="The customer prefers email.")
    before = await memory.session("case").at(1).tree()
    new = renaming("router", "clerk")
    result = await memory.session("case", new).run(task="How shall we write?")
    assert (result.turn, result.checkpoint) == (2, 2)
    shown = new._factory.seen[0]
    assert [message.content for message in shown if "email" in str(message.content)] == ["The customer prefers email."]
    assert {getattr(message, "source", None) for message in shown} >= {"router"}
    assert "triage" not in str(shown)
    case = memory.session("case")
    assert await case.at(1).tree() == before, "the original was changed"
    assert [await case.at(n).version() for n in (1, 2)] == [1, 2]
    turns = [turn async for turn in case.history()]
    assert list(turns[0].drift) == []
    assert turns[1].drift[0] == "migrated from version 1 to 2"
    assert any("router" in text for text in turns[1].drift[1:])
    assert (await memory.session("case", new).run(task="And again?")).turn == 3
    assert list([turn async for turn in case.history()][2].drift) == []


async def test_steps_are_taken_one_after_the_other(memory):
    await memory.session("case", support(1, "triage", "clerk")).run(task="one")
    newest, order = support(4, "desk", "clerk"), []

    @newest.migration(3, 4)
    def last(state):
        order.append(3)
        return state.rename_agent("entry", "desk")

    @newest.migration(1, 3)
    def first(state):
        order.append(1)
        return state.rename_agent("triage", "entry")

    await memory.session("case", newest).run(task="two")
    assert order == [1, 3]
    assert await memory.session("case").at(2).version() == 4


def test_a_gap_is_found_before_anything_is_run():
    blueprint = support(4, "ann")
    blueprint.migration(1, 2)(lambda state: state)
    blueprint.migration(3, 4)(lambda state: state)
    with pytest.raises(MissingMigration, match=r"@support.migration\(2, 3\)"):
        blueprint.check()
    short = support(3, "ann")
    short.migration(1, 2)(lambda state: state)
    with pytest.raises(MissingMigration, match=r"@support.migration\(2, 3\)"):
        short.check()


async def test_a_gap_is_found_when_a_session_is_made(memory):
    blueprint = support(3, "ann")
    blueprint.migration(1, 2)(lambda state: state)
    with pytest.raises(MissingMigration):
        memory.session("case", blueprint)


@pytest.mark.parametrize(("start", "end"), [(1, 1), (2, 1), (0, 2), (1, 9), ("1", 2), (1, 2.0), (True, 2)])
def test_a_migration_leads_from_a_version_to_a_later_one(start, end):
    with pytest.raises(InvalidArgument, match="must lead from a version to a later one"):
        support(3, "ann").migration(start, end)


@pytest.mark.parametrize(("start", "end"), [(1, 2), (1, 3), (2, 3), (2, 4)])
def test_there_is_one_way_from_each_version_to_the_next(start, end):
    blueprint = support(4, "ann")
    blueprint.migration(1, 3)(lambda state: state)
    declare = blueprint.migration(start, end)
    with pytest.raises(InvalidArgument, match="covers the same versions; remove one"):
        declare(lambda state: state)


def test_a_migration_waits_for_nothing():
    async def later(state):
        return state

    with pytest.raises(InvalidArgument, match="not an async one"):
        support(2, "ann").migration(1, 2)(later)
    with pytest.raises(InvalidArgument, match="must be a function, not a str"):
        support(2, "ann").migration(1, 2)("later")


@pytest.mark.parametrize("name", [3, None, b"desk"])
def test_a_blueprint_has_a_name(name):
    with pytest.raises(InvalidArgument, match="must be a string, not a"):
        midturn.Blueprint(name, Crew("ann"))


def change_in_place(state):
    state.tree["state"]["extra"] = 1
    return state


def ruin(state):
    state.tree["state"]["extra"] = {1}
    return state


def leave(state):
    raise SystemExit(3)


def break_a_message(state):
    def lose(tree):
        tree["state"]["agent_states"]["RoundRobinGroupChatManager"]["message_thread"][0].pop("source")

    return state.edit(lose)


BAD = {
    "raises": (lambda state: 1 / 0, "raised ZeroDivisionError"),
    "leaves": (leave, "raised SystemExit"),
    "returns nothing": (lambda state: None, r"returned a NoneType, not a state \(is its return statement missing"),
    "returns a dict": (lambda state: state.tree, "returned a dict, not a state"),
    "changes its input": (change_in_place, "changed its input in place"),
    "makes no JSON of it": (ruin, "changed its input in place"),
    "names nobody": (lambda state: state.rename_agent("nobody", "else"), "nobody"),
    "returns what does not fit": (break_a_message, "does not fit the agents that were built"),
    "returns what cannot be stored": (
        lambda state: state.edit(lambda tree: tree["state"].update(x=float("nan"))),
        r"state\.x",
    ),
}


@pytest.mark.parametrize("how", BAD)
async def test_a_bad_migration_is_named_and_the_session_is_as_it_was(memory, how):
    function, words = BAD[how]
    await memory.session("case", support(1, "ann", "bob")).run(task="one")
    before, tree = await seq(memory), await memory.session("case").at(1).tree()
    bad = support(2, "ann", "bob")
    bad.migration(1, 2)(function)
    with pytest.raises(MigrationFailed, match=words) as caught:
        await memory.session("case", bad).run(task="two")
    assert (caught.value.session, caught.value.versions) == ("case", (1, 2))
    assert "case" in str(caught.value)
    assert await seq(memory) == before
    assert await memory.session("case").at(1).tree() == tree
    good = support(2, "ann", "bob")
    good.migration(1, 2)(lambda state: state)
    assert (await memory.session("case", good).run(task="two")).turn == 2


# --- workers of two versions side by side


async def test_an_old_worker_leaves_a_newer_session_alone(memory):
    old, new = support(1, "triage", "clerk"), renaming("router", "clerk")
    worker = memory.session("case", old)
    await worker.run(task="one")
    await memory.session("case", new).run(task="two")
    before = [turn async for turn in memory.session("case").history()]
    for session in (worker, memory.session("case", old)):
        with pytest.raises(UnknownVersion, match=r"version 2 .*has version 1: deploy version 2 here") as caught:
            await session.run(task="three")
        assert caught.value.session == "case"
    assert [turn async for turn in memory.session("case").history()] == before
    assert (await memory.store.head("case")).owner is None
    assert (await memory.session("case", new).run(task="three")).turn == 3


async def test_an_old_worker_does_not_finish_what_a_newer_one_has_begun(memory):
    old = midturn.Blueprint("desk", Desk([A1]))
    new = midturn.Blueprint("desk", Desk([A1], effects={"refund": midturn.tool(approval=True)}), version=2)
    assert (await memory.session("case", new).run(task="please")).waiting
    before = await seq(memory)
    with pytest.raises(UnknownVersion):
        await memory.session("case", old).answer("approve")
    assert await seq(memory) == before
    assert (await memory.session("case", new).answer("approve")).waiting is None


@pytest.mark.parametrize("how", ["approval", "human"])
async def test_a_question_survives_a_migration(memory, how):
    def build(prompt):
        if how == "approval":
            return Desk([A1], prompt=prompt, effects={"refund": midturn.tool(approval=True)})
        return lambda: RoundRobinGroupChat(
            [AssistantAgent("ann", Scripted(), system_message=prompt), UserProxyAgent("bob", input_func=midturn.human)],
            termination_condition=MaxMessageTermination(3),
        )

    old = midturn.Blueprint("desk", build("Be kind."))
    asked = await memory.session("case", old).run(task="please")
    if how == "human":  # after a first turn, so that there is a state to migrate
        assert (await memory.session("case", old).answer("well")).waiting is None
        asked = await memory.session("case", old).run(task="once more")
    assert asked.waiting
    new = midturn.Blueprint("desk", build("Be brief."), version=2)
    new.migration(1, 2)(lambda state: state)
    result = await memory.session("case", new).answer("approve")
    assert result.waiting is None
    turn = [turn async for turn in memory.session("case").history()][-1]
    assert (turn.status, turn.version) == ("done", 2)
    assert any("its answer was kept though the request has changed" in note for note in turn.notes)
    if how == "human":
        assert list(turn.drift) == ["migrated from version 1 to 2", "prompt of ann changed"]
        assert "approve" in str(turn.messages)


def asking(*, tool="refund", agent="clerk", prompt="Be kind."):
    """Builds an agent in a team whose tool asks first; ``paid`` has what it did."""
    paid = []

    def work(order: str) -> str:
        """Give the money back."""
        paid.append(order)
        return f"{order} is done"

    work.__name__ = tool
    tools = [midturn.tool(approval=True)(work)]

    def answer(messages):
        done = any(message.type == "FunctionExecutionResultMessage" for message in messages)
        return "done" if done or "please" not in str(messages) else calls((tool, '{"order": "A1"}'))

    def build():
        clerk = AssistantAgent(agent, Scripted(answer), tools=tools, system_message=prompt)
        return RoundRobinGroupChat([clerk], max_turns=1)

    build.paid = paid
    return build


CHANGES = {
    "the tool": ({"tool": "pay_back"}, lambda state: state.rename_tool("refund", "pay_back")),
    "the agent": ({"agent": "desk"}, lambda state: state.rename_agent("clerk", "desk")),
}


@pytest.mark.parametrize("first", [True, False], ids=["its first turn", "a later turn"])
@pytest.mark.parametrize("how", CHANGES)
async def test_a_turn_that_the_new_version_has_begun_goes_on_in_it(memory, how, first):
    options, migration = CHANGES[how]
    await memory.session("case", midturn.Blueprint("desk", asking())).run(task="hello")
    if not first:
        await memory.session("case", midturn.Blueprint("desk", asking())).run(task="hello again")
    build = asking(**options)
    new = midturn.Blueprint("desk", build, version=2)
    new.migration(1, 2)(migration)
    assert (await memory.session("case", new).run(task="please")).waiting
    assert (await memory.session("case", new).answer("approve")).waiting is None
    assert build.paid == ["A1"]


@pytest.mark.parametrize("how", CHANGES)
async def test_an_approval_in_the_very_first_turn_is_not_spent_on_nothing(memory, how):
    options, migration = CHANGES[how]
    build = asking()
    old = midturn.Blueprint("desk", build)
    assert (await memory.session("case", old).run(task="please")).waiting
    new = midturn.Blueprint("desk", asking(**options), version=2)
    new.migration(1, 2)(migration)
    before = await seq(memory)
    with pytest.raises(MigrationFailed, match=r"the open turn of .* has used .*version 1, which has worked on it"):
        await memory.session("case", new).answer("approve")
    assert await seq(memory) == before
    assert (await memory.session("case", old).answer("approve")).waiting is None
    assert build.paid == ["A1"]


async def test_an_approval_in_the_very_first_turn_survives_what_does_not_concern_it(memory):
    assert (await memory.session("case", midturn.Blueprint("desk", asking())).run(task="please")).waiting
    build = asking(prompt="Be brief.")
    new = midturn.Blueprint("desk", build, version=2)
    new.migration(1, 2)(lambda state: state.redact("secret").rename_tool("other", "another"))
    assert (await memory.session("case", new).answer("approve")).waiting is None
    assert build.paid == ["A1"]


VERBS = {
    "the tool is renamed": lambda state: state.rename_tool("refund", "pay_back"),
    "the tool is dropped": lambda state: state.drop_tool("refund"),
}


@pytest.mark.parametrize("how", VERBS)
async def test_an_open_turn_that_has_used_a_tool_does_not_lose_it(memory, how):
    first = Desk([A1], effects={"refund": midturn.tool(approval=True)})
    old = midturn.Blueprint("desk", first)
    await memory.session("case", midturn.Blueprint("desk", Desk([A1]))).run(task="before")
    assert (await memory.session("case", old).run(task="please")).waiting
    new = midturn.Blueprint("desk", first, version=2)
    new.migration(1, 2)(VERBS[how])
    before = await seq(memory)
    for use in ("answer", "resume"):
        case = memory.session("case", new)
        if use == "answer":
            with pytest.raises(MigrationFailed, match=r"(?s)has used .*refund.*discard\(\)") as caught:
                await case.answer("approve")
            assert caught.value.versions == (1, 2)
        else:
            assert (await case.resume()).waiting, "it still waits"
    assert await seq(memory) == before
    assert (await memory.session("case", old).answer("approve")).waiting is None
    assert first.done == [("refund", "A1")]


# --- beside the life of a turn


async def test_a_finished_turn_is_replayed_on_a_migrated_state(memory):
    old = support(1, "triage", "clerk")
    await memory.session("case", old).run(task="one")
    await memory.session("case", old).run(task="two")
    assert (await memory.session("case", old).replay(turn=2)).same
    new = renaming("router", "clerk")
    replay = await memory.session("case", new).replay(turn=2)
    assert not replay.same, "it has another name now"
    assert "'router'" in str(replay.messages) or "router" in str(replay.differences)
    with pytest.raises(InvalidArgument, match="belongs to the blueprint"):
        await memory.session("case", midturn.Blueprint("other", Crew("triage", "clerk"))).replay(turn=2)
    await memory.session("case", new).run(task="three")
    await memory.session("case", new).run(task="four")
    with pytest.raises(UnknownVersion):
        await memory.session("case", old).replay(turn=4)


async def test_a_fork_of_an_earlier_version_is_migrated(memory):
    await memory.session("case", support(1, "triage", "clerk")).run(task="one")
    fork = await memory.session("case", renaming("router", "clerk")).fork("other", at=1)
    assert await fork.at(1).version() == 1
    assert (await fork.run(task="two")).turn == 2
    assert await fork.at(2).version() == 2
