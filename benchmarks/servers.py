"""Measure the writes of a turn on Postgres and Redis, against bare transactions over as many connections."""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import redis.asyncio
from autogen_agentchat.agents import AssistantAgent
from tools.servers.shared import store_url

import midturn
from benchmarks.long_session import SEED, SIZE
from benchmarks.restoring import restore_times
from benchmarks.scripted import instant
from benchmarks.texts import text
from midturn.autogen.adapter import AutoGen
from midturn.sessions.session import Session
from midturn.stores.memory import MemoryStore
from midturn.stores.postgres.pool import SIZE as CONNECTIONS
from midturn.stores.postgres.store import PostgresStore
from midturn.stores.redis.store import RedisStore
from midturn.turns.session_options import Options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from midturn.record.head import Write
    from midturn.store import Store

SESSIONS = 64
EACH = 20
"""Turns of each session when many run at the same time."""


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """The figures of one run. Times are medians."""

    store: str
    turns: int
    begin_ms: float
    commit_ms: float
    bare_ms: float
    """A bare transaction that appends two rows: begin, two inserts, commit."""
    single_ms: float
    """The same in one statement, which is a transaction of its own."""
    rate: float
    """Writes per second of all sessions together."""
    bare_rate: float
    single_rate: float
    bytes_early: float
    """Bytes at rest of a turn in the first half."""
    bytes_late: float
    restore_ms: float
    rows_ratio: float
    """A restore against reading and parsing the rows."""
    own_ratio: float
    """The same without AutoGen's own loading."""

    def as_dict(self) -> dict[str, Any]:
        ratios = {
            "commit_ratio": self.commit_ms / self.bare_ms,
            "single_ratio": self.commit_ms / self.single_ms,
            "rate_ratio": self.rate / self.bare_rate,
            "single_rate_ratio": self.rate / self.single_rate,
            "bytes_ratio": self.bytes_late / (2 * SIZE),
            "bytes_growth": self.bytes_late / self.bytes_early,
        }
        return asdict(self) | ratios


class Bare(Protocol):
    """Bare transactions with the driver alone."""

    async def append(self, pair: Sequence[bytes]) -> None: ...

    async def append_at_once(self, pair: Sequence[bytes]) -> None: ...

    async def size(self) -> int: ...

    async def close(self) -> None: ...


class BarePostgres:
    def __init__(self, url: str) -> None:
        self._url, _, schema = url.partition("?")
        self._schema = schema.removeprefix("schema=")
        self._free: asyncio.Queue[psycopg.AsyncConnection[Any]] = asyncio.Queue()

    async def open(self) -> BarePostgres:
        for _ in range(CONNECTIONS):
            self._free.put_nowait(await psycopg.AsyncConnection.connect(self._url, autocommit=True))
        connection = self._free.get_nowait()
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea)"
        )
        self._free.put_nowait(connection)
        return self

    async def append(self, pair: Sequence[bytes]) -> None:
        connection = await self._free.get()
        async with connection.transaction():
            for body in pair:
                await connection.execute("INSERT INTO bare (body) VALUES (%b)", (body,))
        self._free.put_nowait(connection)

    async def append_at_once(self, pair: Sequence[bytes]) -> None:
        connection = await self._free.get()
        await connection.execute("INSERT INTO bare (body) VALUES (%b), (%b)", pair)
        self._free.put_nowait(connection)

    async def size(self) -> int:
        connection = await self._free.get()
        query = "SELECT pg_total_relation_size(%s) + pg_total_relation_size(%s)"
        cursor = await connection.execute(query, (f"{self._schema}.heads", f"{self._schema}.rows"))
        (size,) = await cursor.fetchone() or (0,)
        self._free.put_nowait(connection)
        return int(size)

    async def close(self) -> None:
        while not self._free.empty():
            await self._free.get_nowait().close()


class BareRedis:
    def __init__(self, url: str) -> None:
        self._url, _, prefix = url.partition("?")
        self._key = f"{prefix.removeprefix('prefix=')}:{{case}}"
        self._redis = redis.asyncio.Redis.from_pool(
            redis.asyncio.BlockingConnectionPool.from_url(self._url, max_connections=CONNECTIONS)
        )

    async def append(self, pair: Sequence[bytes]) -> None:
        async with self._redis.pipeline(transaction=True) as pipeline:
            for body in pair:
                pipeline.rpush("bare", body)
            await pipeline.execute()

    async def append_at_once(self, pair: Sequence[bytes]) -> None:
        await self._redis.rpush("bare", *pair)

    async def size(self) -> int:
        return int(await self._redis.memory_usage(self._key, samples=0) or 0)

    async def close(self) -> None:
        await self._redis.aclose()


def build(answers: Iterator[str]) -> AssistantAgent:
    return AssistantAgent("support_agent", model_client=instant(answers))


async def recorded(turns: int) -> list[Write]:
    """Return the writes of a conversation's turns: for each turn the input, then the result."""
    chance = random.Random(SEED)
    writes: list[Write] = []
    answers = iter([text(SIZE, chance) for _ in range(turns)])
    store = MemoryStore()
    apply = store.write

    async def write(write: Write) -> Any:
        writes.append(write)
        return await apply(write)

    store.write = write  # type: ignore[method-assign]  # it listens
    # The calls have a benchmark of their own.
    case = Session(store, "case", lambda: build(answers), AutoGen(), Options(durability="turn"))
    for _ in range(turns):
        await case.run(text(SIZE, chance))
    assert len(writes) == 2 * turns
    return writes


async def replay(store: Store, writes: Sequence[Write], session: str) -> None:
    for write in writes:
        await store.write(replace(write, session=session))


async def servers(kind: str, turns: int, advance: Callable[[], None]) -> ServerFigures:
    writes = await recorded(turns)
    chance = random.Random(SEED)
    pair = [text(SIZE, chance).encode() for _ in range(2)]
    with tempfile.TemporaryDirectory(prefix="midturn-bench-") as folder:
        url = store_url(kind, Path(folder))
        store: Store = await (PostgresStore if kind == "postgres" else RedisStore).open(url)
        bare: Bare = await BarePostgres(url).open() if kind == "postgres" else BareRedis(url)
        times: dict[str, list[float]] = {"begin": [], "commit": [], "bare": [], "single": []}
        sizes = [0]

        async def timed(name: str, work: Awaitable[object]) -> None:
            began = time.perf_counter()
            await work
            times[name].append(time.perf_counter() - began)

        for number in range(turns):
            begin, commit = (replace(write, session="case") for write in writes[2 * number : 2 * number + 2])
            # In turn, so that other load on the machine hits all of them.
            await timed("begin", store.write(begin))
            await timed("single", bare.append_at_once(pair))
            await timed("commit", store.write(commit))
            await timed("bare", bare.append(pair))
            if number + 1 in (turns // 2, turns):
                sizes.append(await bare.size())
            advance()

        count = SESSIONS * EACH * 2

        async def writer(append: Callable[[Sequence[bytes]], Awaitable[None]]) -> None:
            for _ in range(EACH * 2):
                await append(pair)

        async def rate(works: Iterable[Awaitable[None]]) -> float:
            began = time.perf_counter()
            await asyncio.gather(*works)
            return count / (time.perf_counter() - began)

        rates: dict[str, list[float]] = {"ours": [], "bare": [], "single": []}
        for round_ in range(3):
            names = [f"case-{round_}-{number}" for number in range(SESSIONS)]
            rates["bare"].append(await rate(writer(bare.append) for _ in names))
            rates["ours"].append(await rate(replay(store, writes[: 2 * EACH], name) for name in names))
            rates["single"].append(await rate(writer(bare.append_at_once) for _ in names))
        await bare.close()
        await store.close()
        async with midturn.open(url) as opened:
            restored = await restore_times(opened, "case", lambda: build(iter(())), turns)
    half = turns // 2
    return ServerFigures(
        store=kind,
        turns=turns,
        begin_ms=statistics.median(times["begin"]) * 1e3,
        commit_ms=statistics.median(times["commit"]) * 1e3,
        bare_ms=statistics.median(times["bare"]) * 1e3,
        single_ms=statistics.median(times["single"]) * 1e3,
        rate=statistics.median(rates["ours"]),
        bare_rate=statistics.median(rates["bare"]),
        single_rate=statistics.median(rates["single"]),
        bytes_early=sizes[1] / half,
        bytes_late=(sizes[2] - sizes[1]) / (turns - half),
        restore_ms=restored.restore,
        rows_ratio=restored.restore / restored.rows,
        own_ratio=restored.own / restored.rows,
    )
