"""The figures of ``python -m benchmarks`` as tables. Figures over their budget are red."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from rich.table import Table

from benchmarks import journal
from benchmarks.long_session import SIZE
from benchmarks.migrating import JOBS
from benchmarks.servers import SESSIONS
from benchmarks.team_state import EARLY, NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from benchmarks.call_counts import CallFigures
    from benchmarks.compressing import CompressingFigures
    from benchmarks.finding import FindingFigures
    from benchmarks.growing import GrowthFigures
    from benchmarks.importing import ImportFigures
    from benchmarks.keeping import KeepingFigures
    from benchmarks.load import LoadFigures
    from benchmarks.long_session import Figures
    from benchmarks.migrating import MigrationFigures
    from benchmarks.pages import PageFigures
    from benchmarks.remembering import MemoryFigures
    from benchmarks.sealing import SealingFigures
    from benchmarks.servers import ServerFigures
    from benchmarks.team_state import TeamFigures

BUDGET = 1.5
"""The limit for bytes at rest per byte of text, a commit against the floor, and the last turns against the first."""
RESTORE_BUDGET = 2.0
IMPORT_BUDGET_MS = 50.0
OVERHEAD_BUDGET_MS = 5.0
MEMORY_BUDGET = 3.0
GROWTH_BUDGET = 1.3
KEEPING_BUDGET = 1.8
COMPRESSED_BUDGET = 0.8
COMPRESSING_BUDGET = 1.1
STALL_BUDGET_MS = 300.0
MESSAGE_BUDGET = 4.0
"""The limit for the memory that a large message takes, against its size."""
Column: TypeAlias = "tuple[str, Callable[[Any], str]]"
"""The name of a column, and a function that returns its text for a row."""


def call_table(figures: list[CallFigures]) -> Table:
    return _table(
        "What one call of a session does; over its budget is red",
        figures,
        _text("what"),
        ("calls", lambda row: _within(f"{row['calls']:,}", row["calls"], row["calls_budget"])),
        ("changes of module", lambda row: _within(f"{row['changes']:,}", row["changes"], row["changes_budget"])),
        _number("reads of bodies", "body_reads"),
        _number("writes"),
    )


def long_table(figures: list[Figures]) -> Table:
    return _table(
        f"One conversation, {SIZE} + {SIZE} characters a turn (budgets {BUDGET}x, restore {RESTORE_BUDGET}x, "
        f"overhead {OVERHEAD_BUDGET_MS:.0f} ms)",
        figures,
        _text("store"),
        _number("turns"),
        _ratio("at rest / text", "bytes_ratio", BUDGET),
        ("overhead", lambda row: _within(f"{row['overhead_ms']:.2f} ms", row["overhead_ms"], OVERHEAD_BUDGET_MS)),
        _ms("commit", "last_ms"),
        _ratio("last / first", "flat_ratio", BUDGET),
        _ms("save_state", "saving_ms"),
        _ratio("restore / rows", "rows_ratio"),
        _ratio("our part / rows", "own_ratio", RESTORE_BUDGET),
    )


def write_table(figures: list[Figures]) -> Table:
    return _table(
        f"The same: the write of a commit in the store (budget {BUDGET}x)",
        figures,
        _text("store"),
        _ms("write", "write_ms"),
        _ms("bare transaction", "floor_ms"),
        _ratio("write / bare", "floor_ratio", BUDGET),
        _ms("the same, awaited", "awaited_ms"),
        _ratio("write / awaited", "awaited_ratio"),
    )


def size_table(figures: list[TeamFigures]) -> Table:
    return _table(
        f"A team of {len(NAMES)}, texts of {SIZE} characters: at rest (budget {BUDGET}x)",
        figures,
        _text("team"),
        _text("store"),
        _number("messages"),
        ("raw text", lambda row: f"{row['raw_bytes'] / 1024:,.0f} KB"),
        ("at rest", lambda row: f"{row['stored_bytes'] / 1024:,.0f} KB"),
        _ratio("ratio", "bytes_ratio", BUDGET),
    )


def capture_table(figures: list[TeamFigures], messages: int) -> Table:
    return _table(
        "The same: capture and packing after a turn",
        figures,
        _text("team"),
        _text("store"),
        _ms(f"at {EARLY}", "early_ms"),
        _ms(f"at {messages:,}", "late_ms"),
        _ratio("growth"),
        _ratio("/ save_state", "saving_ratio"),
        _ratio("before a turn", "ready_growth"),
    )


def restore_table(figures: list[TeamFigures]) -> Table:
    return _table(
        f"The same: restore (budget, without load_state: {RESTORE_BUDGET}x)",
        figures,
        _text("team"),
        _text("store"),
        _number("messages"),
        _ms("restore", "restore_ms", 1),
        _ratio("/ load_state", "loading_ratio"),
        _ratio("/ rows", "rows_ratio"),
        _ratio("without load_state / rows", "own_ratio", RESTORE_BUDGET),
    )


def commit_table(figures: list[ServerFigures]) -> Table:
    return _table(
        f"A server: what a turn of {SIZE} + {SIZE} characters writes (budgets {BUDGET}x)",
        figures,
        _text("store"),
        _ms("input", "begin_ms"),
        _ms("commit", "commit_ms"),
        _ms("transaction", "bare_ms"),
        _ratio("commit /", "commit_ratio", BUDGET),
        _ms("one statement", "single_ms"),
        _ratio("commit /", "single_ratio"),
        _ratio("bytes / raw text", "bytes_ratio", BUDGET),
        _ratio("late / early", "bytes_growth", BUDGET),
    )


def rate_table(figures: list[ServerFigures]) -> Table:
    return _table(
        f"The same: {SESSIONS} sessions at once, writes in a second (budget: 0.6x of bare transactions)",
        figures,
        _text("store"),
        _number("sessions", "rate"),
        _number("transactions", "bare_rate"),
        _ratio("sessions /", "rate_ratio"),
        _number("statements", "single_rate"),
        _ratio("sessions /", "single_rate_ratio"),
    )


def server_restore_table(figures: list[ServerFigures]) -> Table:
    return _table(
        f"The same: restore of one agent (budget, without load_state: {RESTORE_BUDGET}x)",
        figures,
        _text("store"),
        ("messages", lambda row: f"{2 * row['turns']:,}"),
        _ms("restore", "restore_ms", 1),
        _ratio("/ rows", "rows_ratio"),
        _ratio("without load_state / rows", "own_ratio", RESTORE_BUDGET),
    )


def append_table(figures: list[journal.AppendFigures]) -> Table:
    return _table(
        f"The journal: recording a call whose answer has {SIZE} characters (budget {journal.APPEND_BUDGET}x)",
        figures,
        _text("store"),
        _ms("recorded call", "call_ms"),
        _ms("in the store", "write_ms"),
        _ms("bare INSERT", "bare_ms"),
        _ratio("call /", "append_ratio", journal.APPEND_BUDGET),
        _ratio("store /", "write_ratio", journal.APPEND_BUDGET),
        _ms("awaited INSERT", "async_ms"),
        _ratio("call /", "append_async_ratio"),
        _ratio("store /", "write_async_ratio"),
    )


def replay_table(row: journal.ReplayFigures) -> Table:
    shown = _empty(
        f"The same: an interrupted turn of {row.calls} calls is finished (budget {journal.REPLAY_BUDGET_MS} ms)",
        ("clock", "finished from the journal", "AutoGen alone", "our own"),
        texts={"clock"},
    )
    for clock, ours, plain, own in (
        ("wall", row.replay_ms, row.plain_ms, row.own_ms),
        ("processor", row.replay_cpu_ms, row.plain_cpu_ms, row.own_cpu_ms),
    ):
        within = _within(f"{own:.0f} ms", own, journal.REPLAY_BUDGET_MS)
        shown.add_row(clock, f"{ours:.0f} ms", f"{plain:.0f} ms", within)
    return shown


def context_table(figures: list[journal.ContextFigures]) -> Table:
    return _table(
        "The same: a model is called with one message more than the last time",
        figures,
        _number("messages"),
        _us("recorded call", "journaled_us"),
        _ratio("growth"),
        _us("without journal", "plain_us"),
        _us("hashing the new one", "hashing_us"),
    )


def turn_table(figures: list[journal.TurnFigures]) -> Table:
    return _table(
        "The same: whole turns in SQLite, with a model that answers at once",
        figures,
        _number("calls"),
        _ms('durability="call"', "call_ms"),
        _ms('durability="turn"', "turn_ms"),
        _ratio("call / turn", "ratio"),
        _ms("for each call", "each_ms"),
    )


def migration_table(figures: list[MigrationFigures]) -> Table:
    return _table(
        f"Sessions to another version, {JOBS} at a time",
        figures,
        _text("store"),
        _number("sessions"),
        _number("migrated / s", "migrated_per_s"),
        _number("looked at / s", "looked_at_per_s"),
        _number("rolled back / s", "undone_per_s"),
        ("memory", lambda row: f"{row['late_mb']:,.0f} MB"),
        _ratio("growth", "memory_growth"),
    )


def finding_table(figures: list[FindingFigures]) -> Table:
    return _table(
        "Finding sessions among many",
        figures,
        _text("store"),
        _number("sessions"),
        _text("query"),
        _number("found"),
        ("heads read", lambda row: "" if row["heads"] is None else f"{row['heads']:,}"),
        _ms("median", "ms", 1),
    )


def page_table(figures: list[PageFigures]) -> Table:
    return _table(
        "Opening a page",
        figures,
        _text("store"),
        _text("page"),
        _number("heads"),
        _number("turns"),
        _number("bodies"),
        ("size", lambda row: f"{row['kilobytes']:,.0f} KB"),
        _ms("median", "ms", 1),
    )


def memory_table(figures: list[MemoryFigures]) -> Table:
    return _table(
        f"The memory of a running conversation, texts of {SIZE} characters (budget {MEMORY_BUDGET}x)",
        figures,
        _text("who"),
        _number("messages"),
        ("text", lambda row: f"{row['text_bytes'] / 2**20:.1f} MB"),
        ("process grown by", lambda row: f"{row['grown_bytes'] / 2**20:.1f} MB"),
        _ratio("grown / text", "ratio", MEMORY_BUDGET),
    )


def keeping_table(figures: list[KeepingFigures]) -> Table:
    return _table(
        f"Keeping a turn against three bare transactions (budget {KEEPING_BUDGET}x)",
        figures,
        _text("store"),
        _number("turns"),
        _ms("keeping a turn", "keeping_ms"),
        _ms("three transactions", "bare_ms"),
        _ratio("ratio", "ratio", KEEPING_BUDGET),
    )


def compressing_table(figures: list[CompressingFigures]) -> Table:
    return _table(
        f"Compressed against plain stores (budgets {COMPRESSED_BUDGET}x the text, {COMPRESSING_BUDGET}x the time)",
        figures,
        _text("store"),
        _text("texts"),
        _number("turns"),
        _ratio("plain", "plain_bytes"),
        _ratio("compressed", "bytes", COMPRESSED_BUDGET),
        _ratio("adds", "adds", COMPRESSED_BUDGET),
        _ms("a turn", "turn_ms"),
        _ratio("/ plain", "turn_ratio", COMPRESSING_BUDGET),
        _ratio("restore / plain", "restore_ratio"),
    )


def sealing_table(figures: list[SealingFigures]) -> Table:
    return _table(
        "Sealed against plain stores",
        figures,
        _text("store"),
        _number("turns"),
        _ms("a plain turn", "plain_ms"),
        _ratio("sealed / plain", "turn_ratio"),
        _ratio("restore / plain", "restore_ratio"),
        _ratio("plain", "plain_bytes"),
        _ratio("sealed", "bytes"),
    )


def growth_table(figures: list[GrowthFigures]) -> Table:
    return _table(
        f"A turn late in a conversation and around turn 100 (budget of our own growth: {GROWTH_BUDGET}x)",
        figures,
        _text("model"),
        _number("turns"),
        _ms("early", "early_ms"),
        _ms("late", "late_ms"),
        _ms("AutoGen alone: early", "plain_early_ms"),
        _ms("late", "plain_late_ms"),
        _ratio("late / early", "growth"),
        _ratio("own growth", "own_growth", GROWTH_BUDGET),
    )


def load_table(figures: list[LoadFigures], *, messages: bool) -> Table:
    def stall(row: Any) -> str:
        shown = f"{row['stall_ms']:,.0f} ms"
        return _within(shown, row["stall_ms"], STALL_BUDGET_MS) if messages else shown

    found = [row for row in figures if (row.what in ("message", "restore")) == messages]
    title = f"A large message (budgets {STALL_BUDGET_MS:.0f} ms, {MESSAGE_BUDGET}x)"
    if not messages:
        return _table(
            "Parallel calls in one turn",
            found,
            _text("store"),
            _text("what"),
            _number("calls", "size"),
            ("seconds", lambda row: f"{row['seconds']:.2f}"),
            _number("calls / s", "rate"),
            ("longest stall", stall),
            _ms("by the processor", "work_ms", 0),
        )
    return _table(
        title,
        found,
        _text("store"),
        _text("what"),
        ("message", lambda row: f"{row['size'] / 1e6:.0f} MB"),
        ("longest stall", stall),
        _ms("by the processor", "work_ms", 0),
        _ratio("peak / message", "ratio", MESSAGE_BUDGET),
    )


def import_table(figures: list[ImportFigures]) -> Table:
    def more(row: Any) -> str:
        shown = f"{row['more_ms']:.0f} ms"
        return _within(shown, row["more_ms"], IMPORT_BUDGET_MS) if row["program"] == "import midturn" else shown

    title = f"Whole processes (budget of import midturn: {IMPORT_BUDGET_MS:.0f} ms)"
    return _table(title, figures, _text("program"), _ms("median", "ms", 0), ("more", more))


def _text(name: str) -> Column:
    return name, lambda row: row[name]


def _number(name: str, field: str = "") -> Column:
    return name, lambda row: f"{row[field or name]:,.0f}"


def _ms(name: str, field: str, digits: int = 2) -> Column:
    return name, lambda row: f"{row[field]:.{digits}f} ms"


def _us(name: str, field: str) -> Column:
    return name, lambda row: f"{row[field]:.0f} us"


def _ratio(name: str, field: str = "", budget: float | None = None) -> Column:
    return name, lambda row: _within(f"{row[field or name]:.2f}x", row[field or name], budget)


def _within(shown: str, value: float, budget: float | None) -> str:
    return shown if budget is None else f"[{'red' if value > budget else 'green'}]{shown}"


def _table(title: str, figures: Iterable[Any], *columns: Column) -> Table:
    rows = [row.as_dict() for row in figures]
    texts = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    shown = _empty(title, [name for name, _ in columns], texts)
    for row in rows:
        shown.add_row(*(show(row) for _, show in columns))
    return shown


def _empty(title: str, names: Iterable[str], texts: Container[str]) -> Table:
    """Return a table without rows. Columns of texts are left-aligned and not wrapped."""
    shown = Table(title=title, title_justify="left")
    for name in names:
        shown.add_column(name, justify="left" if name in texts else "right", no_wrap=name in texts)
    return shown
