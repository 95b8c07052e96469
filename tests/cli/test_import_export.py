"""``import``, ``export`` and ``rm``."""

import asyncio
import json
import os
import sqlite3
import sys
from contextlib import closing

import pytest

from midturn.stores import privacy


@pytest.fixture
def saved(place):
    """Return the result of AutoGen's own save_state() after a turn without midturn."""
    sys.path.insert(0, str(place))
    import app

    async def run():
        agent = app.build()
        await agent.run(task="hello")
        return await agent.save_state()

    state = asyncio.run(run())
    (place / "state.json").write_text(json.dumps(state))
    return state


def test_an_imported_session_goes_on_where_it_was(cli, saved):
    result = cli("import", "state.json", "case-42")
    assert result.out == "imported as checkpoint 1 of case-42\n"
    assert result.err == "continue: midturn chat APP case-42\n"
    assert cli("chat", "app:support", "case-42", "again").out == "2 said, the last: again\n"
    assert "imported" in cli("show", "case-42").out


def test_what_was_imported_is_exported_exactly(cli, saved):
    assert cli("import", "state.json", "case-42", "--json").json == {"session": "case-42", "checkpoint": 1}
    assert cli("export", "case-42").json == saved


def test_export_gives_each_checkpoint(cli, place, saved):
    cli("chat", "app:support", "case-42", stdin="one\ntwo")
    texts = [message["content"] for message in cli("export", "case-42@1").json["llm_context"]["messages"]]
    assert texts == ["one", "1 said, the last: one"]
    assert len(cli("export", "case-42").json["llm_context"]["messages"]) == 4
    result = cli("export", "case-42", "-o", "out.json")
    assert (result.out, result.err) == ("", "wrote checkpoint 2 of case-42 to out.json\n")
    assert json.loads((place / "out.json").read_text()) == cli("export", "case-42@2").json
    assert cli("export", "case-42@1", "-o", "out.json", "--json").json == {
        "session": "case-42",
        "checkpoint": 1,
        "file": "out.json",
    }


def test_export_writes_for_other_libraries_and_says_what_it_leaves_out(cli, place, saved):
    cli("import", "state.json", "case-42")
    result = cli("export", "case-42", "--to", "openai-chat")
    assert [(each["role"], each["content"]) for each in result.json["agents"]["helper"]] == [
        ("user", "hello"),
        ("assistant", "1 said, the last: hello"),
    ]
    assert result.json["threads"] == {}
    assert result.json["left_out"] == []
    result = cli("export", "case-42", "--to", "agent-framework", "-o", "out.json", "--json")
    assert result.json == {"session": "case-42", "checkpoint": 1, "file": "out.json"}
    assert json.loads((place / "out.json").read_text())["to"] == "agent-framework"
    assert cli("export", "case-42", "--to", "crewai", code=2).err


def test_an_exported_file_is_for_its_owner(cli, place, saved, monkeypatch):
    cli("import", "state.json", "case-42")
    monkeypatch.setattr(privacy, "_reported", set())
    before = os.umask(0)
    try:
        cli("export", "case-42", "-o", "out.json")
    finally:
        os.umask(before)
    path = place / "out.json"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    assert "type: chmod 600 out.json" in cli("export", "case-42", "-o", "out.json").err
    assert path.stat().st_mode & 0o777 == 0o644
    assert cli("export", "case-42", "-o", "/dev/null").out == ""


def test_an_exported_state_starts_another_session(cli):
    cli("chat", "app:support", "case-42", "hello 🎉")
    state = cli("export", "case-42").out
    cli("import", "-", "copy", stdin=state)
    assert cli("export", "copy").out == state


def test_import_into_a_session_that_exists_needs_force(cli, saved):
    cli("import", "state.json", "case-42")
    result = cli("import", "state.json", "case-42", code=1)
    assert result.err == "error: session 'case-42' exists already\nto add the state as its checkpoint 2: --force\n"
    assert cli("import", "state.json", "case-42", "--force", "--json").json["checkpoint"] == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": 1, "a": 2}', "occurs twice"),
        ('{"a": "\\ud800"}', "surrogate"),
        ("[" * 100_000, "nested deeper"),
        ("1" * 10_000, "not JSON"),
    ],
)
def test_what_is_not_a_state_is_refused_before_anything_is_written(cli, place, text, said):
    (place / "state.json").write_text(text)
    assert said in cli("import", "state.json", "case-42", code=1).err
    assert not (place / "midturn.db").exists()


def test_a_file_that_cannot_be_read_or_written_is_an_error(cli, place):
    assert "absent.json: No such file" in cli("import", "absent.json", "case-42", code=1).err
    assert cli("import", ".", "case-42", "--json", code=1).error["type"] == "IsADirectoryError"
    cli("chat", "app:support", "case-42", "hello")
    assert "No such file" in cli("export", "case-42", "-o", "no/such/folder", code=1).err


def test_there_is_no_checkpoint_of_a_turn_that_failed(cli):
    cli("chat", "app:support", "case-42", "fail", code=1)
    assert "has no checkpoint yet" in cli("export", "case-42", code=3).err
    cli("chat", "app:support", "case-42", "hello")
    assert "no checkpoint 1; the latest is 2" in cli("export", "case-42@1", code=3).err
    assert cli("export", "absent", "--json", code=3).error["session"] == "absent"


def test_rm_deletes_for_good(cli):
    cli("chat", "app:support", "a", "hello")
    cli("chat", "app:support", "b", "hello")
    assert cli("rm", "a", "--yes").out == "deleted a\n"
    assert [session["session"] for session in cli("ls", "--json").json] == ["b"]
    assert cli("show", "a", "--json", code=3).error["type"] == "SessionDeleted"


def test_a_damaged_session_can_still_be_deleted(cli, place):
    cli("chat", "app:support", "a", "hello")
    with closing(sqlite3.connect(place / "midturn.db")) as db, db:
        db.execute("UPDATE sessions SET labels = '{'")
    assert cli("show", "a", "--json", code=1).error["type"] == "StateInvalid"
    assert cli("rm", "a", "--yes").out == "deleted a\n"


def test_rm_without_a_terminal_needs_yes(cli):
    cli("chat", "app:support", "a b", "hello")
    assert "type midturn rm 'a b' --yes" in cli("rm", "a b", code=2).err
    assert len(cli("ls", "--json").json) == 1


def test_rm_deletes_what_is_there_and_says_what_is_not(cli):
    cli("chat", "app:support", "a", "hello")
    result = cli("rm", "x", "a", "a", "y", "--yes", "--json", code=3)
    assert result.json == {"deleted": ["a"], "missing": ["x", "y"]}
    assert result.error["message"] == "there is no session 'x', 'y'"
    assert cli("rm", "a", code=3).err.startswith("error: there is no session 'a'\n")
