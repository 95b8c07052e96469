"""The page about the command line tells all of it."""

import runpy
from pathlib import Path

import click

from midturn.cli import main

TOOL = runpy.run_path(str(Path(__file__).resolve().parents[2] / "tools" / "cli_reference.py"))


def test_the_page_is_what_the_commands_say():
    assert TOOL["PAGE"].read_text(encoding="utf-8") == TOOL["render"](), "stale: run python tools/cli_reference.py"


def test_every_command_and_option_is_explained():
    page = TOOL["render"]()
    for name, command in TOOL["commands"](main):
        assert f"## midturn {name}\n" in page
        assert command.help
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (name, parameter.name)
                assert all(option in page for option in parameter.opts)


def test_every_command_speaks_json_and_those_on_one_store_take_its_url():
    for name, command in TOOL["commands"](main):
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--json" in options
        assert "--store" in options or name in {"demo", "copy", "check", "keys new"}


def test_no_help_shows_the_marks_that_format_it():
    for name, command in TOOL["commands"](main):
        shown = command.get_help(click.Context(command, info_name=name))
        assert "\b" not in shown, name
        assert "\\b" not in shown, name
