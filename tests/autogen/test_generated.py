"""Turns in a new process each equal the turns of a live instance that never stopped, whatever is built.

A failing test prints its spec; ``zygote(spec=..., ops=...)`` of a :class:`Zygote` runs it again.
"""

import json
import os

import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st
from zygote import restarted

PHASES = set(Phase) - {Phase.explain}
"""Explaining runs a failing case hundreds of times."""

FEWER = 5 if os.environ.get("MIDTURN_AUTOGEN") else 1
"""With another AutoGen a few of each family show whether it still fits."""

MORE = 30 if os.environ.get("MIDTURN_LONG") else 1
"""Factor by which a long run has more examples than every test run."""

pytestmark = pytest.mark.timeout(300 * MORE)


def races(spec):
    """Return whether a spec has a graph in which two nodes may speak at the same time."""
    if isinstance(spec, list):
        return any(map(races, spec))
    if not isinstance(spec, dict):
        return False
    edges = [parent % (i + 1) for i, parents in enumerate(spec.get("parents", ())) for parent in parents]
    return len(edges) > len(set(edges)) or any(map(races, spec.values()))


def chooses(spec):
    """Return whether the next speaker in a graph may depend on who was quicker."""
    if isinstance(spec, list):
        return any(map(chooses, spec))
    return isinstance(spec, dict) and (bool(spec.get("any") or spec.get("split")) or any(map(chooses, spec.values())))


def sources(turn):
    """Return the speakers of a turn that ended, in no order; for one that failed, only that fact."""
    messages = turn["said"]["messages"] if "said" in turn else ()
    return "error" in turn, sorted(message["source"] for message in messages)


def check(zygote, spec, ops, kind, beyond=None):
    """Run the turns by plain AutoGen, by one session object, and in a new process each.

    AutoGen fails with an error that has ``beyond`` in it where midturn continues.
    """
    turns = [op for op in ops if "run" in op]
    ops = ops if "external" in json.dumps(spec) else turns
    alone = zygote(spec=spec, ops=ops)
    if "error" in alone[-1] and ops != turns:  # the session may build a new instance then, whose buttons nobody has
        ops = turns
        alone = zygote(spec=spec, ops=ops)
    live = zygote(spec=spec, ops=ops, url="memory://")
    again = restarted(zygote, spec, ops, kind)
    if races(spec):  # which of two branches is quicker, and so what the others are shown, is decided by the clock
        if not chooses(spec):
            assert [sources(turn) for turn in live] == [sources(turn) for turn in again]
        event("branches race")
        return
    for turn, (one, other) in enumerate(zip(live, again, strict=True), 1):
        for what in ("error", "said", "state", "beside"):
            assert (turn, what, other.get(what)) == (turn, what, one.get(what))
    for turn, (one, other) in enumerate(zip(alone, live, strict=False), 1):
        if beyond and beyond in one.get("why", "") and beyond not in other.get("why", ""):
            event("AutoGen fails")
            break
        for what in ("error", "said", "state"):
            assert (turn, what, other.get(what)) == (turn, what, one.get(what))
    event("a turn failed" if any("error" in turn for turn in live) else "all turns were done")


numbers = st.integers(0, 5)
flag = st.just(True)

TASKS = st.sampled_from(["one", "two", "and now?", "try\n```sh\nls\n```"]) | st.lists(
    st.sampled_from(["three", "four"]), min_size=1, max_size=3
)
ANY_TASK = st.one_of(TASKS, TASKS, TASKS, st.none())


def cases(family, examples, *, first=ANY_TASK, later=ANY_TASK):
    """A test of a family of specs, with these tasks; between two turns, an external termination may be set."""
    pressed = st.one_of(st.none(), st.none(), st.fixed_dictionaries({"set": numbers}))
    pairs = st.lists(st.tuples(pressed, st.fixed_dictionaries({"run": later})), min_size=1, max_size=2 + (MORE > 1))
    ops = st.builds(lambda one, more: [{"run": one}, *(op for pair in more for op in pair if op)], first, pairs)
    kinds = st.sampled_from(["sqlite", "file"])

    def decorate(test):
        found = given(spec=family, ops=ops, kind=kinds)(test)
        few = max(3, examples * 3 // 5 // FEWER)  # the rest is for make chaos
        return settings(max_examples=examples * MORE if MORE > 1 else few, phases=PHASES)(found)

    return decorate


def spec(kind, required=(), **optional):
    """Specs of one kind; those of its options that are not needed are often left out."""
    return st.fixed_dictionaries({"is": st.just(kind)} | dict(required), optional=optional)


contexts = st.one_of(
    st.just(["unbounded"]),
    st.tuples(st.just("buffered"), st.integers(1, 6)),
    st.tuples(st.just("head_and_tail"), st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.just("tokens"), st.integers(2, 8)),
)

# --- agents

simple_tools = st.sampled_from(["look", "cart", "counter", "remember", "press"]).map(lambda kind: {"is": kind})
workbenches = {"workbench": flag, "iterations": st.integers(2, 3), "reflect": flag}


def assistants(tools=simple_tools, **options):
    return spec(
        "assistant",
        context=contexts,
        memory=st.integers(0, 1),
        tools=st.lists(tools, min_size=1, max_size=3),
        stream=flag,
        structured=flag,
        **workbenches,
        **options,
    )


plain = spec("assistant", context=contexts, stream=flag)
fragile = spec("assistant", {"fragile": flag}, tools=st.lists(simple_tools, min_size=1, max_size=2), **workbenches)
with_tools = assistants()
filters = st.lists(
    st.tuples(numbers, st.sampled_from(["first", "last", None]), st.integers(1, 3)), min_size=1, max_size=3
)
filtered = spec("filter", {"agent": with_tools, "keep": filters})
coders = spec("coder", {"model": st.booleans()}, context=contexts, retries=st.integers(1, 2))
humans = spec("human", {"counting": st.booleans()})
tallies = spec("tally")
agents = st.one_of(plain, with_tools, fragile, filtered, coders, humans, tallies)
unthreaded = st.one_of(plain, with_tools, fragile, filtered, coders, tallies)  # parallel speakers come in a fixed order

# --- terminations


def conditions(*more):
    leaves = st.one_of(
        st.tuples(st.just("max"), st.integers(2, 8)),
        st.tuples(st.just("mention"), st.sampled_from(["STOP", "yes"])),
        st.tuples(st.just("source"), numbers),
        st.tuples(st.just("text"), numbers),
        st.tuples(st.just("called"), numbers),
        st.tuples(st.just("tokens"), st.integers(10, 40)),
        st.tuples(st.just("patience"), st.integers(3, 9)),
        st.tuples(st.just("quota"), st.integers(3, 9)),
        st.just(["external"]),
        *more,
    )
    return st.recursive(leaves, lambda parts: st.tuples(st.sampled_from(["or", "and"]), parts, parts), max_leaves=3)


# --- teams


TURNS = st.sampled_from([3, 2, 1, 4])


def teams(kind, members, turns=TURNS, needed=(), **options):
    required = {"members": members, "max_turns": turns} | dict(needed)
    return spec(kind, required, **({} if "stop" in required else {"stop": conditions()}), **options)


def some(members, least=1, most=3):
    return st.lists(members, min_size=least, max_size=most)


def round_robins(members, least=1):
    return teams("round_robin", some(members, least), events=flag)


def selectors(members, **options):
    return teams("selector", some(members, 2), attempts=st.integers(1, 3), context=contexts, events=flag, **options)


@st.composite
def graphs(draw, members, *, cyclic):
    nodes = draw(some(members, 2 + cyclic, 5))
    last = len(nodes) - 1
    any_nodes = st.lists(st.integers(0, last), max_size=3, unique=True)
    found = {
        "is": "graph",
        "members": nodes,
        "parents": [draw(st.lists(numbers, min_size=1, max_size=2, unique=True)) for _ in range(last)],
        "any": draw(any_nodes),
        "split": draw(any_nodes),
        "forks": draw(any_nodes),
    }
    if cyclic:
        backs = draw(st.dictionaries(st.integers(0, last - 1), numbers, min_size=1, max_size=2))
        found["back"] = [[source, target % (source + 1)] for source, target in backs.items()]
        found[draw(st.sampled_from(["any", "split"]))] += [target for _, target in found["back"]]
    if cyclic or draw(st.booleans()):
        found["max_turns"] = draw(TURNS)
    if draw(st.booleans()):
        found["stop"] = draw(conditions())
    return found


def swarms(whom, *members, **options):
    """Each hands over to every other, and to the user where a handoff ends the turn."""
    handing = assistants(handoffs=st.just(whom))
    pair = st.builds(lambda one, more: [one, *more], handing, some(st.one_of(handing, *members), 1, 2))
    return teams("swarm", pair, turns=st.sampled_from([3, 2, 1, 4, 5]), events=flag, **options)


def magentics():
    """A team that can be asked again and again, until it has had all its rounds."""
    members = agents.map(_unstructured)
    return teams("magentic", some(members), turns=st.sampled_from([4, 2, 8, 12]), stalls=st.integers(1, 3), events=flag)


def _unstructured(spec):
    """MagenticOne does not take structured messages."""
    found = {name: value for name, value in spec.items() if name != "structured"}
    return found | {"agent": _unstructured(found["agent"])} if "agent" in found else found


inner = st.one_of(
    round_robins(plain | with_tools), selectors(plain), graphs(plain, cyclic=False), graphs(plain, cyclic=True)
)
societies = spec("society", {"team": inner}, context=contexts)
nested = st.one_of(agents, societies, inner, inner, swarms("members"))
big_tools = st.one_of(
    simple_tools,
    spec("agent", {"agent": with_tools | filtered | societies}, last=flag),
    spec("team", {"team": inner}, last=flag),
)


@cases(st.one_of(agents, societies), 15)
def test_single_agents(zygote, spec, ops, kind):
    check(zygote, spec, ops, kind)


@cases(spec("assistant", {"tools": some(big_tools)}, context=contexts, memory=st.integers(0, 1), **workbenches), 10)
def test_agents_whose_tools_are_agents_and_teams(zygote, spec, ops, kind):
    check(zygote, spec, ops, kind)


@cases(round_robins(agents), 10)
def test_round_robins(zygote, spec, ops, kind):
    check(zygote, spec, ops, kind)


@cases(selectors(agents, repeat=flag), 10)
def test_selectors(zygote, spec, ops, kind):
    check(zygote, spec, ops, kind)


@cases(graphs(unthreaded | societies, cyclic=False), 9)
def test_graphs_without_cycles(zygote, spec, ops, kind):
    check(zygote, spec, ops, kind)


@cases(graphs(unthreaded | societies, cyclic=True), 12)
def test_graphs_with_cycles(zygote, spec, ops, kind):
    check(zygote, spec, ops, kind)


@cases(swarms("members", humans), 9)
def test_swarms(zygote, spec, ops, kind):
    check(zygote, spec, ops, kind)


USER = {"stop": st.just(["handoff", "user"]) | conditions().map(lambda more: ["or", ["handoff", "user"], more])}


@cases(swarms("anybody", needed=USER), 9, later=numbers | ANY_TASK)
def test_swarms_that_hand_over_to_the_user(zygote, spec, ops, kind):
    check(zygote, spec, ops, kind, beyond="The existing handoff target user")


@cases(magentics(), 9, first=TASKS)
def test_magentic_teams(zygote, spec, ops, kind):
    check(zygote, spec, ops, kind, beyond="AssertionError")


@cases(st.one_of(round_robins(nested, 2), selectors(nested)), 10)
def test_teams_in_teams(zygote, spec, ops, kind):
    check(zygote, spec, ops, kind, beyond="Task list cannot be empty")


@cases(
    st.one_of(agents, societies, round_robins(agents), selectors(agents, repeat=flag), swarms("members", humans)), 15
)
def test_the_same_inputs_lead_to_the_same_states_after_a_rewind(zygote, spec, ops, kind):
    """A model answers what it has answered then, because that follows from what it is shown."""
    runs = [op for op in ops if "run" in op]
    said = restarted(zygote, spec, runs, kind)
    done = next((number for number, turn in enumerate(said) if "error" in turn), len(said))
    if done < 2:
        event("a turn failed")
        return
    back = 1 + len(json.dumps(spec)) % (done - 1)
    first, rewound, again = _parted(
        restarted(zygote, spec, [*runs[:done], {"rewind": back}, *runs[back:done]], kind), done
    )
    assert (first, rewound) == (said[:done], done + 1)
    assert again == said[back:done]
    event(f"back by {done - back}")


def _parted(answers, at):
    return answers[:at], answers[at], answers[at + 1 :]


@cases(
    st.one_of(agents, societies, round_robins(agents), selectors(agents), graphs(plain, cyclic=True), magentics()),
    15,
    first=TASKS,
)
def test_a_session_that_is_compacted_after_each_turn_goes_on_as_if_it_were_not(zygote, spec, ops, kind):
    turns = [op for op in ops if "run" in op]
    if races(spec):
        return
    one = restarted(zygote, spec, turns, kind)
    other = restarted(zygote, spec, [each for op in turns for each in (op, {"compact": True})], kind)
    assert other == one
