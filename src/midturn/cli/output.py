"""Printing: tables and colours for people, JSON for scripts. Control characters never reach the terminal."""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from midturn.record.odd import stored
from midturn.record.readable import visible

if TYPE_CHECKING:
    from datetime import datetime

WIDE = 10_000
"""Columns of an output that is not a terminal: no line is wrapped or cut."""
STYLES = {"done": "green", "idle": "green", "running": "yellow", "waiting": "magenta"}
"""The colour of each status. All others are red."""


@cache
def console(*, err: bool = False) -> Console:
    """Return the console for people. It is always the same one, so that lines do not break a progress bar."""
    made = Console(stderr=err, highlight=False, emoji=False, markup=False)
    if not made.is_terminal:
        made.width = WIDE
    return made


def clean(text: str) -> str:
    """Return the text with every invisible character as an escape."""
    return visible(text.replace("\r\n", "\n"))


def line(text: str, limit: int = 200) -> str:
    """Return the text as one line, shortened to ``limit`` characters."""
    short = clean(" ".join(text.split()))
    return short if len(short) <= limit else short[: limit - 1] + "…"


def say(text: str | Text, *, style: str = "", err: bool = False) -> None:
    """Print a line on stdout, or on stderr."""
    console(err=err).print(text if isinstance(text, Text) else Text(clean(text), style=style), soft_wrap=True)


def note(text: str) -> None:
    """Print a remark on stderr."""
    console(err=True).print(Text(clean(text), style="dim"), soft_wrap=True)


def complain(message: str, *hints: str, title: str = "error: ") -> None:
    """Print an error on stderr, then its hints."""
    text = Text.assemble((title, "bold red"), (clean(" ".join(message.splitlines())), "red" if title else "yellow"))
    err = console(err=True)
    err.print(text, soft_wrap=True)
    for hint in hints:
        err.print(Text(clean(hint)), soft_wrap=True)


def status_text(status: str) -> Text:
    """Return a status in its colour."""
    return Text(status, style=STYLES.get(status, "red"))


def table_of(**columns: str) -> Table:
    """Return a table whose flexible columns shrink when the terminal is narrow; a whole column is never cut."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for name, kind in columns.items():
        table.add_column(
            name,
            justify="right" if kind == "right" else "left",
            no_wrap=kind not in ("flexible", "whole"),
            overflow="fold" if kind == "whole" else "ellipsis",
        )
    return table


def cell(*lines: Text) -> Text:
    """Join lines for a flexible column. Long lines are cut, not wrapped."""
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def print_table(table: Table) -> None:
    """Print a table on stdout."""
    console().print(table)


def dump_json(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON in ASCII, which is safe in every terminal and locale."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False, default=lambda odd: stored(odd, "$"))
    except (TypeError, ValueError):  # NaN, or a key that is no text
        return json.dumps(stored(value, "$"), indent=indent)


def print_json(value: object, *, err: bool = False) -> None:
    """Print a JSON value: on one line, or indented at a terminal."""
    stream: Any = sys.stderr if err else sys.stdout
    click.echo(dump_json(value, indent=2 if stream.isatty() else None), err=err)


def moment(at: datetime) -> str:
    """Return a time for people, in their time zone."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M")


def ago(at: datetime, now: datetime) -> str:
    """Return how long ago a time was; after a week, return its date."""
    seconds = max(0, int((now - at).total_seconds()))
    for unit, size, limit in (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 86400), ("d", 86400, 7 * 86400)):
        if seconds < limit:
            return f"{seconds // size} {unit} ago"
    return moment(at)
