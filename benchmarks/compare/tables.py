"""The results as tables: ratios to the floor of the same store in the same run, beside the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.compare.results import FAMILIES, floor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.compare.results import Point, Rate, Results, Series

STORES = {"sqlite": "SQLite", "postgres": "Postgres", "redis": "Redis", "file": "files"}
NOTHING = 0.02
"""Milliseconds below which a turn in memory counts as nothing, for contenders without a framework."""
SHAPES = {"chat": "One agent", "tools": "One agent with a tool", "team": "A team of four", "images": "Pictures"}


def tables(results: Results) -> Iterator[Table]:
    """Yield a table for each shape and kind of store, then the statements of a turn, then the throughput."""
    for shape, title in SHAPES.items():
        for store in FAMILIES:
            rows = [one for one in results.series if one.shape == shape and one.store == store]
            if rows:
                yield _curves(f"{title}, {STORES[store]}", rows, results)
    if counted := [one for one in results.series if one.counts]:
        yield _counted(counted)
    if results.rates:
        yield _rates(results.rates)


def _curves(title: str, rows: list[Series], results: Results) -> Table:
    table = _table(title)
    table.add_column("turns", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in ("keeping", "p50", "p95", "alone", "at rest", "", "added", "written", "restore", "", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    lengths = sorted({point.turns for one in rows for point in one.points})
    for turns in lengths:
        table.add_section()
        for one in rows:
            if point := one.at(turns):
                floor = results.floor(one, turns)
                table.add_row(f"{turns:,}", _name(one.contender, one.store), *_figures(point, one.points, floor))
    stops = [f"{one.contender}: {one.stopped}" for one in rows if one.stopped]
    table.caption = "\n".join(stops) or None
    return table


def _figures(point: Point, points: list[Point], floor: Point | None) -> list[str]:
    before = points[points.index(point) - 1] if point is not points[0] else None
    said = point.raw - (before.raw if before else 0)
    return [
        _ratio(point.cost_p50, floor.cost_p50 if floor else None),
        f"{point.cost_p50:,.2f} ms",
        f"{point.cost_p95:,.2f} ms",
        f"{point.plain_p50:,.2f} ms" if point.plain_p50 >= NOTHING else "",
        _ratio(point.at_rest, point.raw),
        _size(point.at_rest),
        _ratio(point.at_rest - (before.at_rest if before else 0), said),
        _ratio(point.written, said),
        *_restored(point, floor),
    ]


def _restored(point: Point, floor: Point | None) -> list[str]:
    if point.restore_ms is None or point.restore_kb is None or point.messages is None:
        return ["", "", ""]
    wrong = "" if point.messages == point.expected else f" [red]{point.messages:,} of {point.expected:,} messages[/]"
    ratio = _ratio(point.restore_ms, floor.restore_ms if floor else None)
    return [ratio, f"{point.restore_ms:,.1f} ms{wrong}", _size(point.restore_kb * 1024)]


def _counted(rows: list[Series]) -> Table:
    table = _table("What a turn does, after a hundred of them")
    table.add_column("", no_wrap=True)
    table.add_column("turns of", no_wrap=True)
    table.add_column("statements", justify="right")
    table.add_column("waits for the disk", justify="right")
    for one in rows:
        assert one.counts
        table.add_row(_name(one.contender), one.shape, _count(one.counts.statements), _count(one.counts.fsyncs))
    table.caption = "BEGIN and COMMIT are statements. Waits of SQLite and files need strace to be counted."
    return table


def _rates(rates: list[Rate]) -> Table:
    sessions = sorted({rate.sessions for rate in rates})
    table = _table("Many sessions at the same time: turns in a second")
    table.add_column("", no_wrap=True)
    for number in sessions:
        table.add_column(f"{number} session{'s' * (number > 1)}", justify="right")
        table.add_column("/ floor", justify="right")
    found = {(rate.contender, rate.sessions): rate.per_second for rate in rates}
    for contender in dict.fromkeys(rate.contender for rate in rates):
        cells: list[str] = []
        for number in sessions:
            value = found.get((contender, number))
            cells += (
                ["", ""]
                if value is None
                else [f"{value:,.0f}", _ratio(value, found.get((floor_of(contender), number)))]
            )
        table.add_row(_name(contender), *cells)
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", caption_justify="left", box=SIMPLE_HEAD)


def _name(contender: str, store: str = "") -> str:
    """Return the name of a contender, without its store if the table names the store."""
    name = "-".join(part for part in contender.split("-") if part != store)
    style = "bold" if contender.startswith("midturn") else "dim" if contender.startswith("floor") else ""
    return f"[{style}]{name}[/]" if style else name


def _ratio(value: float, floor: float | None) -> str:
    if not floor or floor <= 0:
        return ""
    ratio = value / floor
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


def _size(value: float) -> str:
    return f"{value / 1e6:,.1f} MB" if value >= 1e6 else f"{value / 1e3:,.0f} KB"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
