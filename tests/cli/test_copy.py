"""``copy``: sessions with their whole history from one store to another."""

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

import midturn
from midturn.maintenance import copying

WAYS = {"sqlite to files": ("old.db", "file://./new"), "files to sqlite": ("file://./old", "new.db")}
NOTHING = {"copied": [], "unchanged": [], "deletions": [], "busy": [], "failed": []}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def way(request):
    """Two stores of different kinds."""
    return request.param


def facts(cli, session, url):
    """Return what a store has of a session, without the times at which it was written there."""
    found = cli("show", session, "--store", url, "--json").json
    return {name: value for name, value in found.items() if name not in ("seq", "created", "updated")}


def test_sessions_move_with_all_they_have(cli, way):
    source, target = way
    options = ("--label", "team=claims", "--store", source)
    cli("chat", "app:support", "case-42", "tool please", *options)
    cli("chat", "app:support", "case-42", "fail now", *options, code=1)
    cli("chat", "app:support", "case-42", "hello 🎉", *options)
    cli("chat", "app:support", "b/../ü", "hello", "--store", source)
    result = cli("copy", source, target, "--all")
    assert (result.out, result.err) == ("copied 2\n", "")
    for session in ("case-42", "b/../ü"):
        assert facts(cli, session, target) == facts(cli, session, source)
        assert cli("export", session, "--store", target).out == cli("export", session, "--store", source).out
    assert cli("export", "case-42@1", "--store", target).out == cli("export", "case-42@1", "--store", source).out
    [listed] = cli("ls", "--label", "team=claims", "--store", target, "--json").json
    assert (listed["session"], listed["turns"], listed["problem"]) == ("case-42", 3, None)
    answer = cli("chat", "app:support", "case-42", "again", "--store", target)
    assert answer.out == "3 said, the last: again\n"
    assert len(facts(cli, "case-42", source)["history"]) == 3


def test_only_the_named_sessions_are_copied(cli):
    for session in ("a", "b", "c"):
        cli("chat", "app:support", session, "hello")
    result = cli("copy", "midturn.db", "new.db", "--session", "c", "--session", "a", "--session", "c", "--json")
    assert result.json == NOTHING | {"copied": ["c", "a"]}
    assert cli("copy", "midturn.db", "new.db", "--all").out == "copied 1, unchanged 2\n"
    assert cli("copy", "midturn.db", "new.db", "--all", "--json").json == NOTHING | {"unchanged": ["a", "b", "c"]}


def test_an_empty_store_is_nothing_to_copy(cli):
    cli("chat", "app:support", "a", "hello")
    cli("rm", "a", "--yes")
    assert cli("copy", "midturn.db", "new.db", "--all").out == "deletions 1\n"
    assert cli("copy", "midturn.db", "new.db", "--all").out == "unchanged 1\n"
    asyncio.run(_make("empty.db"))
    assert cli("copy", "empty.db", "new.db", "--all").out == "nothing copied\n"


async def _make(url):
    async with midturn.open(url):
        pass


def test_wrong_usage_is_told_before_anything_is_made(cli, place):
    cli("chat", "app:support", "a", "hello")
    for words in ((), ("--all", "--session", "a")):
        error = cli("copy", "midturn.db", "new.db", *words, "--json", code=2).error
        assert error["message"] == "give either --session ID, which can be repeated, or --all"
    (place / "link.db").symlink_to("midturn.db")
    for same in ("midturn.db", f"sqlite:///{place}/midturn.db", "sqlite:///./midturn.db", "link.db"):
        error = cli("copy", "midturn.db", same, "--all", "--json", code=2).error
        assert error["message"] == "SRC_URL and DST_URL are the same store; name another DST_URL"
    assert cli("copy", "absent.db", "new.db", "--all", code=3).err.startswith("error: there is no store at absent.db\n")
    result = cli("copy", "midturn.db", "new.db", "--session", "x", "--session", "a", "--session", "y y", code=3)
    assert result.err == "error: there is no session 'x', 'y y'\nlist the sessions: midturn ls --store midturn.db\n"
    cli("rm", "a", "--yes")
    result = cli("copy", "midturn.db", "new.db", "--session", "a", code=3)
    assert result.err == "error: session 'a' was deleted; --all marks it as deleted in DST_URL\n"
    assert not (place / "new.db").exists()
    assert not (place / "absent.db").exists()


def test_a_busy_session_is_left_for_the_next_time_and_the_others_are_copied(cli, start, until_begun, place):
    cli("chat", "app:support", "a", "hello")
    cli("chat", "app:support", "c", "hello")
    process = start("chat", "app:support", "b", "wait and see")
    until_begun()
    result = cli("copy", "midturn.db", "new.db", "--all", code=1)
    assert result.out == "copied 2, busy 1\n"
    assert result.err.startswith("session 'b' is held in the source by ")
    assert result.err.endswith("; run again when its turn has ended\n")
    found = cli("copy", "midturn.db", "new.db", "--all", "--json", code=1).json
    assert found["unchanged"] == ["a", "c"]
    assert [(busy["session"], busy["owner"] in busy["message"]) for busy in found["busy"]] == [("b", True)]
    (place / "go").touch()
    assert process.end().code == 0
    assert cli("copy", "midturn.db", "new.db", "--all").out == "copied 1, unchanged 2\n"


def test_an_interrupted_turn_is_finished_where_it_was_copied_to(cli, crash, place):
    crash("case-42")
    assert cli("copy", "midturn.db", "new.db", "--all").out == "copied 1\n"
    (place / "go").touch()
    result = cli("resume", "app:support", "case-42", "--store", "new.db")
    assert result.out == "user: wait and see\nhelper: 1 said, the last: wait and see\n"
    assert cli("ls", "--json").json[0]["status"] == "interrupted"


def test_what_has_gone_on_in_both_stores_is_told_and_the_others_are_copied(cli):
    for session in ("a", "b", "c"):
        cli("chat", "app:support", session, "hello")
    cli("copy", "midturn.db", "new.db", "--all")
    cli("chat", "app:support", "a", "there", "--store", "new.db")
    cli("chat", "app:support", "b", "there", "--store", "new.db")
    cli("chat", "app:support", "b", "here")
    cli("chat", "app:support", "c", "here")
    before = cli("export", "b", "--store", "new.db").out
    result = cli("copy", "midturn.db", "new.db", "--all", code=1)
    assert result.out == "copied 1, failed 2\n"
    first, second = result.err.splitlines()
    assert first.startswith("error: session 'a' has continued in the destination (")
    assert second.startswith("error: session 'b' has continued in both stores (")
    found = cli("copy", "midturn.db", "new.db", "--all", "--json", code=1).json
    assert [(failed["session"], failed["error"]["type"]) for failed in found["failed"]] == [
        ("a", "Conflict"),
        ("b", "Conflict"),
    ]
    assert cli("export", "b", "--store", "new.db").out == before
    assert cli("copy", "new.db", "midturn.db", "--session", "a").out == "copied 1\n"


def test_deleted_sessions_stay_deleted(cli, way):
    source, target = way
    for session in ("a", "b", "c"):
        cli("chat", "app:support", session, "hello", "--store", source)
    cli("copy", source, target, "--session", "b")
    cli("rm", "a", "b", "--yes", "--store", source)
    result = cli("copy", source, target, "--all", code=1)
    assert result.out == "copied 1, deletions 1, failed 1\n"
    assert result.err == (
        "error: session 'b' was deleted in the source and still exists in the destination; to delete it there, "
        "too: midturn rm b --store DST_URL\n"
    )
    assert cli("show", "a", "--store", target, "--json", code=3).error["type"] == "SessionDeleted"
    cli("rm", "b", "--yes", "--store", target)
    assert cli("copy", source, target, "--all").out == "unchanged 3\n"


def test_a_damaged_session_is_not_missed_in_silence(cli, place):
    for session in ("a", "b", "c"):
        cli("chat", "app:support", session, "hello")
    with closing(sqlite3.connect(place / "midturn.db")) as db, db:
        db.execute("UPDATE sessions SET labels = '{' WHERE name = 'a'")
        db.execute("UPDATE sessions SET data = x'7b7d' WHERE name = 'b'")
    result = cli("copy", "midturn.db", "new.db", "--all", code=1)
    assert result.out == "copied 1, failed 2\n"
    listed, read = result.err.splitlines()
    assert listed.startswith("error: a session is omitted from the list: labels of 'a'")
    assert read == "error: b head: not a record of midturn"
    assert cli("copy", "midturn.db", "new.db", "--session", "a", "--json", code=1).json["failed"][0]["session"] == "a"


def test_a_damaged_file_is_not_missed_in_silence(cli, place):
    for session in ("a", "b", "c"):
        cli("chat", "app:support", session, "hello", "--store", "file://./old")
    (place / "old" / "sessions" / "a.jsonl").write_text("nonsense\n")
    path = place / "old" / "sessions" / "b.jsonl"
    path.write_bytes(path.read_bytes().replace(b"hello", b"hullo"))
    result = cli("copy", "file://./old", "new.db", "--all", code=1)
    assert result.out == "copied 1, failed 2\n"
    assert [line.startswith("error: ") for line in result.err.splitlines()] == [True, True]
    assert [session["session"] for session in cli("ls", "--store", "new.db", "--json").json] == ["c"]


SLOW = """
import asyncio, sys
from midturn.maintenance import copying
from midturn.cli import main

copying.CHUNK = 1
write = copying._Transfer._write

left = int(sys.argv[1])

async def told(self, rows, removes, **options):
    global left
    head = await write(self, rows, removes, **options)
    left -= 1
    if not left:
        print("w", end="", flush=True)
        await asyncio.sleep(60)
    return head

copying._Transfer._write = told
main(["copy", *sys.argv[2:]])
"""
HALF = "only half copied; finish it: midturn copy SRC_URL DST_URL --session case-42"


def copy_until(number, how, *words):
    """A copy that gets a signal after so many writes, before it makes another."""
    command = [sys.executable, "-c", SLOW, str(number), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.read(1) == "w"
        process.send_signal(how)
        _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_a_copier_that_was_killed_is_gone_on_with(cli, way):
    source, target = way
    cli("chat", "app:support", "case-42", "--store", source, stdin="\n".join(f"task {n}" for n in range(8)))
    for number in random.Random(42).sample(range(2, 12), 3):
        assert copy_until(number, signal.SIGKILL, source, target, "--all")[0] == -signal.SIGKILL
        words = ("case-42", "--store", target)
        for result in (
            cli("show", *words, code=1),
            cli("export", *words, code=1),
            cli("chat", "app:support", words[0], "hello", *words[1:], code=1),
            cli("resume", "app:support", *words, code=1),
        ):
            assert result.err.splitlines()[0] == f"error: session 'case-42': {HALF}"
        [listed] = cli("ls", "--store", target, "--json").json
        assert listed["problem"] == f"session 'case-42': {HALF}"
        listed = cli("ls", "--store", target)
        assert "unusable" in listed.out
        assert "only half copied; finish it: midturn copy" in listed.err
        assert cli("resume", "app:support", "--all", "--store", target).out == "nothing to finish\n"
    assert cli("copy", source, target, "--session", "case-42").out == "copied 1\n"
    assert facts(cli, "case-42", target) == facts(cli, "case-42", source)
    assert cli("export", "case-42", "--store", target).out == cli("export", "case-42", "--store", source).out
    assert cli("copy", source, target, "--session", "case-42").out == "unchanged 1\n"


def test_a_half_copied_session_can_be_deleted(cli):
    cli("chat", "app:support", "case-42", "hello")
    copy_until(2, signal.SIGKILL, "midturn.db", "new.db", "--all")
    assert cli("rm", "case-42", "--yes", "--store", "new.db").out == "deleted case-42\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_copy_says_how_to_go_on(cli, number):
    cli("chat", "app:support", "case-42", stdin="\n".join(f"task {n}" for n in range(8)))
    code, err = copy_until(2, number, "midturn.db", "new.db", "--all")
    assert code == 128 + number
    assert err == "stopped: nothing copied\nrun the same command again to continue where it stopped\n"
    assert cli("copy", "midturn.db", "new.db", "--all").out == "copied 1\n"


def test_a_store_that_fails_ends_the_copy(cli, monkeypatch):
    for session in ("a", "b", "c"):
        cli("chat", "app:support", session, "hello")
    copy = copying.copy

    async def failing(source, target, session, **options):
        if session == "b":
            raise midturn.StoreUnavailable("the disk is gone")
        return await copy(source, target, session, **options)

    monkeypatch.setattr(copying, "copy", failing)
    hint = "copied 1; run the same command again to continue where it stopped"
    assert cli("copy", "midturn.db", "new.db", "--all", code=1).err == f"error: the disk is gone\n{hint}\n"
    result = cli("copy", "midturn.db", "new.db", "--all", "--json", code=1)
    assert result.json == NOTHING | {"unchanged": ["a"]}
    assert result.error["type"] == "StoreUnavailable"


def test_a_terminal_shows_how_far_it_is(cli, terminal):
    for session in ("a", "b[bold]"):
        cli("chat", "app:support", session, "hello")
    screen = terminal("copy", "midturn.db", "new.db", "--all")
    screen.wait_for("copying b[bold] (")
    screen.wait_for("copied 2\n")
    assert screen.end() == 0
    screen = terminal("copy", "midturn.db", "other.db", "--all", "--json")
    assert screen.end() == 0
    assert "copying" not in screen.plain
