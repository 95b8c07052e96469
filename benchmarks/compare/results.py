"""The results of a comparison, as records and as JSON. It needs only the standard library, as the plots do not."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

FAMILIES = ("sqlite", "postgres", "redis", "file")


def family(contender: str) -> str:
    """Return the kind of a contender's store. A JSON file is a kind, too."""
    return next((name for name in FAMILIES if name in contender.split("-")), "file")


def floor_of(contender: str) -> str:
    return f"floor-{family(contender)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A conversation with this number of turns. Times are those of its last turns."""

    turns: int
    raw: int
    """Bytes of all texts, each counted once."""
    durable_p50: float
    """Milliseconds of a whole durable turn."""
    durable_p95: float
    plain_p50: float
    """The same turn by the framework alone, in memory."""
    cost_p50: float
    """Milliseconds that durability costs: the difference, turn by turn."""
    cost_p95: float
    written: int
    """Bytes since the point before."""
    at_rest: int
    in_memory: int | None
    """Bytes of memory that a Redis server uses."""
    restore_ms: float | None
    """None for a contender that has no conversation to read, like the other figures of a restore."""
    restore_kb: int | None
    """Kilobytes of memory that a restore takes."""
    peak_kb: int
    """Peak memory of the process that ran the turns."""
    messages: int | None
    """Messages that the restore found."""
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts per turn, after a hundred turns. None if something could not be counted."""

    statements: float | None
    fsyncs: float | None


@dataclass(slots=True, kw_only=True)
class Series:
    """One contender with one shape of turns."""

    contender: str
    shape: str
    points: list[Point] = field(default_factory=list[Point])
    counts: Counts | None = None
    stopped: str | None = None
    """The reason why there are no more points."""

    @property
    def store(self) -> str:
        return family(self.contender)

    def at(self, turns: int) -> Point | None:
        return next((point for point in self.points if point.turns == turns), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Turns per second with this number of sessions at the same time."""

    contender: str
    sessions: int
    per_second: float


@dataclass(slots=True, kw_only=True)
class Results:
    """A whole run."""

    about: dict[str, Any]
    """Machine, versions, seed, commit, date."""
    series: list[Series] = field(default_factory=list[Series])
    rates: list[Rate] = field(default_factory=list[Rate])
    notices: list[str] = field(default_factory=list[str])
    """Parts that are missing, and why."""

    def of(self, contender: str, shape: str) -> Series | None:
        return next((one for one in self.series if (one.contender, one.shape) == (contender, shape)), None)

    def floor(self, series: Series, turns: int) -> Point | None:
        """Return the floor of the same store at the same length, if it was measured."""
        floor = self.of(floor_of(series.contender), series.shape)
        return floor.at(turns) if floor else None

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Results:
        found = json.loads(path.read_text())
        series = [
            Series(
                contender=one["contender"],
                shape=one["shape"],
                points=[Point(**point) for point in one["points"]],
                counts=one["counts"] and Counts(**one["counts"]),
                stopped=one["stopped"],
            )
            for one in found["series"]
        ]
        rates = [Rate(**rate) for rate in found["rates"]]
        return cls(about=found["about"], series=series, rates=rates, notices=found["notices"])
