"""A whole run: the curves of all contenders, the statements of their turns, and many sessions at the same time."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.compare import machine, throughput
from benchmarks.compare.counting import AFTER, count
from benchmarks.compare.measuring import Limits, Run
from benchmarks.compare.results import FAMILIES, Results, family
from benchmarks.compare.storage import Storages
from benchmarks.compare.talking import ContenderFailed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from benchmarks.workload import Shape

LONG = 1_000
"""The last point of all shapes but the first."""
SHORT = Limits(seconds=30.0)
"""Limits on the way to a point, in all shapes but the first."""
MORE = frozenset(
    {
        *("floor-sqlite", "midturn-sqlite", "langgraph-sqlite-sync", "langgraph-sqlite-delta", "openai-sqlite"),
        *("adk-sqlite", "floor-postgres", "midturn-postgres", "floor-file", "midturn-file", "json"),
    }
)
"""Contenders that run all shapes. The others run only the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parts of a comparison. The first shape has all points, and the statements of its turns are counted."""

    contenders: Sequence[str]
    shapes: Sequence[Shape]
    points: Sequence[int]
    counts: bool = True
    rates: bool = True
    limits: Limits = field(default_factory=Limits)

    def points_of(self, shape: Shape) -> list[int]:
        return [point for point in self.points if shape == self.shapes[0] or point <= LONG]

    def contenders_of(self, shape: Shape) -> list[str]:
        return [name for name in self.contenders if shape == self.shapes[0] or name in MORE]

    def limits_of(self, shape: Shape) -> Limits:
        return self.limits if shape == self.shapes[0] else SHORT


def compare(plan: Plan, console: Console, file: Path) -> Results:
    """Measure everything and report progress. The file always has the results so far."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with Storages() as storages, bar:
        comparison = _Comparison(plan, storages, bar)
        for shape in plan.shapes:
            for store in FAMILIES:
                comparison.curves(shape, [name for name in plan.contenders_of(shape) if family(name) == store])
                comparison.results.write(file)
            if plan.counts and shape == plan.shapes[0]:
                comparison.counts()
            if plan.rates and shape == plan.shapes[0]:
                comparison.rates()
            comparison.results.write(file)
        return comparison.results


class _Comparison:
    def __init__(self, plan: Plan, storages: Storages, bar: Progress) -> None:
        self._plan, self._storages, self._bar = plan, storages, bar
        self.results = Results(about=machine.about(storages.versions(plan.contenders)))

    def curves(self, shape: Shape, contenders: Sequence[str]) -> None:
        """Measure all contenders of one kind of store, point by point, so that other load hits all of them."""
        with ExitStack() as stack:
            runs: list[Run] = []
            for name in contenders:
                runs.append(Run(name, shape, self._storages.new(name), self._plan.limits_of(shape)))
                stack.callback(runs[-1].close)
            for target in self._plan.points_of(shape):
                for run in runs:
                    self._reach(run, target)
            self.results.series += [run.series for run in runs]

    def counts(self) -> None:
        shape = self._plan.shapes[0]
        known = [series for series in self.results.series if series.shape == shape and series.points]
        task = self._bar.add_task("statements of a turn", total=len(known))
        for series in known:
            try:
                series.counts = count(series.contender, shape, self._storages, min(AFTER, self._plan.points[-1]))
            except ContenderFailed as error:
                self.results.notices.append(f"{series.contender}: its statements were not counted: {error}")
            self._bar.advance(task)
        self._bar.remove_task(task)

    def rates(self) -> None:
        contenders = [name for name in self._plan.contenders if family(name) in throughput.STORES]
        task = self._bar.add_task("sessions at the same time", total=len(contenders) * len(throughput.SESSIONS))
        for contender in contenders:
            try:
                for sessions in throughput.SESSIONS:
                    self.results.rates.append(throughput.rate(contender, sessions, self._storages))
                    self._bar.advance(task)
            except ContenderFailed as error:
                self.results.notices.append(f"{contender}: no figures for many sessions at the same time: {error}")
        self._bar.remove_task(task)

    def _reach(self, run: Run, target: int) -> None:
        task = self._bar.add_task(f"{run.series.shape}, {run.series.contender}", total=target)
        run.reach(target, lambda turn: self._bar.update(task, completed=turn))
        self._bar.remove_task(task)
