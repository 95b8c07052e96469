"""Each kind of change between two fingerprints: how it is told, whether it breaks, and the code that handles it."""

import ast
import json
from copy import deepcopy

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from midturn.record import codec
from midturn.versions.drift import Drift, compare, digest, migration_code, variable

REFUND = {"description": "Pay back.", "parameters": {"properties": {"order": {"type": "string"}}}, "strict": False}
REPORT = {
    "title": "Report",
    "type": "object",
    "properties": {"text": {"type": "string"}, "score": {"type": "integer"}},
    "required": ["text", "score"],
}


def agent(name, **more):
    return {"name": name, "class": "AssistantAgent", "description": "It helps.", "prompt": ["Be kind."], **more}


def team(*names, **more):
    return {"name": "desk", "class": "RoundRobinGroupChat", "participants": list(names), **more}


def setup(*agents, versions=None, **more):
    """A team of agents."""
    return {
        "agents": {f"participants/{each['name']}": each for each in agents},
        "teams": {"": team(*(each["name"] for each in agents), **more)},
        "versions": versions or {"autogen": "0.7.5", "midturn": "0.1.0"},
    }


def alone(**more):
    return {"agents": {"": agent("ann", **more)}, "teams": {}, "versions": {"autogen": "0.7.5"}}


def told(before, after, **options):
    """The only change, of which all the rest is true that is true of every change."""
    drift = compare(before, after, **options)
    [change] = drift.changes
    assert len(change.text) <= 150
    assert "\n" not in change.text
    assert drift.breaking == change.breaking
    assert bool(drift)
    assert change.text in str(drift)
    codec.check(drift.as_json())
    ast.parse(migration_code(drift, name="support", version=1))
    return change


@pytest.mark.parametrize(
    ("before", "after", "what", "text"),
    [
        ({}, {"prompt": ["Be brief."]}, "prompt", "prompt of ann changed"),
        ({}, {"prompt": []}, "prompt", "prompt of ann removed"),
        ({"prompt": []}, {}, "prompt", "prompt of ann added"),
        ({}, {"description": "Asks."}, "description", "description of ann changed from It helps. to Asks."),
        ({}, {"class": "Mine"}, "class", "class of ann changed from AssistantAgent to Mine"),
        (
            {"model": {"class": "C", "name": "gpt-4o"}},
            {"model": {"class": "C", "name": "gpt-5"}},
            "model",
            "model of ann changed from gpt-4o to gpt-5",
        ),
        (
            {"model": {"class": "OpenAI", "name": "gpt"}},
            {"model": {"class": "Azure", "name": "gpt"}},
            "model",
            "model of ann changed from OpenAI(name=gpt) to Azure(name=gpt)",
        ),
        ({}, {"tools": {"refund": REFUND}}, "tool", "tool refund of ann added"),
        (
            {"tools": {"refund": REFUND}},
            {"tools": {"refund": {**REFUND, "description": "Pay."}}},
            "tool",
            "tool refund of ann changed",
        ),
        ({}, {"handoffs": {"transfer": {"target": "bob"}}}, "handoff", "handoff transfer of ann added"),
        (
            {"context": {"class": "Buffered", "buffer_size": 3}},
            {"context": {"class": "Buffered", "buffer_size": 5}},
            "context",
            "context of ann changed from Buffered(buffer_size=3) to Buffered(buffer_size=5)",
        ),
        ({}, {"memory": ["ListMemory"]}, "memory", "memory of ann added"),
        ({}, {"workbenches": ["McpWorkbench"]}, "workbench", "workbenches of ann added"),
        ({}, {"output": {"name": "R", "schema": REPORT}}, "output", "structured output R of ann added"),
        (
            {"settings": {"max_tool_iterations": 1}},
            {"settings": {"max_tool_iterations": 3}},
            "setting",
            "max_tool_iterations of ann changed from 1 to 3",
        ),
        ({}, {"of a later version": 1}, "of a later version", "of a later version of ann added"),
    ],
)
def test_a_change_of_an_agent_that_does_not_break(before, after, what, text):
    change = told(alone(**before), alone(**after))
    assert (change.what, change.text, change.path, change.agent) == (what, text, "", "ann")
    assert not change.breaking
    assert change.code is None


def test_a_change_has_the_whole_of_both():
    change = told(alone(), alone(prompt=["Be brief.\n" * 100]))
    assert (change.before, change.after) == (["Be kind."], ["Be brief.\n" * 100])


def test_a_long_text_stays_one_line():
    assert told(alone(), alone(description="long\n" * 50)).text == "description of ann changed"
    assert told(alone(), alone(**{"k\n" * 200: 1})).text.endswith("...")


@pytest.mark.parametrize(
    ("count", "more"), [(0, ""), (1, "; 1 call in the case mentions it"), (3, "; 3 calls in the case mention it")]
)
def test_a_tool_that_is_gone(count, more):
    change = told(alone(tools={"refund": REFUND}), alone(), mentions={"refund": count}.get)
    assert change.text == f"tool refund of ann removed{more}"
    assert not change.breaking
    assert change.code == '# state = state.drop_tool("refund")'


def test_a_tool_under_another_name():
    change = told(alone(tools={"refund": REFUND}), alone(tools={"pay": REFUND}), mentions=lambda name: 2)
    assert change.text.startswith("tool refund of ann removed, tool pay added that takes the same; 2 calls")
    assert not change.breaking
    assert change.code == 'state = state.rename_tool("refund", "pay")'


def test_tools_with_other_parameters_are_not_the_same():
    drift = compare(alone(tools={"refund": REFUND}), alone(tools={"pay": {"parameters": {"properties": {}}}}))
    assert [change.text for change in drift.changes] == ["tool refund of ann removed", "tool pay of ann added"]


def test_an_agent_alone_under_another_name():
    after = alone()
    after["agents"][""]["name"] = "bob"
    change = told(alone(), after)
    assert change.text == "name of agent bob changed from ann to bob"
    assert not change.breaking
    assert change.code == 'state = state.rename_agent("ann", "bob")'


def test_who_is_added_to_a_team():
    change = told(setup(agent("ann")), setup(agent("ann"), agent("router")))
    assert (change.path, change.agent, change.what) == ("participants/router", "router", "agent")
    assert change.text == "agent router added to team desk"
    assert change.breaking
    assert change.code == 'state = state.add_agent("router")'


def test_who_is_removed_from_a_team():
    change = told(setup(agent("ann"), agent("triage")), setup(agent("ann")))
    assert change.text == "agent triage removed from team desk"
    assert change.breaking
    assert change.code == 'state = state.remove_agent("triage")'


def test_who_may_have_been_renamed():
    before, after = setup(agent("ann"), agent("triage")), setup(agent("ann"), agent("router", prompt=["Route."]))
    renamed, prompt = compare(before, after).changes
    assert renamed.text == "agent triage removed from team desk, agent router added in its place"
    assert renamed.breaking
    first, *others = renamed.code.splitlines()
    assert first == 'state = state.rename_agent("triage", "router")'
    assert others[-1] == '# state = state.add_agent("router").remove_agent("triage")'
    assert all(line.startswith("#") for line in others)
    assert (prompt.text, prompt.path) == ("prompt of router changed", "participants/router")


def test_who_is_of_another_class_was_not_renamed():
    drift = compare(setup(agent("triage")), setup(agent("router") | {"class": "Mine"}))
    assert [change.code for change in drift.changes] == [
        'state = state.add_agent("router")',
        'state = state.remove_agent("triage")',
    ]


def test_of_several_nobody_is_said_to_be_renamed():
    drift = compare(setup(agent("a"), agent("b")), setup(agent("c"), agent("d")))
    assert not any("rename" in change.code for change in drift.changes)
    assert len(drift.changes) == 4


def test_who_is_in_a_team_that_was_renamed_is_compared_with_what_it_was():
    def nested(name, prompt):
        inner = {"agents": {f"participants/{name}/participants/ann": agent("ann", prompt=[prompt])}}
        return {**inner, "teams": {"": team(name), f"participants/{name}": team("ann") | {"name": name}}}

    renamed, prompt = compare(nested("old", "a"), nested("new", "b")).changes
    assert renamed.breaking
    assert (prompt.path, prompt.text) == ("participants/new/participants/ann", "prompt of ann changed")


def test_participants_in_another_order():
    change = told(setup(agent("ann"), agent("bob")), setup(agent("bob"), agent("ann")))
    assert change.text == "participants of team desk in another order"
    assert not change.breaking
    assert (change.before, change.after) == (["ann", "bob"], ["bob", "ann"])


def test_another_kind_of_team():
    change = told(setup(agent("ann")), setup(agent("ann"), **{"class": "Swarm"}))
    assert change.text == "kind of team desk changed from RoundRobinGroupChat to Swarm"
    assert change.breaking
    assert change.code == 'state = state.change_team("Swarm")'


def test_an_agent_that_is_a_team_now():
    drift = compare(alone(), setup(agent("bob")))
    assert drift.breaking
    assert "agent ann is a team now (needs a migration)" in drift.texts


def test_an_agent_inside_a_tool():
    before = alone()
    before["agents"]["tools/helper/agent"] = agent("helper")
    removed, added = told(before, alone()), told(alone(), before)
    assert (removed.text, removed.breaking) == ("agent helper removed", True)
    assert (added.text, added.breaking) == ("agent helper added", False)


GRAPH = {"nodes": {"ann": {"edges": [{"to": "bob"}]}, "bob": {"edges": []}}}


def test_an_edge_of_a_graph():
    edges = {"nodes": {**GRAPH["nodes"], "ann": {"edges": [{"to": "bob", "if": "YES"}]}}}
    change = told(setup(graph=GRAPH), setup(graph=edges))
    assert (change.text, change.breaking) == ("graph of team desk changed", False)


def test_the_nodes_of_a_graph():
    nodes = {"nodes": {"ann": {"edges": []}, "cid": {"edges": []}}}
    change = told(setup(graph=GRAPH), setup(graph=nodes))
    assert change.text == "nodes of the graph of team desk changed: bob removed, cid added"
    assert change.breaking


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({"termination": "A(1)"}, {"termination": "A(2)"}, "termination of team desk changed from A(1) to A(2)"),
        ({"settings": {"max_turns": 2}}, {"settings": {"max_turns": 3}}, "max_turns of team desk changed from 2 to 3"),
        ({}, {"settings": {"max_turns": 3}}, "max_turns of team desk added"),
        ({"prompt": ["Select."]}, {"prompt": ["Choose."]}, "prompt of team desk changed"),
    ],
)
def test_a_change_of_a_team_that_does_not_break(before, after, text):
    change = told(setup(agent("ann"), **before), setup(agent("ann"), **after))
    assert (change.text, change.breaking, change.code) == (text, False, None)


def with_output(name="StructuredMessage[Report]", **changes):
    return alone(output={"name": name, "schema": {**deepcopy(REPORT), **changes}})


def test_a_structured_output_that_is_gone():
    change = told(with_output(), alone())
    assert (change.what, change.breaking) == ("output", True)


def test_a_structured_output_under_another_name():
    change = told(with_output(), with_output("StructuredMessage[Summary]", title="Summary"))
    assert change.text == "output StructuredMessage[Report] of ann renamed to StructuredMessage[Summary]"
    assert change.breaking
    assert change.code == 'state = state.rename_message_type("StructuredMessage[Report]", "StructuredMessage[Summary]")'


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ({"type": "string"}, '""'),
        ({"type": "integer"}, "0"),
        ({"type": "array", "items": {}}, "[]"),
        ({"enum": ["low", "high"]}, '"low"'),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "None"),
    ],
)
def test_a_required_field_that_is_new(kind, default):
    fields = {**REPORT["properties"], "by": kind}
    change = told(with_output(), with_output(properties=fields, required=["text", "score", "by"]))
    assert change.text == "field by of output StructuredMessage[Report] of ann added, which is required"
    assert change.breaking
    assert change.code == f'state = state.add_field("StructuredMessage[Report]", "by", {default})'


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"text": {"type": "string"}}, "field score of output StructuredMessage[Report] of ann removed"),
        (
            {"text": {"type": "string"}, "score": {"type": "string"}},
            "field score of output StructuredMessage[Report] of ann takes other values",
        ),
    ],
)
def test_a_field_that_old_messages_may_not_fit(fields, text):
    change = told(with_output(), with_output(properties=fields))
    assert (change.text, change.breaking, change.code) == (text, True, None)


@pytest.mark.parametrize(
    "score",
    [
        {"type": "integer", "description": "From 1 to 10."},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"type": "number"},
    ],
)
def test_a_field_that_old_messages_fit(score):
    change = told(with_output(), with_output(properties={"text": {"type": "string"}, "score": score}))
    assert change.text == "schema of output StructuredMessage[Report] of ann changed; old messages fit"
    assert not change.breaking


def test_an_optional_field_that_is_new_does_not_break():
    fields = {**REPORT["properties"], "by": {"type": "string", "default": ""}}
    assert not told(with_output(), with_output(properties=fields)).breaking


def test_a_field_of_a_field_is_found_through_references():
    def nested(required):
        line = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": required}
        if "b" not in required:
            del line["properties"]["b"]
        return with_output(
            properties={"lines": {"items": {"$ref": "#/$defs/L"}, "type": "array"}}, **{"$defs": {"L": line}}
        )

    change = told(nested(["a"]), nested(["a", "b"]))
    assert change.text.startswith("field lines[].b of output")
    assert (change.breaking, change.code) == (True, None)


def test_a_type_that_holds_itself_is_compared():
    def tree(kind):
        node = {"properties": {"value": {"type": kind}, "child": {"$ref": "#/$defs/N"}}}
        return with_output(properties={"root": {"$ref": "#/$defs/N"}}, **{"$defs": {"N": node}})

    assert told(tree("string"), tree("integer")).text.startswith("field root.value of output")


def with_types(**types):
    return setup(agent("ann"), settings={"message_types": types})


def test_message_types_of_a_team():
    assert told(with_types(), with_types(Offer=REPORT)).breaking is False
    assert told(with_types(Offer=REPORT), with_types()).text == "message type Offer of team desk removed"
    assert told(with_types(Offer=REPORT), with_types()).breaking
    renamed = told(with_types(Offer=REPORT), with_types(Bid=REPORT))
    assert renamed.text == "message type Offer of team desk renamed to Bid"
    assert renamed.code == 'state = state.rename_message_type("Offer", "Bid")'


def test_other_versions():
    before = setup(versions={"autogen": "0.7.4", "midturn": "0.1.0"})
    change = told(before, setup())
    assert (change.what, change.text, change.breaking) == ("version", "AutoGen 0.7.4 before, 0.7.5 now", False)
    assert digest(before) == digest(setup())
    assert compare(setup(), {**setup(), "versions": {}}) == Drift()


def test_breaking_changes_come_first():
    drift = compare(setup(agent("ann"), agent("bob")), setup(agent("ann", prompt=["x"])))
    assert str(drift) == "agent bob removed from team desk (needs a migration)\nprompt of ann changed"
    assert drift.as_json()["breaking"] is True
    assert [change["what"] for change in drift.as_json()["changes"]] == ["agent", "prompt"]


def test_the_code_of_a_migration():
    before = setup(agent("ann"), agent("triage", tools={"refund": REFUND}))
    after = setup(agent("ann"), agent("router", tools={"pay": REFUND}), graph=GRAPH)
    assert migration_code(compare(before, after), name="support", version=2) == (
        '# where support = midturn.Blueprint("support", ...) stands: version=3\n'
        "@support.migration(2, 3)\n"
        "def from_2_to_3(state):\n"
        "    # agent triage removed from team desk, agent router added in its place\n"
        '    state = state.rename_agent("triage", "router")\n'
        "    # or, if router is not the same agent under another name:\n"
        '    # state = state.add_agent("router").remove_agent("triage")\n'
        "    # tool refund of router removed, tool pay added that takes the same\n"
        '    state = state.rename_tool("refund", "pay")\n'
        "    return state\n"
    )


@pytest.mark.parametrize("name", ["claims desk", "class", "é'\"\n", ""])
def test_the_code_of_a_migration_can_be_run_whatever_the_names(name):
    class Blueprint:
        def migration(self, start, end):
            return made.append

    class State:
        def rename_agent(self, old, new):
            return (old, new)

    made = []
    new = name or "x"
    code = migration_code(compare(setup(agent("a\0'\"")), setup(agent(new))), name=name, version=1)
    exec(code, {variable(name or "support"): Blueprint()})
    assert made[0](State()) == ("a\0'\"", new)


def test_nothing_has_changed():
    drift = compare(setup(agent("ann")), setup(agent("ann")))
    assert not drift
    assert drift == Drift()
    assert str(drift) == ""
    assert not drift.breaking


LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, -0.0]) | st.sampled_from("abc")
NAMES = st.sampled_from(["a", "b", "c", "a/b", ""])
ANY = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
SCHEMAS = st.recursive(
    ANY | st.fixed_dictionaries({}, optional={"$ref": st.sampled_from(["#/$defs/a", "#/$defs/b"])}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "number", "array", "object"]) | ANY,
            "properties": st.dictionaries(NAMES, inner, max_size=3) | ANY,
            "required": st.lists(NAMES, max_size=2) | ANY,
            "items": inner,
            "anyOf": st.lists(inner, max_size=2) | ANY,
            "enum": st.lists(LEAVES, max_size=2) | ANY,
            "const": ANY,
            "title": LEAVES,
            "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b"]) | ANY,
            "$defs": st.dictionaries(st.sampled_from("ab"), inner, max_size=2) | ANY,
        },
    ),
    max_leaves=8,
)
TYPES = st.dictionaries(NAMES, SCHEMAS, max_size=2) | ANY
RECORDS = (
    st.fixed_dictionaries(
        {},
        optional={
            "name": NAMES | ANY,
            "class": NAMES | ANY,
            "prompt": st.lists(NAMES, max_size=2) | ANY,
            "model": ANY,
            "tools": st.dictionaries(NAMES, st.fixed_dictionaries({}, optional={"parameters": SCHEMAS}) | ANY) | ANY,
            "handoffs": ANY,
            "output": st.fixed_dictionaries({}, optional={"name": NAMES | ANY, "schema": SCHEMAS}) | ANY,
            "participants": st.lists(NAMES, max_size=3) | ANY,
            "graph": st.fixed_dictionaries({}, optional={"nodes": ANY}) | ANY,
            "termination": ANY,
            "settings": st.fixed_dictionaries({}, optional={"message_types": TYPES, "max_turns": LEAVES}) | ANY,
            "new": ANY,
        },
    )
    | ANY
)
PATHS = st.sampled_from(["", "participants/a", "participants/b", "participants/a/participants/b", "tools/a"])
FINGERPRINTS = (
    st.fixed_dictionaries(
        {},
        optional={
            "agents": st.dictionaries(PATHS, RECORDS, max_size=4) | ANY,
            "teams": st.dictionaries(PATHS, RECORDS, max_size=3) | ANY,
            "versions": st.dictionaries(NAMES, LEAVES) | ANY,
        },
    )
    | ANY
)


@given(FINGERPRINTS, FINGERPRINTS)
@settings(max_examples=200, deadline=None)
@example({"agents": {"": {"new": 1}}}, {"agents": {"": {"new": True}}})
@example({"agents": {"": {"tools": {"a": {}}}}}, {"agents": {"": {"tools": {}}}})
def test_any_two_can_be_compared_and_are_alike_just_if_their_digests_are(before, after):
    assert compare(before, before) == Drift()
    drift = compare(before, after)
    configured = [change for change in drift.changes if change.what != "version"]
    assert (configured == []) == (digest(before) == digest(after))
    assert digest(json.loads(json.dumps(after))) == digest(after)
    codec.check(drift.as_json())
    ast.parse(migration_code(drift, name="support", version=1))
    assert all(len(change.text) <= 150 for change in drift.changes)
