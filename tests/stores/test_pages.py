"""A page reads about as many heads as it has, however many sessions there are: what each store reads is counted."""

import asyncio
import json
from contextlib import asynccontextmanager, closing
from types import SimpleNamespace

import psycopg
import pytest
from tools.servers.shared import store_url

from midturn.stores.files import store as files_store
from midturn.stores.registry import open_backend
from midturn.stores.retrying import Tries
from midturn.stores.sqlite import store as sqlite_store
from midturn.testing import a_write

PAGE = 50
FEW, MANY = 1_000, 4_000
STATUSES = ("idle", "idle", "idle", "idle", "idle", "idle", "idle", "failed", "failed", "waiting")
"""One session of ten waits, and they changed in turn."""
FILTERS = [{}, {"status": "idle"}, {"status": "waiting"}]
PAGES = [filters | page for filters in FILTERS for page in ({}, {"reverse": True})]

_HEADS = """
    INSERT INTO {table} (name, seq, epoch, status, labels, expires, token, created, updated, data)
    VALUES ({values}, 1, 1, {values}, '{labels}', 0, '', 1, {values}, {data})
"""


def rows(count):
    return [(f"case-{number:06}", STATUSES[number % 10], 1_000.0 + 10 * number) for number in range(count)]


@asynccontextmanager
async def sqlite(folder, count, monkeypatch):
    url = store_url("sqlite", folder)
    store = await open_backend(url)
    sql = _HEADS.format(table="sessions", values="?", labels="{}", data="x''")
    with closing(sqlite_store.sqlite3.connect(store._path)) as db, db:
        db.executemany(sql, rows(count))
    read = SimpleNamespace(heads=0, work=0)
    as_head, gone = sqlite_store._as_head, store._caller_has_gone

    def counted(row):
        read.heads += 1
        return as_head(row)

    def step():
        read.work += 1
        return gone()

    monkeypatch.setattr(sqlite_store, "_as_head", counted)
    monkeypatch.setattr(sqlite_store, "STEPS", 1)
    monkeypatch.setattr(store, "_caller_has_gone", step)
    yield store, read
    await store.close()


@asynccontextmanager
async def postgres(folder, count, monkeypatch):
    url = store_url("postgres", folder)
    store = await open_backend(url)
    sql = _HEADS.format(table=f"{store.schema}.heads", values="%s", labels="{}", data="''")
    read = SimpleNamespace(heads=0, work=0)
    run = store._pool.run
    async with await psycopg.AsyncConnection.connect(url.partition("?")[0], autocommit=True) as connection:
        async with connection.cursor() as cursor:
            await cursor.executemany(sql, rows(count))
            await cursor.execute(f"VACUUM ANALYZE {store.schema}.heads")

        async def explained(tries, query, values=(), **options):
            async with connection.cursor() as cursor:
                await cursor.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + query, values)
                [(plan,)] = await cursor.fetchall()
            read.heads += sum(_scanned(plan[0]["Plan"]))
            return await run(tries, query, values, **options)

        monkeypatch.setattr(store._pool, "run", explained)
        yield store, read
        monkeypatch.undo()
    await store.close()


def _scanned(plan):
    """Yield the numbers of rows that the scans of a plan have read."""
    if "Scan" in plan["Node Type"] and plan.get("Relation Name") == "heads":
        assert plan["Actual Loops"] == 1, json.dumps(plan)
        yield plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    for inner in plan.get("Plans", ()):
        yield from _scanned(inner)


@asynccontextmanager
async def redis_(folder, count, monkeypatch):
    url = store_url("redis", folder)
    store = await open_backend(url)
    for start in range(0, count, 100):
        await asyncio.gather(
            *(store.write(a_write(name, status=status)) for name, status, _ in rows(count)[start : start + 100])
        )
    read = SimpleNamespace(heads=0, work=0)
    each, reply = store._servers.run_each, store._servers.read

    async def run_each(request, commands, *more):
        read.heads += len(commands)
        return await each(request, commands, *more)

    async def counted(request, key, commands):
        found = await reply(request, key, commands)
        read.work += sum(map(len, found))
        return found

    monkeypatch.setattr(store._servers, "run_each", run_each)
    monkeypatch.setattr(store._servers, "read", counted)
    yield store, read
    await store.close()


STORES = [pytest.param(sqlite, id="sqlite"), pytest.param(postgres, id="postgres"), pytest.param(redis_, id="redis")]


@pytest.mark.parametrize("opened", STORES)
async def test_a_page_by_change_reads_as_many_heads_as_it_has(opened, tmp_path, monkeypatch):
    read = {FEW: [], MANY: []}
    for count, pages in read.items():
        with monkeypatch.context() as patch:
            async with opened(tmp_path / str(count), count, patch) as (store, counter):
                for page in PAGES:
                    counter.heads = counter.work = 0
                    assert len(await store.heads(order="updated", limit=PAGE, **page)) == PAGE
                    pages.append(SimpleNamespace(**vars(counter)))
    for page, few, many in zip(PAGES, read[FEW], read[MANY], strict=True):
        assert PAGE <= many.heads <= PAGE + 10, page
        assert many.work <= 1.2 * few.work, page


@pytest.mark.parametrize("opened", STORES)
async def test_a_page_by_id_reads_as_many_heads_as_it_has(opened, tmp_path, monkeypatch):
    async with opened(tmp_path / "store", MANY, monkeypatch) as (store, read):
        assert [head.session for head in await store.heads(limit=PAGE)] == [name for name, _, _ in rows(PAGE)]
        assert read.heads <= PAGE + 10
        last = await store.heads(limit=PAGE, reverse=True)
        assert [head.session for head in last] == [name for name, _, _ in rows(MANY)[: -PAGE - 1 : -1]]
        assert read.heads <= 2 * PAGE + 10


async def test_postgres_plans_each_page_for_its_status(tmp_path):
    store = await open_backend(store_url("postgres", tmp_path))
    await store.write(a_write(status="waiting"))
    for _ in range(12):  # psycopg would have prepared the statement by then, and Postgres have one plan for any status
        await store.heads(order="updated", status="waiting")
        await store.heads(order="updated", reverse=True)
    query = b"SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%changed%LIMIT%'"
    assert await store._pool.run(Tries(asyncio.get_running_loop().time() + 30), query, prepare=False) == []
    await store.close()


async def test_the_file_store_reads_every_file_for_a_page_by_change(tmp_path, monkeypatch):
    store = await open_backend(store_url("file", tmp_path / "store"))
    for number in range(60):
        await store.write(a_write(f"case-{number}"))
    read = []
    last_head = files_store.last_head
    monkeypatch.setattr(files_store, "last_head", lambda path: read.append(path) or last_head(path))
    await store.heads(order="updated", limit=5)
    assert len(read) == 60
    read.clear()
    await store.heads(limit=5)
    assert len(read) <= 6
    await store.close()
