"""Teams that stopped midway continue after a restart: Swarm, MagenticOne and GraphFlow, which AutoGen cannot resume."""

import pytest
from autogen_agentchat.conditions import (
    ExternalTermination,
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    TextMessageTermination,
)
from autogen_agentchat.messages import HandoffMessage
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core.models import UserMessage
from gap_teams import (
    Outage,
    as_json,
    cyclic,
    imported,
    joined,
    ledger,
    lopsided_diamond,
    orchestrated,
    reloaded,
    restarted,
    saved,
    speakers,
    trio,
    uninterrupted,
)
from kinds import TASKS, anonymous, assistant, select, transcript
from scripted import Scripted, calls, remembered

import midturn


@pytest.fixture
async def store():
    async with midturn.open("memory://") as store:
        yield store


def _ask_the_user(messages):
    asked = sum(isinstance(message, UserMessage) and message.source == "user" for message in messages)
    return calls(("transfer_to_user", "{}")) if asked % 2 else remembered(messages)


def desk(**options):
    """Bob hands over to ann, who asks the user about every other thing that the user says."""
    bob = assistant("bob", lambda messages: calls(("transfer_to_ann", "{}")), handoffs=["ann"])
    ann = assistant("ann", _ask_the_user, handoffs=["user"])
    return Swarm(
        [bob, ann], termination_condition=HandoffTermination("user") | TextMessageTermination("ann"), **options
    )


def given_to_ann(text):
    return HandoffMessage(source="user", target="ann", content=text)


async def test_a_plain_swarm_that_handed_off_to_the_user_takes_no_text():
    live = desk()
    asked = await live.run(task="a refund, please")
    assert asked.messages[-1].target == "user"
    with pytest.raises((ValueError, RuntimeError), match="existing handoff target user"):
        await live.run(task="order 42")


async def test_a_swarm_that_handed_off_to_the_user_continues_with_a_text(store):
    texts = ["a refund, please", "order 42", "and another", "order 43"]
    said = await restarted(store, desk, texts)
    expected = await uninterrupted(desk(), [texts[0], given_to_ann(texts[1]), texts[2], given_to_ann(texts[3])])
    assert [turn["messages"][0]["type"] for turn in said] == ["TextMessage"] * 4
    assert [turn["messages"][0]["content"] for turn in said] == texts
    assert [turn["messages"][1:] for turn in said] == [turn["messages"][1:] for turn in expected]
    assert [turn["stop_reason"] for turn in said] == [turn["stop_reason"] for turn in expected]
    assert speakers(said[1]) == ["ann"]


async def test_the_text_for_a_swarm_is_kept_as_it_is(store):
    await restarted(store, desk, ["a refund, please", "order 42"])
    live = desk()
    await uninterrupted(live, ["a refund, please", given_to_ann("order 42")])
    kept = anonymous(await store.session("case").at(2).state())["agent_states"]["SwarmGroupChatManager"]
    wanted = anonymous(await saved(live))["agent_states"]["SwarmGroupChatManager"]
    task = next(i for i, message in enumerate(wanted["message_thread"]) if message["content"] == "order 42")
    assert kept["message_thread"][task]["type"] == "TextMessage"
    del kept["message_thread"][task], wanted["message_thread"][task]
    assert kept == wanted


async def test_a_swarm_that_is_not_restarted_takes_a_text_too(store):
    case = store.session("case", desk)
    live = [transcript(await case.run(task=text)) for text in ("a refund, please", "order 42")]
    assert live == await restarted(store, desk, ["a refund, please", "order 42"], "another")


async def test_a_swarm_that_handed_off_to_the_user_continues_with_a_handoff(store):
    tasks = ["a refund, please", given_to_ann("order 42"), "and another", given_to_ann("order 43")]
    assert await restarted(store, desk, tasks) == await uninterrupted(desk(), tasks)


def nested_desk():
    return RoundRobinGroupChat([desk(name="desk"), assistant("lead")], max_turns=2, name="outer")


async def test_a_plain_swarm_in_a_team_does_not_come_back_from_the_user():
    live = nested_desk()
    await live.run(task="a refund, please")
    with pytest.raises((ValueError, RuntimeError), match="existing handoff target user"):
        await live.run(task="order 42")


async def test_a_swarm_in_a_team_comes_back_from_the_user(store):
    texts = ["a refund, please", "order 42", "thanks"]
    said = await restarted(store, nested_desk, texts)
    assert [turn["messages"][0]["content"] for turn in said] == texts
    assert speakers(said[1]) == ["ann", "lead"]
    case = store.session("never restarted", nested_desk)
    assert said == [transcript(await case.run(task=text)) for text in texts]


PLANNING = ("pre-survey", "bullet-point plan", "fact sheet", "come up with a new plan")
"""Words of the orchestrator's prompts for facts and plans, and for new ones."""


def planning(model):
    """Count how often a model was asked for facts or a plan."""
    return sum(any(word in str(seen[-1].content) for word in PLANNING) for seen in model.seen)


def orchestrator(state):
    return state["agent_states"]["MagenticOneOrchestrator"]


async def test_a_plain_orchestrator_cannot_continue():
    model = Scripted(ledger)
    live = orchestrated(model, max_turns=1)
    await live.run(task=TASKS[0])
    assert planning(model) == 2
    with pytest.raises((AssertionError, RuntimeError)):
        await live.run()
    another = orchestrated(model, max_turns=1)
    await another.load_state(await saved(live))
    await another.run(task=TASKS[1])
    assert planning(model) == 4


@pytest.mark.parametrize("restart", [False, True], ids=["live", "restarted"])
async def test_an_orchestrator_stopped_by_its_maximum_of_turns_continues_with_its_plan(store, restart):
    model = Scripted(ledger)

    def build():
        return orchestrated(model, max_turns=1)

    case = store.session("case", build)
    await case.run(task=TASKS[0])
    before = await case.at(1).state()
    model.seen.clear()
    if restart:
        case = store.session("case", build)
    said = transcript(await case.run())
    after = await case.at(2).state()
    assert {"ann", "bob"} & set(speakers(said))
    assert planning(model) == 0
    for part in ("task", "facts", "plan"):
        assert orchestrator(after)[part] == orchestrator(before)[part]
    thread = orchestrator(before)["message_thread"]
    assert orchestrator(after)["message_thread"][: len(thread)] == thread
    for name in ("ann", "bob"):
        told = before["agent_states"][name]["agent_state"]["llm_context"]["messages"]
        assert after["agent_states"][name]["agent_state"]["llm_context"]["messages"][: len(told)] == told


async def test_an_orchestrator_continues_after_a_restart_as_a_live_one(store):
    tasks = [TASKS[0], None, None, TASKS[1], None]
    case = store.session("never restarted", lambda: orchestrated(max_turns=1))
    live = [transcript(await case.run(task=task)) for task in tasks]
    assert await restarted(store, lambda: orchestrated(max_turns=1), tasks) == live


async def test_an_orchestrator_that_a_termination_stops_says_all_that_one_says_that_is_not_stopped(store):
    def build():
        return orchestrated(termination_condition=MaxMessageTermination(1))

    [whole] = await uninterrupted(orchestrated(), [TASKS[0]])
    turns = [transcript(await store.session("case", build).run(task=TASKS[0]))]
    while turns[-1]["stop_reason"] != whole["stop_reason"]:
        assert len(turns) < 10
        turns.append(transcript(await store.session("case", build).run()))
    assert joined(turns) == whole["messages"]
    assert len(turns) > 2


async def test_a_failed_orchestrator_is_resumed_with_its_plan(store):
    """B8: only running the turn again brings it back."""
    [expected] = await uninterrupted(orchestrated(), [TASKS[0]])
    outage = Outage(4, answer=ledger)
    with pytest.raises(midturn.TurnFailed, match="503"):
        await store.session("case", lambda: orchestrated(Scripted(outage))).run(task=TASKS[0])
    assert transcript(await store.session("case", lambda: orchestrated(Scripted(outage))).resume()) == expected


async def test_a_plain_orchestrator_that_failed_cannot_be_resumed():
    live = orchestrated(Scripted(Outage(4, answer=ledger)))
    with pytest.raises(RuntimeError, match="503"):
        await live.run(task=TASKS[0])
    with pytest.raises((AssertionError, RuntimeError)):
        await live.run()


LOOP = [TASKS[0], *[None] * 6]


async def test_a_plain_cyclic_flow_does_not_reach_its_exit_after_a_restart():
    live, again = await uninterrupted(cyclic(), LOOP), await reloaded(cyclic, LOOP)
    assert [name for said in live for name in speakers(said)] == ["writer", "reviewer"] * 3 + ["publisher"]
    assert "publisher" not in [name for said in again for name in speakers(said)][:7]
    assert again != live


@pytest.mark.parametrize("max_turns", [1, 2, 3])
async def test_a_cyclic_flow_reaches_its_exit_after_restarts(store, max_turns):
    tasks = LOOP[: 8 - max_turns]
    expected = await uninterrupted(cyclic(max_turns=max_turns), tasks)
    assert any("publisher" in speakers(said) for said in expected)
    assert await restarted(store, lambda: cyclic(max_turns=max_turns), tasks) == expected


@pytest.mark.parametrize("stop", range(1, 7))
async def test_an_imported_cyclic_flow_reaches_its_exit(store, stop):
    live = cyclic()
    await uninterrupted(live, LOOP[:stop])
    await imported(store, await saved(live))
    assert await restarted(store, cyclic, LOOP[stop:]) == await uninterrupted(live, LOOP[stop:])


async def test_a_flow_saved_by_hand_reaches_its_exit(store):
    live, fresh = cyclic(), cyclic()
    await uninterrupted(live, LOOP[:2])
    await store.save("case", live)
    await store.load("case", fresh)
    assert await uninterrupted(fresh, LOOP[2:]) == await uninterrupted(live, LOOP[2:])


async def test_plain_autogen_runs_the_last_of_a_diamond_once_too_few_after_a_restart():
    tasks = [TASKS[0], *[None] * 3]
    live = await uninterrupted(lopsided_diamond("any"), tasks)
    again = await reloaded(lambda: lopsided_diamond("any"), tasks)
    assert [name for said in live for name in speakers(said)].count("last") == 2
    assert [name for said in again for name in speakers(said)][:6].count("last") == 1


@pytest.mark.parametrize("max_turns", [1, 2])
@pytest.mark.parametrize("activation", ["any", "all"])
async def test_a_diamond_continues_after_restarts(store, activation, max_turns):
    tasks = [TASKS[0], *[None] * 3, TASKS[1], *[None] * 3]

    def build():
        return lopsided_diamond(activation, max_turns=max_turns)

    assert await restarted(store, build, tasks) == await uninterrupted(build(), tasks)


@pytest.mark.parametrize("stop", [1, 2, 3])
@pytest.mark.parametrize("activation", ["any", "all"])
async def test_an_imported_diamond_continues(store, activation, stop):
    tasks = [TASKS[0], *[None] * 3, TASKS[1]]
    live = lopsided_diamond(activation)
    await uninterrupted(live, tasks[:stop])
    await imported(store, await saved(live))
    said = await restarted(store, lambda: lopsided_diamond(activation), tasks[stop:])
    assert said == await uninterrupted(live, tasks[stop:])


async def test_a_plain_flow_changes_the_state_that_it_was_loaded_from():
    live, fresh = lopsided_diamond("any"), lopsided_diamond("any")
    await uninterrupted(live, [TASKS[0]])
    state = await saved(live)
    before = as_json(state)
    await fresh.load_state(state)
    await fresh.run()
    assert state != before


async def test_a_flow_leaves_the_checkpoint_that_it_was_loaded_from_as_it_was(store):
    case = store.session("case", lambda: lopsided_diamond("any"))
    await case.run(task=TASKS[0])
    before = await case.at(1).state()
    await restarted(store, lambda: lopsided_diamond("any"), [None, None])
    assert await case.at(1).state() == before


def _stopped_from_outside(kind):
    stop = ExternalTermination()

    def answer(messages):
        stop.set()
        return remembered(messages)

    agents = [assistant("ann"), assistant("bob", answer), assistant("cid")]
    if kind == "selector":
        order = ["bob", "cid", "ann"]
        return SelectorGroupChat(
            agents, Scripted(lambda messages: order[str(messages).count("messages,") % 3]), termination_condition=stop
        )
    return RoundRobinGroupChat(agents, termination_condition=stop)


def _asking_the_user():
    agents = [assistant("bob"), assistant("ann", _ask_the_user, handoffs=["user"]), assistant("cid")]
    return RoundRobinGroupChat(agents, termination_condition=HandoffTermination("user") | MaxMessageTermination(9))


STOPPED = {
    "max_turns": trio,
    "max_turns, one": lambda: trio(max_turns=1),
    "max_turns, selector": lambda: SelectorGroupChat(
        [assistant(name) for name in ("ann", "bob", "cid")], Scripted(select), max_turns=2, allow_repeated_speaker=True
    ),
    "external": lambda: _stopped_from_outside("round robin"),
    "external, selector": lambda: _stopped_from_outside("selector"),
    "handoff": _asking_the_user,
    "source": lambda: trio(max_turns=None, termination_condition=SourceMatchTermination(["bob"])),
}


@pytest.mark.parametrize("build", STOPPED.values(), ids=STOPPED)
async def test_a_stopped_team_continues_with_and_without_a_task(store, build):
    tasks = [TASKS[0], None, TASKS[1], None, None, TASKS[2]]
    assert await restarted(store, build, tasks) == await uninterrupted(build(), tasks)
