"""Stores that each released midturn wrote, read and continued by this one.

``make_midturn.py`` has made them; what it read from them then is beside them in ``expected.json``.
"""

import gzip
import json
import shutil
import sqlite3
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path

import psycopg
import pytest
from make_midturn import read
from midturn_kinds import FACT, QUESTION, Case, Team
from server_dumps import load_postgres, load_redis
from tools.servers import Postgres, Redis

import midturn
from midturn.record.head import FORMAT, Kind
from midturn.stores.postgres.store import PostgresStore

HERE = Path(__file__).parent
VERSIONS = sorted(folder.name for folder in (HERE / "midturn").iterdir())
STORES = ["store.db.gz", "files", "postgres.sql", "redis.json"]


@pytest.fixture(scope="module")
def servers():
    """Servers by the name of what is loaded into them; started when they are first needed."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(Postgres() if name == "postgres.sql" else Redis()))


@pytest.fixture(params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture
def db(version, tmp_path):
    path = tmp_path / "store.db"
    path.write_bytes(gzip.decompress((HERE / "midturn" / version / "store.db.gz").read_bytes()))
    return path


@pytest.fixture(params=STORES)
def name(request):
    return request.param


@pytest.fixture
async def store(version, name, db, tmp_path, servers):
    kept = HERE / "midturn" / version / name
    if name == "files":
        shutil.copytree(kept, tmp_path / "files")
        url = f"file:///{tmp_path / 'files'}"
    elif name == "postgres.sql":
        url = servers(name).url
        with psycopg.connect(url) as connection:
            connection.execute("DROP SCHEMA IF EXISTS midturn CASCADE")
        tables = await PostgresStore.connect(url)
        await tables.upgrade()
        await tables.close()
        load_postgres(url, kept.read_text(encoding="utf-8"))
    elif name == "redis.json":
        url = servers(name).url
        load_redis(url, kept.read_text(encoding="ascii"))
    else:
        url = f"sqlite:///{db}"
    async with midturn.open(url) as store:
        yield store


@pytest.fixture
def expected(version, name):
    return json.loads((HERE / "midturn" / version / "expected.json").read_text(encoding="ascii"))[name]


def is_within(expected, found):
    """Return whether everything that was there still is; a later version may have more."""
    if isinstance(expected, dict):
        return expected.keys() <= found.keys() and all(is_within(expected[key], found[key]) for key in expected)
    if isinstance(expected, list):
        return len(expected) == len(found) and all(map(is_within, expected, found))
    return type(expected) is type(found) and expected == found


async def test_all_that_was_written_is_read(store, expected):
    found = await read(store)
    assert found.keys() == expected.keys()
    for id_, session in expected.items():
        assert found[id_]["tree"] == session["tree"], id_
        assert is_within(session, found[id_]), id_


async def test_sessions_are_found_by_what_they_were_given(store):
    assert [info.id async for info in store.sessions(labels={"channel": "é-mail"})] == ["case"]
    assert [info.id async for info in store.sessions(status="waiting")] == ["case"]
    assert [info.id async for info in store.sessions(status="deleted")] == ["gone"]


async def test_what_was_deleted_stays_deleted(store):
    with pytest.raises(midturn.SessionDeleted):
        await store.session("gone", Case()).run(task=QUESTION)


async def test_the_turn_that_waits_is_answered_and_gone_on_with(store, expected):
    desk = Case()
    case = store.session("case", midturn.Blueprint("desk", desk))
    result = await case.answer("approve")
    assert result.messages[-1].content == "It says: order A1 is paid back."
    assert len(desk.seen) == 1, "what the model said before is not asked again"
    await case.run(task=QUESTION)
    assert [FACT in str(request) for request in desk.seen] == [True, True]
    assert all("Orders begin with a letter." in str(request) for request in desk.seen)
    turns = [turn async for turn in case.history()]
    assert [turn.status for turn in turns] == ["done", "done", "failed", "done", "done", "done"]
    assert await case.at(4).tree() == expected["case"]["tree"]
    texts = [len((await case.at(number).state())["llm_context"]["messages"]) for number in (1, 2, 4, 5, 6)]
    assert texts == sorted(texts)


async def test_a_key_still_stands_for_its_turn(store):
    desk = Case()
    case = store.session("case", midturn.Blueprint("desk", desk))
    await case.answer("approve")
    asked = len(desk.seen)
    again = await case.run(task="look up the order", key="key-2")
    assert again.messages[-1].content == "It says: order A1 is on its way."
    assert len(desk.seen) == asked
    with pytest.raises(midturn.Conflict):
        await case.run(task="something else", key="key-2")


async def test_a_turn_is_replayed_from_its_record(store):
    desk = Case()
    replay = await store.session("case", midturn.Blueprint("desk", desk)).replay(2)
    assert list(replay.differences) == []
    assert desk.seen == []


async def test_the_team_goes_on_with_who_is_next(store):
    desk = Team()
    result = await store.session("team", desk).run(task=QUESTION)
    assert [message.source for message in result.messages] == ["user", "bob", "cid"]
    assert all(FACT in str(request) for request in desk.seen)


def everything(path):
    with closing(sqlite3.connect(path)) as db:
        return [
            db.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall()
            for table in ("sessions", "rows", "turn_calls")
        ]


def test_every_record_says_its_version(db):
    with closing(sqlite3.connect(db)) as found:
        heads = found.execute("SELECT data FROM sessions WHERE status <> 'deleted'").fetchall()
        rows = found.execute("SELECT kind, data FROM rows").fetchall()
    assert {kind for kind, _ in rows} == set(Kind) - {Kind.CALL}
    assert [json.loads(data)["v"] for _, data in rows] == [FORMAT] * len(rows)
    assert [json.loads(data)["v"] for (data,) in heads] == [FORMAT] * 4


async def look(case):
    return [turn async for turn in case.history()]


READERS = {
    None: lambda case: case.answer("approve"),
    Kind.BODY: lambda case: case.answer("approve"),
    Kind.TURN: lambda case: case.answer("approve"),
    Kind.CHECKPOINT: lambda case: case.answer("approve"),
    Kind.CALL: lambda case: case.answer("approve"),
    Kind.DECISION: look,
    Kind.FAILURE: look,
    Kind.KEY: lambda case: case.run(task=FACT, key="key-1"),
}
"""The reader for records of each kind; the head has no kind."""


@pytest.mark.parametrize("kind", READERS, ids=str)
async def test_a_record_of_a_newer_version_is_refused_and_nothing_is_written(db, kind):
    async with midturn.open(f"sqlite:///{db}"):
        pass  # its tables are the newest now
    name = "paid" if kind is Kind.DECISION else "case"
    table, where = "rows", f"session = (SELECT id FROM sessions WHERE name = '{name}') AND kind = {kind or 0:d}"
    if kind is None:
        table, where = "sessions", f"name = '{name}'"
    elif kind is Kind.CALL:
        table, where = "turn_calls", f"session = (SELECT id FROM sessions WHERE name = '{name}')"
    with closing(sqlite3.connect(db)) as found, found:
        change = f"UPDATE {table} SET data = CAST(replace(data, '\"v\":1', '\"v\":2') AS BLOB) WHERE {where}"
        assert found.execute(change).rowcount
    before = everything(db)
    async with midturn.open(f"sqlite:///{db}") as store:
        with pytest.raises(midturn.UnknownVersion, match="upgrade midturn"):
            await READERS[kind](store.session(name, midturn.Blueprint("desk", Case())))
    assert everything(db) == before
