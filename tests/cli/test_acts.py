"""``fork``, ``rewind``, ``lineage``, ``audit``, ``label`` and ``replay``."""

import json

import pytest


@pytest.fixture
def case(cli):
    for task in ("hello", "and then", "at last"):
        cli("chat", "app:support", "case-1", task)


def test_a_session_is_rewound_and_the_rewind_is_undone(cli, case):
    result = cli("rewind", "case-1@1", "--by", "ann@desk", "--why", "wrong customer")
    assert result.out == "case-1 is back at checkpoint 1, as checkpoint 4\n"
    assert "to undo it: midturn rewind case-1@3" in result.err
    shown = cli("show", "case-1").out
    assert shown.count("left behind by turn 4") == 2
    assert "rewound to checkpoint 1" in shown
    assert "decided: Go back to checkpoint 1? rewind (ann@desk): wrong customer" in shown
    assert "left behind by turn 4" in cli("show", "case-1@2").out
    assert [turn["left_behind_by"] for turn in cli("show", "case-1", "--json").json["history"]] == [None, 4, 4, None]
    assert cli("rewind", "case-1@3", "--json").json == {"session": "case-1", "checkpoint": 5, "restores": 3}
    assert "left behind by turn 5" in cli("show", "case-1@4").out


def test_a_rewind_that_cannot_be_is_refused_with_an_exit_code(cli, case):
    assert "has no checkpoint 9; the latest is 3" in cli("rewind", "case-1@9", code=3).err
    assert "SESSION@N" in cli("rewind", "case-1", code=2).err
    assert "there is no session" in cli("rewind", "absent@1", code=3).err
    cli("chat", "app:support", "case-1", "fail", code=1)
    result = cli("rewind", "case-1@1", code=1)
    assert "turn 4 of session 'case-1' failed, and is still open" in result.err
    assert "give the turn up: midturn discard case-1" in result.err
    assert cli("rewind", "case-1@1", "--discard", "--json").json["checkpoint"] == 5


def test_a_session_is_forked_and_its_lineage_is_a_tree(cli, case):
    result = cli("fork", "case-1@2", "case-2", "--label", "try=2", "--by", "ann", "--why", "what if")
    assert result.out == "case-2 begins with the state of case-1@2\n"
    assert "continue: midturn chat APP case-2" in result.err
    made = cli("fork", "case-2", "case-3", "--json").json
    assert (made["session"], made["forked_from"]) == ("case-3", {"session": "case-2", "checkpoint": 1})
    cli("fork", "case-1", "case-4")
    assert "fork of case-1@2" in cli("ls").out
    lines = cli("lineage", "case-2").out.splitlines()
    assert [line.split() for line in lines] == [
        ["case-1", "idle"],
        ["└──", "case-2", "from", "@2", "idle"],
        ["└──", "case-3", "from", "@1", "idle"],
    ]
    found = cli("lineage", "case-1", "--json").json
    assert [each["session"] for each in found["forks"]] == ["case-2", "case-3", "case-4"]
    assert [each["session"] for each in cli("lineage", "case-3", "--json").json["ancestors"]] == ["case-1", "case-2"]
    shown = cli("show", "case-3").out
    assert "forked from case-2@1" in shown
    assert "hello" not in shown
    shown = cli("show", "case-3", "--origins").out
    assert "case-1@2" in shown
    assert "at last" not in shown
    cli("rm", "case-1", "--yes", "--by", "bob", "--why", "asked for")
    assert "case-1 was deleted; the turns that led to the fork are not shown" in cli("show", "case-3", "--origins").err
    assert cli("lineage", "case-3").out.splitlines()[0].split() == ["case-1", "deleted"]


def test_a_fork_that_cannot_be_is_refused_with_an_exit_code(cli, case):
    assert "there is already a session 'case-1'" in cli("fork", "case-1", "case-1", code=1).err
    assert "has no checkpoint 9" in cli("fork", "case-1@9", "case-2", code=3).err
    assert "there is no session" in cli("fork", "absent", "case-2", code=3).err
    assert "there is no session" in cli("lineage", "absent", code=3).err


def test_the_audit_trail_says_who_did_what(cli, case):
    cli("rewind", "case-1@1", "--by", "ann@desk", "--why", "wrong customer")
    cli("fork", "case-1", "case-2", "--by", "bob")
    cli("chat", "app:support", "gone", "hello")
    cli("rm", "gone", "--yes", "--by", "eve", "--why", "asked for")
    entries = cli("audit", "--json").json
    assert [(each["session"], each["what"], each["by"], each["why"], each["turn"]) for each in entries] == [
        ("gone", "delete", "eve", "asked for", None),
        ("case-2", "fork", "bob", None, 1),
        ("case-1", "rewind", "ann@desk", "wrong customer", 4),
    ]
    assert entries[2]["details"]["arguments"] == {"checkpoint": 1}
    assert [each["by"] for each in cli("audit", "--by", "bob", "--json").json] == ["bob"]
    assert [each["by"] for each in cli("audit", "--session", "case-1", "--json").json] == ["ann@desk"]
    assert cli("audit", "--since", "1d", "--limit", "1", "--json").json == entries[:1]
    assert cli("audit", "--since", "2999-01-01").out == "nobody did anything\n"
    shown = cli("audit").out
    for text in ("Go back to checkpoint 1? rewind", "why: wrong customer", "ann@desk", "delete"):
        assert text in shown
    assert "deleted by eve" in cli("ls", "--status", "deleted").out
    assert cli("ls", "--status", "deleted", "--json").json[0]["deleted"]["why"] == "asked for"
    assert "there is no session" in cli("audit", "--session", "absent", code=3).err


def test_labels_are_set_and_removed(cli, case):
    assert cli("label", "case-1", "team=claims", "vip=yes").out == "team=claims, vip=yes\n"
    assert cli("label", "case-1", "--remove", "vip", "--json").json["labels"] == {"team": "claims"}
    assert cli("label", "case-1", "--remove", "team").out == "case-1 has no labels\n"
    assert "NAME=VALUE" in cli("label", "case-1", code=2).err
    assert "NAME=VALUE" in cli("label", "case-1", "team", code=2).err
    assert "not both" in cli("label", "case-1", "a=b", "--remove", "a", code=2).err
    assert "there is no session" in cli("label", "absent", "a=b", code=3).err


def test_a_turn_is_replayed(cli, case, place):
    assert cli("replay", "app:support", "case-1@2").out == "turn 2 of case-1 runs as it did\n"
    assert cli("replay", "app:support", "case-1@2", "--json").json["same"] is True
    cli("rewind", "case-1@1")
    assert "did not run to its end" in cli("replay", "app:support", "case-1@4", code=2).err
    assert "has no turn 9" in cli("replay", "app:support", "case-1@9", code=3).err


def test_a_turn_that_todays_code_runs_in_another_way_is_told(cli, place):
    cli("chat", "app:support", "case-1", "tool")
    app = place / "app.py"
    app.write_text(app.read_text().replace("look_up", "look_it_up"))
    import sys

    del sys.modules["app"]
    result = cli("replay", "app:support", "case-1@1", "--json", code=1)
    assert json.loads(result.out)["same"] is False
    assert json.loads(result.out)["differences"]


COMMANDS = (
    *("ls", "diff", "grep", "fork", "rewind", "lineage", "audit", "label", "replay"),
    *("prune", "compact", "rm", "export"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_has_an_example_and_there_is_json(cli, command):
    usage, _, text = cli(command, "--help").out.partition("\n")
    shown = " ".join(text.split())
    assert usage.startswith("Usage: ")
    assert f"midturn {command} " in shown
    assert "--json" in shown
    assert "\\" not in shown
