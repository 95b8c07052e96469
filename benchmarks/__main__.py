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

from benchmarks import journal
from benchmarks.long_session import SEED, SIZE, WINDOW, Figures, long_session
from benchmarks.migrating import JOBS, MigrationFigures, migrating
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
            _within(row.bytes_ratio, BUDGET, "{:.2f}x"),
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


def append_table(figures: list[journal.AppendFigures]) -> Table:
    shown = _table(
        f"The journal: recording a call whose answer has {SIZE} characters (budget {journal.APPEND_BUDGET}x)",
        ("store",),
        ("recorded call", "in the store", "bare INSERT", "call /", "store /", "awaited INSERT", "call /", "store /"),
    )
    for row in figures:
        ratios = row.as_dict()
        shown.add_row(
            row.store,
            f"{row.call_ms:.2f} ms",
            f"{row.write_ms:.2f} ms",
            f"{row.bare_ms:.2f} ms",
            _within(ratios["append_ratio"], journal.APPEND_BUDGET, "{:.2f}x"),
            _within(ratios["write_ratio"], journal.APPEND_BUDGET, "{:.2f}x"),
            f"{row.async_ms:.2f} ms",
            f"{ratios['append_async_ratio']:.2f}x",
            f"{ratios['write_async_ratio']:.2f}x",
        )
    return shown


def replay_table(row: journal.ReplayFigures) -> Table:
    shown = _table(
        f"The same: an interrupted turn of {row.calls} calls is finished (budget {journal.REPLAY_BUDGET_MS} ms)",
        ("clock",),
        ("finished from the journal", "AutoGen alone", "our own"),
    )
    for clock, ours, plain, own in (
        ("wall", row.replay_ms, row.plain_ms, row.own_ms),
        ("processor", row.replay_cpu_ms, row.plain_cpu_ms, row.own_cpu_ms),
    ):
        within = _within(own, journal.REPLAY_BUDGET_MS, "{:.0f} ms")
        shown.add_row(clock, f"{ours:.0f} ms", f"{plain:.0f} ms", within)
    return shown


def context_table(figures: list[journal.ContextFigures]) -> Table:
    shown = _table(
        "The same: a model is called with one message more than the last time",
        (),
        ("messages", "recorded call", "growth", "without journal", "hashing the new one"),
    )
    for row in figures:
        shown.add_row(
            f"{row.messages:,}",
            f"{row.journaled_us:.0f} us",
            f"{row.growth:.2f}x",
            f"{row.plain_us:.0f} us",
            f"{row.hashing_us:.0f} us",
        )
    return shown


def turn_table(figures: list[journal.TurnFigures]) -> Table:
    shown = _table(
        "The same: whole turns in SQLite, with a model that answers at once",
        (),
        ("calls", 'durability="call"', 'durability="turn"', "call / turn", "for each call"),
    )
    for row in figures:
        ratios = row.as_dict()
        shown.add_row(
            f"{row.calls}",
            f"{row.call_ms:.2f} ms",
            f"{row.turn_ms:.2f} ms",
            f"{ratios['ratio']:.2f}x",
            f"{ratios['each_ms']:.2f} ms",
        )
    return shown


def migration_table(figures: list[MigrationFigures]) -> Table:
    shown = _table(
        f"Sessions to another version, {JOBS} at a time",
        ("store",),
        ("sessions", "migrated / s", "looked at / s", "rolled back / s", "memory", "growth"),
    )
    for row in figures:
        shown.add_row(
            row.store,
            f"{row.sessions:,}",
            f"{row.migrated_per_s:,.0f}",
            f"{row.looked_at_per_s:,.0f}",
            f"{row.undone_per_s:,.0f}",
            f"{row.late_mb:,.0f} MB",
            f"{row.as_dict()['memory_growth']:.2f}x",
        )
    return shown


def _within(value: float, budget: float, shape: str) -> str:
    return f"[{'red' if value > budget else 'green'}]{shape.format(value)}"


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


async def run_journal(console: Console, options: argparse.Namespace) -> list[journal.AnyFigures]:
    with Progress(console=console, transient=True) as progress:

        def bar(title: str, total: int) -> partial[None]:
            return partial(progress.advance, progress.add_task(title, total=total))

        appends = [
            await journal.appends(kind, options.calls, bar(f"{kind}: {options.calls} calls", options.calls))
            for kind in ("sqlite", "postgres")
        ]
        replay = await journal.replay(bar("replay", journal.TIMES))
        contexts = await journal.contexts(bar("contexts", len(journal.CONTEXTS)))
        turns = [
            await journal.turns(steps, journal.TURNS, bar(f"turns of {2 * steps + 1} calls", journal.TURNS))
            for steps in journal.TURN_STEPS
        ]
    for table in (append_table(appends), replay_table(replay), context_table(contexts), turn_table(turns)):
        console.print(table)
    console.print(
        "Medians; what is compared is timed in turn. A recorded call is timed from the call of the journal to its "
        "durable return, with a model that takes no time. A bare INSERT has the same bytes, a transaction of its own, "
        "the same durability and driver, and a connection of its own; an awaited one does not stop the event loop, "
        "for which SQLite's driver needs a thread. A turn is finished with a new instance, from reading its journal "
        "to its commit, with one call that was not made before. Contexts are timed by the processor's clock, with a "
        "store in memory.\n"
    )
    return [*appends, replay, *contexts, *turns]


async def run_migrating(console: Console, options: argparse.Namespace) -> list[MigrationFigures]:
    figures: list[MigrationFigures] = []
    with Progress(console=console, transient=True) as progress:
        for kind in ("sqlite", "postgres"):
            bar = progress.add_task(f"{kind}: {options.sessions:,} sessions, three times", total=3 * options.sessions)
            figures.append(await migrating(kind, options.sessions, partial(progress.advance, bar)))
    console.print(migration_table(figures))
    console.print(
        "Each session has five turns, and one write brings it to version 2. Looked at: a second run, which finds "
        "nothing to do. Memory is the most that the process has had; growth: since the first 1,000 of three runs.\n"
    )
    return figures


BENCHMARKS: dict[str, Any] = {
    "long_session": run_long_session,
    "team_state": run_team_state,
    "servers": run_servers,
    "journal": run_journal,
    "migrating": run_migrating,
}


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=BENCHMARKS, help="run this one alone")
    parser.add_argument("--turns", type=int, default=2000, help="long_session, servers: length of the conversation")
    parser.add_argument("--messages", type=int, default=1000, help="team_state: length of the team's thread")
    parser.add_argument("--calls", type=int, default=500, help="journal: how many calls are recorded")
    parser.add_argument("--sessions", type=int, default=10_000, help="migrating: how many get a new version")
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
