"""Find sessions among very many: pages and counts, the heads that they read, and the time that they take."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import statistics
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import psycopg
from tools.servers.shared import store_url

import midturn
from midturn.record.head import Write
from midturn.stores.sqlite import store as sqlite_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator

    from midturn.record.head import Status
    from midturn.store import Store

PAGE = 50
TIMES = 7
"""Number of times that a query is timed."""
AT_ONCE = 64
DAYS = 30
"""Days over which the last changes of the sessions are spread, where SQL can write them."""
RARE = 500
"""One session of so many waits, and as many have a rare label."""

_COLUMNS = "name, seq, epoch, status, labels, expires, token, created, updated, data"
DATA = b'{"v":1,"turn":3,"checkpoint":3,"bodies":9,"blueprint":"support"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFigures:
    """The figures of one query on one store."""

    store: str
    sessions: int
    query: str
    found: int
    heads: int
    """Heads that the store has read."""
    ms: float
    """Median."""

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return asdict(self)


class Reads:
    """The number of heads that a store has read."""

    heads = 0


def status_of(number: int) -> Status:
    """Return the status of a session: nine of ten are idle, and few of the others wait."""
    if number % RARE == 1:
        return "waiting"
    return "failed" if number % 10 == 0 else "idle"


def labels_of(number: int) -> dict[str, str]:
    """Return the labels of a session: one of ten teams, and a rare one."""
    labels = {"team": f"team-{number % 10}"}
    return labels | {"vip": "yes"} if number % RARE == 0 else labels


async def finding(kind: str, sessions: int, advance: Callable[[int], None]) -> list[FindingFigures]:
    """Return the figures for one store with so many sessions."""
    folder = Path(tempfile.mkdtemp(prefix="midturn-bench-"))
    try:
        url = store_url(kind, folder / "store")
        async with midturn.open(url) as store:
            await FILL[kind](store.store, url, sessions, advance)
            middle = [info async for info in store.sessions(order="updated", limit=sessions // 2 + 1)][-1].cursor
            queries: dict[str, dict[str, Any]] = {
                "newest": {"order": "updated"},
                "oldest": {"order": "updated", "reverse": True},
                "from the middle on": {"order": "updated", "after": middle},
                "newest, idle": {"order": "updated", "status": "idle"},
                "newest, waiting (0.2 %)": {"order": "updated", "status": "waiting"},
                "newest, waiting or failed": {"order": "updated", "status": ["waiting", "failed"]},
                "newest of two days": {"order": "updated", "since": timedelta(days=2)},
                "newest, a label (10 %)": {"order": "updated", "labels": {"team": "team-3"}},
                "newest, a label (0.2 %)": {"order": "updated", "labels": {"vip": "yes"}},
                "by id": {},
                "by id, waiting (0.2 %)": {"status": "waiting"},
            }

            async def page(filters: dict[str, Any]) -> int:
                return len([info async for info in store.sessions(limit=PAGE, **filters)])

            async def counts() -> int:
                return sum((await store.counts()).values())

            figures: list[FindingFigures] = []
            works: dict[str, Callable[[], Awaitable[int]]] = {
                query: partial(page, filters) for query, filters in queries.items()
            }
            for query, work in (works | {"counts": counts}).items():
                with counting(kind, store.store) as reads:
                    found = await work()
                ms = await _timed(work)
                figures.append(
                    FindingFigures(store=kind, sessions=sessions, query=query, found=found, heads=reads.heads, ms=ms)
                )
    finally:
        shutil.rmtree(folder)
    return figures


async def _timed(work: Callable[[], Awaitable[int]]) -> float:
    """Return the median time in milliseconds."""
    times: list[float] = []
    for _ in range(TIMES):
        began = time.perf_counter()
        await work()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


@contextmanager
def counting(kind: str, store: Any) -> Generator[Reads]:
    """Count the heads that a store reads: rows of SQLite's table, of Postgres' plan, or requests to Redis."""
    reads = Reads()
    with ExitStack() as stack:
        if kind == "sqlite":
            as_head = sqlite_store._as_head  # noqa: SLF001 - only it sees each row

            def counted(row: Any) -> Any:
                reads.heads += 1
                return as_head(row)

            stack.enter_context(patch.object(sqlite_store, "_as_head", counted))
        elif kind == "postgres":
            run = store._pool.run  # noqa: SLF001 - only it sees each query

            async def explained(tries: Any, query: bytes, values: Any = (), **options: Any) -> Any:
                if b"seq, epoch" in query:
                    [(plan,)] = await run(tries, b"EXPLAIN (ANALYZE, FORMAT JSON) " + query, values)
                    reads.heads += sum(_scanned(plan[0]["Plan"]))
                return await run(tries, query, values, **options)

            stack.enter_context(patch.object(store._pool, "run", explained))  # noqa: SLF001 - as above
        else:
            each = store._servers.run_each  # noqa: SLF001 - only it sees each request

            async def run_each(request: Any, commands: Any, *more: Any) -> Any:
                reads.heads += len(commands)
                return await each(request, commands, *more)

            stack.enter_context(patch.object(store._servers, "run_each", run_each))  # noqa: SLF001 - as above
        yield reads


def _scanned(plan: dict[str, Any]) -> Iterator[int]:
    if "Scan" in plan["Node Type"] and plan.get("Relation Name") == "heads":
        yield round(plan["Actual Loops"] * (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)))
    for inner in plan.get("Plans", ()):
        yield from _scanned(inner)


async def _fill_sqlite(_store: Store, url: str, sessions: int, advance: Callable[[int], None]) -> None:
    now = time.time()
    rows = [
        (
            f"case-{number:06}",
            status_of(number),
            _json(labels_of(number)),
            now - DAYS * 86_400 * number / sessions,
            DATA,
        )
        for number in range(sessions)
    ]
    database = sqlite3.connect(url.removeprefix("sqlite:///"))
    with database:
        database.executemany(f"INSERT INTO sessions ({_COLUMNS}) VALUES (?, 9, 3, ?, ?, 0, 'x', 1, ?, ?)", rows)  # noqa: S608
    database.close()
    advance(sessions)


async def _fill_postgres(store: Any, url: str, sessions: int, advance: Callable[[int], None]) -> None:
    now = time.time()
    async with await psycopg.AsyncConnection.connect(url.partition("?")[0], autocommit=True) as connection:
        cursor = connection.cursor()
        async with cursor.copy(f"COPY {store.schema}.heads ({_COLUMNS}) FROM STDIN") as copy:
            for number in range(sessions):
                updated = now - DAYS * 86_400 * number / sessions
                labels = _json(labels_of(number))
                await copy.write_row((f"case-{number:06}", 9, 3, status_of(number), labels, 0, "x", 1, updated, DATA))
        await cursor.execute(f"VACUUM ANALYZE {store.schema}.heads".encode())
    advance(sessions)


async def _fill_redis(store: Store, _url: str, sessions: int, advance: Callable[[int], None]) -> None:
    left = iter(range(sessions))

    async def fill() -> None:
        for number in left:
            await store.write(
                Write(
                    session=f"case-{number:06}",
                    seq=0,
                    epoch=1,
                    status=status_of(number),
                    labels=labels_of(number),
                    token="x",  # noqa: S106 - not a secret
                    data=DATA,
                )
            )
            advance(1)

    await asyncio.gather(*(fill() for _ in range(AT_ONCE)))


def _json(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'"{name}":"{value}"' for name, value in labels.items()) + "}"


FILL: dict[str, Callable[..., Any]] = {"sqlite": _fill_sqlite, "postgres": _fill_postgres, "redis": _fill_redis}
"""For each store, how its sessions are made. Redis is filled through the store: its sets belong together."""
