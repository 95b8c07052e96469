"""Measure one long conversation: bytes at rest, the extra cost of a turn, and whether a commit stays cheap."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import sqlite3
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from autogen_agentchat.agents import AssistantAgent

import midturn
from benchmarks.restoring import restore_times
from benchmarks.scripted import instant
from benchmarks.texts import text
from midturn.autogen.adapter import AutoGen
from midturn.sessions.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from midturn.record.head import Head, Write
    from midturn.store import Store

SIZE = 1024
WINDOW = 100
KNOWN = 500
"""Turns after which the overhead is measured: 1,000 messages."""
SEED = 7


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run. Times are medians."""

    store: str
    turns: int
    bytes_ratio: float
    overhead_ms: float
    """Extra time of a whole turn over AutoGen alone, at 1,000 messages, or at the end if that is earlier."""
    first_ms: float
    """A commit among the first turns."""
    last_ms: float
    flat_ratio: float
    write_ms: float
    """Time of the store in a late commit."""
    floor_ms: float
    floor_ratio: float
    """The store's write against the floor."""
    awaited_ms: float
    """The floor in a thread, so that it does not block the event loop."""
    awaited_ratio: float
    saving_ms: float
    """AutoGen's own save_state() at the end. A commit does not need it."""
    restore_ms: float
    rows_ratio: float
    """A restore against reading and parsing the rows."""
    own_ratio: float
    """The same without AutoGen's own loading."""
    peak_mb: float
    """Peak memory of the process at the end of the turns."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Timed(AutoGen):
    """AutoGen, with a timer from the end of a run to its result: capture, packing and the durable write."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = 0.0
        self.commits: list[float] = []

    async def stream(self, live: Any, *run: Any) -> AsyncGenerator[Any, None]:
        async for item in super().stream(live, *run):
            yield item
        self.ended = time.perf_counter()

    def result(self, live: Any, **facts: Any) -> Any:
        self.commits.append(time.perf_counter() - self.ended)
        return super().result(live, **facts)


class Watched:
    """A store that remembers the last write and its time."""

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
    with (
        tempfile.TemporaryDirectory(prefix="midturn-bench-") as folder,
        tempfile.TemporaryDirectory(prefix="midturn-bench-") as beside,
    ):
        where = Path(folder) / "store"
        url = f"sqlite:///{where}" if kind == "sqlite" else f"file://{where}"
        answers = [text(SIZE, chance) for _ in range(turns)]
        questions = [text(SIZE, chance) for _ in range(turns)]

        def build() -> AssistantAgent:
            return AssistantAgent("support_agent", model_client=instant(iter(answers)))

        timed, writes, overheads = Timed(), list[float](), list[float]()
        plain, floor = build(), FLOORS[kind](Path(beside) / "floor")
        floors: dict[str, list[float]] = {"bare": [], "awaited": []}
        async with midturn.open(url) as store:
            watched = Watched(store.store)
            case = Session(cast("Store", watched), "case-42", build, timed)
            for number, question in enumerate(questions):
                kept = await _seconds(case.run(question))
                writes.append(watched.took)
                if number < KNOWN:
                    overheads.append(kept - await _seconds(plain.run(task=question)))
                if number >= turns - WINDOW:  # in turn, so that other load on the machine hits all of them
                    bodies = [question.encode(), answers[number].encode()]
                    floors["bare"].append(await _seconds(_bare(floor, bodies)))
                    floors["awaited"].append(await _seconds(_awaited(floor, bodies)))
                advance()
        floor.close()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        async with midturn.open(url) as store:
            times = await restore_times(store, "case-42", build, turns)
        first, last = _median(timed.commits[:WINDOW]), _median(timed.commits[-WINDOW:])
        write, bare, awaited = (_median(found[-WINDOW:]) for found in (writes, *floors.values()))
    return Figures(
        store=kind,
        turns=turns,
        bytes_ratio=size / (2 * SIZE * turns),
        overhead_ms=_median(overheads[-WINDOW:]) * 1e3,
        first_ms=first * 1e3,
        last_ms=last * 1e3,
        flat_ratio=last / first,
        write_ms=write * 1e3,
        floor_ms=bare * 1e3,
        floor_ratio=write / bare,
        awaited_ms=awaited * 1e3,
        awaited_ratio=write / awaited,
        saving_ms=times.saving,
        restore_ms=times.restore,
        rows_ratio=times.restore / times.rows,
        own_ratio=times.own / times.rows,
        peak_mb=peak,
    )


class Floor(Protocol):
    """The least work to store a turn: two rows in one transaction, equally durable."""

    def append(self, bodies: Sequence[bytes]) -> None: ...

    def close(self) -> None: ...


class SqliteFloor:
    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, body BLOB)")

    def append(self, bodies: Sequence[bytes]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO messages(body) VALUES (?)", [(body,) for body in bodies])
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


class FileFloor:
    """One write and a flush."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def append(self, bodies: Sequence[bytes]) -> None:
        self._file.write(b"".join(body + b"\n" for body in bodies))
        os.fdatasync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


FLOORS: dict[str, Callable[[Path], Floor]] = {"sqlite": SqliteFloor, "file": FileFloor}


async def _bare(floor: Floor, bodies: Sequence[bytes]) -> None:
    floor.append(bodies)


async def _awaited(floor: Floor, bodies: Sequence[bytes]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, floor.append, bodies)


async def _seconds(work: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)
