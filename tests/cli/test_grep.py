"""``midturn grep``."""

import re
import sqlite3

import pytest

import midturn
from midturn.history import search
from midturn.history.listing import Listing
from midturn.record.head import Kind
from midturn.stores.wrapper import StoreWrapper


@pytest.fixture
def cases(cli):
    cli("chat", "app:support", "case-1", "hello", "--label", "team=claims")
    cli("chat", "app:support", "case-1", "Where is order A7?")
    cli("chat", "app:support", "case-2", "tool please", "--label", "team=legal")
    cli("chat", "app:support", "case-3", "fail with A9", code=1)


def test_a_line_comes_with_its_session_its_turn_and_who_said_it(cli, cases):
    assert cli("grep", "A[0-9]").out.splitlines() == [
        "case-1@2 user: Where is order A7?",
        "case-1@2 helper: 2 said, the last: Where is order A7?",
        'case-2@1 helper: look_up({"order": "A1"})',
        "case-2@1 helper: look_up returned A1 is on its way",
        "case-2@1 helper: A1 is on its way",
        'case-2@1 tool: look_up({"order":"A1"})',
        "case-3@1 user: fail with A9",
    ]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["A7"], ["case-1@2", "case-1@2"]),
        (["a7"], []),
        (["a7", "--ignore-case"], ["case-1@2", "case-1@2"]),
        (["A7", "--in", "task"], ["case-1@2"]),
        (["A1", "--in", "calls"], ["case-2@1"] * 3),
        (["A[0-9]", "--label", "team=legal", "--in", "messages"], ["case-2@1"] * 3),
        (["A[0-9]", "--status", "failed"], ["case-3@1"]),
        (["A[0-9]", "--prefix", "case-3"], ["case-3@1"]),
        (["A9", "--since", "1h"], ["case-3@1"]),
        (["A[0-9]", "--fixed"], []),
        (["order A7?", "--fixed", "--in", "task"], ["case-1@2"]),
        (["^hello$", "--in", "task"], ["case-1@1"]),
    ],
)
def test_what_is_searched_can_be_chosen(cli, cases, options, found):
    assert [line.split()[0] for line in cli("grep", *options).out.splitlines()] == found


def test_json_has_the_place_of_the_match(cli, cases):
    result = cli("grep", "A7", "--in", "task", "--json").json
    assert result == {
        "matches": [
            {
                "session": "case-1",
                "turn": 2,
                "where": "task",
                "who": "user",
                "line": "Where is order A7?",
                "start": 15,
                "end": 17,
                "cursor": "2 1 case-1",
            }
        ],
        "searched": 3,
        "skipped": [],
        "next": None,
    }


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7, 8])
def test_pages_of_any_size_make_the_whole(cli, cases, limit):
    whole = cli("grep", "A[0-9]", "--json").json["matches"]
    found, after = [], ""
    while after is not None:
        page = cli("grep", "A[0-9]", "--json", "--limit", str(limit), "--after", after).json
        found += page["matches"]
        after = page["next"]
        assert len(page["matches"]) == limit or after is None
        assert len(found) <= len(whole)
    assert found == whole


def test_at_the_limit_it_says_how_to_continue(cli, cases):
    result = cli("grep", "A[0-9]", "--limit", "2")
    assert len(result.out.splitlines()) == 2
    assert result.err == "stopped after 2 lines; for more, add: --after '2 2 case-1'\n"
    assert cli("grep", "nothing like it").err == "no line matches\n"
    assert cli("grep", "A7", "--limit", "2").err == "", "nothing more matches"


def test_a_page_continues_though_its_session_is_gone(cli, cases):
    cli("rm", "case-1", "--yes")
    page = cli("grep", "A[0-9]", "--after", "2 1 case-1", "--json").json
    assert {match["session"] for match in page["matches"]} == {"case-2", "case-3"}


def test_an_open_turn_is_searched_too(cli, crash):
    crash("case-9", task="wait for A4")
    assert cli("grep", "A4").out == "case-9@1 user: wait for A4\n"


def test_a_damaged_session_is_skipped_and_reported(cli, cases):
    with sqlite3.connect("midturn.db") as db:
        db.execute(
            "UPDATE rows SET data = x'00' WHERE kind = ? AND session = (SELECT id FROM sessions WHERE name = 'case-2')",
            (int(Kind.TURN),),
        )
        db.execute("UPDATE sessions SET seq = -1 WHERE name = 'case-1'")
    db.close()
    result = cli("grep", "A[0-9]", code=1)
    assert result.out == "case-3@1 user: fail with A9\n"
    assert result.err.count("skipped: ") == 2
    found = cli("grep", "A[0-9]", "--json", code=1).json
    assert found["searched"] == 1
    assert [each["session"] for each in found["skipped"]] == ["case-2", None]
    assert "case-1" in found["skipped"][1]["problem"]


def test_what_it_prints_is_clean_and_short(cli):
    cli("chat", "app:support", "case-1", "hostile")
    shown = cli("grep", "text").out
    assert "\x1b" not in shown
    assert "[bold]text[/bold]" in shown
    cli("chat", "app:support", "case-2", f"{'x' * 500} needle {'y' * 500}")
    [task, _] = cli("grep", "needle", "--prefix", "case-2").out.splitlines()
    assert "needle" in task
    assert len(task) < 250


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["("], "no regular expression"),
        (["*"], "--fixed"),
        (["x", "--in", "tasks"], "not one of task, messages, calls"),
        (["x", "--in", ""], "not one of"),
        (["x", "--since", "2 days"], "no duration"),
        (["x", "--limit", "0"], "limit"),
        (["x", "--after", "case-1"], "not a cursor"),
        (["x", "--after", "1 1 "], "not a cursor"),
    ],
)
def test_wrong_usage(cli, cases, words, said):
    assert said in cli("grep", *words, code=2).err


def test_there_must_be_a_store(cli):
    cli("grep", "x", code=3)


def test_a_terminal_shows_the_match_in_red(terminal, cases):
    shown = terminal("grep", "A9")
    assert shown.end() == 0
    assert "\x1b[1;31mA9\x1b[0m" in shown.screen
    assert "case-3@1 user: fail with A9" in shown.plain


class Largest(StoreWrapper):
    """Notes the most rows that one read has returned."""

    rows_at_once = 0

    async def rows(self, session, kind, **span):
        found = await super().rows(session, kind, **span)
        self.rows_at_once = max(self.rows_at_once, len(found))
        return found


async def test_a_long_session_is_read_piece_by_piece(monkeypatch):
    from sample_app import support

    monkeypatch.setattr(search, "TURNS", 3)
    async with midturn.open("memory://") as store:
        case = store.session("case-1", support)
        for number in range(14):
            await case.run(task=f"task {number}")
        largest = Largest(store.store)
        looking = search.Search(
            pattern=re.compile("^task"),
            listing=Listing.of(),
            within=["task"],
            message=lambda message: ("", message["content"]),
            call=lambda call: ("", ""),
        )
        found = [each async for each in looking.read(largest) if isinstance(each, search.Match)]
    assert [match.line for match in found] == [f"task {number}" for number in range(14)]
    assert largest.rows_at_once < 14
