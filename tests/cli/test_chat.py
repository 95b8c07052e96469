"""One turn at a time, and tasks from a pipe."""

import json
import re

import pytest

import midturn


def test_a_turn_prints_the_answer_and_the_line_that_continues_it(cli):
    result = cli("chat", "app:support", "case-42", "hello")
    assert result.out == "1 said, the last: hello\n"
    assert result.err == "saved as checkpoint 1; continue: midturn chat app:support case-42\n"


def test_the_next_turn_remembers(cli):
    cli("chat", "app:support", "case-42", "one")
    assert cli("chat", "app:support", "case-42", "two").out == "2 said, the last: two\n"


@pytest.mark.parametrize("app", ["support", "build", "agent", "build_streaming"])
def test_an_app_is_a_blueprint_a_factory_or_an_agent(cli, app):
    assert cli("chat", f"app:{app}", "case-42", "hello").out.rstrip(" \n") == "1 said, the last: hello"


def test_the_last_voice_of_a_team_is_its_answer(cli):
    result = cli("chat", "app:build_team", "case-42", "hello")
    assert result.out == "2 said, the last: 1 said, the last: hello\n"
    assert result.err.startswith("first: 1 said, the last: hello\nsaved as")


def test_the_line_that_continues_names_a_store_that_is_not_the_default_and_quotes(cli, monkeypatch):
    where = ("--store", "sqlite:///the store.db")
    result = cli("chat", "app:support", "it's", "hello", *where)
    assert result.err.endswith("""midturn chat app:support 'it'"'"'s' --store 'sqlite:///the store.db'\n""")
    monkeypatch.setenv("MIDTURN_URL", where[1])
    assert cli("chat", "app:support", "plain", "hello").err.endswith("continue: midturn chat app:support plain\n")
    result = cli("chat", "app:support", "--", "-dash", "hello")
    assert result.err.endswith("continue: midturn chat -- app:support -dash\n")


def test_a_store_in_memory_is_not_promised_to_continue(cli):
    result = cli("chat", "app:support", "case-42", "hello", "--store", "memory://")
    assert result.err == "saved as checkpoint 1; memory:// loses the session when this process ends\n"


def test_json_has_the_whole_turn(cli):
    found = cli("chat", "app:support", "case-42", "hello", "--json").json
    messages = found.pop("messages")
    assert found == {
        "session": "case-42",
        "turn": 1,
        "checkpoint": 1,
        "stop_reason": None,
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
        "questions": [],
    }
    assert [message["content"] for message in messages] == ["hello", "1 said, the last: hello"]


def test_tool_calls_are_shown_beside_the_answer(cli):
    result = cli("chat", "app:support", "case-42", "tool")
    assert result.out == "A1 is on its way\n"
    assert result.err.splitlines()[:2] == [
        'helper: look_up({"order": "A1"})',
        "helper: look_up returned A1 is on its way",
    ]


def test_a_question_is_no_answer_and_the_next_task_answers_it(cli):
    asked = cli("chat", "app:desk", "case-42", "hello")
    assert asked.out == ""
    assert asked.err.startswith("helper: 1 said, the last: hello\nturn 1 of case-42 waits for an answer\n")
    answered = cli("chat", "app:desk", "case-42", "fine", "--by", "ann")
    assert answered.out == "fine\n"
    assert "hello" not in answered.err, "it was shown before"
    [turn] = cli("show", "case-42", "--json").json["history"]
    assert [(made["answer"], made["by"]) for made in turn["decisions"]] == [("fine", "ann")]


def test_a_task_does_not_approve_a_tool(cli, place):
    cli("chat", "app:cashier", "case-42", "refund")
    assert "waits for an answer to: May refund" in cli("chat", "app:cashier", "case-42", "approve", code=4).err
    assert not (place / "done").exists()


def test_the_same_key_runs_once_and_another_task_for_it_is_refused(cli):
    cli("chat", "app:support", "case-42", "hello", "--key", "k")
    again = cli("chat", "app:support", "case-42", "hello", "--key", "k")
    assert again.out == "1 said, the last: hello\n"
    assert again.err.startswith("this was checkpoint 1; ")
    assert len(cli("show", "case-42", "--json").json["history"]) == 1
    error = cli("chat", "app:support", "case-42", "other", "--key", "k", "--json", code=1).error
    assert error["type"] == "Conflict"


def test_labels_are_added_to_those_that_are_there(cli):
    cli("chat", "app:support", "case-42", "hello", "--label", "team=claims", "--label", "note=a=b")
    cli("chat", "app:support", "case-42", "hello", "--label", "team=legal")
    cli("chat", "app:support", "case-42", "hello")
    assert cli("show", "case-42", "--json").json["labels"] == {"team": "legal", "note": "a=b"}


def test_a_failed_turn_says_why_in_a_line_and_how_to_try_again(cli):
    result = cli("chat", "app:support", "case-42", "fail", code=1)
    assert result.out == ""
    assert result.err.splitlines() == [
        "error: turn 1 of session 'case-42' failed: ValueError: the model is [bold]out[/bold] of order",
        "try it again: midturn resume app:support case-42",
    ]


def test_a_failed_turn_of_a_team_is_a_line_too(start):
    # In a process of its own, because pytest listens to what AutoGen logs.
    process = start("chat", "app:build_team", "case-42", "fail").end()
    assert process.code == 1
    assert process.err.splitlines() == [
        "error: turn 1 of session 'case-42' failed: RuntimeError: ValueError: the model is [bold]out[/bold] of order",
        "try it again: midturn resume app:build_team case-42",
    ]


def test_traceback_shows_where_the_agent_failed(cli):
    result = cli("chat", "app:support", "case-42", "fail", "--traceback", code=1)
    assert 'app.py", line' in result.err
    assert result.err.splitlines()[-2].startswith("error: turn 1")
    error = cli("chat", "app:support", "case-42", "fail", "--traceback", "--json", code=1).error
    assert 'app.py", line' in error["traceback"]


def test_an_error_is_an_object_with_json(cli):
    error = cli("chat", "app:support", "case-42", "fail", "--json", code=1).error
    assert error == {
        "type": "TurnFailed",
        "message": "turn 1 of session 'case-42' failed: ValueError: the model is [bold]out[/bold] of order",
        "session": "case-42",
        "turn": 1,
        "hint": "try it again: midturn resume app:support case-42",
    }


def test_each_line_of_a_pipe_is_a_task(cli):
    result = cli("chat", "app:support", "case-42", stdin="one\n\n  \ntwo\n")
    assert result.out == "1 said, the last: one\n2 said, the last: two\n"


def test_a_pipe_with_json_gives_a_line_for_each_turn(cli):
    lines = cli("chat", "app:support", "case-42", "--json", stdin="one\ntwo").out.splitlines()
    assert [json.loads(line)["turn"] for line in lines] == [1, 2]


def test_a_pipe_ends_with_the_first_turn_that_fails(cli):
    result = cli("chat", "app:support", "case-42", stdin="one\nfail\ntwo\n", code=1)
    assert result.out == "1 said, the last: one\n"
    assert len(cli("show", "case-42", "--json").json["history"]) == 2


def test_a_pipe_that_is_not_text_is_refused(cli):
    assert "not text" in cli("chat", "app:support", "case-42", stdin=b"\xff\n", code=2).err


def test_a_session_that_is_busy_has_an_exit_code_of_its_own(cli, start, place, until_begun):
    holder = start("chat", "app:support", "case-42", "wait")
    until_begun()
    for options in (("--busy", "raise"), ("--timeout", "0.1")):
        error = cli("chat", "app:support", "case-42", "hello", "--json", *options, code=4).error
        assert error["type"] == "SessionBusy"
        assert error["session"] == "case-42"
        assert error["owner"]
    result = cli("chat", "app:support", "case-42", "hello", "--timeout", "0.1", code=4)
    assert "waiting up to 0.1 s" in result.err
    assert re.search(r"error: worker \S+ holds session 'case-42'", result.err)
    (place / "go").touch()
    assert holder.end().code == 0
    assert cli("chat", "app:support", "case-42", "hello").out == "2 said, the last: hello\n"


def test_a_deleted_session_is_not_found(cli):
    cli("chat", "app:support", "case-42", "hello")
    cli("rm", "case-42", "--yes")
    assert "stays deleted" in cli("chat", "app:support", "case-42", "hello", code=3).err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["", "hello"], "session id: must not be empty"),
        (["x" * 10_000, "hello"], "the limit is 200"),
        (["a\0b", "hello"], "NUL"),
        (["a\ud800", "hello"], "surrogate"),
        (["case-42", "a\ud800"], "surrogate"),
    ],
)
def test_a_value_that_cannot_be_stored_is_an_error_and_no_traceback(cli, words, said):
    assert said in cli("chat", "app:support", *words, code=2).err


@pytest.mark.parametrize(
    "words",
    [
        ["--key", "k"],
        ["task", "--label", "team"],
        ["task", "--label", "=x"],
        ["task", "--busy", "never"],
        ["task", "--timeout", "-1"],
        [" "],
    ],
)
def test_wrong_usage_is_exit_code_2(cli, words):
    assert cli("chat", "app:support", "case-42", *words, code=2).err.startswith("error: ")
    assert cli("chat", "app:support", "case-42", *words, "--json", code=2).error["message"]


@pytest.mark.parametrize("session", ["a/b", "..", "%2e", "übung 🎉", "a\nb", "case@7", "\x1b[31m"])
def test_any_id_works(cli, session):
    cli("chat", "app:support", session, "hello")
    assert cli("ls", "--json").json[0]["session"] == session
    assert cli("show", session, "--json").json["session"] == session


async def test_the_library_reads_what_the_command_wrote(start):
    assert start("chat", "app:support", "case-42", "hello").end().code == 0
    async with midturn.open() as store:
        assert [turn.number async for turn in store.session("case-42").history()] == [1]
