"""The property of the generated tests can fail: it does when midturn keeps no more than AutoGen does."""

import pytest
from zygote import restarted

REMEMBERS = {"is": "assistant", "memory": 0, "tools": [{"is": "remember"}], "iterations": 3}
COUNTS = {"is": "assistant", "tools": [{"is": "counter"}], "iterations": 3}
SIMPLE = {"is": "assistant"}

SPECS = {
    "a memory": REMEMBERS,
    "a tool with a state": COUNTS,
    "an agent as a tool": {"is": "assistant", "tools": [{"is": "agent", "agent": SIMPLE}], "iterations": 3},
    "a team as a tool": {
        "is": "assistant",
        "tools": [{"is": "team", "team": {"is": "round_robin", "members": [SIMPLE, SIMPLE], "max_turns": 2}}],
        "iterations": 3,
    },
    "a thing of one's own": {"is": "assistant", "tools": [{"is": "cart"}], "iterations": 3},
    "a filtered agent": {"is": "filter", "agent": SIMPLE, "keep": [[0, "last", 1]]},
    "a society of mind": {
        "is": "society",
        "team": {"is": "round_robin", "members": [SIMPLE], "max_turns": 1},
    },
    "a coder": {"is": "coder", "model": True},
    "a person who types": {"is": "human", "counting": True},
    "a condition of one's own": {"is": "round_robin", "members": [SIMPLE], "max_turns": 3, "stop": ["quota", 5]},
    "a function that counts": {"is": "round_robin", "members": [SIMPLE], "max_turns": 3, "stop": ["patience", 5]},
    "an external termination": {"is": "round_robin", "members": [SIMPLE], "max_turns": 3, "stop": ["external"]},
    "a graph with a cycle": {
        "is": "graph",
        "members": [SIMPLE, SIMPLE],
        "parents": [[0]],
        "back": [[0, 0]],
        "max_turns": 1,
    },
    "a memory in a team": {"is": "round_robin", "members": [SIMPLE, REMEMBERS], "max_turns": 2},
}
OPS = [{"run": "one"}, {"run": "two"}, {"set": 0}, {"run": "three"}, {"run": "four"}]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_what_is_said_differs_without_what_is_kept_beside(zygote, spec):
    live = zygote(spec=spec, ops=OPS, url="memory://")
    forgetful = restarted(zygote, spec, OPS, "sqlite", forgetful=True)
    assert len(live) == len(forgetful) == 4
    assert forgetful[0]["said"] == live[0]["said"]
    assert [answer.get("said") for answer in forgetful] != [answer["said"] for answer in live]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_and_not_with_it(zygote, spec):
    live = zygote(spec=spec, ops=OPS, url="memory://")
    assert restarted(zygote, spec, OPS, "sqlite") == live
