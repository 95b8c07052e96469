"""``python -m benchmarks.floors NAME run|restore|crowd``: the least work that is possible.

For each turn, one bare transaction appends the messages, as durably as midturn does. A restore reads and parses them.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import psycopg
import redis.asyncio

from benchmarks.contender import main

if TYPE_CHECKING:
    from benchmarks.workload import Shape, Turn

CONNECTIONS = 10
"""The number of connections that midturn uses."""


def rows(turn: Turn) -> list[bytes]:
    """Return the messages of a turn as JSON, each as small as possible."""
    asked: dict[str, Any] = {"role": "user", "content": turn.question}
    if turn.picture:
        asked["picture"] = b64encode(turn.picture).decode()
    said = [asked]
    if call := turn.call:
        said.append({"role": "assistant", "id": call.id, "tool": call.tool, "arguments": call.arguments})
        said.append({"role": "tool", "id": call.id, "content": call.result})
    said += [{"role": "assistant", "content": answer} for answer in turn.answers]
    return [orjson.dumps(message) for message in said]


class Floor:
    """Uses only the driver. It has no framework, so a turn in memory does nothing."""

    def __init__(self, address: str, shape: Shape, name: str = "case") -> None:
        self._address, self._shape, self._name = address, shape, name

    async def plain(self, turn: Turn) -> None:
        del turn


class SqliteFloor(Floor):
    async def open(self) -> None:
        self._db = sqlite3.connect(Path(self._address) / "floor.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    async def durable(self, turn: Turn) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for body in rows(turn):
            self._db.execute("INSERT INTO messages (body) VALUES (?)", (body,))
        self._db.execute("COMMIT")

    async def restore(self) -> int:
        found = self._db.execute("SELECT body FROM messages ORDER BY id").fetchall()
        return len([orjson.loads(body) for (body,) in found])

    async def close(self) -> None:
        self._db.close()


class FileFloor(Floor):
    async def open(self) -> None:
        self._path = Path(self._address) / "floor.jsonl"
        self._file = self._path.open("ab", buffering=0)

    async def durable(self, turn: Turn) -> None:
        self._file.write(b"".join(body + b"\n" for body in rows(turn)))
        os.fdatasync(self._file.fileno())

    async def restore(self) -> int:
        return len([orjson.loads(line) for line in self._path.read_bytes().splitlines()])

    async def close(self) -> None:
        self._file.close()


class PostgresFloor(Floor):
    _free: asyncio.Queue[psycopg.AsyncConnection[Any]]

    async def open(self) -> None:
        self._free = asyncio.Queue()
        for _ in range(CONNECTIONS):
            self._free.put_nowait(await self._connect())
        connection = self._free.get_nowait()
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS messages (name text, id bigint GENERATED ALWAYS AS IDENTITY, body bytea, "
            "PRIMARY KEY (name, id))"
        )
        self._free.put_nowait(connection)

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        connection = await psycopg.AsyncConnection.connect(self._address, autocommit=True)
        await connection.execute("SET synchronous_commit = on")
        return connection

    async def durable(self, turn: Turn) -> None:
        connection = await self._free.get()
        async with connection.transaction():
            for body in rows(turn):
                await connection.execute("INSERT INTO messages (name, body) VALUES (%s, %b)", (self._name, body))
        self._free.put_nowait(connection)

    async def restore(self) -> int:
        connection = await self._free.get()
        query = "SELECT body FROM messages WHERE name = %s ORDER BY id"
        found = await (await connection.execute(query, (self._name,), binary=True)).fetchall()
        self._free.put_nowait(connection)
        return len([orjson.loads(body) for (body,) in found])

    async def another(self, name: str) -> PostgresFloor:
        other = PostgresFloor(self._address, self._shape, name)
        other._free = self._free
        return other

    async def close(self) -> None:
        while not self._free.empty():
            await self._free.get_nowait().close()


class RedisFloor(Floor):
    _redis: redis.asyncio.Redis

    async def open(self) -> None:
        pool = redis.asyncio.BlockingConnectionPool.from_url(self._address, max_connections=CONNECTIONS)
        self._redis = redis.asyncio.Redis.from_pool(pool)

    async def durable(self, turn: Turn) -> None:
        async with self._redis.pipeline(transaction=True) as pipeline:
            for body in rows(turn):
                pipeline.rpush(self._name, body)
            await pipeline.execute()

    async def restore(self) -> int:
        found = await self._redis.lrange(self._name, 0, -1)
        return len([orjson.loads(body) for body in found])

    async def another(self, name: str) -> RedisFloor:
        other = RedisFloor(self._address, self._shape, name)
        other._redis = self._redis
        return other

    async def close(self) -> None:
        await self._redis.aclose()


CONTENDERS: dict[str, Any] = {
    "floor-sqlite": SqliteFloor,
    "floor-file": FileFloor,
    "floor-postgres": PostgresFloor,
    "floor-redis": RedisFloor,
}

if __name__ == "__main__":
    main(CONTENDERS)
