"""The stores that midturn ships pass the suite that it ships, on every server that is available here."""

import os
from contextlib import asynccontextmanager
from functools import cache
from hashlib import sha256

import pytest
from tools.servers import PgBouncer, Postgres, Redis, RedisCluster, postgres_binaries, redis_binaries
from tools.servers.postgres import major
from tools.servers.shared import store_url

from midturn.stores.registry import open_store
from midturn.testing import StoreConformance


@asynccontextmanager
async def opened(url):
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


class TestMemoryStore(StoreConformance):
    shared = False
    durable = False

    def open_store(self, where):
        return opened("memory://")


class TestFileStore(StoreConformance):
    def open_store(self, where):
        return opened(store_url("file", where))


class TestSqliteStore(StoreConformance):
    def open_store(self, where):
        return opened(store_url("sqlite", where))


class TestPostgresStore(StoreConformance):
    def open_store(self, where):
        return opened(store_url("postgres", where))


class TestRedisStore(StoreConformance):
    def open_store(self, where):
        return opened(store_url("redis", where))


# Stores that compress. Redis does unless it is asked not to. `make chaos` runs the suite on the other variants as well.


class TestCompressedMemoryStore(StoreConformance):
    shared = False
    durable = False

    def open_store(self, where):
        return opened("memory://?compress=zstd")


class TestCompressedSqliteStore(StoreConformance):
    def open_store(self, where):
        return opened(f"{store_url('sqlite', where)}?compress=zstd")


if os.environ.get("MIDTURN_LONG"):

    class TestCompressedFileStore(StoreConformance):
        def open_store(self, where):
            return opened(f"{store_url('file', where)}?compress=zstd")

    class TestCompressedPostgresStore(StoreConformance):
        def open_store(self, where):
            return opened(f"{store_url('postgres', where)}&compress=zstd")

    class TestPlainRedisStore(StoreConformance):
        def open_store(self, where):
            return opened(f"{store_url('redis', where)}&compress=none")


@cache
def server(make, *args):
    """Started once; it ends with the process."""
    made = make(*args)
    made.start()
    return made


def suite(name, url):
    """The suite on a server of its own, in one process."""
    found = type(name, (StoreConformance,), {"open_store": lambda self, where: opened(url(digest(where)))})
    globals()[name] = pytest.mark.xdist_group(name)(found)


def digest(where):
    return sha256(bytes(where)).hexdigest()[:20]


# F14: in transaction mode with a single connection, to another Postgres than that of the other tests, if there is one.
others = postgres_binaries()[1:2]
suite(
    "TestPostgresBehindPgBouncer",
    lambda at: f"{server(PgBouncer, server(Postgres, (), *others)).url}?schema=t_{at}",
)
suite("TestRedisClusterStore", lambda at: f"{server(RedisCluster).url}?prefix=t_{at}")
# The first ones are those that all other tests use.
for binaries in others:
    suite(f"TestPostgres{major(binaries)}", lambda at, it=binaries: f"{server(Postgres, (), it).url}?schema=t_{at}")
for number, binary in enumerate(redis_binaries()[1:]):
    suite(f"TestOtherRedis{number}", lambda at, it=binary: f"{server(Redis, (), it).url}?prefix=t_{at}")
