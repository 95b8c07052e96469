"""``migrate``, ``rollback`` and ``check``: new versions of an app, from the command line."""

import json
import sys

import pytest

APP = """
import midturn
from app import Model, look_up
from autogen_agentchat.agents import AssistantAgent

def build():
    return AssistantAgent("helper", Model(), tools=[look_up], system_message={prompt!r})

support = midturn.Blueprint("support", build, version={version})
"""
MIGRATION = """
@support.migration({start}, {end})
def forget_cards(state):
    return state.redact(r"[0-9]{{4}}-[0-9]{{4}}", "[card]")
"""


@pytest.fixture
def release(place, monkeypatch):
    """Writes an app of a version; each is another module, as each would be another process."""
    released = 0

    def write(version=1, *steps, prompt="Be kind.", code=""):
        nonlocal released
        released += 1
        text = APP.format(version=version, prompt=prompt)
        text += "".join(MIGRATION.format(start=start, end=end) for start, end in steps)
        (place / f"release{released}.py").write_text(text + code)
        monkeypatch.delitem(sys.modules, f"release{released}", raising=False)
        return f"release{released}:support"

    return write


@pytest.fixture
def cases(cli, release):
    """Three sessions of version 1."""
    old = release()
    for i in range(3):
        cli("chat", old, f"case-{i}", "my card is 1234-5678", "--label", f"n={i}")
    return old


def test_sessions_are_migrated_shown_and_rolled_back(cli, cases, release):
    before = cli("export", "case-1").out
    new = release(2, (1, 2))
    result = cli("migrate", new)
    assert result.out.splitlines()[-1] == "migrated 3, unchanged 0"
    assert "case-0:" in result.out
    assert '+          "content": "my card is [card]",' in result.out.splitlines()
    assert "to undo it: midturn rollback support-v2" in result.err
    assert "[card]" in cli("export", "case-1").out
    assert cli("export", "case-1@1").out == before
    shown = cli("show", "case-1").out
    assert "migrated from version 1 to 2" in shown
    assert cli("migrate", new).out == "migrated 0, unchanged 3\n"
    assert cli("chat", new, "case-1", "hello").out == "2 said, the last: hello\n"
    result = cli("rollback", "support-v2", code=1)
    assert result.out.splitlines()[-1] == "rolled back 2, unchanged 0, failed 1"
    assert (
        "case-1: has continued since to turn 3; in Python, a fork at checkpoint 1 begins another session" in result.err
    )
    assert cli("export", "case-2").out == cli("export", "case-2@1").out
    assert "rolled back" in cli("show", "case-2").out


def test_a_dry_run_only_says_what_would_be(cli, cases, release):
    before = cli("ls", "--json").out
    result = cli("migrate", release(2, (1, 2)), "--dry-run", "--json")
    assert {name: result.json[name] for name in ("changed", "unchanged", "failed")} == {
        "changed": 3,
        "unchanged": 0,
        "failed": 0,
    }
    assert {sample["session"] for sample in result.json["samples"]} == {"case-0", "case-1", "case-2"}
    assert "+" in result.json["samples"][0]["diff"]
    assert cli("ls", "--json").out == before
    assert "would be migrated 3" in cli("migrate", release(2, (1, 2)), "--dry-run", "--samples", "0").out


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        (("--session", "case-1"), ["case-1"]),
        (("--label", "n=2"), ["case-2"]),
        (("--limit", "1", "--jobs", "1"), ["case-0"]),
        (("--jobs", "3"), ["case-0", "case-1", "case-2"]),
    ],
)
def test_only_those_that_are_meant(cli, cases, release, options, changed):
    cli("migrate", release(2, (1, 2)), *options)
    listed = cli("ls", "--json").json
    assert [info["session"] for info in listed if info["checkpoint"] == 2] == changed


def test_those_that_fail_are_named_and_the_others_done(cli, cases, release):
    code = """
@support.migration(1, 2)
def picky(state):
    raise ValueError("not so")
"""
    result = cli("migrate", release(2, code=code), code=1)
    assert result.out == "migrated 0, unchanged 0, failed 3\n"
    assert result.err.count("the migration from version 1 to 2 (picky) raised ValueError: not so") == 3
    left = cli("migrate", release(2, code=code), "--json", code=1).json["left"]
    assert {each["session"] for each in left} == {"case-0", "case-1", "case-2"}
    assert {each["became"] for each in left} == {"failed"}


def test_an_open_turn_is_left_for_later(cli, cases, release, crash):
    crash("case-3", app=cases)
    result = cli("migrate", release(2, (1, 2)))
    assert result.out.splitlines()[-1] == "migrated 3, unchanged 0, open 1"
    cli("chat", cases, "case-4", "hello")
    crash("case-4", app=cases)
    result = cli("migrate", release(2, (1, 2)))
    assert result.out == "migrated 0, unchanged 3, open 2\n"
    assert "case-4: its turn 2 was interrupted" in result.err


def test_what_cannot_be_migrated_says_what_to_do(cli, cases, release):
    assert "is not a Blueprint" in cli("migrate", "app:build", code=2).err
    assert "midturn.Blueprint(" in cli("migrate", "app:build", code=2).err
    result = cli("migrate", release(3, (1, 2)), code=1)
    assert "@support.migration(2, 3)" in result.err
    assert cli("migrate", release(2, (1, 2)), "--session", "nobody", code=3).err.startswith(
        "error: there is no session"
    )
    assert "there is no store" in cli("migrate", release(2, (1, 2)), "--store", "none.db", code=3).err
    broken = release(2, (1, 2), code="\nsupport._factory = lambda: 1 / 0\n")
    assert f"{broken} failed: ZeroDivisionError" in cli("migrate", broken, code=2).err


def test_an_old_worker_skips_newer_sessions(cli, cases, release, crash):
    new = release(2, (1, 2))
    cli("migrate", new)
    crash("case-0", app=new)
    result = cli("resume", cases, "--all")
    assert "1 skipped" in result.out
    assert "this worker has version 1: deploy version 2 here" in result.err


# --- check


def test_a_change_without_a_new_version_is_found(cli, release, place):
    result = cli("check", release(), code=3)
    assert "midturn check release1:support --write" in result.err
    assert cli("check", release(), "--write").out.startswith("wrote support.fingerprint.json: version 1, ")
    written = json.loads((place / "support.fingerprint.json").read_text())
    assert (written["blueprint"], written["version"]) == ("support", 1)
    assert written["agents"][""]["prompt"] == ["Be kind."]
    assert "matches support.fingerprint.json: version 1" in cli("check", release()).out
    result = cli("check", release(prompt="Be brief."), code=1)
    assert "has changed, but its version is still 1" in result.err
    assert "prompt of helper changed" in result.err
    assert "@support.migration(1, 2)" in result.err
    report = cli("check", release(prompt="Be brief."), "--json", code=1).json
    assert (report["same"], report["version"], report["now"]) == (False, 1, 1)
    assert report["drift"]["changes"][0]["text"] == "prompt of helper changed"


def test_a_raised_version_passes_once_its_fingerprint_is_written(cli, release):
    cli("check", release(), "--write")
    new = release(2, (1, 2), prompt="Be brief.")
    result = cli("check", new, code=1)
    assert "support.fingerprint.json has version 1" in result.err
    assert "prompt of helper changed" in result.err
    assert result.err.endswith(
        f"if this is intended: midturn check {new} --write, and commit support.fingerprint.json\n"
    )
    report = cli("check", new, "--json", code=1).json
    assert (report["same"], report["version"], report["now"]) == (False, 1, 2)
    same = release(2, (1, 2))
    assert "support.fingerprint.json has version 1" in cli("check", same, code=1).err, "only the version was raised"
    assert cli("check", same, "--json", code=1).json["same"] is False
    assert "@support.migration(1, 2)" in cli("check", release(2, prompt="Be brief."), code=1).err
    cli("check", release(2, (1, 2), prompt="Be brief."), "--write")
    assert "version 2" in cli("check", release(2, (1, 2), prompt="Be brief.")).out
    assert "has version 2" in cli("check", release(1), code=1).err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": "1"}', "\x00"])
def test_a_file_that_is_no_fingerprint(cli, release, place, text):
    (place / "other.json").write_text(text)
    result = cli("check", release(), "--file", "other.json", code=1)
    assert "other.json" in result.err


def test_an_imported_state_is_of_the_version_that_is_said(cli, release, place):
    (place / "state.json").write_text(cli_state(cli, release))
    new = release(2, (1, 2))
    cli("import", "state.json", "new", "--app", new)
    assert cli("migrate", new, "--session", "new").out == "migrated 0, unchanged 1\n"
    cli("import", "state.json", "old")
    assert cli("migrate", new).out.splitlines()[-1] == "migrated 1, unchanged 2"
    assert "1 without a blueprint" in cli("migrate", new).err
    assert cli("migrate", new, "--session", "old").out.splitlines()[-1] == "migrated 1, unchanged 0"


def cli_state(cli, release):
    cli("chat", release(), "case", "my card is 1234-5678")
    return cli("export", "case").out


def test_a_run_that_nobody_knows(cli, cases):
    assert "no session was migrated in a run 'desk-v2'" in cli("rollback", "desk-v2", code=3).err
    assert "run: is empty" in cli("rollback", "", code=2).err
    assert "not both" in cli("rollback", "x", "--session", "case-0", "--label", "n=1", code=2).err
