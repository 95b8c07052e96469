"""``ls`` and ``show``."""

import json
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

import midturn
from midturn.cli.ls import _print_sessions
from midturn.cli.output import ago, console


@pytest.fixture
def cases(cli):
    cli("chat", "app:support", "case-1", "hello", "--label", "team=claims")
    cli("chat", "app:support", "case-2", "hello", "--label", "team=legal", "--label", "vip=yes")
    cli("chat", "app:support", "case-2", "fail", code=1)
    cli("chat", "app:support", "other", "hello")


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([], ["case-1", "case-2", "other"]),
        (["--status", "failed"], ["case-2"]),
        (["--label", "team=legal", "--label", "vip=yes"], ["case-2"]),
        (["--prefix", "case-"], ["case-1", "case-2"]),
        (["--limit", "2"], ["case-1", "case-2"]),
        (["--status", "deleted"], []),
    ],
)
def test_sessions_are_filtered(cli, cases, filters, found):
    assert [session["session"] for session in cli("ls", *filters, "--json").json] == found


def test_a_listed_session_has_its_facts(cli, cases):
    session = cli("ls", "--json").json[1]
    assert session.pop("created") <= session.pop("updated")
    assert session.pop("cursor").endswith(" case-2")
    assert session == {
        "session": "case-2",
        "status": "failed",
        "seq": 5,
        "turns": 2,
        "first_turn": 1,
        "checkpoint": 1,
        "blueprint": "support",
        "version": 1,
        "forked_from": None,
        "deleted": None,
        "problem": None,
        "labels": {"team": "legal", "vip": "yes"},
        "owner": None,
    }


def test_the_table_of_sessions_has_a_row_for_each(cli, cases):
    lines = cli("ls").out.splitlines()
    assert lines[0].split() == ["session", "status", "turns", "updated", "labels"]
    assert lines[3].split()[:3] == ["case-2", "failed", "2"]
    assert lines[3].endswith("team=legal, vip=yes")


def test_nothing_is_cut_where_there_is_no_terminal(cli):
    cli("chat", "app:support", "x" * 200, "hello", "--label", "team=claims")
    assert ("x" * 200) in cli("ls").out


def test_deleted_sessions_are_listed_only_when_asked_for(cli, cases):
    cli("rm", "other", "--yes")
    assert "other" not in cli("ls").out
    assert [session["session"] for session in cli("ls", "--status", "deleted", "--json").json] == ["other"]


def test_an_empty_store_says_what_to_type(cli):
    cli("chat", "app:support", "case-42", "hello")
    cli("rm", "case-42", "--yes")
    result = cli("ls")
    assert result.out == "no sessions yet\n"
    assert result.err == "start one: midturn chat APP SESSION\n"
    assert cli("ls", "--prefix", "x").out == "no session matches\n"
    assert cli("ls", "--json").json == []


def test_the_history_says_who_said_what(cli):
    cli("chat", "app:support", "case-42", "tool")
    cli("chat", "app:support", "case-42", "fail", code=1)
    lines = [line.split() for line in cli("show", "case-42").out.splitlines()]
    assert lines[0] == ["turn", "when", "status", "said", "tokens"]
    assert lines[2][0] == "1"
    assert lines[2][3:] == ["done", "user:", "tool", "5+2"]
    assert lines[3] == ["helper:", "A1", "is", "on", "its", "way"]
    assert lines[4][3:] == ["failed", "user:", "fail"]
    assert lines[5][0] == "ValueError:"


def test_long_conversations_in_a_turn_are_shortened(cli):
    cli("chat", "app:build_team", "case-42", "hello")
    assert "… 1 more" in cli("show", "case-42").out


def test_the_last_turns_are_enough(cli):
    cli("chat", "app:support", "case-42", stdin="one\ntwo\nthree")
    result = cli("show", "case-42", "--limit", "2")
    assert "user: one" not in result.out
    assert "user: three" in result.out
    assert result.err == "1 earlier turns are not shown\n"
    assert [turn["turn"] for turn in cli("show", "case-42", "--limit", "9", "--json").json["history"]] == [1, 2, 3]


def test_a_turn_is_shown_in_full(cli):
    text = "hello " + "x" * 1000
    cli("chat", "app:support", "case-42", text, "--key", "k")
    cli("chat", "app:support", "case-42", "fail", code=1)
    lines = cli("show", "case-42@1").out.splitlines()
    assert lines[0].startswith("case-42 turn 1: done, ")
    assert lines[0].endswith(" s, 5+2 tokens, key k")
    assert lines[1:] == [f"user: {text}", f"helper: 1 said, the last: {text}"]
    lines = cli("show", "case-42@2").out.splitlines()
    assert lines[0].startswith("case-42 turn 2: failed, ")
    assert lines[1:] == ["user: fail", "ValueError: the model is [bold]out[/bold] of order"]


def test_json_of_a_turn_has_its_messages_as_autogen_dumped_them(cli):
    answer = cli("chat", "app:support", "case-42", "hello", "--json").json
    turn = cli("show", "case-42@1", "--json").json
    assert turn["messages"] == answer["messages"]
    assert turn["session"] == "case-42"
    assert turn["usage"] == answer["usage"]
    assert cli("show", "case-42", "--json").json["history"] == [
        {name: value for name, value in turn.items() if name not in ("beside", "calls", "questions")}
    ]


def test_a_call_that_was_answered_for_a_turn_is_shown(cli, place):
    call = {"id": "1", "name": "look_up", "arguments": "{}"}
    messages = [
        {"content": "where is it?", "source": "user", "type": "UserMessage"},
        {"content": [call], "thought": None, "source": "support", "type": "AssistantMessage"},
    ]
    state = {"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {"messages": messages}}
    (place / "state.json").write_text(json.dumps(state))
    cli("import", "state.json", "case-42")
    cli("chat", "app:support", "case-42", "hello")
    repair = "model_context: the call '1' of 'look_up' was never answered; it is answered with an error now"
    assert f"repaired: {repair}" in cli("show", "case-42@2").out
    assert "repaired: model_context" in cli("show", "case-42").out
    assert cli("show", "case-42@2", "--json").json["repairs"] == [repair]
    assert cli("show", "case-42@1", "--json").json["repairs"] == []


def test_what_is_kept_beside_the_state_is_shown(cli):
    cli("chat", "app:build_team", "case-42", "hello")
    result = cli("show", "case-42@1")
    assert result.err == "kept beside AutoGen's state: manager\n"
    assert cli("show", "case-42@1", "--json").json["beside"] == {"manager": {"next_speaker": "first"}}


def test_every_difference_of_a_state_that_does_not_fit_is_shown(cli, place):
    (place / "state.json").write_text(json.dumps({"type": "TeamState", "agent_states": {}, "more": 1}))
    cli("import", "state.json", "case-42")
    wrong = ["$.state.llm_context: is missing", "$.state.more: is not known"]
    result = cli("chat", "app:support", "case-42", "hello", code=1)
    assert "$.state.type: is a 'TeamState'" in result.err
    (place / "state.json").write_text(json.dumps({"type": "AssistantAgentState", "version": "1.0.0", "more": 1}))
    cli("import", "state.json", "case-43")
    lines = cli("chat", "app:support", "case-43", "hello", code=1).err.splitlines()
    assert lines[0].endswith(wrong[0])
    assert lines[1].endswith(wrong[1])
    error = cli("chat", "app:support", "case-43", "hello", "--json", code=1).error
    assert [f"{found['path']}: {found['message']}" for found in error["differences"]] == wrong


@pytest.fixture
def fails_late(cli, place):
    """A session whose first turn has failed after a call."""
    with (place / "app.py").open("a") as app:
        app.write(
            "class Tired(Model):\n"
            "    async def create(self, messages, **options):\n"
            "        raise ValueError('no more')\n"
            "def build_tired():\n"
            "    return RoundRobinGroupChat([AssistantAgent('first', Model()), AssistantAgent('second', Tired())])\n"
        )
    cli("chat", "app:build_tired", "case-42", "hello", code=1)


def test_what_a_failed_turn_has_done_is_shown(cli, fails_late):
    expected = "turn 1 has done:\n  participants/first: 1 said, the last: hello\n"
    assert expected in cli("show", "case-42").out
    assert expected in cli("show", "case-42@1").out
    assert "no question is open" in cli("answer", "case-42").out


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM turn_calls",
        """UPDATE turn_calls SET data = '{"v":1,"path":"x","what":"tools","key":"x","spent":0}'""",
    ],
)
def test_a_failed_turn_is_shown_also_if_what_it_has_done_is_damaged(cli, place, fails_late, damage):
    with sqlite3.connect(place / "midturn.db") as db:
        assert db.execute(damage).rowcount == 1
    for shown in ("case-42", "case-42@1"):
        result = cli("show", shown)
        assert "failed" in result.out
        assert "the calls of turn 1 cannot be read: " in result.err


def test_an_id_may_look_like_a_turn_of_another(cli):
    cli("chat", "app:support", "a", stdin="one\ntwo")
    cli("chat", "app:support", "a@1", "mine")
    assert cli("show", "a@1", "--json").json["session"] == "a@1"
    assert cli("show", "a@2", "--json").json["session"] == "a"
    assert cli("show", "a@1@1", "--json").json["session"] == "a@1"
    cli("rm", "a@1", "--yes")
    assert cli("show", "a@1", "--json").json["session"] == "a"
    longest = "x" * 200
    cli("chat", "app:support", longest, "hello")
    assert cli("show", f"{longest}@1", "--json").json["session"] == longest


@pytest.mark.parametrize("session", ["absent", "absent@1", "case-42@0", "case-42@2", "case-42@" + "9" * 18])
def test_what_is_not_there_is_exit_code_3(cli, session):
    cli("chat", "app:support", "case-42", "hello")
    assert cli("show", session, "--json", code=3).error["type"] == "NotFound"
    assert cli("show", session, code=3).err.startswith("error: ")


@pytest.mark.parametrize(
    "url", ["sqlite:///none.db", "sqlite:///a%20b.db", "none.db", "file://./none", "sqlite:///no/x.db"]
)
@pytest.mark.parametrize(
    "words", [["ls"], ["show", "a"], ["export", "a"], ["rm", "a", "--yes"], ["resume", "app:support", "--all"]]
)
def test_looking_for_something_makes_no_store(cli, place, url, words):
    before = sorted(place.iterdir())
    result = cli(*words, "--store", url, code=3)
    assert "there is no store at" in result.err
    assert "start one: midturn chat APP SESSION --store" in result.err
    assert sorted(path for path in place.iterdir() if path.name != "__pycache__") == before


@pytest.mark.parametrize("url", ["sqlite:///a%20b.db", "a b.db", "file://./a%20b"])
def test_a_store_is_found_where_it_was_made(cli, url):
    cli("chat", "app:support", "case-42", "hello", "--store", url)
    assert [session["session"] for session in cli("ls", "--store", url, "--json").json] == ["case-42"]


def test_a_file_or_directory_that_is_empty_is_no_store(cli, place):
    (place / "empty.db").touch()
    (place / "empty").mkdir()
    cli("ls", "--store", "sqlite:///empty.db", code=3)
    cli("ls", "--store", "file://./empty", code=3)
    assert not list((place / "empty").iterdir())


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///app.py",
        "sqlite:///folder",
        "file://./folder",
        "file://./app.py",
        "nothing://x",
        "sqlite://",
        "file://",
    ],
)
def test_a_store_that_cannot_be_opened_is_an_error_and_no_traceback(cli, place, url):
    (place / "folder").mkdir()
    (place / "folder" / "file").write_text("not ours")
    before = (place / "app.py").read_bytes()
    wrong = url in ("nothing://x", "sqlite://", "file://")
    code, kind = (2, "InvalidArgument") if wrong else (1, "StoreUnavailable")
    assert cli("ls", "--store", url, code=code).err.startswith("error: ")
    assert cli("ls", "--store", url, "--json", code=code).error["type"] == kind
    assert (place / "app.py").read_bytes() == before


def test_stored_text_cannot_drive_the_terminal(cli):
    cli("chat", "app:support", "evil\x1b[2J", "hostile\x07", "--label", "a=\x9b31m")
    shown = [
        cli("chat", "app:support", "evil\x1b[2J", "hostile"),
        cli("ls"),
        cli("show", "evil\x1b[2J"),
        cli("show", "evil\x1b[2J@1"),
        cli("show", "evil\x1b[2J@7", code=3),
    ]
    for result in shown:
        assert not set("\x1b\x07\x9b\u202e") & set(result.out + result.err)
    assert r"\x1b]0;owned\x07\x1b[31mred\u202e [bold]text[/bold] :smile:" in shown[0].out
    assert cli("show", "evil\x1b[2J@1", "--json").out.isascii()


@pytest.mark.parametrize("length", [10, 40, 60, 120])
def test_an_id_can_be_copied_from_a_narrow_terminal(monkeypatch, length):
    id_ = ("case-" + "0123456789" * 20)[:length]
    at = datetime.now(UTC)
    labels = {"team": "claims", "tier": "x" * 60}
    info = midturn.SessionInfo(
        id=id_, status="idle", seq=1, turns=1234, checkpoint=1, labels=labels, created=at, updated=at
    )
    monkeypatch.setattr(console(), "width", 80)
    with console().capture() as printed:
        _print_sessions([info], "sqlite:///midturn.db")
    lines = printed.get().splitlines()
    assert max(map(len, lines)) <= 80
    cells = [line.split("  ")[0].strip() for line in lines[2:]]
    assert "".join(cells) == id_, "on one line if there is room, and never cut"
    assert len(list(filter(None, cells))) == 1 or length > 60


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s ago"), (59, "59 s ago"), (60, "1 min ago"), (7200, "2 h ago"), (6 * 86400, "6 d ago")],
)
def test_times_are_told_as_people_do(seconds, text):
    now = datetime.now(UTC)
    assert ago(now - timedelta(seconds=seconds), now) == text


def test_a_time_long_ago_is_a_date():
    assert ago(datetime.fromtimestamp(86400.0 * 365, UTC), datetime.now(UTC)).startswith("1971-01-01 ")


def test_messages_of_every_kind_can_be_shown(cli, place):
    contents = ["text", ["a", {"data": "aGk="}], {"answer": 1}, [], None, [{"name": "f", "arguments": "{}", "id": "1"}]]
    from midturn.history.spoken import said

    texts = [said({"type": "XMessage", "source": "a", "content": content}).text for content in contents]
    assert texts == ["text", "a\n[image]", '{"answer": 1}', "[]", "null", "f({})"]
    assert said("odd").text == "odd"
    assert json.loads(said({"type": "Odd"}).text) == {"type": "Odd"}


def test_the_same_thing_has_the_same_key_in_the_output_of_every_command(cli):
    chat = cli("chat", "app:desk", "case-42", "hello", "--json").json
    show, answer = cli("show", "case-42", "--json").json, cli("answer", "case-42", "--json").json
    [listed], turn = cli("ls", "--json").json, cli("show", "case-42@1", "--json").json
    assert chat["session"] == show["session"] == answer["session"] == listed["session"] == turn["session"] == "case-42"
    assert chat["turn"] == answer["turn"] == turn["turn"] == show["history"][0]["turn"] == show["turns"] == 1
    assert chat["questions"] == show["questions"] == answer["questions"] == turn["questions"] != []
    assert chat["usage"].keys() == turn["usage"].keys()
    assert [message["type"] for message in chat["messages"]][:2] == ["TextMessage", "TextMessage"]


def test_sessions_are_sorted_by_their_last_change(cli, cases):
    cli("chat", "app:support", "case-1", "hello again")

    def listed(*options):
        return [session["session"] for session in cli("ls", "--json", *options).json]

    assert listed("--sort", "updated") == ["case-1", "other", "case-2"]
    assert listed("--sort", "updated", "--reverse") == ["case-2", "other", "case-1"]
    assert listed("--reverse") == ["other", "case-2", "case-1"]
    assert listed("--sort", "updated", "--limit", "1") == ["case-1"]


@pytest.mark.parametrize("options", [[], ["--reverse"], ["--sort", "updated"], ["--sort", "updated", "--reverse"]])
def test_a_list_continues_after_the_cursor_of_its_last_session(cli, cases, options):
    whole = [session["session"] for session in cli("ls", "--json", *options).json]
    found, after = [], ""
    while page := cli("ls", "--json", *options, "--limit", "2", "--after", after).json:
        found += [session["session"] for session in page]
        after = page[-1]["cursor"]
    assert found == whole
    assert "--after" in cli("ls", *options, "--limit", "2").err


def test_sessions_are_filtered_by_the_time_of_their_last_change(cli, cases):
    with sqlite3.connect("midturn.db") as db:
        db.execute("UPDATE sessions SET updated = updated - 3 * 86400 WHERE name = 'case-1'")
        db.execute("UPDATE sessions SET updated = updated - 3600 WHERE name = 'other'")
    db.close()
    day = (datetime.now(UTC).astimezone() - timedelta(days=1)).date().isoformat()
    for since, found in (("4d", ["case-1", "case-2", "other"]), ("2d", ["case-2", "other"]), ("30min", ["case-2"])):
        for options in ([], ["--sort", "updated"], ["--sort", "updated", "--reverse"]):
            listed = cli("ls", "--since", since, "--json", *options).json
            assert sorted(session["session"] for session in listed) == found
    assert [session["session"] for session in cli("ls", "--since", day, "--json").json] == ["case-2", "other"]


@pytest.mark.parametrize("since", ["2x", "", "d", "yesterday", "2026-13-01", "1e3d", "-2d", "9999999d", "²d"])
def test_what_is_no_time_is_wrong_usage(cli, cases, since):
    assert "--since" in cli("ls", f"--since={since}", code=2).err


@pytest.mark.parametrize("after", ["x", "nan case-1", "case-1"])
def test_what_is_no_cursor_is_wrong_usage(cli, cases, after):
    assert cli("ls", "--after", after, "--json", code=2).error["type"] == "InvalidArgument"
