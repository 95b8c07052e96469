"""``python -m benchmarks``: run them all, print a table, keep the figures as JSON if asked."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.long_session import SEED, SIZE, WINDOW, Figures, long_session
from benchmarks.servers import SESSIONS, ServerFigures, servers
from benchmarks.team_state import EARLY, NAMES, TEAMS, TeamFigures, team_state

STORES = ("sqlite", "file")
BUDGET = 1.5
"""Bytes at rest for each byte of text."""


def long_table(figures: list[Figures]) -> Table:
    shown = _table(
        f"One conversation, {SIZE} + {SIZE} characters a turn",
        ("store",),
        ("turns", "bytes / raw text", f"first {WINDOW}", f"last {WINDOW}", "last / first", "/ floor"),
    )
    for row in figures:
        shown.add_row(
            row.store,
            f"{row.turns:,}",
            f"{row.bytes_ratio:.2f}x",
            f"{row.first_ms:.2f} ms",
            f"{row.last_ms:.2f} ms",
            f"{row.flat_ratio:.2f}x",
            f"{row.floor_ratio:.2f}x" if row.floor_ratio else "",
        )
    return shown


def size_table(figures: list[TeamFigures]) -> Table:
    shown = _table(
        f"A team of {len(NAMES)}, texts of {SIZE} characters: at rest (budget {BUDGET}x)",
        ("team", "store"),
        ("messages", "raw text", "at rest", "ratio"),
    )
    for row in figures:
        shown.add_row(
            row.team,
            row.store,
            f"{row.messages:,}",
            f"{row.raw_bytes / 1024:,.0f} KB",
            f"{row.stored_bytes / 1024:,.0f} KB",
            f"[{'red' if row.bytes_ratio > BUDGET else 'green'}]{row.bytes_ratio:.2f}x",
        )
    return shown


def capture_table(figures: list[TeamFigures], messages: int) -> Table:
    shown = _table(
        "The same: capture and packing after a turn",
        ("team", "store"),
        (f"at {EARLY}", f"at {messages:,}", "growth", "/ save_state", "before a turn"),
    )
    for row in figures:
        shown.add_row(
            row.team,
            row.store,
            f"{row.early_ms:.2f} ms",
            f"{row.late_ms:.2f} ms",
            f"{row.growth:.2f}x",
            f"{row.saving_ratio:.2f}x",
            f"{row.ready_growth:.2f}x",
        )
    return shown


def restore_table(figures: list[TeamFigures]) -> Table:
    shown = _table(
        "The same: restore",
        ("team", "store"),
        ("messages", "restore", "/ load_state", "/ rows", "/ both"),
    )
    for row in figures:
        shown.add_row(
            row.team,
            row.store,
            f"{row.messages:,}",
            f"{row.restore_ms:.1f} ms",
            f"{row.loading_ratio:.2f}x",
            f"{row.rows_ratio:.2f}x",
            f"{row.both_ratio:.2f}x",
        )
    return shown


def commit_table(figures: list[ServerFigures]) -> Table:
    shown = _table(
        f"A server: what a turn of {SIZE} + {SIZE} characters writes (budget: commit / transaction {BUDGET}x)",
        ("store",),
        ("input", "commit", "transaction", "commit /", "one statement", "commit /", "bytes / raw text", "late / early"),
    )
    for row in figures:
        ratios = row.as_dict()
        shown.add_row(
            row.store,
            f"{row.begin_ms:.2f} ms",
            f"{row.commit_ms:.2f} ms",
            f"{row.bare_ms:.2f} ms",
            f"{ratios['commit_ratio']:.2f}x",
            f"{row.single_ms:.2f} ms",
            f"{ratios['single_ratio']:.2f}x",
            f"{ratios['bytes_ratio']:.2f}x",
            f"{ratios['bytes_growth']:.2f}x",
        )
    return shown


def rate_table(figures: list[ServerFigures]) -> Table:
    shown = _table(
        f"The same: {SESSIONS} sessions at once, writes in a second (budget: 0.6x of bare transactions)",
        ("store",),
        ("sessions", "transactions", "sessions /", "statements", "sessions /"),
    )
    for row in figures:
        ratios = row.as_dict()
        shown.add_row(
            row.store,
            f"{row.rate:,.0f}",
            f"{row.bare_rate:,.0f}",
            f"{ratios['rate_ratio']:.2f}x",
            f"{row.single_rate:,.0f}",
            f"{ratios['single_rate_ratio']:.2f}x",
        )
    return shown


def _table(title: str, texts: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    shown = Table(title=title, title_justify="left")
    for name in texts:
        shown.add_column(name, no_wrap=True)
    for name in numbers:
        shown.add_column(name, justify="right")
    return shown


async def run_long_session(console: Console, options: argparse.Namespace) -> list[Figures]:
    figures: list[Figures] = []
    with Progress(console=console, transient=True) as progress:
        for kind in STORES:
            bar = progress.add_task(f"{kind}: {options.turns:,} turns", total=options.turns)
            figures.append(await long_session(kind, options.turns, lambda bar=bar: progress.advance(bar)))
    console.print(long_table(figures))
    console.print(
        "A commit is the median time from the end of the model's work to the durable result: capture, packing, fsync.\n"
        "The floor is a bare SQLite transaction that appends two rows of the same size with the same durability.\n"
    )
    return figures


async def run_team_state(console: Console, options: argparse.Namespace) -> list[TeamFigures]:
    figures: list[TeamFigures] = []
    with Progress(console=console, transient=True) as progress:
        for team in TEAMS:
            for kind in STORES:
                bar = progress.add_task(f"{team}, {kind}: {options.messages:,} messages", total=options.messages)
                advance = partial(progress.advance, bar)
                figures.append(await team_state(team, kind, options.messages, advance))
    for table in (size_table(figures), capture_table(figures, options.messages), restore_table(figures)):
        console.print(table)
    console.print(
        "Raw text counts each task, answer and memory once. Times are medians of processor time. "
        "Growth is late / early; before a turn: that of what makes the team ready for it. "
        "save_state and load_state are AutoGen's own, of the same state in memory; "
        "rows is reading all rows of the session and parsing their JSON; both is load_state and rows together.\n"
    )
    return figures


async def run_servers(console: Console, options: argparse.Namespace) -> list[ServerFigures]:
    figures: list[ServerFigures] = []
    with Progress(console=console, transient=True) as progress:
        for kind in ("postgres", "redis"):
            bar = progress.add_task(f"{kind}: {options.turns:,} turns", total=options.turns)
            figures.append(await servers(kind, options.turns, partial(progress.advance, bar)))
    console.print(commit_table(figures))
    console.print(rate_table(figures))
    console.print(
        "What real turns write, given to the store alone: no agent, no model. Medians, on a server on this machine. "
        "A transaction is begin, two inserts of the same texts, commit (for Redis MULTI, two RPUSH, EXEC); "
        "one statement does the same in one round trip. All use the same driver and as many connections.\n"
    )
    return figures


BENCHMARKS = {"long_session": run_long_session, "team_state": run_team_state, "servers": run_servers}


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=BENCHMARKS, help="run this one alone")
    parser.add_argument("--turns", type=int, default=2000, help="long_session, servers: length of the conversation")
    parser.add_argument("--messages", type=int, default=1000, help="team_state: length of the team's thread")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    if options.messages < EARLY:
        parser.error(f"--messages must be {EARLY} or more")
    console = Console()
    found: dict[str, list[dict[str, Any]]] = {}
    for name, run in BENCHMARKS.items():
        if options.only in (None, name):
            found[name] = [row.as_dict() for row in await run(console, options)]
    if options.json:
        machine = {"python": platform.python_version(), "system": platform.platform(), "seed": SEED}
        options.json.write_text(json.dumps({"machine": machine, **found}, indent=2) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
