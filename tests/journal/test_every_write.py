"""Promise 3: wherever a turn is interrupted, it is finished as if nothing had happened, for every kind of agent."""

import os

import pytest
from fuzz_kinds import FUZZED, _picture
from interrupting import begun, interrupted, outcome
from kinds import TASKS

SHOPPING = dict.fromkeys(
    ("typed_tool", "json_tool", "own_tool", "bound_tool", "own_workbench"), ("add apples", "add pears")
)
INPUTS = SHOPPING | {
    "agent_tool": ("helper note this", "helper and that"),
    "noting": ("note one", "note two"),
    "pictures": (_picture(),),
    "society_in_a_team": ("note one",),
    "team_tool": ("group this",),
}

LEFT_OUT = {
    "binary_memory",  # AutoGen shows the model the address of a picture in a memory, which is another each time
    "memories_of_all_types",  # the same
    "stopped_from_outside",  # is not used by running it
    "counted",  # the same
}

BOTH = bool(os.environ.get("MIDTURN_LONG"))
"""True if each write is interrupted before and after it. Otherwise it is one of the two, in turn."""


@pytest.mark.fault("F1")
@pytest.mark.filterwarnings("ignore::midturn.errors.NotKept")
@pytest.mark.parametrize("kind", sorted(FUZZED.keys() - LEFT_OUT))
async def test_a_turn_that_was_interrupted_at_any_write_ends_as_if_it_had_not_been(memory, kind):
    build, _ = FUZZED[kind]
    tasks = INPUTS.get(kind, TASKS[:2])
    said, state, writes = await outcome(memory, build, tasks)
    await begun(memory, build, tasks)
    for at in range(1, writes[-1] + 1):
        for after in (False, True) if BOTH else ((at + len(kind)) % 2 == 0,):
            session = f"{at} {after}"
            found = await interrupted(memory, build, tasks, at, after=after, session=session)
            assert found[0] == said, (at, after)
            assert found[1] == state, (at, after)
