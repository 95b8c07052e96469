"""Errors on the command line end with commands that work when they are typed, not with Python methods."""

import ast
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import midturn

METHODS = re.compile(
    r"\b(answer|at|cancel|counts|delete|discard|follow|fork|history|info|label|load|midturn\.open|open_turn|replay|reset"
    r"|resume|rewind|run|save|say|sessions?|start|turn|waiting)(_(answer|resume|say|stream))?\("
)
"""Methods of a session or a store that a message may advise to call."""

FORGETFUL = """
import sqlite3
class SetsBack(Model):
    async def create(self, messages, **options):
        with sqlite3.connect("backup.db") as old, sqlite3.connect("midturn.db") as live:
            old.backup(live)
        return await super().create(messages, **options)
forgetful = midturn.Blueprint("support", lambda: AssistantAgent("helper", SetsBack()))
"""

OPEN_TURN = """
def version(number, tools):
    return midturn.Blueprint("shop", lambda: AssistantAgent("cashier", Model(), tools=tools), version=number)
old, new = version(1, [refund]), version(2, [look_up])
@new.migration(1, 2)
def from_1_to_2(state):
    return state.rename_tool("refund", "look_up")
"""


def typed(result):
    """Return the commands that an error shows, as lists of words."""
    assert not METHODS.search(result.err), result.err
    assert "()" not in result.err
    return [shlex.split(line.partition("midturn ")[2]) for line in result.err.splitlines() if "midturn " in line]


def test_a_failed_turn_can_be_tried_again(cli, place):
    [resume] = typed(cli("chat", "app:support", "case-42", "once", code=1))
    (place / "go").touch()
    assert cli(*resume).out == "user: once\nhelper: 1 said, the last: once\n"


def test_of_many_sessions_each_failed_turn_can_be_tried_again(cli, place):
    cli("chat", "app:support", "case-42", "once", code=1)
    [resume] = typed(cli("resume", "app:support", "--all", "--failed", code=1))
    (place / "go").touch()
    cli(*resume)


def test_a_turn_that_waits_can_be_looked_at_and_given_up(cli):
    cli("chat", "app:cashier", "case-42", "refund")
    look, discard = typed(cli("chat", "app:cashier", "case-42", "more", code=4))
    assert "turn 1 of case-42 waits for an answer" in cli(*look).out
    assert cli(*discard, "--yes").out.startswith("gave up turn 1")


def test_a_call_in_doubt_can_be_looked_at_and_given_up(cli, crash, place):
    crash("case-42", app="app:cashier", task="slow")
    (place / "go").touch()
    cli("resume", "app:cashier", "case-42")
    look, discard = typed(cli("chat", "app:cashier", "case-42", "more", code=4))
    assert "Did it take effect?" in cli(*look).out
    cli(*discard, "--yes")


def test_a_busy_session_can_be_waited_for(cli, start, until_begun, place):
    holder = start("chat", "app:support", "case-42", "wait")
    until_begun()
    result = cli("chat", "app:support", "case-42", "more", "--busy", "raise", code=4)
    assert typed(result) == []
    assert result.err.endswith("try again later, or wait longer: --timeout SECONDS\n")
    (place / "go").touch()
    cli("chat", "app:support", "case-42", "more", "--timeout", "60")
    assert holder.end().code == 0


@pytest.mark.parametrize("chosen", [0, 1])
def test_a_turn_that_the_code_does_not_fit_can_be_continued_or_given_up(cli, crash, place, chosen):
    crash("case-42", app="app:build_bank", task="pay")
    (place / "go").touch()
    (place / "changed").touch()
    ways = typed(cli("resume", "app:build_bank", "case-42", code=1))
    cli(*ways[chosen], *["--yes"][:chosen])
    assert cli("ls", "--json").json[0]["status"] == "idle"


@pytest.mark.parametrize(
    ("words", "code"), [(["yes", "--question", "00000000"], 1), (["approve", "--arguments", "{}"], 2)]
)
def test_an_answer_to_nothing_that_is_asked_leads_to_the_questions(cli, words, code):
    cli("chat", "app:desk", "case-42", "hello")
    [look] = typed(cli("answer", "case-42", *words, code=code))
    assert "answer: TEXT" in cli(*look).out


def test_a_bad_answer_leads_to_the_questions(cli):
    cli("chat", "app:cashier", "case-42", "refund")
    [look] = typed(cli("answer", "case-42", "maybe", code=2))
    assert "answer: approve, deny: REASON" in cli(*look).out


def test_one_of_several_questions_can_be_named(cli):
    cli("chat", "app:cashier", "case-42", "both")
    _, (*name, _) = typed(cli("answer", "case-42", "approve", code=2))
    id_ = cli("answer", "case-42", "--json").json["questions"][1]["id"]
    assert name == ["answer", "case-42", "ANSWER", "--question"]
    cli("answer", "case-42", "approve", "--question", id_)


def test_a_turn_that_was_answered_can_be_continued(cli):
    cli("chat", "app:desk", "case-42", "hello")
    cli("answer", "case-42", "fine")
    resume, look = sorted(typed(cli("answer", "case-42", "again", code=1)), reverse=True)
    assert "no turn of case-42 waits" in cli(*look).out
    assert cli(*["app:desk" if word == "APP" else word for word in resume]).out.endswith("person: fine\n")


@pytest.mark.parametrize("words", [["show"], ["export"], ["resume", "app:support"], ["discard"], ["answer"], ["rm"]])
def test_an_unknown_session_leads_to_those_that_there_are(cli, words):
    where = ["--store", "sqlite:///other.db"]
    cli("chat", "app:support", "case-42", "hello", *where)
    [ls] = typed(cli(*words, "absent", *where, code=3))
    assert "case-42" in cli(*ls).out


def test_an_open_turn_in_the_way_of_an_import_can_be_given_up(cli, place):
    (place / "state.json").write_text('{"type": "TeamState"}')
    cli("chat", "app:desk", "case-42", "hello")
    resume, discard = typed(cli("import", "state.json", "case-42", "--force", code=1))
    assert resume == ["resume", "APP", "case-42"]
    cli(*discard, "--yes")
    cli("import", "state.json", "case-42", "--force")


def test_an_open_turn_that_a_migration_would_break_can_be_given_up(cli, place):
    with (place / "app.py").open("a") as app:
        app.write(OPEN_TURN)
    cli("chat", "app:old", "case-42", "refund")
    [discard] = typed(cli("answer", "case-42", "approve", "--app", "app:new", code=1))
    cli(*discard, "--yes")
    cli("chat", "app:new", "case-42", "hello")


def test_an_app_that_cannot_run_turns_leads_to_no_python_methods(cli, place):
    with (place / "app.py").open("a") as app:
        app.write("\nfrom autogen_core.model_context import UnboundedChatCompletionContext\n")
    result = cli("chat", "app:UnboundedChatCompletionContext", "case-42", "hello", code=2)
    assert typed(result) == []
    assert "factory: a UnboundedChatCompletionContext cannot run turns" in result.err


def test_a_key_of_another_task_leads_to_another_key(cli):
    cli("chat", "app:support", "case-42", "hello", "--key", "mail-1")
    result = cli("chat", "app:support", "case-42", "more", "--key", "mail-1", code=1)
    assert result.err.endswith("belongs to another task; choose another key for this one\n")


@pytest.fixture
def forgetful(place):
    """An app whose model brings a backup back, which is made when this is called."""
    with (place / "app.py").open("a") as app:
        app.write(FORGETFUL)

    def back_up():
        with closing(sqlite3.connect(place / "midturn.db")) as live, closing(sqlite3.connect("backup.db")) as old:
            live.backup(old)

    return back_up


def test_what_is_left_of_a_lost_history_can_be_looked_at(cli, forgetful):
    cli("chat", "app:support", "case-42", "hello")
    forgetful()
    result = cli("chat", "app:forgetful", "case-42", stdin="more\nand more\n", code=1)
    [show] = typed(result)
    assert "history of session 'case-42' is lost" in result.err
    assert "and more" not in result.out
    assert "1 said, the last: hello" in cli(*show).out


def test_a_lost_history_stops_the_resuming_of_all(cli, crash, place, forgetful):
    for session in ("case-1", "case-2"):
        crash(session)
    (place / "go").touch()
    forgetful()
    [show] = typed(result := cli("resume", "app:forgetful", "--all", code=1))
    assert show[-1] == "case-1"
    assert "stopped: nothing was finished" in result.err
    assert [each["status"] for each in cli("ls", "--json").json] == ["interrupted", "interrupted"]


def test_a_store_in_memory_has_no_commands_for_another_process(cli):
    assert typed(cli("chat", "app:support", "case-42", "fail", "--store", "memory://", code=1)) == []


def test_only_hints_of_the_library_name_python_methods():
    """A message that names a method outside ``hint=`` would be printed on the command line."""
    found = []
    root = Path(midturn.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] not in ("cli", "testing"):
            found += [f"{path.relative_to(root)}: {text}" for text in _messages(ast.parse(path.read_text()))]
    assert found == [
        "tools.py: midturn.human() needs a session that records its calls: store.session(..., durability='call')"
    ], "this one cannot be met on the command line, where calls are always recorded"


def _messages(tree):
    """Yield texts that name a method and are neither docstrings, ``hint`` nor what ``repr()`` returns."""
    skipped = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr() | ast.keyword(arg="hint") | ast.FunctionDef(name="__repr__"):
                skipped |= {id(part) for part in ast.walk(node)}
            case ast.Assign(targets=[ast.Name(id="hint")]):
                skipped |= {id(part) for part in ast.walk(node)}
            case ast.Constant(value=str(text)) if id(node) not in skipped and METHODS.search(text):
                yield text
