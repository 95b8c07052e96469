"""The file that ``check`` compares with: its place, and the errors for a file that is wrong."""

import json

import pytest

APP = """
import midturn
from app import build

support = midturn.Blueprint({name!r}, build)
"""


@pytest.fixture
def named(place):
    """An app whose blueprint has a name."""
    made = 0

    def write(name):
        nonlocal made
        made += 1
        (place / f"named{made}_{place.name}.py").write_text(APP.format(name=name))
        return f"named{made}_{place.name}:support"

    return write


@pytest.mark.parametrize(
    ("name", "file"),
    [("support", "support"), ("the support", "the-support"), ("a/../b", "a-..-b")],
)
def test_the_file_has_the_name_of_the_blueprint(cli, named, place, name, file):
    app = named(name)
    assert cli("check", app, "--write").out.startswith(f"wrote {file}.fingerprint.json: ")
    assert json.loads((place / f"{file}.fingerprint.json").read_text())["blueprint"] == name
    assert f"matches {file}.fingerprint.json" in cli("check", app).out


def test_a_file_of_another_blueprint_is_refused(cli, named):
    cli("check", named("claims"), "--write")
    result = cli("check", named("support"), "--file", "claims.fingerprint.json", code=1)
    assert "is the fingerprint of the blueprint 'claims', not of 'support'" in result.err


def test_a_hint_names_the_file_that_was_given(cli, named):
    app = named("support")
    line = f"midturn check {app} --write --file 'my prints.json'"
    assert line in cli("check", app, "--file", "my prints.json", code=3).err
    cli("check", app, "--file", "my prints.json", "--write")


@pytest.mark.parametrize("depth", [200, 900, 100_000])
def test_a_file_that_is_nested_too_deeply_is_refused(cli, named, place, depth):
    deep = "[" * depth + "]" * depth
    (place / "deep.json").write_text(f'{{"version": 1, "agents": {deep}}}')
    result = cli("check", named("support"), "--file", "deep.json", code=1)
    assert result.err.startswith("error: deep.json")
    assert "nested deeper than 100 levels" in result.err


@pytest.mark.parametrize("data", [b"\xff\xfe\xfd", b'{"version": 1, "version": 2}', b'{"version": NaN}', b"{"])
def test_a_file_that_is_not_json_is_refused(cli, named, place, data):
    (place / "bad.json").write_bytes(data)
    assert cli("check", named("support"), "--file", "bad.json", code=1).err.startswith("error: bad.json")
