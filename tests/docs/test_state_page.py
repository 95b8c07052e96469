"""The page about the state: every gap has a pair of tests, and its example works."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "state.md").read_text()
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("|")][2:]
LINKED = re.compile(r"\[([^\]]+)\]\(\.\./tests/autogen/([a-z_]+\.py)\)")


def functions_of(file):
    tree = ast.parse((ROOT / "tests" / "autogen" / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("words", "file"), sorted({link for row in ROWS for link in LINKED.findall(" ".join(row))}))
def test_a_linked_test_is_there(words, file):
    assert f"test_{words.replace(' ', '_')}" in functions_of(file)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_gap_has_a_test_of_midturn_and_one_of_plain_autogen_if_it_is_one(row):
    _, plain, midturn = row
    assert LINKED.search(midturn)
    assert LINKED.search(plain) or plain in ("kept", "agree, but for the clock")


@pytest.mark.parametrize(
    "component",
    [
        "memory of an agent",
        "tools and workbenches",
        "inside tools",
        "UserProxyAgent",
        "custom agents",
        "CodeExecutorAgent",
        "MessageFilterAgent",
        "SocietyOfMindAgent",
        "OpenAIAgent",
        "RoundRobin",
        "Selector",
        "Swarm",
        "MagenticOne",
        "GraphFlow",
        "model contexts",
        "ExternalTermination",
        "runtime",
        "distributed runtime",
    ],
)
def test_every_component_has_a_row(component):
    assert any(component in row[0] for row in ROWS)


@pytest.mark.parametrize(
    "gap",
    [
        "saved while somebody speaks",
        "a call without its result",
        "cancelled in a tool",
        "poisoned after a failure",
        "stream that was left",
        "Selector: context",
        "GraphFlow: cycles",
        "counts of an interrupted run",
        "MagenticOne cannot resume",
        "loading anything into an agent",
        "loading half a team",
        "a participant is gone",
        "user message doubled",
        "inner team with nothing new",
    ],
)
def test_everything_that_breaks_in_autogen_has_a_row(gap):
    assert gap in [row[0] for row in ROWS]


async def test_the_cart_of_the_example_is_kept():
    source = re.search(r"```python\n(class Cart:.*?)\ncart = ", PAGE, re.DOTALL).group(1)
    names = {}
    exec(source, names)
    before, after = names["Cart"](), names["Cart"]()
    await before.add("tea")
    await after.load_state(await before.save_state())
    assert await after.add("cups") == "2 items"
