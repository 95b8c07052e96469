"""The ``midturn`` command. Here errors become lines for people and exit codes for scripts."""

from __future__ import annotations

import logging
import sys
from itertools import takewhile
from typing import Any

import click

import midturn
from midturn.cli import errors
from midturn.cli.answer import answer, discard
from midturn.cli.audit import audit
from midturn.cli.chat import chat
from midturn.cli.check import check
from midturn.cli.compact import compact
from midturn.cli.copy import copy
from midturn.cli.db import db
from midturn.cli.demo import demo
from midturn.cli.diff import diff
from midturn.cli.fork import fork
from midturn.cli.grep import grep
from midturn.cli.import_export import export, import_
from midturn.cli.keys import keys, rekey
from midturn.cli.label import label
from midturn.cli.lineage import lineage
from midturn.cli.ls import ls
from midturn.cli.migrate import migrate, rollback
from midturn.cli.options import GIVEN
from midturn.cli.output import note
from midturn.cli.prune import prune
from midturn.cli.replay import replay
from midturn.cli.resume import resume
from midturn.cli.rewind import rewind
from midturn.cli.rm import rm
from midturn.cli.serve import serve
from midturn.cli.show import show
from midturn.cli.web import web
from midturn.stores.privacy import security
from midturn.stores.retrying import durability


class _Remarks(logging.Handler):
    """Prints what a log reports as a remark."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


_LOST = _Remarks(logging.ERROR)
"""For a store that keeps nothing. ``midturn db status`` prints what other stores may lose."""
_OPEN = _Remarks(logging.WARNING)
"""For files and connections that others can read."""


class _Cli(click.Group):
    """A group of commands. :mod:`midturn.cli.errors` reports its errors."""

    def main(self, args: Any = None, *rest: Any, **extra: Any) -> Any:
        words: list[str] = sys.argv[1:] if args is None else list(args)
        GIVEN.set(None)
        for stream in (sys.stdout, sys.stderr):
            if reconfigure := getattr(stream, "reconfigure", None):
                reconfigure(errors="backslashreplace")  # else text that a terminal cannot show would end the command
        try:
            code = super().main(words, *rest, **extra | {"standalone_mode": False})
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - report() raises those it does not know
            # Look among the words: when parsing fails, no option is known yet.
            flags = set(takewhile(lambda word: word != "--", words))
            code = errors.report(error, as_json="--json" in flags, trace="--traceback" in flags)
        sys.exit(code)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click passes it
        return list(self.commands)  # in the order in which a newcomer meets them


@click.group(
    cls=_Cli,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(midturn.__version__, prog_name="midturn")
@click.pass_context
def main(context: click.Context) -> None:
    """Durable AutoGen agents and teams: kill it mid-turn, and any other process finishes the turn.

    Exit codes: 0 success; 1 an error or a failed turn; 2 wrong usage, or an APP that cannot be loaded; 3 no such store,
    session or checkpoint; 4 the session is busy or waits for an answer; 130 stopped by Ctrl-C; 143 stopped by SIGTERM.
    """
    durability.addHandler(_LOST)
    security.addHandler(_OPEN)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (
    demo,
    chat,
    ls,
    show,
    diff,
    grep,
    import_,
    export,
    copy,
    rm,
    compact,
    prune,
    resume,
    answer,
    discard,
    label,
    fork,
    rewind,
    lineage,
    audit,
    replay,
    check,
    migrate,
    rollback,
    serve,
    web,
    keys,
    rekey,
    db,
):
    main.add_command(_command)
