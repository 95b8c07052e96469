"""``midturn prune``, ``midturn rm --forget`` and ``midturn compact``."""

import pytest


@pytest.fixture
def cases(cli):
    for name in ("case-1", "case-2", "case-3"):
        cli("chat", "app:support", name, "hello", "--label", f"n={name[-1]}")


def listed(cli):
    return [info["session"] for info in cli("ls", "--json").json]


def test_it_says_what_it_would_delete_and_then_deletes_it(cli, cases):
    shown = cli("prune", "--keep-last", "1", "--dry-run")
    assert shown.out.splitlines() == ["case-1", "case-2", "would delete 2, skipped 0"]
    assert cli("prune", "--keep-last", "1", "--dry-run", "--json").json == {
        "dry_run": True,
        "deleted": ["case-1", "case-2"],
        "skipped": [],
    }
    assert listed(cli) == ["case-1", "case-2", "case-3"]
    assert cli("prune", "--keep-last", "1", "--yes", "--by", "ann").out == "deleted 2, skipped 0\n"
    assert listed(cli) == ["case-3"]
    assert cli("prune", "--older-than", "90d", "--yes").out == "deleted 0, skipped 0\n"
    assert cli("prune", "--label", "n=3", "--yes", "--json").json["deleted"] == ["case-3"]


def test_without_a_condition_or_a_confirmation_nothing_is_deleted(cli, cases):
    assert "this would delete every session; give --older-than" in cli("prune", "--yes", code=2).err
    assert "add --yes" in cli("prune", "--prefix", "case", code=2).err
    assert "is no duration such as 90s" in cli("prune", "--older-than", "soon", "--yes", code=2).err
    assert cli("prune", "--prefix", "", "--status", "deleted", code=2).code == 2
    assert listed(cli) == ["case-1", "case-2", "case-3"]


def test_a_person_is_asked_first(terminal, cli, cases):
    asked = terminal("prune", "--prefix", "case-", "--keep-last", "2")
    asked.wait_for("Delete 1 session for good?")
    asked.type("n\n")
    assert asked.end() == 1
    assert len(listed(cli)) == 3
    asked = terminal("prune", "--prefix", "case-", "--keep-last", "2")
    asked.wait_for("Delete 1 session for good?")
    asked.type("y\n")
    asked.wait_for("deleted 1")
    assert asked.end() == 0
    assert listed(cli) == ["case-2", "case-3"]


def test_a_blueprint_says_what_is_too_old(cli, cases, place):
    (place / "kept.py").write_text(
        "from datetime import timedelta\nimport app, midturn\n"
        'long = midturn.Blueprint("support", app.build, retain=timedelta(days=90))\n'
        'short = midturn.Blueprint("support", app.build, retain=timedelta(microseconds=1))\n'
        'bare = midturn.Blueprint("support", app.build)\n'
        'other = midturn.Blueprint("other", app.build, retain=timedelta(microseconds=1))\n'
    )
    for app, gone in (("long", 0), ("other", 0), ("short", 3)):
        found = cli("prune", f"kept:{app}", "--dry-run", "--json").json
        assert len(found["deleted"]) == gone
    assert "would delete every session" in cli("prune", "kept:bare", "--yes", code=2).err
    assert len(cli("prune", "kept:bare", "--keep-last", "1", "--dry-run", "--json").json["deleted"]) == 2


def test_the_archive_is_a_store_with_what_was_deleted(cli, cases, place):
    cli("prune", "--prefix", "case-1", "--archive", "old", "--yes")
    found = cli("ls", "--store", f"file://{place / 'old'}", "--json").json
    assert [(info["session"], info["turns"]) for info in found] == [("case-1", 1)]
    (place / "file").write_text("")
    assert cli("prune", "--prefix", "case-2", "--archive", "file", "--yes", code=2).code == 2
    assert "does not exist" in cli("prune", "--prefix", "case-2", "--archive", "no/dir", "--yes", code=1).err
    assert listed(cli) == ["case-2", "case-3"]


def test_an_interrupted_turn_is_skipped_and_named(cli, crash):
    crash("case-42")
    result = cli("prune", "--prefix", "case", "--yes")
    assert result.out == "deleted 0, skipped 1\n"
    assert "case-42: its turn 1 is interrupted; ask for this status to delete it, too" in result.err
    assert cli("prune", "--status", "interrupted", "--yes").out == "deleted 1, skipped 0\n"


def test_a_forgotten_id_is_used_anew(cli, cases):
    cli("rm", "case-1", "--yes")
    assert "was deleted" in cli("chat", "app:support", "case-1", "hello", code=3).err
    assert cli("rm", "case-1", "--forget", "--yes").out == "deleted case-1, and forgot it\n"
    assert cli("rm", "case-2", "--forget", "--yes", "--json").json == {"deleted": ["case-2"], "missing": []}
    assert "there is no session 'case-1'" in cli("rm", "case-1", "--forget", "--yes", code=3).err
    for name in ("case-1", "case-2"):
        cli("chat", "app:support", name, "hello")
    assert listed(cli) == ["case-1", "case-2", "case-3"]


def test_a_session_begins_with_the_turn_that_it_was_compacted_to(cli, terminal):
    for word in ("hello", "again", "more", "last"):
        cli("chat", "app:support", "case-42", word)
    assert "there is no terminal to confirm this; type midturn compact case-42 --before 3 --yes" in (
        cli("compact", "case-42", "--before", "3", code=2).err
    )
    asked = terminal("compact", "case-42", "--before", "3")
    asked.wait_for("Remove what is before turn 3 of case-42 for good?")
    asked.type("n\n")
    assert asked.end() == 1
    done = cli("compact", "case-42", "--before", "3", "--yes", "--by", "ann")
    assert done.out.startswith("case-42 begins with turn 3: removed 2 turns, ")
    assert cli("compact", "case-42", "--before", "3", "--yes", "--json").json == {
        "session": "case-42",
        "first_turn": 3,
        "turns": 0,
        "bodies": 0,
    }
    shown = cli("show", "case-42")
    assert "what was before turn 3 was removed" in shown.err
    assert "earlier turns are not shown" not in shown.err
    assert "Remove the turns before turn 3?" in shown.out
    assert [turn["turn"] for turn in cli("show", "case-42", "--json").json["history"]] == [3, 4]
    assert "any more; what is before turn 3 was removed" in cli("show", "case-42@2", code=3).err
    assert "4 said, the last: hello" not in cli("chat", "app:support", "case-42", "hello").out
    for words, code in ((["case-42", "--before", "9"], 3), (["nobody", "--before", "1"], 3), (["case-42"], 2)):
        cli("compact", *words, "--yes", code=code)
