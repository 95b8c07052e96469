"""``python -m benchmarks.compare.plots``: draw the results, with matplotlib of the peers' environment."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from benchmarks.compare.results import Results
from benchmarks.compare.throughput import TURNS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.compare.results import Point, Rate, Series

RESULTS = Path(__file__).parents[1] / "results"
STORES = {"sqlite": "SQLite", "postgres": "Postgres", "redis": "Redis"}
INK, GREY, RULE = "#1f2328", "#6e7781", "#e3e6ea"
HALO = [withStroke(linewidth=2.5, foreground="white")]
"""The outline of names, where they cover lines."""
OURS = 3.4
"""The width of our own line."""
APART = 1.25
"""The distance between labels, in letter heights."""
GAP = 1.2
"""The distance between groups of bars, in bars."""

mpl.rcParams.update(
    {
        "font.family": "DejaVu Sans",  # it comes with matplotlib: the same picture everywhere
        "font.size": 11,
        "text.color": INK,
        "axes.labelcolor": GREY,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "svg.hashsalt": "midturn",  # the same figures make the same file
    }
)


@dataclass(frozen=True, slots=True)
class Look:
    """The name and style of a contender."""

    name: str
    colour: str
    width: float = 1.6
    dashes: str = "-"


LOOKS = {
    "midturn": Look("midturn", "#0b57d0", OURS),
    "midturn-turn": Look("midturn, turn", "#6ba1f5", 2.2),
    "floor": Look("bare transaction", INK, 1.3, "--"),
    "json": Look("JSON file", "#8a8f98"),
    "langgraph-sync": Look("LangGraph", "#c2410c"),
    "langgraph-exit": Look("LangGraph exit", "#ea8a3a"),
    "langgraph-delta": Look("LangGraph delta", "#b5179e"),
    "openai": Look("OpenAI Agents", "#0f8a5f"),
    "adk": Look("Google ADK", "#7c5cc4"),
    "dbos": Look("DBOS", "#947a1f"),
}
OVERVIEW = ("floor", "midturn", "json", "langgraph-sync", "langgraph-exit", "langgraph-delta", "openai", "adk", "dbos")


def short(contender: str) -> str:
    """Return the name of a contender without its store."""
    return "-".join(part for part in contender.split("-") if part not in (*STORES, "file"))


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure to draw over the number of turns."""

    file: str
    title: str
    floor: str
    of: Callable[[Point], float | None]
    unit: Callable[[float], str]


def milliseconds(value: float) -> str:
    return f"{value / 1e3:g} s" if value >= 1e3 else f"{value:g} ms"


def times(value: float) -> str:
    return f"{value:,g}x"


COST = Measure("cost", "What keeping a turn costs", "bare transaction", lambda point: point.cost_p50, milliseconds)
AT_REST = Measure(
    "at-rest", "Bytes on the disk / bytes said", "bare rows", lambda point: point.at_rest / point.raw, times
)
RESTORE = Measure("restore", "What a restore takes", "reading bare rows", lambda point: point.restore_ms, milliseconds)


def curves(results: Results, measure: Measure, shape: str) -> Figure:
    """Draw SQLite and Postgres side by side."""
    figure = Figure(figsize=(11, 5.2))
    both = figure.subplots(1, 2, sharey=True)
    shown = [one for one in results.series if one.shape == shape and one.points and one.store in ("sqlite", "postgres")]
    for axes, store in zip(both, ("sqlite", "postgres"), strict=True):
        _panel(axes, STORES[store], [one for one in shown if one.store == store], measure)
    team = " (a team of four)" if shape == "team" else ""
    _frame(figure, f"{measure.title}{team}, by the length of the conversation", shown)
    return figure


def overview(results: Results) -> Figure:
    """Draw the cost and the bytes at rest of a turn for the README, with SQLite and the tutorial's file."""
    figure = Figure(figsize=(9.6, 4.9))
    both = figure.subplots(1, 2)
    shown = [
        one
        for one in results.series
        if one.shape == "chat" and one.points and short(one.contender) in OVERVIEW
        if one.store == "sqlite" or one.contender == "json"
    ]
    for axes, measure in zip(both, (COST, AT_REST), strict=True):
        _panel(axes, measure.title, shown, measure)
    _frame(figure, "One conversation, kept after every turn (in SQLite, or in one JSON file)", shown)
    return figure


def _panel(axes: Any, title: str, shown: Sequence[Series], measure: Measure) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(title, loc="left", fontsize=12.5, fontweight="bold", pad=10)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.tick_params(length=0)
    lengths = sorted({point.turns for one in shown for point in one.points})
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(10))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: measure.unit(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("turns")
    axes.margins(y=0.08)
    for one in shown:
        _draw(axes, one, measure)


def _draw(axes: Any, one: Series, measure: Measure) -> None:
    """Draw the line of a contender that has such a figure. A cross marks the end of a stopped one."""
    found = [(point.turns, max(value, 1e-2)) for point in one.points if (value := measure.of(point)) is not None]
    if not found:
        return
    look = LOOKS[short(one.contender)]
    name = measure.floor if short(one.contender) == "floor" else look.name
    line = {"color": look.colour, "linewidth": look.width, "linestyle": look.dashes, "zorder": 2 + look.width}
    axes.plot(*zip(*found, strict=True), **line, label=name, solid_capstyle="round")
    if one.stopped:
        mark = {"color": look.colour, "markersize": 9, "markeredgewidth": 2.4, "zorder": 9}
        axes.plot(*found[-1], marker="x", **mark)


def _frame(figure: Figure, title: str, shown: Sequence[Series]) -> None:
    """Draw the title, the note, and the names at the ends of the lines."""
    figure.text(0.012, 0.972, title, fontsize=14.5, fontweight="bold", va="top")
    note = "Log scales. Medians of the last turns, in one run on one machine. Equally durable"
    note += ", but the JSON file is not flushed." if any(one.contender == "json" for one in shown) else "."
    if any(one.stopped for one in shown):
        note += "\nA cross: stopped, because the next point would take more time or space than the method allows."
    figure.text(0.012, 0.018, note, fontsize=8.5, color=GREY, va="bottom", linespacing=1.4)
    width = figure.get_figwidth()
    left, right, gap = 0.75 / width, 1.5 / width, 2.3 / width
    panel = (1 - left - right - gap) / 2
    figure.subplots_adjust(left=left, right=1 - right, top=0.80, bottom=0.205, wspace=gap / panel)
    figure.draw_without_rendering()
    for axes in figure.axes:
        axes.autoscale(enable=False)  # names and threads must not move the axes that place them
    for axes in figure.axes:
        _label(figure, axes)


def _label(figure: Figure, axes: Any) -> None:
    """Write the names at the right in the order of the line ends, with a thread to lines that end earlier."""
    size = 10.5
    lines = [line for line in axes.get_lines() if not line.get_label().startswith("_")]  # a cross has no name
    ends = sorted([(*axes.transData.transform(line.get_xydata()[-1]), line) for line in lines], key=lambda end: end[1])
    right = max((x for x, _, _ in ends), default=0.0)
    step = APART * size * figure.dpi / 72
    places = _apart([y for _, y, _ in ends], step)
    for number, (x, y, line) in enumerate(ends):
        place = max(places[number], axes.bbox.y0 + step * (number + 0.6))  # not below the axis
        beside = axes.transData.inverted().transform([(x, y), (right + step / 2, place)])
        if x < right:
            axes.plot(*beside.T, color=line.get_color(), linewidth=0.8, linestyle=":", zorder=1, clip_on=False)
        name = axes.annotate(line.get_label(), beside[1], (3, 0), textcoords="offset points", annotation_clip=False)
        name.set(color=line.get_color(), fontsize=size, va="center", zorder=20, path_effects=HALO)
        if line.get_linewidth() == OURS:
            name.set_fontweight("bold")


def _apart(wanted: Sequence[float], step: float) -> list[float]:
    """Return the nearest places to the wanted ones, in the same order, at least a step apart."""
    groups: list[list[float]] = []
    for place in wanted:
        groups.append([place])
        while len(groups) > 1 and _top(groups[-2], step) + step > _top(groups[-1], step) - step * (len(groups[-1]) - 1):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [_top(group, step) - step * (len(group) - 1 - number) for group in groups for number, _ in enumerate(group)]


def _top(group: Sequence[float], step: float) -> float:
    """Return the top of a group whose middle is the middle of the wanted places."""
    return sum(group) / len(group) + step * (len(group) - 1) / 2


def throughput(rates: Sequence[Rate]) -> Figure:
    """Draw bars of the turns per second with many sessions at the same time."""
    stores = [store for store in ("postgres", "redis") if any(store in rate.contender.split("-") for rate in rates)]
    shown = [[rate for rate in rates if store in rate.contender.split("-")] for store in stores]
    most = max(len(found) for found in shown) + GAP * len({rate.sessions for rate in rates})
    figure = Figure(figsize=(11, 1.4 + 0.19 * most))
    for axes, store, found in zip(figure.subplots(1, len(stores), squeeze=False)[0], stores, shown, strict=True):
        _bars(axes, STORES[store], found)
        axes.set_ylim(most, -GAP)  # bars are as thick in each
    inch = 1 / figure.get_figheight()
    title = "Turns in a second, with many sessions in one process"
    figure.text(0.012, 1 - 0.12 * inch, title, fontsize=14.5, fontweight="bold", va="top")
    note = f"A model that answers at once; {TURNS} turns in all. Frameworks count with their own work."
    figure.text(0.012, 0.1 * inch, note, fontsize=8.5, color=GREY, va="bottom")
    figure.subplots_adjust(left=0.1, right=0.99, top=1 - 0.9 * inch, bottom=0.4 * inch, wspace=0.3)
    return figure


def _bars(axes: Any, title: str, rates: Sequence[Rate]) -> None:
    axes.set_title(title, loc="left", fontsize=12.5, fontweight="bold", pad=4)
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks([])
    contenders = list(dict.fromkeys(rate.contender for rate in rates))
    sessions = sorted({rate.sessions for rate in rates})
    apart = len(contenders) + GAP
    for rate in rates:
        look = LOOKS[short(rate.contender)]
        place = sessions.index(rate.sessions) * apart + contenders.index(rate.contender)
        axes.barh(place, rate.per_second, 0.8, color=look.colour)
        text, point = f"{rate.per_second:,.0f}  {look.name}", (rate.per_second, place)
        name = axes.annotate(text, point, (5, 0), textcoords="offset points", annotation_clip=False)
        name.set(va="center", fontsize=9.5, color=look.colour)
        if look.width == OURS:
            name.set_fontweight("bold")
    middles = [number * apart + (len(contenders) - 1) / 2 for number in range(len(sessions))]
    axes.set_yticks(middles, [f"{number} session{'s' * (number > 1)}" for number in sessions])
    axes.set_xlim(0, max(rate.per_second for rate in rates) * 1.65)


def save(figure: Figure, folder: Path, name: str) -> None:
    figure.savefig(folder / f"{name}.png", dpi=160, facecolor="white", metadata={"Software": None})
    figure.savefig(folder / f"{name}.svg", facecolor="white", metadata={"Date": None, "Creator": None})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare.plots", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder with compare.json, and for the pictures")
    folder = parser.parse_args().out
    results = Results.read(folder / "compare.json")
    for shape in ("chat", "team"):
        if any(one.shape == shape and one.store in ("sqlite", "postgres") for one in results.series):
            for measure in (COST, AT_REST, RESTORE):
                save(curves(results, measure, shape), folder, f"{measure.file}{'-team' * (shape == 'team')}")
    if results.of("midturn-sqlite", "chat"):
        save(overview(results), folder, "overview")
    if results.rates:
        save(throughput(results.rates), folder, "throughput")


if __name__ == "__main__":
    main()
