"""The figures of ``python -m benchmarks`` as tables; what is over its budget is red."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks import journal
from benchmarks.long_session import SIZE
from benchmarks.migrating import JOBS
from benchmarks.servers import SESSIONS
from benchmarks.team_state import EARLY, NAMES

if TYPE_CHECKING:
    from benchmarks.importing import ImportFigures
    from benchmarks.long_session import Figures
    from benchmarks.migrating import MigrationFigures
    from benchmarks.servers import ServerFigures
    from benchmarks.team_state import TeamFigures

BUDGET = 1.5
"""Bytes at rest for each byte of text; a commit against the floor; the last turns against the first."""
RESTORE_BUDGET = 2.0
IMPORT_BUDGET_MS = 50.0


def long_table(figures: list[Figures]) -> Table:
    shown = _table(
        f"One conversation, {SIZE} + {SIZE} characters a turn (budgets {BUDGET}x, restore {RESTORE_BUDGET}x)",
        ("store",),
        (
            "turns",
            "bytes / text",
            "commit",
            "last / first",
            "in the store",
            "/ floor",
            "restore / rows",
            "our part / rows",
        ),
    )
    for row in figures:
        shown.add_row(
            row.store,
            f"{row.turns:,}",
            _within(row.bytes_ratio, BUDGET, "{:.2f}x"),
            f"{row.last_ms:.2f} ms",
            _within(row.flat_ratio, BUDGET, "{:.2f}x"),
            f"{row.write_ms:.2f} ms",
            _within(row.floor_ratio, BUDGET, "{:.2f}x"),
            f"{row.rows_ratio:.2f}x",
            _within(row.own_ratio, RESTORE_BUDGET, "{:.2f}x"),
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
        ("messages", "restore", "/ load_state", "/ rows", "without load_state / rows"),
    )
    for row in figures:
        shown.add_row(
            row.team,
            row.store,
            f"{row.messages:,}",
            f"{row.restore_ms:.1f} ms",
            f"{row.loading_ratio:.2f}x",
            f"{row.rows_ratio:.2f}x",
            _within(row.own_ratio, RESTORE_BUDGET, "{:.2f}x"),
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


def import_table(figures: list[ImportFigures]) -> Table:
    shown = _table(f"Whole processes (budget of import leftoff: {IMPORT_BUDGET_MS:.0f} ms)", ("",), ("median", "more"))
    for row in figures:
        more = f"{row.more_ms:.0f} ms"
        if row.program == "import leftoff":
            more = _within(row.more_ms, IMPORT_BUDGET_MS, "{:.0f} ms")
        shown.add_row(row.program, f"{row.ms:.0f} ms", more)
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
