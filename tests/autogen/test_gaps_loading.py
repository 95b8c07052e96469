"""Values that plain AutoGen accepts as a state, and the traces that a failed run leaves in it."""

from copy import deepcopy

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from gap_teams import Outage, imported, joined, restarted, saved, speakers, trio, uninterrupted
from kinds import TASKS, assistant, selector, swarm, transcript
from scripted import remembered

import midturn


@pytest.fixture
async def store():
    async with midturn.open("memory://") as store:
        yield store


# B9: states that do not fit


def _renamed(state, old, new):
    return {new if key == old else key: value for key, value in state.items()}


def _at(state, *path):
    for key in path:
        state = state[key]
    return state


async def _state_of(build):
    live = build()
    await live.run(task=TASKS[0])
    return await saved(live)


AGENT_STATES = {
    "nothing": lambda state: {},
    "another class": lambda state: {"type": "BaseState", "version": "1.0.0"},
    "a team": lambda state: {"type": "TeamState", "version": "1.0.0", "agent_states": {"assistant": state}},
    "a misspelled key": lambda state: _renamed(state, "llm_context", "llm_contxt"),
    "no messages": lambda state: state | {"llm_context": {}},
}
"""Values that empty an agent without a word."""

MORE_AGENT_STATES = {
    "another version": lambda state: state | {"version": "99"},
    "another type": lambda state: state | {"type": "SocietyOfMindAgentState"},
    "one key too many": lambda state: state | {"mood": "fine"},
}
"""Values that AutoGen accepts unchecked."""


@pytest.mark.parametrize("change", AGENT_STATES.values(), ids=AGENT_STATES)
async def test_plain_autogen_empties_an_agent_without_a_word(change):
    live = assistant()
    await live.run(task=TASKS[0])
    await live.load_state(change(await saved(live)))
    assert (await saved(live))["llm_context"].get("messages", []) == []


@pytest.mark.parametrize("change", MORE_AGENT_STATES.values(), ids=MORE_AGENT_STATES)
async def test_plain_autogen_does_not_look_at_what_it_loads_into_an_agent(change):
    live = assistant()
    await live.run(task=TASKS[0])
    state = await saved(live)
    await live.load_state(change(state))
    assert await saved(live) == state


async def refused(store, build, state):
    """See that a state is refused wherever it is loaded, and that what it was loaded into is as it was."""
    await imported(store, state)
    live, untouched = build(), build()
    await live.run(task="something else")
    before = await saved(live)
    with pytest.raises(midturn.StateInvalid) as by_hand:
        await store.load("case", live)
    assert await saved(live) == before
    with pytest.raises(midturn.StateInvalid) as in_a_session:
        await store.session("case", build).run(task=TASKS[1])
    assert await store.session("case").at(1).state() == state
    assert by_hand.value.differences == in_a_session.value.differences
    assert by_hand.value.differences
    said = [transcript(await live.run(task=TASKS[2]))]
    assert said == (await uninterrupted(untouched, ["something else", TASKS[2]]))[1:]
    return by_hand.value


@pytest.mark.parametrize("kind", [*AGENT_STATES, *MORE_AGENT_STATES])
async def test_a_state_that_does_not_fit_an_agent_is_refused_and_changes_nothing(store, kind):
    change = (AGENT_STATES | MORE_AGENT_STATES)[kind]
    await refused(store, assistant, change(await _state_of(assistant)))


def _without(*names):
    def change(state):
        for name in names:
            del state["agent_states"][name]
        return state

    return change


def _inside(*path, **changes):
    def change(state):
        _at(state, "agent_states", *path).update(changes)
        return state

    return change


def _misspelled(old, new, *path):
    def change(state):
        *above, last = ("agent_states", *path)
        holder = _at(state, *above)
        holder[last] = _renamed(holder[last], old, new)
        return state

    return change


MANAGER = "RoundRobinGroupChatManager"

TEAM_STATES = {
    "nothing": lambda state: {},
    "an agent": lambda state: state["agent_states"]["bob"]["agent_state"],
    "another version": lambda state: state | {"version": "99"},
    "a misspelled key": lambda state: _renamed(state, "agent_states", "agent_stats"),
    "a participant missing": _without("bob"),
    "the last participant missing": _without("cid"),
    "the manager missing": _without(MANAGER),
    "a participant of another version": _inside("bob", "agent_state", version="99"),
    "a participant of another class": _inside("bob", agent_state={"type": "BaseState", "version": "1.0.0"}),
    "a participant's key misspelled": _misspelled("llm_context", "llm_contxt", "cid", "agent_state"),
    "a buffer misspelled": _misspelled("message_buffer", "message_bufer", "cid"),
    "a manager of another version": _inside(MANAGER, version="99"),
    "a manager's key misspelled": _misspelled("next_speaker_index", "next_speaker", MANAGER),
    "a speaker that is not there": _inside(MANAGER, next_speaker_index=7),
    "an unknown message": _inside(MANAGER, message_thread=[{"type": "Telegram", "content": "stop"}]),
}

TAKEN = [
    "another version",
    "a participant of another version",
    "a participant of another class",
    "a participant's key misspelled",
    "a buffer misspelled",
    "a manager of another version",
    "a manager's key misspelled",
    "a speaker that is not there",
]
"""Those that AutoGen loads without a word."""

NAMED = {
    "a participant missing": "bob",
    "the last participant missing": "cid",
    "the manager missing": MANAGER,
    "a participant of another version": "bob",
    "a participant of another class": "bob",
    "a participant's key misspelled": "cid",
    "a buffer misspelled": "cid",
    "a manager's key misspelled": MANAGER,
    "an unknown message": "Telegram",
}
"""Names that the error has to contain."""


@pytest.mark.parametrize("kind", TAKEN)
async def test_plain_autogen_takes_a_state_for_a_team_that_does_not_fit(kind):
    live = trio()
    await live.load_state(TEAM_STATES[kind](await _state_of(trio)))


@pytest.mark.parametrize("kind", ["the last participant missing", "the manager missing", "an unknown message"])
async def test_plain_autogen_overwrites_half_a_team_before_it_refuses_a_state(kind):
    live = trio()
    await live.run(task="something else")
    before = await saved(live)
    with pytest.raises(ValueError):
        await live.load_state(TEAM_STATES[kind](await _state_of(trio)))
    assert await saved(live) != before


@pytest.mark.parametrize("kind", TEAM_STATES)
async def test_a_state_that_does_not_fit_a_team_is_refused_and_changes_nothing(store, kind):
    error = await refused(store, trio, TEAM_STATES[kind](await _state_of(trio)))
    assert NAMED.get(kind, "") in str(error)


@pytest.mark.parametrize(("build", "other"), [(trio, selector), (selector, trio), (trio, swarm)])
async def test_the_state_of_another_kind_of_team_is_refused_and_changes_nothing(store, build, other):
    await refused(store, build, await _state_of(other))


async def test_every_difference_is_told_at_once(store):
    state = await _state_of(trio)
    _inside("ann", "agent_state", version="99")(state)
    _misspelled("llm_context", "llm_contxt", "cid", "agent_state")(state)
    error = await refused(store, trio, state)
    paths = [path for path, _ in error.differences]
    assert any("ann" in path for path in paths)
    assert any("cid" in path for path in paths)


async def test_a_whole_state_is_taken(store):
    await imported(store, deepcopy(await _state_of(trio)))
    assert await restarted(store, trio, [TASKS[1]]) == (await uninterrupted(trio(), TASKS[:2]))[1:]


# B10: what a failed run leaves behind


def count(state, text):
    """Count how often a text is in the context of an agent."""
    return str(state["llm_context"]["messages"]).count(text)


async def test_plain_autogen_tells_an_agent_twice_what_was_asked_once():
    live = assistant(answer=Outage(1))
    with pytest.raises(RuntimeError, match="503"):
        await live.run(task=TASKS[0])
    await live.run(task=TASKS[0])
    assert count(await saved(live), TASKS[0]) == 2


async def test_plain_autogen_tells_a_team_twice_what_was_asked_once():
    live = RoundRobinGroupChat([assistant("ann", Outage(1))], max_turns=1)
    with pytest.raises(RuntimeError, match="503"):
        await live.run(task=TASKS[0])
    await live.run(task=TASKS[0])
    assert count((await saved(live))["agent_states"]["ann"]["agent_state"], TASKS[0]) > 1


def flaky(in_team, outage):
    if not in_team:
        return assistant(answer=outage)
    return RoundRobinGroupChat([assistant(name, outage) for name in ("ann", "bob")], max_turns=2)


@pytest.mark.parametrize("again", ["resumed", "run again"])
@pytest.mark.parametrize("given", [False, True], ids=["built", "given"])
@pytest.mark.parametrize("in_team", [False, True], ids=["agent", "team"])
async def test_a_task_that_failed_is_shown_once(store, in_team, given, again):
    expected = await uninterrupted(flaky(in_team, Outage()), TASKS[:3])
    outage = Outage(4 if in_team else 2)
    case = store.session("case", flaky(in_team, outage) if given else lambda: flaky(in_team, outage))
    said = [transcript(await case.run(task=TASKS[0]))]
    with pytest.raises(midturn.TurnFailed, match="503"):
        await case.run(task=TASKS[1])
    said.append(transcript(await (case.resume() if again == "resumed" else case.run(task=TASKS[1]))))
    said.append(transcript(await case.run(task=TASKS[2])))
    assert said == expected


def alone(**options):
    return RoundRobinGroupChat([assistant("ann"), assistant("bob")], max_turns=3, name="inner", **options)


def nested_alone():
    return RoundRobinGroupChat([alone()], max_turns=2, name="outer")


async def test_a_plain_inner_team_that_was_told_nothing_new_cannot_speak():
    with pytest.raises(RuntimeError, match="cannot be empty"):
        await nested_alone().run(task=TASKS[0])


async def test_an_inner_team_that_was_told_nothing_new_continues(store):
    tasks = [TASKS[0], None, TASKS[1]]
    said = await restarted(store, nested_alone, tasks)
    inner = await uninterrupted(alone(), [TASKS[0], None, None, None, TASKS[1], None])
    assert joined(said) == joined(inner)
    assert speakers(said[0]) == ["ann", "bob", "ann", "bob", "ann", "bob"]


async def test_an_inner_team_continues_without_a_task_at_the_beginning_of_a_turn(store):
    def build():
        return RoundRobinGroupChat([alone()], max_turns=1, name="outer")

    tasks = [TASKS[0], None, None, TASKS[1], None]
    assert joined(await restarted(store, build, tasks)) == joined(await uninterrupted(alone(), tasks))


# An agent that is run without a task: its context ends with what it said itself


def unless_it_spoke_last(messages):
    if messages[-1].type == "AssistantMessage":
        raise RuntimeError("400: the last message must be from the user")
    return remembered(messages)


async def test_some_providers_refuse_a_plain_agent_that_is_run_without_a_task():
    live, fresh = assistant(answer=unless_it_spoke_last), assistant(answer=unless_it_spoke_last)
    await live.run(task=TASKS[0])
    await fresh.load_state(await saved(live))
    with pytest.raises(RuntimeError, match="400"):
        await fresh.run()


async def test_an_agent_is_run_without_a_task_after_a_restart_as_a_live_one(store):
    tasks = [TASKS[0], None, None, TASKS[1]]
    assert await restarted(store, assistant, tasks) == await uninterrupted(assistant(), tasks)


async def test_an_agent_that_a_provider_refused_continues_with_a_task(store):
    def build():
        return assistant(answer=unless_it_spoke_last)

    said = await restarted(store, build, [TASKS[0]])
    with pytest.raises(midturn.TurnFailed, match="400"):
        await store.session("case", build).run()
    said += await restarted(store, build, [TASKS[1]])
    assert said == await uninterrupted(build(), TASKS[:2])
