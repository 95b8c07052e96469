"""Files that only their owner can read, and what midturn reports of those that others can."""

import asyncio
import logging
import os
import re
import shutil
import stat
import subprocess
import sys

import pytest

import midturn
from midturn.record.head import Kind
from midturn.stores import privacy
from midturn.stores.files import store as file_store
from midturn.stores.registry import open_store
from midturn.testing import a_removal, a_row, a_write

pytestmark = [pytest.mark.fault("F30"), pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")]

WORK = """
import asyncio, os, sys
from midturn.stores.files import store as file_store
from midturn.stores.registry import open_store
from midturn.testing import a_removal, a_row, a_write
from midturn.record.head import Kind

file_store.WASTE = 100

async def work(url):
    store = await open_store(url)
    await store.write(a_write(rows=[a_row(n, b'"' + b"x" * 999 + b'"', kind=Kind.CALL) for n in range(1, 9)]))
    await store.write(a_write(seq=1, removes=[a_removal(9)]))
    await store.delete("case-42")
    await store.close()

os.umask(0)
asyncio.run(work(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def nothing_reported_yet(monkeypatch):
    monkeypatch.setattr(privacy, "_reported", set())


@pytest.fixture(params=[0, 0o022, 0o777], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def url_of(kind, place):
    return f"file://{place}/store" if kind == "file" else f"sqlite:///{place}/store.db"


def modes(place):
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in sorted(place.rglob("*"))}


def reports(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "midturn.security"]


async def used(url):
    store = await open_store(url)
    try:
        await store.write(a_write(rows=[a_row(1)]))
    finally:
        await store.close()


async def test_a_database_and_its_side_files_are_for_their_owner(tmp_path, umask):
    store = await open_store(url_of("sqlite", tmp_path))
    await store.write(a_write(rows=[a_row(1)]))
    found = modes(tmp_path)
    await store.close()
    assert found == dict.fromkeys(["store.db", "store.db-shm", "store.db-wal"], 0o600)


async def test_a_directory_of_sessions_is_for_its_owner(tmp_path, umask, monkeypatch):
    monkeypatch.setattr(file_store, "WASTE", 100)
    store = await open_store(url_of("file", tmp_path))
    await store.write(a_write(rows=[a_row(n, b'"' + b"x" * 999 + b'"', kind=Kind.CALL) for n in range(1, 9)]))
    written = modes(tmp_path)
    await store.write(a_write(seq=1, removes=[a_removal(9)]))
    rewritten = modes(tmp_path)
    await store.delete("case-42")
    deleted = modes(tmp_path)
    await store.close()
    expected = {"store": 0o700, "sessions": 0o700, "midturn.json": 0o600, "case-42.jsonl": 0o600}
    assert written == rewritten == deleted == expected


@pytest.mark.skipif(not shutil.which("strace"), reason="strace shows the modes with which files are created")
@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_nothing_is_created_open_and_closed_to_others_later(tmp_path, kind):
    trace = tmp_path / "trace"
    store = tmp_path / "place"
    store.mkdir()
    calls = ["strace", "-f", "-qq", "-e", "trace=openat,open,creat,mkdir,mkdirat,mknod,mknodat", "-o", trace]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([*calls, sys.executable, "-c", WORK, url_of(kind, store)], check=True, env=environment)
    lines = [line for line in trace.read_text().splitlines() if f'"{store}' in line]
    made = [line for line in lines if re.search(r"O_CREAT|^\d+ +(mkdir|mknod|creat)", line) and " = -1" not in line]
    assert made
    assert [line for line in made if not re.search(r", 0(600|700)\) ", line)] == []


async def test_a_link_to_a_file_that_does_not_exist_yet_makes_a_file_for_its_owner(tmp_path):
    (tmp_path / "store.db").symlink_to(tmp_path / "elsewhere.db")
    await used(url_of("sqlite", tmp_path))
    assert modes(tmp_path)["elsewhere.db"] == 0o600


async def test_a_spare_file_that_a_crash_left_open_is_not_used(tmp_path):
    await used(url := url_of("file", tmp_path))
    spare = tmp_path / "store/sessions/case-42.jsonl.tmp"
    spare.touch(0o666)
    spare.chmod(0o666)
    store = await open_store(url)
    await store.delete("case-42")
    await store.close()
    assert modes(tmp_path)["case-42.jsonl"] == 0o600


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
async def test_a_database_that_others_can_read_is_reported_once_and_left_as_it_is(tmp_path, caplog, mode):
    await used(url := url_of("sqlite", tmp_path))
    path = tmp_path / "store.db"
    path.chmod(mode)
    for _ in range(2):
        await (await open_store(url)).close()
    [said] = reports(caplog)
    assert str(path) in said
    assert f"chmod 600 {path}" in said
    assert stat.S_IMODE(path.stat().st_mode) == mode


async def test_every_part_of_a_store_that_others_can_read_is_reported_once(tmp_path, caplog):
    await used(url := url_of("file", tmp_path))
    root = tmp_path / "store"
    parts = [root, root / "midturn.json", root / "sessions", root / "sessions/case-42.jsonl"]
    for path in parts:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for _ in range(2):
        store = await open_store(url)
        await store.head("case-42")
        await store.close()
    commands = [f"chmod {700 if path.is_dir() else 600} {path}" for path in parts]
    assert [said.partition("type: ")[2] for said in reports(caplog)] == commands


async def test_a_side_file_that_others_can_read_is_reported(tmp_path, caplog):
    store = await open_store(url := url_of("sqlite", tmp_path))
    await store.write(a_write())
    (tmp_path / "store.db-wal").chmod(0o644)
    await (await open_store(url)).close()
    await store.close()
    [said] = reports(caplog)
    assert f"chmod 600 {tmp_path}/store.db-wal" in said


async def test_a_file_of_another_program_is_not_reported(tmp_path, caplog):
    path = tmp_path / "store.db"
    path.write_text("not a database")
    path.chmod(0o644)
    with pytest.raises(midturn.StoreUnavailable):
        await open_store(url_of("sqlite", tmp_path))
    assert reports(caplog) == []


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_a_store_that_midturn_made_is_not_reported(tmp_path, kind, caplog):
    caplog.set_level(logging.DEBUG)
    for _ in range(2):
        async with midturn.open(url_of(kind, tmp_path)) as store:
            await store.store.head("case-42")
    assert reports(caplog) == []


async def test_a_name_is_never_made_by_sqlite_itself(tmp_path, monkeypatch):
    monkeypatch.setattr("midturn.stores.sqlite.store.create_for_sqlite", lambda path: path.touch() or path.unlink())
    with pytest.raises(midturn.StoreUnavailable):
        await open_store(url_of("sqlite", tmp_path))
    assert modes(tmp_path) == {}


async def test_threads_that_make_a_file_together_keep_their_locks(tmp_path):
    stores = await asyncio.gather(*(open_store(url_of("sqlite", tmp_path)) for _ in range(8)))
    await asyncio.gather(*(store.write(a_write(f"case-{n}")) for n, store in enumerate(stores)))
    assert len(await stores[0].heads()) == 8
    for store in stores:
        await store.close()


@pytest.mark.parametrize(
    ("url", "how"),
    [
        ("postgresql://me:kanari@db.invalid/x", "sslmode=verify-full"),
        ("postgresql://me:kanari@db.invalid/x?sslmode=prefer", "sslmode=verify-full"),
        ("postgresql:///x?host=db.invalid", "sslmode=verify-full"),
        ("redis://me:kanari@db.invalid", "rediss"),
        ("redis+cluster://me:kanari@db.invalid,127.0.0.1:1", "rediss"),
        ("redis+sentinel://me:kanari@db.invalid/service", "rediss"),
    ],
)
async def test_a_remote_server_without_tls_is_reported_once(url, how, caplog):
    for _ in range(2):
        with pytest.raises(midturn.StoreUnavailable):
            await open_store(url)
    [said] = reports(caplog)
    assert "db.invalid" in said
    assert how in said
    assert "kanari" not in said


@pytest.mark.parametrize(
    "url",
    [
        *("postgresql://me@127.0.0.1:1/x", "postgresql://me@localhost:1/x", "postgresql://me@[::1]:1/x"),
        *("postgresql:///x?host=/no/such/socket", "postgresql://me@db.invalid/x?sslmode=verify-full"),
        *("postgresql://me@db.invalid/x?sslmode=require", "postgresql://me@db.invalid/x?ssl=true"),
        *("redis://127.0.0.1:1", "redis://localhost:1", "redis://[::1]:1", "rediss://db.invalid"),
    ],
)
async def test_tls_and_a_server_on_this_machine_are_not_reported(url, caplog):
    with pytest.raises(midturn.StoreUnavailable):
        await open_store(url)
    assert reports(caplog) == []


async def test_the_environment_can_ask_for_tls(monkeypatch, caplog):
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    with pytest.raises(midturn.StoreUnavailable):
        await open_store("postgresql://me@db.invalid/x")
    assert reports(caplog) == []
