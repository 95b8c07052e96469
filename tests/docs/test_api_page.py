"""The signatures on docs/reference/api.md are those of the code: names, order, defaults, and what is by keyword."""

import inspect
import re
from pathlib import Path

import pytest

import midturn
import midturn.testing

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text()
OWNERS = {
    "| method of the store |": midturn.OpenStore,
    "## `Session`": midturn.Session,
    "A `Run` is a turn": midturn.Run,
    "## `midturn.export(": midturn,
    "## Tools and people": midturn,
    "## `midturn.testing`": midturn.testing,
    "## `Blueprint(": midturn,
    "## Errors": None,
}
"""The content of the sections that begin in this way."""


def shown():
    """Each signature of the page: its owner, its name, and its parameters as they stand there."""
    owner = midturn
    for line in PAGE.splitlines():
        owner = next((found for begin, found in OWNERS.items() if line.startswith(begin)), owner)
        cell = line.removeprefix("## ") if line.startswith("## ") else line[2:].partition(" | ")[0]
        if owner is None or not line.startswith(("| ", "## ")):
            continue
        for code in re.findall(r"`([^`]+)`", cell):
            match = re.fullmatch(r"(?:await )?(?:midturn\.)?(\w+)\((.*)\)", code)
            if match is not None and match[2] != "...":
                yield owner, match[1], match[2]


def parameters(function):
    found = inspect.signature(function).parameters.values()
    kept = [each for each in found if each.name != "self" and each.kind is not each.POSITIONAL_ONLY]
    return [(each.name, each.kind, {} if repr(each.default) == "<factory>" else each.default) for each in kept]


def as_function(name, parameters):
    scope = {}
    exec(f"def {name}({parameters}): ...", scope)
    return scope[name]


@pytest.mark.parametrize(("owner", "name", "shown"), [*shown()], ids=[f"{o.__name__}.{n}" for o, n, _ in shown()])
def test_a_signature_is_that_of_the_code(owner, name, shown):
    ours = getattr(owner, name)
    if isinstance(ours, type):
        ours = ours.__init__
    assert parameters(as_function(name, shown)) == parameters(ours)


def test_the_page_shows_many():
    assert len([*shown()]) >= 37
