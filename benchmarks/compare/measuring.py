"""The curve of one contender: turns in new processes up to each point, then the bytes at rest and a restore."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.compare.results import Point, Series
from benchmarks.compare.talking import ContenderFailed, Overtime, Unable, command, talk
from benchmarks.workload import turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.compare.storage import Storage
    from benchmarks.workload import Shape


RESTORED = ("restore_ms", "restore_kb", "messages")
"""The figures of a restore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the way to a point. A contender that would exceed them is stopped before it."""

    seconds: float = 120.0
    size: float = 1e9
    patience: float = 1.5
    """A process that takes this many times the allowed seconds is ended."""


class Run:
    """A contender with one shape of turns and a storage of its own, measured from point to point."""

    def __init__(self, contender: str, shape: Shape, storage: Storage, limits: Limits) -> None:
        self.series = Series(contender=contender, shape=shape)
        self._shape: Shape = shape
        self._storage = storage
        self._limits = limits
        self._raw = self._expected = 0

    def reach(self, target: int, heard: Callable[[int], None]) -> None:
        """Run the turns up to the next point, unless the run is stopped or has to be."""
        series = self.series
        series.stopped = series.stopped or forecast(series.points, target, self._limits)
        if series.stopped:
            return
        try:
            series.points.append(self._reach(target, heard))
        except ContenderFailed as error:
            if not series.points and not isinstance(error, Overtime | Unable):
                raise  # a contender that cannot even start is no result: something is missing or wrong
            done = series.points[-1].turns if series.points else 0
            series.stopped = f"stopped at {done:,}: {str(error).splitlines()[-1]}"

    def close(self) -> None:
        self._storage.close()

    def _reach(self, target: int, heard: Callable[[int], None]) -> Point:
        first = self.series.points[-1].turns if self.series.points else 0
        self._storage.begin()
        ran = self._talk("run", heard, "--first", first, "--last", target)
        written = self._storage.written(ran["written"])
        for turn in turns(self._shape, first, target):
            self._raw += turn.raw_bytes
            self._expected += turn.messages
        at_rest, in_memory = self._storage.at_rest(), self._storage.in_memory()
        restored = self._restored()
        durable, plain = ran["durable_ms"], ran["plain_ms"]
        costs = [kept - bare for kept, bare in zip(durable, plain, strict=True)]
        return Point(
            turns=target,
            raw=self._raw,
            durable_p50=statistics.median(durable),
            durable_p95=p95(durable),
            plain_p50=statistics.median(plain),
            cost_p50=statistics.median(costs),
            cost_p95=p95(costs),
            written=written,
            at_rest=at_rest,
            in_memory=in_memory,
            **restored,
            peak_kb=ran["peak_kb"],
            expected=self._expected,
        )

    def _restored(self) -> dict[str, Any]:
        try:
            told = self._talk("restore", lambda _: None)
        except Unable:
            return dict.fromkeys(RESTORED)
        return {name: told[name] for name in RESTORED}

    def _talk(self, work: str, heard: Callable[[int], None], *words: str | int) -> dict[str, Any]:
        line = command(self.series.contender, work, self._storage.address, self._shape, *words)
        return talk(line, self._limits.seconds * self._limits.patience, heard)


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def forecast(points: Sequence[Point], target: int, limits: Limits) -> str | None:
    """Return why the target is not tried, if the way there would exceed a limit.

    The time and size of a turn are expected to keep growing as between the last two points. With only one point, they
    are expected not to grow.
    """
    if not points:
        return None
    last, before = points[-1], points[-min(2, len(points))]
    longer = target / last.turns
    slower = _power(before, last, _milliseconds)
    seconds = _milliseconds(last) / 1e3 * last.turns * (longer ** (slower + 1) - 1) / (slower + 1)
    size = last.at_rest * longer ** (_power(before, last, lambda point: point.at_rest / point.turns) + 1)
    would = [f"take about {seconds:,.0f} s"] if seconds > limits.seconds else []
    would += [f"need about {size / 1e9:,.1f} GB"] if size > limits.size else []
    return f"stopped at {last.turns:,}: {target:,} would {' and '.join(would)}" if would else None


def _milliseconds(point: Point) -> float:
    return point.durable_p50 + point.plain_p50


def _power(before: Point, last: Point, each: Callable[[Point], float]) -> float:
    """Return how a figure of each turn grows with the number of turns: 0 if it is flat, 1 if it doubles with it."""
    if before.turns == last.turns or each(before) <= 0 or each(last) <= 0:
        return 0.0
    return min(1.0, max(0.0, math.log(each(last) / each(before)) / math.log(last.turns / before.turns)))
