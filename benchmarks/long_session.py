"""One long conversation: bytes at rest against the raw text, and whether a commit costs the same at the end."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from autogen_agentchat.agents import AssistantAgent

import leftoff
from benchmarks.restoring import restore_times
from benchmarks.scripted import instant
from benchmarks.texts import text
from leftoff.autogen import AutoGen
from leftoff.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from leftoff.records import Head, Write
    from leftoff.store import Store

SIZE = 1024
WINDOW = 100
SEED = 7


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run measured; times are medians."""

    store: str
    turns: int
    bytes_ratio: float
    first_ms: float
    """A commit among the first turns."""
    last_ms: float
    flat_ratio: float
    write_ms: float
    """Of a late commit, what the store takes."""
    floor_ms: float
    floor_ratio: float
    """Of the store's write."""
    restore_ms: float
    rows_ratio: float
    """Of a restore, against reading and parsing the rows."""
    own_ratio: float
    """The same without AutoGen's own loading."""
    peak_mb: float
    """The most memory that the process has had by the end of the turns."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Timed(AutoGen):
    """AutoGen, with the time from the end of a run to its result: capture, packing and the durable write."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = 0.0
        self.commits: list[float] = []

    async def stream(self, live: Any, task: Any, calls: Any, effects: Any) -> AsyncGenerator[Any, None]:
        async for item in super().stream(live, task, calls, effects):
            yield item
        self.ended = time.perf_counter()

    def result(self, live: Any, **facts: Any) -> Any:
        self.commits.append(time.perf_counter() - self.ended)
        return super().result(live, **facts)


class Watched:
    """A store that remembers the last write and how long it took."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.took = 0.0
        self.data = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, write: Write) -> Head:
        began = time.perf_counter()
        head = await self._store.write(write)
        self.took = time.perf_counter() - began
        self.data = b"".join(row.data for row in write.rows)
        return head


async def long_session(kind: str, turns: int, advance: Callable[[], None]) -> Figures:
    chance = random.Random(SEED)
    with tempfile.TemporaryDirectory(prefix="leftoff-bench-") as folder:
        where = Path(folder) / "store"
        url = f"sqlite:///{where}" if kind == "sqlite" else f"file://{where}"
        answers = [text(SIZE, chance) for _ in range(turns)]
        questions = [text(SIZE, chance) for _ in range(turns)]
        served = iter(answers)

        def build() -> AssistantAgent:
            return AssistantAgent("support_agent", model_client=instant(served))

        timed, writes = Timed(), list[float]()
        async with leftoff.open(url) as store:
            watched = Watched(store.store)
            case = Session(cast("Store", watched), "case-42", build, timed)
            for question in questions:
                await case.run(question)
                writes.append(watched.took)
                advance()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        async with leftoff.open(url) as store:
            times = await restore_times(store, "case-42", build, turns)
        first, last = _median(timed.commits[:WINDOW]), _median(timed.commits[-WINDOW:])
        write, floor = _median(writes[-WINDOW:]), FLOORS[kind](Path(folder) / "floor", questions[:WINDOW])
    return Figures(
        store=kind,
        turns=turns,
        bytes_ratio=size / (2 * SIZE * turns),
        first_ms=first * 1e3,
        last_ms=last * 1e3,
        flat_ratio=last / first,
        write_ms=write * 1e3,
        floor_ms=floor * 1e3,
        floor_ratio=write / floor,
        restore_ms=times.restore,
        rows_ratio=times.restore / times.rows,
        own_ratio=times.own / times.rows,
        peak_mb=peak,
    )


def _sqlite_floor(path: Path, texts: Sequence[str]) -> float:
    """The median time of a bare transaction that appends two rows of the same size, equally durable."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, body BLOB)")
    times: list[float] = []
    for item in texts:
        began = time.perf_counter()
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO messages(body) VALUES (?)", [(item.encode(),), (item.encode(),)])
        db.execute("COMMIT")
        times.append(time.perf_counter() - began)
    db.close()
    return _median(times)


def _file_floor(path: Path, texts: Sequence[str]) -> float:
    times: list[float] = []
    with path.open("ab", buffering=0) as file:
        for item in texts:
            began = time.perf_counter()
            file.write(2 * f"{item}\n".encode())
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return _median(times)


FLOORS: dict[str, Callable[[Path, Sequence[str]], float]] = {"sqlite": _sqlite_floor, "file": _file_floor}


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)
