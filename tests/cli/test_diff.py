"""``midturn diff``."""

import json
from pathlib import Path

import pytest


@pytest.fixture
def case(cli):
    cli("chat", "app:support", "case-42", "hello")
    cli("chat", "app:support", "case-42", "again")
    return "case-42"


def test_it_shows_what_was_said_since(cli, case):
    lines = cli("diff", "case-42@1", "case-42@2").out.splitlines()
    assert lines[0] == "case-42@1 → case-42@2"
    assert lines[1:] == [
        "what the model of helper sees",
        "  + 2 user: again",
        "  + 3 helper: 2 said, the last: again",
    ]
    assert "  - 3 helper: 2 said, the last: again" in cli("diff", "case-42@2", "case-42@1").out.splitlines()


def test_json_has_the_messages_and_their_positions(cli, case):
    found = cli("diff", "case-42@1", "case-42@2", "--json").json
    assert (found["before"], found["after"]) == (
        {"session": "case-42", "checkpoint": 1},
        {"session": "case-42", "checkpoint": 2},
    )
    [conversation] = found["conversations"]
    assert (conversation["agent"], conversation["kind"], conversation["change"]) == ("helper", "context", "changed")
    assert [(each["change"], each["after_at"], each["who"], each["text"]) for each in conversation["messages"]] == [
        ("added", 2, "user", ["+again"]),
        ("added", 3, "helper", ["+2 said, the last: again"]),
    ]
    assert found["agents"] == found["turns"] == found["values"] == []


def test_without_a_number_it_is_the_latest_checkpoint(cli, case):
    assert cli("diff", "case-42@1", "case-42").out == cli("diff", "case-42@1", "case-42@2").out
    result = cli("diff", "case-42", "case-42")
    assert (result.out, result.err) == ("case-42@2 → case-42@2\n", "no differences\n")


def test_two_sessions_are_compared(cli, case):
    cli("chat", "app:support", "other", "hello")
    cli("chat", "app:support", "other", "hostile")
    result = cli("diff", "case-42", "other")
    assert result.out.startswith("case-42@2 → other@2\n")
    assert "  - 2 user: again" in result.out
    assert "  + 2 user: hostile" in result.out
    assert "\x1b" not in result.out


def test_a_text_that_changed_shows_its_lines(cli, case):
    state = cli("export", "case-42@2").json
    text = json.dumps(state).replace("2 said, the last: again", "2 said, the last: changed\\nand more")
    Path("changed.json").write_text(text)
    cli("import", "changed.json", "changed")
    assert cli("diff", "case-42", "changed").out.splitlines()[1:6] == [
        "what the model of helper sees",
        "  ~ 3 helper:",
        "      - 2 said, the last: again",
        "      + 2 said, the last: changed",
        "      + and more",
    ]


def test_what_all_agents_of_a_team_have_heard_is_shown_once(cli):
    cli("chat", "app:build_team", "team", "hello")
    cli("chat", "app:build_team", "team", "again")
    lines = cli("diff", "team@1", "team@2").out.splitlines()
    thread = lines.index("thread of the team")
    others = [at for at, text in enumerate(lines) if text.startswith(("what the model of ", "not yet received by "))]
    assert thread < min(others)
    assert [text for text in lines if text.endswith(": again")].count("  + 3 user: again") == 1
    assert sum(" user: again" in text for text in lines) == 1
    assert any(text.endswith(" as above") for text in lines)
    found = cli("diff", "team@1", "team@2", "--json").json
    told = [each for conversation in found["conversations"] for each in conversation["messages"]]
    assert sum(each["who"] == "user" for each in told) == 3, "--json has all of them"


def test_a_message_that_is_said_twice_in_a_conversation_is_shown_twice(cli, case):
    cli("chat", "app:support", "case-42", "again")
    assert cli("diff", "case-42@1", "case-42@3").out.count(" user: again") == 2


@pytest.mark.parametrize(
    ("words", "code", "type_"),
    [
        (["case-42@1", "case-42@9"], 3, "NotFound"),
        (["case-42@0", "case-42@1"], 3, "NotFound"),
        (["case-42@1", "nobody@1"], 3, "NotFound"),
        (["case-42@1"], 2, "MissingParameter"),
    ],
)
def test_what_is_not_there_has_an_error(cli, case, words, code, type_):
    assert cli("diff", *words, "--json", code=code).error["type"] == type_


def test_a_session_without_a_checkpoint_has_nothing_to_compare(cli, case):
    cli("chat", "app:support", "failed", "fail", code=1)
    assert "no checkpoint" in cli("diff", "failed", "case-42", code=3).err


def test_it_has_colours_at_a_terminal(terminal, cli, case):
    shown = terminal("diff", "case-42@1", "case-42@2")
    assert shown.end() == 0
    assert "\x1b[32m" in shown.screen
    assert "again" in shown.plain
