"""Tables of sessions and turns."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

STYLES = {"done": "green", "idle": "green", "running": "yellow", "waiting": "magenta"}
"""Everything else is red."""


def status_text(status: str) -> Text:
    """Return a status in its colour."""
    return Text(status, style=STYLES.get(status, "red"))


def table_of(**columns: str) -> Table:
    """Make a table whose flexible columns give way when the terminal is narrow."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for name, kind in columns.items():
        table.add_column(name, justify="right" if kind == "right" else "left", no_wrap=kind != "flexible")
    return table


def cell(*lines: Text) -> Text:
    """Join lines for a flexible column; those that are too long are cut, not wrapped."""
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)
