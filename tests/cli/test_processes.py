"""Signals, pipes and locales: what only a real process shows."""

import os
import signal
from pathlib import Path

import pytest


@pytest.mark.parametrize("url", ["sqlite:///x.db", "file://./x"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_turn_leaves_a_session_that_can_be_resumed(cli, start, until_begun, number, url):
    where = ("--store", url)
    cli("chat", "app:support", "case-42", "hello", *where)
    process = start("chat", "app:support", "case-42", "wait", *where)
    until_begun()
    process.send(number)
    result = process.end()
    assert result.code == 128 + number
    assert result.out == ""
    assert result.err.splitlines() == [
        "turn 2 was cancelled; the session is as it was before it",
        f"try it again: midturn resume app:support case-42 --store {url}",
    ]
    shown = cli("show", "case-42", "--json", *where).json
    assert [turn["status"] for turn in shown["history"]] == ["done", "cancelled"]
    assert shown["owner"] is None
    Path("go").touch()
    assert cli("resume", "app:support", "case-42", *where).out.endswith("helper: 2 said, the last: wait\n")


def test_the_module_is_the_command(start):
    result = start("show", new=True).end()
    assert result.code == 2
    assert result.err == "error: Missing argument 'SESSION[@N]'.\nsee midturn show -h\n"
    assert start("-h", new=True).end().out.startswith("Usage: midturn [OPTIONS]")


def test_with_json_an_interruption_is_an_object(start, until_begun):
    process = start("chat", "app:support", "case-42", "wait", "--json")
    until_begun()
    process.send(signal.SIGINT)
    result = process.end()
    assert result.code == 130
    assert result.error["type"] == "Stopped"
    assert result.error["session"] == "case-42"


def test_a_second_signal_ends_the_process_at_once(cli, start, place, until_begun):
    (place / "stubborn.py").write_text(STUBBORN)
    process = start("chat", "stubborn:build", "case-42", "wait")
    until_begun()
    process.send(signal.SIGINT)
    until_begun()
    process.send(signal.SIGINT)
    assert process.end().code == -signal.SIGINT
    assert cli("ls", "--json").json[0]["status"] == "interrupted"


STUBBORN = """
import time
from pathlib import Path
import app

class Model(app.Model):
    async def create(self, messages, **options):
        while True:  # blocks the event loop, signals or not
            Path("begun").touch()
            time.sleep(0.05)

def build():
    return app.AssistantAgent("helper", Model())
"""


def test_a_signal_between_the_tasks_of_a_pipe_ends_the_chat(start):
    process = start("chat", "app:support", "case-42")
    process.type("hello\n")
    process.wait_for("1 said")
    process.send(signal.SIGTERM)
    assert process.end().code in (143, -signal.SIGTERM)


def test_an_interruption_does_not_wait_for_a_thread_that_waits_for_a_person(start, place):
    process = start("chat", "app:build_with_person", "case-42", "hello", new=True)
    process.wait_for("Enter your response")
    process.send(signal.SIGINT)
    process.wait()
    result = process.end()
    assert result.code == 130
    assert result.err.startswith("turn 1 was cancelled")


@pytest.mark.parametrize("words", [["ls"], ["ls", "--json"], ["show", "case-00"], ["export", "case-00"]])
def test_a_reader_that_goes_away_is_no_error(cli, start, words):
    for number in range(3):
        cli("chat", "app:support", f"case-0{number}", "hello " + "x" * 100_000)
    process = start(*words, new=True)
    process.stop_reading()
    result = process.end()
    assert result.code == 1
    assert result.err == ""


def test_a_terminal_that_is_not_utf_8_shows_what_it_can(cli, start):
    cli("chat", "app:support", "übung", "hello 🎉")
    result = start("show", "übung@1", new=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}).end()
    assert result.code == 0
    assert "hello \\U0001f389" in result.out


def test_commands_that_only_look_do_not_import_autogen(cli, start):
    cli("chat", "app:support", "case-42", "hello")
    for words in (["--version"], ["ls"], ["show", "case-42"], ["export", "case-42"], ["rm", "case-42", "--yes"]):
        result = start(*words, new=True, env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}).end()
        assert result.code == 0
        assert "midturn.cli" in result.err
        assert "autogen" not in result.err


def test_colours_are_for_terminals_only(cli):
    cli("chat", "app:support", "case-42", "hello")
    for words in (["ls"], ["show", "case-42"], ["show", "case-42@1"]):
        assert "\x1b" not in cli(*words).out


def test_the_version_and_the_help(cli):
    assert cli("--version").out.startswith("midturn, version ")
    assert cli("-h").out == cli().out
    assert cli("chat", "-h").out == cli("chat", "--help").out
    assert "No such command" in cli("nothing", code=2).err
    assert "No such command" in cli("nothing", "--json", code=2).error["message"]


def test_a_reader_that_goes_away_in_a_turn_ends_the_command_without_a_word(cli, start):
    process = start("chat", "app:build_streaming", "case-42", "hello", new=True)
    process.stop_reading()
    result = process.end()
    assert result.code == 1
    assert result.err == ""
    assert [turn["status"] for turn in cli("show", "case-42", "--json").json["history"]] == ["done"]
