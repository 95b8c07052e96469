"""``resume``: turns that crashed, failed or were cancelled."""

import signal

import pytest


@pytest.mark.parametrize("url", ["sqlite:///x.db", "file://./x"])
def test_a_killed_turn_is_finished(cli, crash, place, url):
    where = ("--store", url)
    cli("chat", "app:support", "case-42", "hello", *where)
    crash("case-42", *where)
    (place / "go").touch()
    result = cli("resume", "app:support", "case-42", *where)
    assert result.out == "user: wait and see\nhelper: 2 said, the last: wait and see\n"
    assert result.err == f"saved as checkpoint 2; continue: midturn chat app:support case-42 --store {url}\n"
    assert cli("chat", "app:support", "case-42", "more", *where).out == "3 said, the last: more\n"


def test_a_killed_turn_is_seen_and_finished_by_the_next_chat(cli, crash, place):
    crash("case-42")
    listed = cli("ls")
    assert "interrupted" in listed.out
    assert "finish interrupted turns: midturn resume APP --all" in listed.err
    assert "interrupted" in cli("show", "case-42").out
    assert "interrupted" in cli("show", "case-42@1").out
    assert cli("ls", "--json").json[0]["status"] == "interrupted"
    assert cli("show", "case-42", "--json").json["status"] == "interrupted"
    assert cli("show", "case-42@1", "--json").json["status"] == "interrupted"
    assert [found["session"] for found in cli("ls", "--status", "interrupted", "--json").json] == ["case-42"]
    assert cli("ls", "--status", "running", "--json").json == []
    (place / "go").touch()
    result = cli("chat", "app:support", "case-42", "more")
    assert result.out == "2 said, the last: more\n"
    assert result.err.splitlines()[:3] == [
        "turn 1 was interrupted; finishing it first",
        "user: wait and see",
        "helper: 1 said, the last: wait and see",
    ]


def test_with_json_only_the_asked_turn_is_printed(cli, crash, place):
    crash("case-42")
    (place / "go").touch()
    result = cli("chat", "app:support", "case-42", "more", "--json")
    assert result.json["turn"] == 2
    assert result.err == ""


def test_a_failed_turn_is_tried_again(cli):
    cli("chat", "app:support", "case-42", "fail", code=1)
    result = cli("resume", "app:support", "case-42", code=1)
    assert "try it again: midturn resume app:support case-42" in result.err
    error = cli("resume", "app:support", "case-42", "--json", "--traceback", code=1).error
    assert error["type"] == "TurnFailed"
    assert "app.py" in error["traceback"]


def test_a_turn_that_took_too_long_is_continued(cli, place):
    result = cli("chat", "app:hasty", "case-42", "wait and see", code=1)
    assert "turn 1 of session 'case-42' took longer than 0.05 seconds and was stopped" in result.err
    assert "continue it: midturn resume app:hasty case-42" in result.err
    error = cli("resume", "app:hasty", "case-42", "--json", code=1).error
    assert (error["type"], error["turn"], error["timeout"]) == ("TurnTimeout", 1, 0.05)
    (place / "go").touch()
    assert cli("resume", "app:support", "case-42").out.endswith("helper: 1 said, the last: wait and see\n")


def test_nothing_to_resume_is_fine(cli):
    cli("chat", "app:support", "case-42", "hello")
    assert cli("resume", "app:support", "case-42").out == "nothing to finish: no turn of case-42 is open\n"
    assert cli("resume", "app:support", "case-42", "--json").json == {"session": "case-42", "turn": None}
    assert cli("resume", "app:support", "--all").out == "nothing to finish\n"


def test_a_session_that_is_not_there_is_exit_code_3(cli):
    cli("chat", "app:support", "case-42", "hello")
    assert cli("resume", "app:support", "absent", "--json", code=3).error["type"] == "NotFound"


@pytest.mark.parametrize(
    "words",
    [[], ["case-42", "--all"], ["case-42", "--failed"], ["case-42", "--label", "a=b"], ["case-42", "--prefix", "x"]],
)
def test_wrong_usage_is_exit_code_2(cli, words):
    cli("resume", "app:support", *words, code=2)


def test_all_finishes_what_crashed_and_nothing_else(cli, crash, start, place, until_begun):
    cli("chat", "app:support", "done", "hello")
    cli("chat", "app:support", "failed", "fail", code=1)
    cli("chat", "app:claims", "stranger", "hello")
    for session in ("crashed-1", "crashed-2"):
        crash(session)
    crash("stranger", app="app:claims")
    holder = start("chat", "app:support", "held", "wait")
    until_begun()
    (place / "go").touch()  # the holder sees it, too, but not before it is asked for what it holds
    holder.send(signal.SIGSTOP)
    try:
        found = cli("resume", "app:support", "--all", "--json").json
    finally:
        holder.send(signal.SIGCONT)
    assert {how: [one["session"] for one in score] for how, score in found.items()} == {
        "finished": ["crashed-1", "crashed-2"],
        "failed": [],
        "busy": ["held"],
        "skipped": ["stranger"],
        "waiting": [],
    }
    assert found["finished"][0]["messages"][-1]["content"] == "1 said, the last: wait and see"
    assert holder.end().code == 0
    statuses = {session["session"]: session["status"] for session in cli("ls", "--json").json}
    assert statuses == {
        "done": "idle",
        "failed": "failed",
        "stranger": "interrupted",
        "crashed-1": "idle",
        "crashed-2": "idle",
        "held": "idle",
    }


def test_all_leaves_sessions_without_a_blueprint_to_whoever_names_them(cli, crash, place):
    crash("mine")
    crash("other's", app="app:build")
    cli("chat", "app:build_desk", "asks", "hello")
    (place / "go").touch()
    result = cli("resume", "app:support", "--all")
    assert result.out == "1 finished, 1 skipped\n"
    assert "other's: skipped: it began without a blueprint\n" in result.err
    assert result.err.endswith("adopt such a session by its name: midturn resume app:support SESSION\n")
    found = cli("resume", "app:support", "--all", "--json").json
    assert found["skipped"] == [
        {
            "session": "other's",
            "reason": "skipped: it began without a blueprint",
            "hint": "adopt such a session by its name: midturn resume app:support SESSION",
        }
    ]
    assert found["waiting"] == []
    assert cli("ls", "--status", "interrupted", "--json").json[0]["session"] == "other's"


def test_a_session_without_a_blueprint_is_adopted_by_its_name(cli, crash, place):
    crash("case-42", app="app:build")
    (place / "go").touch()
    cli("resume", "app:support", "case-42")
    assert cli("show", "case-42", "--json").json["blueprint"] == "support"
    for name in ("go", "begun"):
        (place / name).unlink()
    crash("case-42")
    (place / "go").touch()
    assert cli("resume", "app:support", "--all").out == "1 finished\n"


@pytest.mark.parametrize("app", ["app:build", "app:agent", "app:nameless"])
def test_all_needs_a_blueprint_that_says_which_sessions_are_its(cli, crash, place, app):
    with (place / "app.py").open("a") as file:
        file.write('nameless = midturn.Blueprint("", build)\n')
    crash("case-42", app="app:build")
    (place / "go").touch()
    result = cli("resume", app, "--all", code=2)
    assert "--all finishes the sessions of one Blueprint" in result.err
    assert 'support = midturn.Blueprint("support", build_team)' in result.err
    assert cli("ls", "--json").json[0]["status"] == "interrupted"


def test_all_with_failed_tries_those_again_and_one_failure_does_not_stop_the_others(cli, crash, place):
    cli("chat", "app:support", "a", "fail", code=1)
    crash("b")
    (place / "go").touch()
    result = cli("resume", "app:support", "--all", "--failed", code=1)
    assert result.out == "1 finished, 1 failed\n"
    assert "b: turn 1 is complete" in result.err
    assert "error: turn 1 of session 'a' failed: ValueError" in result.err
    found = cli("resume", "app:support", "--all", "--failed", "--json", code=1).json
    assert found["failed"][0]["error"]["type"] == "TurnFailed"
    traced = cli("resume", "app:support", "--all", "--failed", "--traceback", code=1)
    assert 'app.py", line' in traced.err


def test_all_can_be_limited_by_labels_and_prefix(cli, crash, place):
    crash("a-1", "--label", "team=x")
    crash("a-2")
    crash("b-1", "--label", "team=x")
    (place / "go").touch()
    found = cli("resume", "app:support", "--all", "--label", "team=x", "--prefix", "a", "--json").json
    assert [one["session"] for one in found["finished"]] == ["a-1"]


def test_all_with_a_factory_that_raises_touches_nothing(cli, crash, place):
    with (place / "app.py").open("a") as file:
        file.write('broken = midturn.Blueprint("support", build_broken)\n')
    crash("case-42")
    assert "app:broken failed: RuntimeError: no key" in cli("resume", "app:broken", "--all", code=2).err
    assert cli("ls", "--json").json[0]["status"] == "interrupted"


def test_a_signal_leaves_the_backlog_for_the_next_time(cli, crash, start, place, until_begun):
    crash("case-42")
    process = start("resume", "app:support", "--all")
    until_begun()
    process.send(signal.SIGTERM)
    result = process.end()
    assert result.code == 143
    assert result.err == "stopped: nothing was finished\nthe next resume --all finishes the rest\n"
    (place / "go").touch()
    assert cli("resume", "app:support", "--all").out == "1 finished\n"
