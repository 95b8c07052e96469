"""One long conversation: bytes at rest against the raw text, and whether a commit costs the same at the end."""

from __future__ import annotations

import random
import sqlite3
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogen_agentchat.agents import AssistantAgent

import leftoff
from benchmarks.scripted import instant
from benchmarks.texts import text
from leftoff.autogen import AutoGen
from leftoff.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

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
    last_ms: float
    flat_ratio: float
    floor_ratio: float | None
    restore_ms: float

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

        timed = Timed()
        async with leftoff.open(url) as store:
            case = Session(store.store, "case-42", build, timed)
            for question in questions:
                await case.run(question)
                advance()
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        async with leftoff.open(url) as store:
            began = time.perf_counter()
            await store.load("case-42", build())
            restore = time.perf_counter() - began
        first, last = _median(timed.commits[:WINDOW]), _median(timed.commits[-WINDOW:])
        floor = _floor(Path(folder) / "floor.db", questions[:WINDOW]) if kind == "sqlite" else None
    return Figures(
        store=kind,
        turns=turns,
        bytes_ratio=size / (2 * SIZE * turns),
        first_ms=first * 1e3,
        last_ms=last * 1e3,
        flat_ratio=last / first,
        floor_ratio=first / floor if floor else None,
        restore_ms=restore * 1e3,
    )


def _floor(path: Path, texts: Sequence[str]) -> float:
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


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)
