"""Compare keeping a turn with three bare transactions that are awaited: what its three writes need at the least.

Keeping is what a turn takes longer than with AutoGen alone. Turns, and the transactions for the same texts, take turns,
so other load on the machine hits all of them.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from autogen_agentchat.agents import AssistantAgent
from tools.servers.shared import store_url

import midturn
from benchmarks.long_session import SEED, SIZE
from benchmarks.scripted import instant
from benchmarks.texts import text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

WARM = 50
"""Turns that are not timed."""
WRITES = 3
"""Writes of a turn with one call of a model: the input, the call, the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepingFigures:
    """Medians of keeping a turn and of three bare transactions."""

    store: str
    turns: int
    keeping_ms: float
    bare_ms: float

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return asdict(self) | {"ratio": self.keeping_ms / self.bare_ms}


async def keeping(kind: str, turns: int, advance: Callable[[], None]) -> KeepingFigures:
    """Return the figures for one store."""
    chance = random.Random(SEED)

    def build() -> AssistantAgent:
        return AssistantAgent("support_agent", model_client=instant(answers()))

    def answers() -> Iterator[str]:
        while True:
            yield text(SIZE, chance)

    folder = Path(tempfile.mkdtemp(prefix="midturn-bench-"))
    kept: list[float] = []
    bare: list[float] = []
    try:
        url, plain = store_url(kind, folder / "store"), build()
        async with midturn.open(url) as store, FLOORS[kind](url, folder) as append:
            case = store.session("case-42", build)
            for _ in range(WARM + turns):
                task = text(SIZE, chance)
                bodies = [task.encode(), text(SIZE, chance).encode()]
                with_it = await _seconds(case.run(task))
                kept.append(with_it - await _seconds(plain.run(task=task)))
                bare.append(await _seconds(_three(append, bodies)))
                advance()
    finally:
        shutil.rmtree(folder)
    return KeepingFigures(
        store=kind,
        turns=turns,
        keeping_ms=1e3 * statistics.median(kept[WARM:]),
        bare_ms=1e3 * statistics.median(bare[WARM:]),
    )


async def _three(append: Callable[[list[bytes]], Awaitable[None]], bodies: list[bytes]) -> None:
    for _ in range(WRITES):
        await append(bodies)


async def _seconds(work: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


@asynccontextmanager
async def _sqlite(_: str, folder: Path) -> AsyncGenerator[Callable[[list[bytes]], Awaitable[None]]]:
    """Yield what appends two rows as durably as midturn, in a thread, so that the event loop is not blocked."""
    loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1)

    def connect() -> sqlite3.Connection:
        db = sqlite3.connect(folder / "bare.db", isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, body BLOB)")
        return db

    db = await loop.run_in_executor(thread, connect)

    def append(bodies: list[bytes]) -> None:
        db.execute("BEGIN IMMEDIATE")
        for body in bodies:
            db.execute("INSERT INTO messages(body) VALUES (?)", (body,))
        db.execute("COMMIT")

    async def awaited(bodies: list[bytes]) -> None:
        await loop.run_in_executor(thread, append, bodies)

    try:
        yield awaited
    finally:
        await loop.run_in_executor(thread, db.close)
        thread.shutdown()


@asynccontextmanager
async def _postgres(url: str, _: Path) -> AsyncGenerator[Callable[[list[bytes]], Awaitable[None]]]:
    """Yield what appends two rows in a transaction of their own."""
    async with await psycopg.AsyncConnection.connect(url.partition("?")[0], autocommit=True) as connection:
        await connection.execute("CREATE TABLE bare(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea)")

        async def append(bodies: list[bytes]) -> None:
            async with connection.transaction():
                for body in bodies:
                    await connection.execute("INSERT INTO bare(body) VALUES (%b)", (body,))

        yield append


FLOORS: dict[str, Any] = {"sqlite": _sqlite, "postgres": _postgres}
