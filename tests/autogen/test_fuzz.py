"""States in which something was deleted, renamed or made another type: exactly restored, or refused by name."""

import os
import random

import pytest
from autogen_core import AgentId, RoutedAgent, SingleThreadedAgentRuntime
from fuzz_kinds import FUZZED
from fuzzing import Mutation, Subject, check_error, mutations, state_of
from hypothesis import given, note
from hypothesis import strategies as st
from kinds import TASKS

import midturn

MUTATIONS = None if os.environ.get("MIDTURN_LONG") else 14
"""Number of mutations of each kind: all of them in a long run."""

SESSIONS = 2

pytestmark = pytest.mark.timeout(7_200 if MUTATIONS is None else 300)  # a kind may have thousands of mutations

_trees, _mutations = {}, {}


async def tree_of(kind):
    if kind not in _trees:
        _trees[kind] = await state_of(*FUZZED[kind])
    return _trees[kind]


def mutations_of(kind, tree):
    if kind not in _mutations:
        _mutations[kind] = list(mutations(tree))
    return _mutations[kind]


def chosen(kind, tree, count, seed=""):
    """The same mutations in every run: half of them where messages are, half elsewhere."""
    found = mutations_of(kind, tree)
    if count is None:
        return found
    inside, outside = [], []
    for mutation in found:
        (inside if any(isinstance(key, int) for key in mutation.place) else outside).append(mutation)
    picked = random.Random(f"{kind}{seed}")
    return [mutation for some in (inside, outside) for mutation in picked.sample(some, min(count // 2, len(some)))]


@pytest.fixture
async def store():
    async with midturn.open("memory://") as store:
        yield store


@pytest.mark.parametrize("kind", FUZZED)
async def test_an_unchanged_state_is_restored(store, kind):
    tree = await tree_of(kind)
    assert await Subject(*FUZZED[kind]).load(store, tree, []) == "restored"


@pytest.mark.parametrize("kind", FUZZED)
async def test_the_state_that_autogen_saves_is_restored(store, kind):
    tree = await tree_of(kind)
    assert await Subject(*FUZZED[kind]).load(store, {"state": tree["state"]}, []) == "restored"


@pytest.mark.parametrize("kind", FUZZED)
async def test_a_changed_state_is_restored_exactly_or_refused_by_name(store, kind):
    tree, subject = await tree_of(kind), Subject(*FUZZED[kind])
    refused, wrong = 0, {}
    for mutation in chosen(kind, tree, MUTATIONS):
        if (changed := mutation.apply(tree)) is not None:
            try:
                refused += await subject.load(store, changed, [*mutation.places()]) == "refused"
            except Exception as error:  # noqa: BLE001 - that it is of no other type is what is tested
                wrong[str(mutation)] = f"{type(error).__name__}: {error}"
                subject = Subject(*FUZZED[kind])
    assert wrong == {}
    assert refused
    await subject.goes_on(TASKS[2])


def _in(*place):
    return ("state", "agent_states", *place)


CHANGES = {
    "a tool that refuses its state": ("typed_tool", Mutation("change", ("beside", "tools/add", "items"), [7])),
    "a tool that has lost what it keeps": ("typed_tool", Mutation("delete", ("beside", "tools/add", "items"))),
    "an agent that fails to load": (
        "own_agent_in_a_team",
        Mutation("change", _in("clerk", "agent_state", "open", "last"), "another"),
    ),
    "a broken picture": (
        "pictures",
        Mutation("change", _in("ann", "agent_state", "llm_context", "messages", 0, "content", 1, "data"), "text"),
    ),
    "a broken picture, to be read": (
        "pictures",
        Mutation("change", _in("bob", "message_buffer", 0, "content", 1, "data"), "text"),
    ),
    "a picture without its data": (
        "pictures",
        Mutation("delete", _in("bob", "message_buffer", 0, "content", 1, "data")),
    ),
    "a number that is a truth": (
        "round_robin",
        Mutation(
            "change", _in("RoundRobinGroupChatManager", "message_thread", 1, "models_usage", "prompt_tokens"), True
        ),
    ),
    "a node without its context": (
        "cyclic_graph",
        Mutation("change", _in("writer", "agent_state", "llm_context", "messages"), []),
    ),
    "a selector without its context": ("selector", Mutation("delete", ("beside", "manager/model_context"))),
    "a memory that the thread has otherwise": (
        "binary_memory",
        Mutation("change", ("beside", "manager/message_thread", 0, "memories", 2, "content"), "text"),
    ),
    "a memory with a truth for a number": (
        "binary_memory",
        Mutation("change", ("beside", "manager/message_thread", 0, "memories", 2, "content", "object", "a", 0), True),
    ),
    "memories of a message that is not there": (
        "binary_memory",
        Mutation("change", ("beside", "manager/message_thread", 0, "index"), 7),
    ),
    "an empty memory by another name": (
        "society_in_a_team",
        Mutation("rename", ("beside", "participants/noting/memory/default_list_memory"), "$"),
    ),
    "a broken memory": (
        "binary_memory",
        Mutation("change", ("beside", "manager/message_thread", 0, "memories", 2, "content"), 7),
    ),
    "a speaker that is not there": ("round_robin", Mutation("change", ("beside", "manager", "next_speaker"), "dan")),
    "a handoff to a number": (
        "swarm_that_asks",
        Mutation("change", _in("SwarmGroupChatManager", "current_speaker"), 1),
    ),
    "a graph without a node": ("cyclic_graph", Mutation("delete", _in("GraphManager", "remaining", "reviewer"))),
}


@pytest.mark.parametrize(("kind", "mutation"), CHANGES.values(), ids=CHANGES)
async def test_a_change_that_is_easily_missed_is_restored_exactly_or_refused_by_name(store, kind, mutation):
    subject = Subject(*FUZZED[kind])
    await subject.load(store, mutation.apply(await tree_of(kind)), [*mutation.places()])
    await subject.goes_on(TASKS[2])


@pytest.mark.parametrize("kind", FUZZED)
async def test_the_state_of_another_kind_is_restored_exactly_or_refused(store, kind):
    subject = Subject(*FUZZED[kind])
    others = [other for other in FUZZED if other != kind]
    for other in random.Random(kind).sample(others, len(others) if MUTATIONS is None else 3):
        await subject.load(store, await tree_of(other), [()])
    await subject.goes_on(TASKS[2])


async def test_what_belongs_inside_a_tool_is_not_taken_for_the_tool(store):
    await store.session("case").save(await tree_of("bound_tool"), origin="import")
    with pytest.raises(midturn.Drifted, match=r"\$\.beside\.tools/add/func: is in the state"):
        await store.load("case", FUZZED["own_tool"][0]())


@pytest.mark.parametrize("kind", FUZZED)
async def test_a_session_goes_on_from_a_changed_state_or_refuses_it_by_name(store, kind):
    tree, (build, _) = await tree_of(kind), FUZZED[kind]
    for number, mutation in enumerate(chosen(kind, tree, SESSIONS, " in a session")):
        if (changed := mutation.apply(tree)) is None:
            continue
        session = f"session {number}"
        await store.session(session).save(changed, origin="import")
        try:
            result = await store.session(session, build).run(task=TASKS[2])
        except midturn.StateInvalid as error:
            check_error(error, [*mutation.places()])
            assert [turn.number async for turn in store.session(session).history()] == [1]
        else:
            assert result.turn == 2


@given(kind=st.sampled_from(sorted(FUZZED)), data=st.data())
async def test_several_changes_at_once_are_restored_exactly_or_refused_by_name(kind, data):
    changed = tree = await tree_of(kind)
    places = []
    all_of_them = mutations_of(kind, tree)
    for index in data.draw(st.lists(st.integers(0, len(all_of_them) - 1), min_size=2, max_size=5)):
        mutation = all_of_them[index]
        after = mutation.apply(changed)
        if after is not None:
            note(str(mutation))
            changed = after
            places += mutation.places()
    async with midturn.open("memory://") as store:
        subject = Subject(*FUZZED[kind])
        await subject.load(store, changed, places or [()])
        await subject.goes_on(TASKS[2])


class Counter(RoutedAgent):
    def __init__(self):
        super().__init__("counts")
        self.total = 0

    async def save_state(self):
        return {"total": self.total}

    async def load_state(self, state):
        self.total = state["total"]


async def _runtime():
    runtime = SingleThreadedAgentRuntime()
    await Counter.register(runtime, "counter", Counter)
    await runtime.try_get_underlying_agent_instance(AgentId("counter", "default"))
    return runtime


RUNTIMES = {
    "no id": {"nonsense": {"total": 1}},
    "an empty id": {"": {"total": 1}},
    "an unknown type": {"other/default": {"total": 1}},
    "no state": {"counter/default": 7},
    "a state without its key": {"counter/default": {}},
    "one that fits and one that does not": {"counter/default": {"total": 1}, "counter/other": {}},
    "no object": [],
}


@pytest.mark.parametrize("state", RUNTIMES.values(), ids=RUNTIMES)
async def test_a_state_that_does_not_fit_a_runtime_is_refused_by_name(store, state):
    await store.session("case").save({"state": state}, origin="import")
    runtime = await _runtime()
    with pytest.raises(midturn.StateInvalid) as refused:
        await store.load("case", runtime)
    assert refused.value.path.startswith("$.state")
    assert (await runtime.save_state())["counter/default"] == {"total": 0}
