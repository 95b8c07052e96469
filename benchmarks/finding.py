"""Find and prune sessions among very many: the heads that each query reads, and the time that it takes."""

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
from midturn.record.head import Head, Kind, Row, Write
from midturn.record.rows import DecisionRow, encode_record
from midturn.stores.files import store as files_store
from midturn.stores.files.format import change_line, header_line, last_head, name_of
from midturn.stores.sqlite import store as sqlite_store
from midturn.stores.wrapper import innermost

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
TEAMS = 10
PRUNED, DECIDED = "team-3", "team-5"
"""The team whose sessions are pruned and have rows, and the team in each of whose sessions somebody decided once."""
LINEAGE, PRUNE = "lineage", f"prune {PRUNED}"

NOW = time.time()
_COLUMNS = "name, seq, epoch, status, labels, expires, token, created, updated, data"
DATA = b'{"v":1,"turn":3,"checkpoint":3,"bodies":9,"blueprint":"support"}'
DATA_DECIDED = DATA[:-1] + b',"decisions":1}'


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFigures:
    """The figures of one query on one store."""

    store: str
    sessions: int
    query: str
    found: int
    heads: int | None
    """Heads that the store has read, if they were counted."""
    ms: float
    """Median, or the time of the only run."""

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
    labels = {"team": f"team-{number % TEAMS}"}
    return labels | {"vip": "yes"} if number % RARE == 0 else labels


def data_of(number: int) -> bytes:
    """Return the data of a session's head."""
    return DATA_DECIDED if labels_of(number)["team"] == DECIDED else DATA


def rows_of(number: int) -> tuple[Row, ...]:
    """Return the rows of a session: those that a query reads or removes."""
    match labels_of(number)["team"]:
        case team if team == DECIDED:
            decision = DecisionRow(turn=3, question="Change the state?", kind="edit", answer="edit", by="ann", at=NOW)
            return (Row(kind=Kind.DECISION, n=0, data=encode_record(decision)),)
        case team if team == PRUNED:
            kinds = (Kind.BODY, Kind.TURN, Kind.CHECKPOINT)
            return tuple(Row(kind=kind, n=n, data=bytes(300)) for kind in kinds for n in range(1, 4))
        case _:
            return ()


async def finding(kind: str, sessions: int, advance: Callable[[int], None]) -> list[FindingFigures]:
    """Return the figures for one store with so many sessions."""
    folder = Path(tempfile.mkdtemp(prefix="midturn-bench-"))
    try:
        url = store_url(kind, folder / "store")
        async with midturn.open(url) as store:
            oldest = await FILL[kind](innermost(store.store), url, sessions, advance)
            middle = (await store.info(f"case-{sessions // 2:06}")).cursor
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

            async def prune(**rule: Any) -> int:
                return len((await store.prune(**rule)).deleted)

            async def audit(**which: Any) -> int:
                return len([entry async for entry in store.audit(**which)])

            async def lineage() -> int:
                return len((await store.lineage("case-000001")).forks)

            figures: list[FindingFigures] = []
            times = 1 if kind == "file" else TIMES

            async def measure(query: str, work: Callable[[], Awaitable[int]], times: int = 1) -> None:
                began = time.perf_counter()
                with counting(kind, innermost(store.store)) as reads:
                    found = await work()
                ms = (time.perf_counter() - began) * 1e3
                if times > 1 or kind == "postgres":  # which explains each query while heads are counted
                    ms = await _timed(work, times)
                figures.append(
                    FindingFigures(store=kind, sessions=sessions, query=query, found=found, heads=reads.heads, ms=ms)
                )

            for query, filters in queries.items():
                await measure(query, partial(page, filters), times)
            await measure("counts", counts, times)
            await measure(LINEAGE, lineage)
            await measure("audit of two days", partial(audit, since=timedelta(days=2)))
            await measure("audit", audit)
            age = timedelta(seconds=time.time() - oldest)
            await measure("prune the oldest 10 %, dry run", partial(prune, older_than=age, dry_run=True))
            rule: dict[str, Any] = {"labels": {"team": PRUNED}}
            await measure(f"{PRUNE}, dry run", partial(prune, **rule, dry_run=True))
            began = time.perf_counter()
            found = await prune(**rule)
            ms = (time.perf_counter() - began) * 1e3
            figures.append(FindingFigures(store=kind, sessions=sessions, query=PRUNE, found=found, heads=None, ms=ms))
    finally:
        shutil.rmtree(folder)
    return figures


async def _timed(work: Callable[[], Awaitable[int]], count: int) -> float:
    """Return the median time of so many runs, in milliseconds."""
    times: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        await work()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


@contextmanager
def counting(kind: str, store: Any) -> Generator[Reads]:
    """Count the heads that a store reads: files, rows of SQLite's table, of Postgres' plan, or requests to Redis."""
    reads = Reads()
    with ExitStack() as stack:
        if kind == "file":

            def read(path: Path) -> Head | None:
                reads.heads += 1
                return last_head(path)

            stack.enter_context(patch.object(files_store, "last_head", read))
        elif kind == "sqlite":
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


def changed(number: int, sessions: int, now: float) -> float:
    """Return the time of the last change of a session, where the store does not say it: the greater, the older."""
    return now - DAYS * 86_400 * number / sessions


async def _fill_file(_store: Store, url: str, sessions: int, advance: Callable[[int], None]) -> float:
    now, folder = time.time(), Path(url.removeprefix("file://")) / "sessions"
    for number in range(sessions):
        write = _write(number)
        head = write.head(now=changed(number, sessions, now), created=1.0)
        path = folder / name_of(write.session)
        path.touch(mode=0o600)  # else the store warns about each file that others can read
        path.write_bytes(header_line(write.session, 1.0) + change_line(head, write.rows))
        advance(1)
    return changed(9 * sessions // 10, sessions, now)


async def _fill_sqlite(_store: Store, url: str, sessions: int, advance: Callable[[int], None]) -> float:
    now = time.time()
    heads = [
        (
            number + 1,
            f"case-{number:06}",
            status_of(number),
            _json(labels_of(number)),
            changed(number, sessions, now),
            data_of(number),
        )
        for number in range(sessions)
    ]
    rows = ((number + 1, row.kind, row.n, row.data) for number in range(sessions) for row in rows_of(number))
    database = sqlite3.connect(url.removeprefix("sqlite:///"))
    with database:
        database.executemany(
            f"INSERT INTO sessions (id, {_COLUMNS}) VALUES (?, ?, 9, 3, ?, ?, 0, 'x', 1, ?, ?)",  # noqa: S608 - our names
            heads,
        )
        database.executemany("INSERT INTO rows (session, kind, n, data) VALUES (?, ?, ?, ?)", rows)
    database.close()
    advance(sessions)
    return changed(9 * sessions // 10, sessions, now)


async def _fill_postgres(store: Any, url: str, sessions: int, advance: Callable[[int], None]) -> float:
    now = time.time()
    async with await psycopg.AsyncConnection.connect(url.partition("?")[0], autocommit=True) as connection:
        cursor = connection.cursor()
        async with cursor.copy(f"COPY {store.schema}.heads ({_COLUMNS}) FROM STDIN") as copy:
            for number in range(sessions):
                at, labels = changed(number, sessions, now), _json(labels_of(number))
                head = (f"case-{number:06}", 9, 3, status_of(number), labels, 0, "x", 1, at, data_of(number))
                await copy.write_row(head)
        await cursor.execute(f"SELECT name, id FROM {store.schema}.heads".encode())  # noqa: S608 - our own schema
        ids: dict[str, int] = dict(await cursor.fetchall())
        async with cursor.copy(f"COPY {store.schema}.rows (series, n, data) FROM STDIN") as copy:
            for number in range(sessions):
                for row in rows_of(number):
                    await copy.write_row((ids[f"case-{number:06}"] * 8 + row.kind, row.n, row.data))
        await cursor.execute(f"VACUUM ANALYZE {store.schema}.heads, {store.schema}.rows".encode())
    advance(sessions)
    return changed(9 * sessions // 10, sessions, now)


async def _fill_redis(store: Store, _url: str, sessions: int, advance: Callable[[int], None]) -> float:
    left = iter(range(sessions))
    oldest = 0.0

    async def fill() -> None:
        nonlocal oldest
        for number in left:
            head = await store.write(_write(number))
            oldest = head.updated if number == sessions // 10 else oldest
            advance(1)

    await asyncio.gather(*(fill() for _ in range(AT_ONCE)))
    return oldest


def _write(number: int) -> Write:
    """Return the write that makes a session."""
    return Write(
        session=f"case-{number:06}",
        seq=0,
        epoch=1,
        status=status_of(number),
        labels=labels_of(number),
        token="x",  # noqa: S106 - not a secret
        data=data_of(number),
        rows=rows_of(number),
    )


def _json(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'"{name}":"{value}"' for name, value in labels.items()) + "}"


FILL: dict[str, Callable[..., Any]] = {
    "sqlite": _fill_sqlite,
    "postgres": _fill_postgres,
    "redis": _fill_redis,
    "file": _fill_file,
}
"""For each store, how its sessions are made. It returns a time: the oldest tenth of them has not changed since.

Redis is filled through the store: its sets belong together.
"""
