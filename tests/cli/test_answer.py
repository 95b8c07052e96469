"""``answer`` and ``discard``: turns that wait for a human."""

import json
import os
from pathlib import Path

import pytest

from midturn.cli.questions import print_questions
from midturn.questions import Question


@pytest.fixture
def done(place):
    """Return what tools have done to the world."""
    return lambda: (place / "done").read_text().split("\n")[:-1] if (place / "done").exists() else []


def questions(cli, session):
    return cli("answer", session, "--json").json["questions"]


def test_a_turn_that_waits_says_what_it_asks_and_how_to_answer(cli):
    result = cli("chat", "app:desk", "case-42", "hello")
    asked = questions(cli, "case-42")[0]["id"]
    assert result.out == ""
    assert result.err.splitlines() == [
        "helper: 1 said, the last: hello",
        "turn 1 of case-42 waits for an answer",
        f"{asked} human, agent person",
        "  1 said, the last: hello",
        "  answer: TEXT",
        "answer: midturn answer case-42 TEXT --app app:desk",
        "give the turn up: midturn discard case-42",
    ]


def test_with_an_app_the_turn_goes_on(cli):
    cli("chat", "app:desk", "case-42", "hello")
    result = cli("answer", "case-42", "fine", "--app", "app:desk")
    assert result.out == "user: hello\nhelper: 1 said, the last: hello\nperson: fine\n"
    assert result.err == "saved as checkpoint 1; continue: midturn chat app:desk case-42\n"


@pytest.mark.parametrize("url", ["sqlite:///x.db", "file://./x"])
def test_without_an_app_the_answer_is_recorded_and_resume_goes_on(cli, url):
    where = ("--store", url)
    cli("chat", "app:desk", "case-42", "hello", *where)
    result = cli("answer", "case-42", "fine", *where)
    assert result.out == "recorded\n"
    assert result.err == f"continue turn 1: midturn resume APP case-42 --store {url}\n"
    assert cli("resume", "app:desk", "case-42", *where).out.endswith("person: fine\n")


@pytest.mark.parametrize("url", ["sqlite:///x.db", "file://./x"])
def test_an_answer_from_another_process_is_enough_to_finish(start, done, url):
    where = ("--store", url)
    assert start("chat", "app:cashier", "case-42", "refund", *where).end().code == 0
    asked = start("answer", "case-42", "--json", *where).end()
    [question] = json.loads(asked.out)["questions"]
    assert question["arguments"] == {"order": "A1"}
    assert done() == []
    result = start("answer", "case-42", "approve", "--app", "app:cashier", "--json", *where).end()
    assert result.code == 0
    assert result.json["messages"][-1]["content"] == "A1 is paid back"
    assert result.json["questions"] == []
    assert done() == ["refund A1"]
    late = start("answer", "case-42", "approve", "--question", question["id"], "--json", *where).end()
    assert late.code == 1
    assert late.error["type"] == "Conflict"


def test_answer_alone_shows_the_agent_the_tool_and_what_can_be_typed(cli):
    cli("chat", "app:cashier", "case-42", "refund")
    result = cli("answer", "case-42")
    asked = questions(cli, "case-42")
    assert result.out.splitlines() == [
        "turn 1 has done:",
        '  model: refund({"order": "A1"})',
        "turn 1 of case-42 waits for an answer",
        f"{asked[0]['id']} approval, agent cashier, tool refund",
        '  May refund({"order":"A1"}) be called?',
        '  order: "A1"',
        "  answer: approve, deny: REASON",
    ]
    assert result.err.startswith("answer: midturn answer case-42 approve\n")
    assert asked == [
        {
            "id": asked[0]["id"],
            "kind": "approval",
            "question": 'May refund({"order":"A1"}) be called?',
            "agent": "cashier",
            "tool": "refund",
            "arguments": {"order": "A1"},
            "schema": asked[0]["schema"],
            "answers": ["approve", "deny: REASON"],
        }
    ]


def test_the_history_has_who_decided(cli, monkeypatch):
    monkeypatch.setenv("LOGNAME", "bob")
    cli("chat", "app:cashier", "case-42", "refund")
    cli("answer", "case-42", "approve", "--by", "ann@desk")
    cli("resume", "app:cashier", "case-42")
    cli("chat", "app:cashier", "case-42", "refund")
    cli("discard", "case-42", "--yes")
    turns = cli("show", "case-42", "--json").json["history"]
    made = [(made["kind"], made["by"]) for turn in turns for made in turn["decisions"]]
    assert made == [("approval", "ann@desk"), ("discard", "bob")]
    assert "approve (ann@desk)" in cli("show", "case-42@1").out


def test_what_led_to_a_question_is_shown_with_it(cli):
    cli("chat", "app:cashier", "case-42", "both")
    first, _ = questions(cli, "case-42")
    cli("answer", "case-42", "approve", "--question", first["id"], "--app", "app:cashier")
    done = [
        "turn 1 has done:",
        '  model: refund({"order": "A1"}) refund({"order": "B2"})',
        "  approval: refund: approve",
        "  tool: refund: A1 is paid back",
    ]
    assert cli("answer", "case-42").out.splitlines()[:4] == done
    for words in (("show", "case-42"), ("show", "case-42@1"), ("answer", "case-42")):
        assert "\n".join(done) in cli(*words).out
        _, approval, tool = cli(*words, "--json").json["calls"]
        assert (approval["agent"], approval["kind"], approval["name"]) == ("", "approval", "refund")
        assert approval["result"] == {"decision": "approve", "arguments": None}
        assert (tool["kind"], tool["name"], tool["arguments"]) == ("tool", "refund", '{"order":"A1"}')
        assert tool["result"]["result"]["result"][0]["content"] == "A1 is paid back"
        assert (tool["effect"], tool["attempt"]) == ("unsafe", 2)
        assert approval["at"] <= tool["at"]


def test_what_people_decided_is_not_said_to_be_the_agents_own(cli, place):
    with (place / "app.py").open("a") as app:
        app.write(
            "def counter():\n"
            "    agent = AssistantAgent('cashier', Model(), tools=[refund])\n"
            "    return RoundRobinGroupChat([agent], termination_condition=MaxMessageTermination(2))\n"
        )
    cli("chat", "app:counter", "case-42", "both")
    first, _ = questions(cli, "case-42")
    cli("answer", "case-42", "deny: too much", "--question", first["id"], "--app", "app:counter")
    _, told, asked, failed = cli("answer", "case-42").out.splitlines()[:4]
    assert told.startswith("  participants/cashier: refund(")
    assert asked == "  approval: refund: deny: too much"
    assert failed == "  participants/cashier: refund: failed: This call was not allowed: too much"


def test_a_session_that_does_not_wait_asks_nothing(cli):
    cli("chat", "app:support", "case-42", "hello")
    assert cli("answer", "case-42").out == "no question is open: no turn of case-42 waits for an answer\n"
    assert cli("answer", "case-42", "--json").json == {"session": "case-42", "turn": None, "questions": [], "calls": []}
    for options in ((), ("--app", "app:support")):
        assert cli("answer", "case-42", "yes", "--json", *options, code=1).error["type"] == "Conflict"
    assert "see the questions: midturn answer case-42\n" in cli("answer", "case-42", "yes", code=1).err


def test_an_approval_may_change_the_arguments(cli, done):
    cli("chat", "app:cashier", "case-42", "refund")
    cli("answer", "case-42", "approve", "--arguments", '{"order": "Z9"}', "--app", "app:cashier")
    assert done() == ["refund Z9"]


def test_a_denial_has_a_reason(cli, done):
    cli("chat", "app:cashier", "case-42", "refund")
    result = cli("answer", "case-42", "deny: too much", "--app", "app:cashier")
    assert "This call was not allowed: too much" in result.out
    assert done() == []


def test_of_several_questions_one_has_to_be_named_and_the_turn_asks_on(cli, done):
    cli("chat", "app:cashier", "case-42", "both")
    first, second = questions(cli, "case-42")
    result = cli("answer", "case-42", "approve", "--app", "app:cashier", code=2)
    assert first["id"] in result.err
    assert second["id"] in result.err
    result = cli("answer", "case-42", "approve", "--question", second["id"], "--app", "app:cashier")
    assert "turn 1 of case-42 waits for an answer" in result.out
    assert f"{first['id']} approval, agent cashier, tool refund" in result.out
    assert "answer: midturn answer case-42 approve --app app:cashier\n" in result.err
    assert done() == ["refund B2"]
    cli("answer", "case-42", "approve", "--app", "app:cashier")
    assert done() == ["refund B2", "refund A1"]


def test_several_questions_can_be_answered_before_the_turn_goes_on(cli, done):
    cli("chat", "app:cashier", "case-42", "both")
    first, second = questions(cli, "case-42")
    result = cli("answer", "case-42", "approve", "--question", second["id"])
    assert result.out.startswith("recorded; turn 1 still waits for an answer\n")
    assert cli("answer", "case-42", "approve", "--question", first["id"]).out == "recorded\n"
    cli("resume", "app:cashier", "case-42")
    assert sorted(done()) == ["refund A1", "refund B2"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [("retry", "wait until slow is paid"), ("done: by hand", "by hand"), ("fail", "Nobody knows whether")],
)
def test_a_call_in_doubt_is_settled(cli, crash, done, answer, said):
    crash("case-42", app="app:cashier", task="slow")
    Path("go").touch()
    result = cli("resume", "app:cashier", "case-42")
    assert 'pay({"order":"slow"}) was interrupted. Did it take effect?' in result.out
    assert "  answer: retry, done: RESULT, fail\n" in result.out
    assert "answer: midturn answer case-42 'done: RESULT' --app app:cashier\n" in result.err
    assert said in cli("answer", "case-42", answer, "--app", "app:cashier").out
    assert done() == ["pay slow"] * (2 if answer == "retry" else 1)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["maybe"], 2, "it can be 'approve'"),
        (["approve", "--question", "00000000"], 1, "waits for no answer to question '00000000'"),
        (["approve", "--arguments", "[1]"], 2, "not a JSON object"),
        (["approve", "--arguments", "{"], 2, "not JSON"),
        (["approve", "--arguments", '{"a": NaN}'], 2, "NaN"),
        (["approve", "--arguments", '{"a": "\ud800"}'], 2, "surrogate"),
        (["deny", "--arguments", "{}"], 2, "can only be changed together with 'approve'"),
        (["approve", "--arguments", '{"oder": "B2"}'], 2, "the call has no oder; it has order"),
        (["a\ud800"], 2, "surrogate"),
        (["--question", "00000000"], 2, "need an ANSWER"),
        (["--app", "app:cashier"], 2, "need an ANSWER"),
        (["approve", "--app", "app:nothing"], 2, "app has no 'nothing'"),
    ],
)
def test_what_cannot_be_answered_is_an_error_and_changes_nothing(cli, done, words, code, said):
    cli("chat", "app:cashier", "case-42", "refund")
    assert said in cli("answer", "case-42", *words, code=code).err
    assert cli("answer", "case-42", *words, "--json", code=code).error["message"]
    assert done() == []


def test_an_answer_that_an_app_cannot_go_on_with_is_not_recorded_and_can_be_given_again(cli, done):
    cli("chat", "app:cashier", "case-42", "refund")
    result = cli("answer", "case-42", "approve", "--app", "app:broken_cashier", code=2)
    assert "app:broken_cashier failed: RuntimeError: no key is set" in result.err
    assert len(questions(cli, "case-42")) == 1
    cli("answer", "case-42", "approve", "--app", "app:cashier")
    assert done() == ["refund A1"]


def test_a_session_that_is_not_there_is_exit_code_3(cli):
    cli("chat", "app:support", "gone", "hello")
    cli("rm", "gone", "--yes")
    for session in ("absent", "gone"):
        for words in (["answer", session], ["answer", session, "x"], ["discard", session, "--yes"]):
            assert cli(*words, "--json", code=3).error["session"] == session
    for words in (["answer", "a"], ["answer", "a", "x"], ["discard", "a", "--yes"]):
        assert "there is no store" in cli(*words, "--store", "sqlite:///none.db", code=3).err


def test_another_task_meanwhile_is_refused_with_both_ways_out(cli):
    cli("chat", "app:cashier", "case-42", "refund")
    result = cli("chat", "app:cashier", "case-42", "more", code=4)
    assert result.err.startswith("error: turn 1 of session 'case-42' waits for an answer to: May refund")
    assert result.err.splitlines()[1:] == [
        "Your task was not accepted.",
        "see the questions: midturn answer case-42",
        "give the turn up: midturn discard case-42",
    ]
    assert "--timeout" not in result.err
    error = cli("chat", "app:cashier", "case-42", "more", "--json", code=4).error
    assert error["type"] == "SessionBusy"
    assert "midturn answer case-42" in error["hint"]
    result = cli("chat", "app:cashier", "case-43", stdin="refund\nmore\n", code=4)
    assert "turn 1 of session 'case-43' waits" in result.err


def test_a_key_of_a_turn_that_waits_gives_its_question(cli):
    cli("chat", "app:desk", "case-42", "hello", "--key", "k")
    again = cli("chat", "app:desk", "case-42", "hello", "--key", "k")
    assert again.err.startswith("helper: 1 said, the last: hello\nturn 1 of case-42 waits for an answer\n")
    assert cli("chat", "app:desk", "case-42", "hello", "--key", "k", "--json").json["questions"][0]["kind"] == "human"


def test_waiting_sessions_are_listed_and_shown(cli):
    cli("chat", "app:support", "idle", "hello")
    cli("chat", "app:desk", "case-42", "hello")
    listed = cli("ls")
    assert "waiting" in listed.out
    assert listed.err == "see the questions: midturn answer SESSION\n"
    assert [one["session"] for one in cli("ls", "--status", "waiting", "--json").json] == ["case-42"]
    asked = questions(cli, "case-42")
    for session in ("case-42", "case-42@1"):
        shown = cli("show", session)
        assert "waiting" in shown.out
        assert f"{asked[0]['id']} human, agent person\n" in shown.out
        assert "answer: midturn answer case-42 TEXT\n" in shown.err
        assert cli("show", session, "--json").json["questions"] == asked
    assert cli("show", "idle", "--json").json["questions"] == []
    assert cli("show", "idle@1", "--json").json["questions"] == []


def test_what_is_asked_cannot_drive_the_terminal(cli):
    evil = "\x1b[2J\u202e"
    result = cli("chat", "app:desk", evil, f"hello {evil}")
    for shown in (result, cli("answer", evil), cli("show", evil), cli("discard", evil, code=2)):
        assert not set("\x1b\u202e") & set(shown.out + shown.err)


def test_a_made_up_name_of_an_argument_cannot_look_like_another_argument(capsys):
    arguments = {"iban": "EVE", "memo\n  iban": "NL12", "am\u200bount": 1}
    question = Question(id="q", kind="approval", question="May pay(...) be called?", agent="ann", arguments=arguments)
    print_questions([question])
    shown = capsys.readouterr().out.splitlines()
    assert [each.strip() for each in shown if "iban" in each or "ount" in each] == [
        'iban: "EVE"',
        r'"memo\n  iban": "NL12"',
        r'"am\u200bount": 1',
    ]


def test_looking_at_a_question_does_not_import_autogen(cli, start):
    cli("chat", "app:desk", "case-42", "hello")
    for words in (["answer", "case-42"], ["show", "case-42"]):
        result = start(*words, new=True, env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}).end()
        assert result.code == 0
        assert "autogen" not in result.err


def test_a_turn_that_is_given_up_is_no_more(cli, done):
    cli("chat", "app:support", "case-42", "hello")
    cli("chat", "app:cashier", "other", "refund")
    assert "type midturn discard other --yes" in cli("discard", "other", code=2).err
    assert cli("discard", "other", "--yes").out == "gave up turn 1 of other; the session is as it was before it\n"
    assert cli("answer", "other", "--json").json["questions"] == []
    assert [turn["status"] for turn in cli("show", "other", "--json").json["history"]] == ["cancelled"]
    assert cli("resume", "app:cashier", "other").out == "nothing to finish: no turn of other is open\n"
    assert done() == []
    assert cli("discard", "case-42").out == "nothing to give up: no turn of case-42 is open\n"
    assert cli("discard", "case-42", "--json").json == {"session": "case-42", "turn": None}


@pytest.mark.parametrize("left", ["failed", "crashed"])
def test_a_turn_that_failed_or_crashed_can_be_given_up_too(cli, crash, left):
    if left == "failed":
        cli("chat", "app:support", "case-42", "fail", code=1)
    else:
        crash("case-42")
    assert cli("discard", "case-42", "--yes", "--json").json == {"session": "case-42", "turn": 1}
    assert cli("ls", "--json").json[0]["status"] == "idle"


def test_a_turn_that_somebody_runs_is_not_given_up(cli, start, until_begun):
    holder = start("chat", "app:support", "case-42", "wait")
    until_begun()
    assert cli("discard", "case-42", "--yes", "--busy", "raise", "--json", code=4).error["type"] == "SessionBusy"
    Path("go").touch()
    assert holder.end().code == 0


def test_all_leaves_waiting_turns_alone_and_counts_them(cli, crash, place):
    cli("chat", "app:cashier", "asks-1", "refund")
    cli("chat", "app:cashier", "asks-2", "both")
    cli("chat", "app:desk", "stranger", "hello")
    crash("crashed", app="app:cashier")
    (place / "go").touch()
    result = cli("resume", "app:cashier", "--all")
    assert result.out == "1 finished, 2 waiting\n"
    assert result.err.splitlines()[-2:] == [
        "waiting: 3 for approval of refund",
        "see which sessions wait: midturn ls --status waiting",
    ]
    found = cli("resume", "app:cashier", "--all", "--json").json["waiting"]
    facts = [(one["session"], one["turn"], len(one["questions"])) for one in found]
    assert facts == [("asks-1", 1, 1), ("asks-2", 1, 2)]
    assert cli("resume", "app:cashier", "--all", "--prefix", "x").out == "nothing to finish\n"


def test_all_counts_what_comes_to_wait_while_it_runs(cli, crash, place):
    crash("case-42", app="app:cashier", task="slow")
    (place / "go").touch()
    result = cli("resume", "app:cashier", "--all")
    assert result.out == "1 waiting\n"
    assert "waiting: 1 for the outcome of pay\n" in result.err


def test_a_turn_that_the_code_does_not_fit_any_more_goes_on_when_told_to(cli, crash, place, done):
    crash("case-42", app="app:build_bank", task="pay")
    (place / "go").touch()
    (place / "changed").touch()
    result = cli("resume", "app:build_bank", "case-42", code=1)
    assert result.err.splitlines()[0].startswith("error: turn 1 of session 'case-42' was interrupted after pay(")
    assert result.err.splitlines()[1:] == [
        "continue all the same, knowing that this is done: midturn resume app:build_bank case-42 --continue",
        "give the turn up: midturn discard case-42",
    ]
    error = cli("resume", "app:build_bank", "case-42", "--json", code=1).error
    assert error["type"] == "ReplayDiverged"
    assert error["recorded"] == ['pay({"order":"A1"})']
    assert "--continue" in cli("resume", "app:build_bank", "--all", "--continue", code=2).err
    cli("resume", "app:build_bank", "case-42", "--continue")
    assert done() == ["pay A1"]
    notes = cli("show", "case-42@1", "--json").json["notes"]
    assert any("pay(" in note for note in notes)
    for session in ("case-42", "case-42@1"):
        assert "changed: pay(" in cli("show", session).out
