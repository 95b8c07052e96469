"""The maps of the code name what is there, and every room is on them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "midturn"
PAGES = ["docs/architecture.md", "CONTRIBUTING.md"]
PLANNED = {"serve/", "telemetry.py"}
"""Files that CONTRIBUTING tells readers to create when they need them."""


def named(page):
    """The files and folders that a page names."""
    return set(re.findall(r"`((?:[\w.*-]+/)*[\w.*-]+(?:\.py|/))`", (ROOT / page).read_text()))


@pytest.mark.parametrize("page", PAGES)
def test_what_a_map_names_is_there(page):
    found = named(page)
    assert len(found) > 10
    missing = [
        name
        for name in found - PLANNED
        if not any([*ROOT.glob(name), *PACKAGE.glob(name), *(ROOT / "tests").glob(name)])
    ]
    assert missing == []


def test_every_room_has_its_line():
    rooms = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    files = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    assert rooms | files <= named("docs/architecture.md")
