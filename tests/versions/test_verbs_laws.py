"""Laws of all verbs, whatever the state: nothing is changed in place, and the result is sound."""

import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

import midturn
from midturn.autogen.edits import State, mentions

AGENTS = ["ann", "bob", "cid"]
TOOLS = ["look", "weigh"]


def usual(kind, source, content, number, **more):
    """A message as AutoGen dumps it."""
    base = {"id": f"m{number}", "source": source, "models_usage": None, "metadata": {}, "created_at": "2026-01-01"}
    return base | {"content": content, "type": kind} | more


@st.composite
def conversations(draw):
    """Return what an agent's model is shown, and the events that its team saw, with calls and their results."""
    speaker = draw(st.sampled_from(AGENTS))
    shown, thread = [], []
    for number in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["said", "heard", "called", "summed"]))
        words = draw(st.sampled_from(["hello", "the card is 4111", "ann asked bob", '{"a": 4111}']))
        if kind in ("said", "heard"):
            source = speaker if kind == "said" else draw(st.sampled_from([*AGENTS, "user"]))
            message = {"content": words, "source": source, "type": "UserMessage"}
            shown.append(message | {"type": "AssistantMessage", "thought": None} if kind == "said" else message)
            thread.append(usual("TextMessage", source, words, number))
            continue
        names = draw(st.lists(st.sampled_from([*TOOLS, "transfer_to_bob"]), min_size=1, max_size=3))
        calls = [
            {"id": f"c{number}-{i}", "name": name, "arguments": json.dumps({"x": words})}
            for i, name in enumerate(names)
        ]
        results = [
            {"content": words, "name": call["name"], "call_id": call["id"], "is_error": draw(st.booleans())}
            for call in calls
        ]
        thought = draw(st.sampled_from([None, "let me see"]))
        shown.append({"content": deepcopy(calls), "thought": thought, "source": speaker, "type": "AssistantMessage"})
        shown.append({"content": deepcopy(results), "type": "FunctionExecutionResultMessage"})
        thread.append(usual("ToolCallRequestEvent", speaker, deepcopy(calls), f"{number}a"))
        thread.append(usual("ToolCallExecutionEvent", speaker, deepcopy(results), f"{number}b"))
        if kind == "summed":
            thread.append(
                usual("ToolCallSummaryMessage", speaker, words, f"{number}c", tool_calls=calls, results=results)
            )
    return shown, thread


@st.composite
def states(draw):
    """A round robin, a selector or a swarm of three."""
    kind = draw(st.sampled_from(["RoundRobin", "Selector", "Swarm"]))
    talks = {name: draw(conversations()) for name in AGENTS}
    thread = [message for _, said in talks.values() for message in said]
    own = {
        "RoundRobin": {"next_speaker_index": 1},
        "Selector": {"previous_speaker": draw(st.sampled_from([None, *AGENTS]))},
        "Swarm": {"current_speaker": draw(st.sampled_from(AGENTS))},
    }[kind]
    versioned = {"version": "1.0.0"}
    members = {
        name: {
            "type": "ChatAgentContainerState",
            "agent_state": {"type": "AssistantAgentState", "llm_context": {"messages": shown}} | versioned,
            "message_buffer": [deepcopy(message) for message in thread if not message["type"].endswith("Event")][-2:],
        }
        | versioned
        for name, (shown, _) in talks.items()
    }
    manager = {"type": f"{kind}ManagerState", "message_thread": thread, "current_turn": 0} | own | versioned
    beside = {"participants/ann/memory/notes": [{"content": "4111", "mime_type": "x", "metadata": None}]}
    if kind == "RoundRobin":
        beside["manager"] = {"next_speaker": "bob"}
    agents = members | {f"{kind}GroupChatManager": manager}
    return State(
        {"state": {"type": "TeamState", "agent_states": agents} | versioned, "beside": beside, "kept": len(beside)}
    )


def unless_absent(state, verb):
    """Return the state that a verb makes; an equal one where nobody has said that."""
    try:
        return verb()
    except midturn.InvalidArgument:
        return state.map_messages(lambda message: message)


VERBS = {
    "rename_agent": lambda state: state.rename_agent("bob", "zoe"),
    "remove_agent": lambda state: state.remove_agent("cid"),
    "add_agent": lambda state: state.add_agent("new", after="ann"),
    "reset_agent": lambda state: state.reset_agent("cid"),
    "rename_tool": lambda state: state.rename_tool("look", "find"),
    "rename one's tool": lambda state: state.rename_tool("look", "find", agent="ann"),
    "drop_tool": lambda state: state.drop_tool("look"),
    "drop one's tool": lambda state: state.drop_tool("look", agent="ann"),
    "drop_tool, calls and all": lambda state: state.drop_tool("weigh", "remove"),
    "alter_tool": lambda state: state.alter_tool("weigh", lambda arguments: arguments | {"y": 1}),
    "rename_message_type": lambda state: state.rename_message_type("TextMessage", "Said"),
    "add_field": lambda state: state.add_field("TextMessage", "mood", "fine"),
    "map_messages": lambda state: state.map_messages(lambda message: message | {"seen": True}),
    "redact": lambda state: state.redact("4111"),
    "correct": lambda state: unless_absent(state, lambda: state.correct("4111", "4222")),
    "drop_message": lambda state: unless_absent(state, lambda: state.drop_message("4111")),
    "truncate": lambda state: state.truncate(last=2),
    "seed_memory": lambda state: state.seed_memory("ann", "tea"),
    "change_team": lambda state: state.change_team("SelectorGroupChat"),
    "edit": lambda state: state.edit(lambda tree: tree["beside"].clear()),
}
some = st.lists(st.sampled_from(sorted(VERBS)), min_size=1, max_size=3, unique=True)


@given(states(), some)
def test_verbs_change_nothing_in_place_and_leave_a_sound_state(state, names):
    for name in names:
        before = deepcopy(state.tree)
        try:
            new = VERBS[name](state)
        except Exception as error:  # noqa: BLE001 - only what a verb before it has taken away
            refused = ("InvalidArgument", "StateInvalid")
            assert type(error).__name__ in refused and {"edit", "remove_agent", "reset_agent"} & set(names)  # noqa: PT017, PT018
            continue
        assert state.tree == before
        new.check()
        assert new.tree["kept"] == len(new.tree["beside"])
        assert State(new.tree).broken == state.broken
        after = deepcopy(new.tree)
        _spoil(VERBS[name](state).tree)
        assert state.tree == before
        assert new.tree == after
        state = new


def _spoil(value):
    """Change a tree in all places: another that shares one with it would change, too."""
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            _spoil(item)
    value.clear()


@given(states())
def test_there_and_back_is_where_it_was(state):
    assert state.rename_agent("bob", "zoe").rename_agent("zoe", "bob").tree == state.tree
    assert state.rename_tool("look", "find").rename_tool("find", "look").tree == state.tree
    assert state.add_agent("new", after="ann").remove_agent("new").tree == state.tree
    assert state.rename_message_type("TextMessage", "X").rename_message_type("X", "TextMessage").tree == state.tree


UNRELATED = sorted(set(VERBS) - {"rename_agent", "change_team"})


@given(states(), st.sampled_from(UNRELATED))
def test_it_does_not_matter_whether_a_name_is_changed_before_or_after(state, name):
    one = VERBS[name](state.rename_agent("bob", "zoe"))
    other = VERBS[name](state).rename_agent("bob", "zoe")
    assert one.tree == other.tree
    assert one.touched == other.touched


@given(states(), st.sampled_from(["text", "remove"]))
def test_nothing_is_left_of_a_dropped_tool_and_all_of_the_others(state, calls):
    dropped = state.drop_tool("look", calls)
    assert mentions(dropped.tree, "look") == 0
    assert mentions(dropped.tree, "weigh") == mentions(state.tree, "weigh")
    for agent in AGENTS:
        for message in dropped.messages(agent):
            assert message["content"]


@given(states(), st.integers(0, 12))
def test_truncated_is_the_end_of_what_there_was(state, last):
    for agent in [*AGENTS, None]:
        before, after = state.messages(agent), state.truncate(last=last).messages(agent)
        assert before[len(before) - len(after) :] == after
        assert len(after) >= min(last, len(before))


@pytest.mark.parametrize("name", sorted(VERBS))
def test_an_empty_conversation_is_changed_like_any_other(name):
    tree = {
        "state": {
            "type": "TeamState",
            "agent_states": {
                name: {
                    "type": "ChatAgentContainerState",
                    "agent_state": {"type": "AssistantAgentState", "llm_context": {"messages": []}},
                    "message_buffer": [],
                }
                for name in AGENTS
            }
            | {"RoundRobinGroupChatManager": {"message_thread": [], "current_turn": 0, "next_speaker_index": 0}},
        },
        "beside": {"participants/ann/memory/notes": [], "manager": {"next_speaker": "ann"}},
        "kept": 2,
    }
    VERBS[name](State(tree)).check()
