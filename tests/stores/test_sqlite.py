"""Special to SQLite: one file, its locks, its damage, and other processes that use it."""

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from midturn.errors import (
    Conflict,
    HistoryLost,
    MidturnError,
    OutcomeUnknown,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
    UnknownVersion,
)
from midturn.record.head import Kind
from midturn.stores.sqlite import store as sqlite
from midturn.stores.sqlite.errors import translated
from midturn.stores.sqlite.store import SqliteStore
from midturn.testing import a_removal, a_row, a_write

CANARY = b"the customer's secret"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "support.db"


@asynccontextmanager
async def opened(path, **options):
    store = await SqliteStore.open(path, **options)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(path):
    async with opened(path) as store:
        yield store


@contextmanager
def python(script, *arguments, under=()):
    """Another process; it is gone afterwards, whatever happens."""
    command = [*under, sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    db.execute(statement).fetchall()
print("held", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
print("released", flush=True)
sys.stdin.readline()
"""


class Lock:
    """The write lock, held by another process."""

    def __init__(self, process):
        self._process = process
        assert process.stdout.readline() == "held\n"

    def release(self):
        print(file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "released\n"


@contextmanager
def locked(path):
    with python(HOLD, path, "BEGIN IMMEDIATE") as process:
        yield Lock(process)


def query(path, sql):
    """Return what another connection finds in the file."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def everything(folder):
    """Every file below the folder, with its bytes and the time of its last change."""
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.rglob("*") if file.is_file()}


async def refused(path, error=StoreUnavailable):
    """Opening fails, tells the path and leaves no thread; the message."""
    with pytest.raises(error) as caught:
        await SqliteStore.open(path)
    async with asyncio.timeout(60):
        while any(thread.name == "midturn-sqlite" for thread in threading.enumerate()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert str(path.parent) in str(caught.value)
    return str(caught.value)


# What the file is


async def test_the_file_says_what_it_is(store, path):
    await store.write(a_write())
    for name, expected in {
        "journal_mode": "wal",
        "application_id": sqlite.APPLICATION_ID,
        "user_version": sqlite.SCHEMA,
        "auto_vacuum": 2,
        "page_size": sqlite.PAGE_SIZE,
        "encoding": "UTF-8",
    }.items():
        assert query(path, f"PRAGMA {name}") == [(expected,)], name


async def test_every_commit_waits_for_the_disk(store):
    for name, expected in {"synchronous": 2, "fullfsync": 1, "checkpoint_fullfsync": 1, "secure_delete": 1}.items():
        assert await store._run(lambda name=name: store._db.execute(f"PRAGMA {name}").fetchone()) == (expected,), name


async def test_a_file_that_would_not_be_durable_is_refused(path, monkeypatch):
    monkeypatch.setitem(sqlite._SQL, "settings", "PRAGMA synchronous = NORMAL;")
    assert "durable" in await refused(path)


async def test_a_commit_is_four_kinds_of_statements(store):
    await store.write(a_write())
    seen = []
    await store._run(lambda: store._db.set_trace_callback(seen.append))
    await store.write(a_write(seq=1, rows=[a_row(n) for n in range(3)]))
    assert [statement.split()[0] for statement in seen] == [
        "BEGIN",
        "UPDATE",
        "INSERT",
        "INSERT",
        "INSERT",
        "COMMIT",
    ]


async def test_a_new_file_has_no_page_that_is_of_no_use(store):
    assert await store._run(lambda: store._db.execute("PRAGMA freelist_count").fetchone()) == (0,)


async def test_a_session_is_looked_up_again_in_a_file_that_was_brought_back(path):
    """A backup may be copied into the same file, where sessions are other rows."""
    async with opened(path.with_name("backup.db")) as backup:
        await backup.write(a_write("case-7", rows=[a_row(1, b"of 7")]))
        await backup.write(a_write("case-42", rows=[a_row(1, b"of 42")]))
    async with opened(path) as store:
        await store.write(a_write("case-42", rows=[a_row(1, b"new")]))
        with closing(sqlite3.connect(backup._path)) as source, closing(sqlite3.connect(path)) as target:
            source.backup(target)
        await store.write(a_write("case-42", seq=1, rows=[a_row(2, b"on")]))
        assert [row.data for row in await store.rows("case-42", Kind.BODY)] == [b"of 42", b"on"]
        assert [row.data for row in await store.rows("case-7", Kind.BODY)] == [b"of 7"]
        assert (await store.head("case-7")).seq == 1


async def test_sessions_are_not_remembered_without_end(store, monkeypatch):
    monkeypatch.setattr(sqlite, "KNOWN", 3)
    for seq in range(2):
        for number in range(9):
            assert (await store.write(a_write(f"case-{number}", seq=seq))).seq == seq + 1
            assert len(store._known) <= 3
    assert list(store._known) == ["case-6", "case-7", "case-8"]
    assert (await store.write(a_write("case-6", seq=2))).seq == 3
    assert list(store._known) == ["case-6", "case-7", "case-8"], "one that is known needs no room"


async def test_listing_follows_the_index_without_sorting(store):
    values = {"after": "", "prefix": "", "last": "", "status": None}
    explain = "EXPLAIN QUERY PLAN " + sqlite._SQL["heads"]
    plan = await store._run(lambda: store._db.execute(explain, values).fetchall())
    assert len(plan) == 1
    assert "USING INDEX" in plan[0][-1]


async def test_closing_leaves_one_file_and_no_thread(path):
    async with opened(path) as store:
        await store.write(a_write())
        assert store._thread.is_alive()
        assert len(list(path.parent.iterdir())) == 3
    assert not store._thread.is_alive()
    assert list(path.parent.iterdir()) == [path]
    await store.close()


async def test_a_process_ends_without_closing(path):
    script = """
import asyncio, sys
from midturn.stores.sqlite.store import SqliteStore
from midturn.testing import a_write
stores = []
async def main():
    stores.append(await SqliteStore.open(sys.argv[1]))
    await stores[0].write(a_write())
asyncio.run(main())
"""
    with python(script, path) as process:
        assert process.wait(60) == 0
    async with opened(path) as store:
        assert (await store.head("case-42")).seq == 1


@pytest.mark.parametrize("name", [":memory:", "file:a?mode=memory", "a b%20#?.db"])
async def test_a_name_that_means_something_to_sqlite_is_a_file(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seq in range(2):
        async with opened(name) as store:
            monkeypatch.chdir("/")
            await store.write(a_write(seq=seq))
        monkeypatch.chdir(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]


# What is not ours


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
async def test_another_programs_database_is_left_as_it_is(path, mode):
    # In a process of its own: reading the file here would release the locks of a connection in this one.
    statements = (f"PRAGMA journal_mode = {mode}", "CREATE TABLE sessions (name)", "BEGIN")
    with python(HOLD, path, *statements) as other:
        assert other.stdout.readline() == "held\n"
        before = everything(path.parent)
        assert len(before) == (3 if mode == "WAL" else 1)
        assert "not made by midturn" in await refused(path)
        assert everything(path.parent) == before
    before = everything(path.parent)
    assert "not made by midturn" in await refused(path)
    assert everything(path.parent) == before


@pytest.mark.parametrize("content", [b"x", b"SQLite format 3\0", b"Dear customer,\n" * 2_000, bytes(20_000)])
async def test_a_file_that_is_no_database_is_left_as_it_is(path, content):
    path.write_bytes(content)
    before = everything(path.parent)
    assert "choose another file" in await refused(path)
    assert everything(path.parent) == before


@pytest.mark.parametrize("version", [sqlite.SCHEMA + 1, -1])
async def test_a_newer_schema_is_left_as_it_is(path, version):
    async with opened(path) as store:
        await store.write(a_write())
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    assert "upgrade midturn" in await refused(path, UnknownVersion)
    assert path.read_bytes() == before


async def test_an_empty_file_becomes_a_store(path):
    path.touch()
    async with opened(path) as store:
        assert (await store.write(a_write())).seq == 1


async def test_a_directory_is_refused(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    assert "not a file" in await refused(folder)
    assert list(folder.iterdir()) == []


async def test_a_missing_directory_is_refused_and_not_made(tmp_path):
    assert "create it" in await refused(tmp_path / "missing" / "support.db")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def shared_folder():
    """Not tmp_path, which only its owner may enter."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


@contextmanager
def allowed(modes):
    """This process may only do what the modes say, even if it is root's."""
    for path, mode in modes.items():
        path.chmod(mode)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="permissions of POSIX")
@pytest.mark.parametrize(("file", "folder"), [(0o444, 0o777), (0o000, 0o777), (0o666, 0o555), (None, 0o555)])
async def test_without_permission_it_says_what_is_needed(shared_folder, file, folder):
    path = shared_folder / "support.db"
    modes = {shared_folder: folder}
    if file is not None:
        async with opened(path) as store:
            await store.write(a_write())
        modes[path] = file
    with allowed(modes):
        assert "let this user read and write" in await refused(path)


# Tables


async def test_the_tables_are_made_whole_or_not_at_all(path, monkeypatch):
    for script in ("CREATE TABLE more (n);\nCREATE TABLE more (n);\n", "CREATE TABLE more (n);\nnonsense;\n"):
        monkeypatch.setattr(sqlite, "script", {"sqlite/schema.sql": script}.__getitem__)
        await refused(path)
        assert query(path, "PRAGMA user_version") == [(0,)]
        assert query(path, "SELECT sql FROM sqlite_schema") == []
    monkeypatch.undo()
    for _ in range(2):
        async with opened(path) as store:
            head = await store.head("case-42")
            await store.write(a_write(seq=head.seq if head else 0))
        assert query(path, "PRAGMA user_version") == [(sqlite.SCHEMA,)]


async def test_many_processes_make_the_file_together(path):
    script = """
import asyncio, sys
from midturn.errors import Conflict
from midturn.stores.sqlite.store import SqliteStore
from midturn.testing import a_row, a_write
async def main(path, name):
    print("ready", flush=True)
    sys.stdin.readline()
    won = 0
    for _ in range(5):
        store = await SqliteStore.open(path)
        head = await store.head("shared")
        seq = head.seq if head else 0
        try:
            await store.write(a_write("shared", seq, rows=[a_row(seq)]))
            won += 1
        except Conflict:
            pass
        await store.close()
    print(won)
asyncio.run(main(*sys.argv[1:]))
"""
    with ExitStack() as stack:
        processes = [stack.enter_context(python(script, path, number)) for number in range(4)]
        assert [process.stdout.readline() for process in processes] == ["ready\n"] * 4
        for process in processes:
            print(file=process.stdin, flush=True)
        won = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert query(path, "SELECT seq FROM sessions") == query(path, "SELECT count(*) FROM rows") == [(sum(won),)]
    assert query(path, "PRAGMA integrity_check") == [("ok",)]


# Locks and time


@contextmanager
def impatient(store):
    """Only for these calls: the disk may be slow to open a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_deadline", 0.3)
        yield


async def test_a_lock_of_another_process_blocks_neither_the_loop_nor_reading(store, path):
    await store.write(a_write())
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    with locked(path) as lock:
        ticker = asyncio.create_task(tick())
        with impatient(store), pytest.raises(StoreUnavailable, match="another process") as caught:
            await store.write(a_write(seq=1, rows=[a_row(1)]))
        ticker.cancel()
        assert ticks > 1
        assert not isinstance(caught.value, OutcomeUnknown)
        assert caught.value.session == "case-42"
        assert (await store.head("case-42")).seq == 1
        lock.release()
    assert (await store.head("case-42")).seq == 1
    assert (await store.write(a_write(seq=1, rows=[a_row(1)]))).seq == 2


async def test_a_write_waits_for_a_lock_that_is_released_in_time(store, path):
    with locked(path) as lock:
        waiting = asyncio.create_task(store.write(a_write()))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        lock.release()
        assert (await waiting).seq == 1


async def test_a_locked_file_cannot_be_opened_but_later(store, path):
    with locked(path) as lock:
        with pytest.raises(StoreUnavailable, match="another process"):
            await SqliteStore.open(path, deadline=0.3)
        lock.release()
        async with opened(path) as other:
            assert await other.head("case-42") is None


async def test_a_cancelled_write_that_waits_for_the_lock_is_given_up(store, path):
    with locked(path) as lock:
        waiting = asyncio.create_task(store.write(a_write()))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await store.head("case-42") is None
        lock.release()
        assert await store.head("case-42") is None
        assert (await store.write(a_write())).seq == 1


async def test_a_commit_that_takes_too_long_has_an_unknown_outcome(store, monkeypatch):
    go_on = threading.Event()

    def stuck(session):
        if store._job.writing:
            go_on.wait()

    monkeypatch.setattr(store, "_check_caller", stuck)
    write = a_write(rows=[a_row(1)])
    with impatient(store):
        with pytest.raises(OutcomeUnknown):
            await store.write(write)
        with pytest.raises(StoreUnavailable) as caught:
            await store.head("case-42")
    assert not isinstance(caught.value, OutcomeUnknown)
    go_on.set()
    assert (await store.head("case-42")).token == write.token


async def test_a_read_that_takes_too_long_is_stopped(store):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with impatient(store), pytest.raises(StoreUnavailable, match=r"within 0\.3 s"):
        await store._read(lambda: store._db.execute(endless).fetchone())
    assert await store.head("case-42") is None


async def test_a_write_whose_caller_goes_half_way_is_rolled_back(path, monkeypatch):
    monkeypatch.setattr(sqlite, "STEPS", 1)
    async with opened(path) as store:

        def go(*args, advance=store._advance):
            store._job.drop()
            return advance(*args)

        with monkeypatch.context() as patch:
            patch.setattr(store, "_advance", go)
            with pytest.raises(StoreUnavailable) as caught:
                await store.write(a_write(rows=[a_row(1)]))
            assert not isinstance(caught.value, OutcomeUnknown)
        assert await store.head("case-42") is None
        assert (await store.write(a_write(rows=[a_row(1)]))).seq == 1


async def test_one_handle_serves_two_event_loops(store):
    def elsewhere(seq):
        return asyncio.run(store.write(a_write(seq=seq))).seq

    assert await asyncio.to_thread(elsewhere, 0) == 1
    assert (await store.write(a_write(seq=1))).seq == 2
    assert await asyncio.to_thread(elsewhere, 2) == 3


async def test_opening_a_file_twice_keeps_the_locks_of_the_first(store, path):
    await store.write(a_write())
    async with opened(path):
        pass
    # If the locks were gone, this process would be the last one to close the file, and remove the log.
    with python("import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM rows')", path) as process:
        assert process.wait(60) == 0
    assert (await store.write(a_write(seq=1))).seq == 2
    assert query(path, "SELECT seq FROM sessions") == [(2,)]


def in_a_child(work):
    """The exit code of a forked child that does the work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads, which is the point
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
async def test_a_forked_child_is_told_to_open_the_store_itself(store):
    def use():
        with pytest.raises(StoreUnavailable, match="open the store again"):
            store.head("case-42").send(None)
        with pytest.raises(StopIteration):  # nothing to wait for
            store.close().send(None)

    await store.write(a_write())
    assert in_a_child(use) == 0
    assert (await store.write(a_write(seq=1))).seq == 2


async def test_what_a_killed_process_was_told_is_there(path):
    script = """
import asyncio, sys
from midturn.stores.sqlite.store import SqliteStore
from midturn.testing import a_removal, a_row, a_write
async def main(path):
    store = await SqliteStore.open(path)
    seq = 0
    while True:
        seq = (await store.write(a_write(seq=seq, rows=[a_row(seq)]))).seq
        print(seq, flush=True)
asyncio.run(main(sys.argv[1]))
"""
    with python(script, path) as process:
        for _ in range(20):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        told = 20 + len([line for line in process.stdout if line.endswith("\n")])
    async with opened(path) as store:
        head = await store.head("case-42")
        assert told <= head.seq <= told + 1
        assert [row.n for row in await store.rows("case-42", Kind.BODY)] == list(range(head.seq))


# Space


async def test_a_full_disk_keeps_nothing_and_goes_on_when_there_is_space(store, path):
    await store.write(a_write(rows=[a_row(0)]))
    large = [a_row(n, bytes(100_000)) for n in range(1, 4)]
    (pages,) = await store._run(lambda: store._db.execute("PRAGMA page_count").fetchone())
    await store._run(lambda: store._db.execute(f"PRAGMA max_page_count = {pages + 1}").fetchall())
    with pytest.raises(StoreFull) as caught:
        await store.write(a_write(seq=1, rows=large))
    assert caught.value.session == "case-42"
    assert (await store.head("case-42")).seq == 1
    assert [row.n for row in await store.rows("case-42", Kind.BODY)] == [0]
    await store._run(lambda: store._db.execute("PRAGMA max_page_count = 1000000").fetchall())
    assert (await store.write(a_write(seq=1, rows=large))).seq == 2


async def test_deleted_content_is_in_no_file(store, path):
    for number in range(6):
        for seq in range(10):
            text = CANARY + b" %d" % number
            secret = {"labels": {"a": text.decode()}, "owner": text.decode(), "token": text.decode(), "data": text * 9}
            rows = [a_row(seq * 2, text * 50), a_row(seq * 2 + 1, text * (2_000 if seq == 5 else 1))]
            await store.write(a_write(f"case-{number}", seq, lease=9.0, rows=rows, **secret))
    for number in range(6):
        canary = CANARY + b" %d" % number
        assert any(canary in content for content, _ in everything(path.parent).values())
        assert await store.delete(f"case-{number}")
        assert not any(canary in content for content, _ in everything(path.parent).values())
    assert sum(file.stat().st_size for file in path.parent.iterdir() if not file.name.endswith("-shm")) < 140_000


async def test_a_reader_in_another_process_does_not_hinder_a_deletion(path):
    async with opened(path) as store:
        await store.write(a_write(rows=[a_row(0, CANARY)]))
        with python(HOLD, path, "BEGIN", "SELECT * FROM rows") as process:
            assert process.stdout.readline() == "held\n"
            assert await store.delete("case-42")
        assert await store.rows("case-42", Kind.BODY) == []


async def test_the_file_takes_little_more_than_its_rows(path):
    chance = random.Random(7)

    def said():
        return os.urandom(min(8_000, int(chance.lognormvariate(0, 0.8) * 700) + 100))

    size = 0
    async with opened(path) as store:
        for turn in range(600):
            begin = [a_row(turn * 2, said()), a_row(turn, os.urandom(40), kind=Kind.TURN)]
            await store.write(a_write(seq=turn * 2, rows=begin))
            end = [a_row(turn * 2 + 1, said()), a_row(turn, os.urandom(190), kind=Kind.CHECKPOINT)]
            await store.write(a_write(seq=turn * 2 + 1, rows=end))
            size += sum(len(row.data) for row in begin + end)
    assert path.stat().st_size < 1.25 * size


async def test_the_space_of_calls_is_used_again(path):
    async with opened(path) as store:
        for seq in range(400):
            rows = [a_row(seq, bytes(3_000), kind=Kind.CALL), a_row(seq, bytes(30))]
            await store.write(a_write(seq=seq, rows=rows, removes=[a_removal(max(0, seq - 20))]))
        assert [row.n for row in await store.rows("case-42", Kind.CALL)] == list(range(379, 400))
    assert path.stat().st_size < 400_000  # all that was ever written is three times as much


# Damage


async def test_a_damaged_page_is_named_and_the_rest_can_be_read(path):
    async with opened(path) as store:
        for session in ("broken", "whole"):
            for seq in range(40):
                await store.write(a_write(session, seq, rows=[a_row(seq, CANARY * 100)]))
    content = bytearray(path.read_bytes())
    place = content.index(CANARY * 2) // sqlite.PAGE_SIZE * sqlite.PAGE_SIZE
    content[place : place + 64] = b"\xa5" * 64
    path.write_bytes(content)
    async with opened(path) as store:
        with pytest.raises(StateInvalid, match="restore a backup") as caught:
            await store.rows("broken", Kind.BODY)
        assert caught.value.path == str(path)
        assert caught.value.session == "broken"
        assert CANARY.decode() not in str(caught.value)
        assert (await store.head("whole")).seq == 40
        assert (await store.rows("whole", Kind.BODY, start=30))[-1].n == 39


async def test_a_crash_in_the_middle_of_a_checkpoint_loses_nothing(path):
    async with opened(path) as store:
        for seq in range(20):
            await store.write(a_write(seq=seq, rows=[a_row(seq, bytes(5_000))]))
        for name in ("support.db", "support.db-wal"):  # not read here, which would release the store's locks
            subprocess.run(["cp", path.with_name(name), path.with_name(f"old-{name}")], check=True)  # noqa: ASYNC221
    # The log is complete, and of the pages only the first one has got into the file.
    old, new = path.with_name("old-support.db"), path.read_bytes()
    path.write_bytes(new[: sqlite.PAGE_SIZE] + old.read_bytes()[sqlite.PAGE_SIZE :])
    path.with_name("old-support.db-wal").rename(path.with_name("support.db-wal"))
    assert path.stat().st_size < len(new)
    async with opened(path) as store:
        assert (await store.head("case-42")).seq == 20
        assert len(await store.rows("case-42", Kind.BODY)) == 20


async def test_a_damaged_schema_is_refused(path):
    async with opened(path) as store:
        await store.write(a_write())
    content = bytearray(path.read_bytes())
    content[100:200] = b"\xa5" * 100
    path.write_bytes(content)
    assert "damaged" in await refused(path)


@pytest.mark.parametrize(
    "change", ["status = 'lost'", "data = 5", "labels = '[]'", "labels = 'x'", "seq = 'x'", "token = x'ff'"]
)
async def test_a_damaged_head_is_named_and_can_be_deleted(store, path, change):
    await store.write(a_write("broken", rows=[a_row(1)]))
    await store.write(a_write("whole"))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE sessions SET {change} WHERE name = 'broken'")
    with pytest.raises(StateInvalid):
        await store.head("broken")
    assert (await store.head("whole")).seq == 1
    if "seq" not in change:
        assert await store.delete("broken")
        assert (await store.head("broken")).status == "deleted"


async def test_a_damaged_row_is_named(store, path):
    await store.write(a_write(rows=[a_row(1), a_row(7, kind=Kind.DECISION)]))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE rows SET data = 'text' WHERE n = 7")
    with pytest.raises(StateInvalid) as caught:
        await store.rows("case-42", Kind.DECISION)
    assert (caught.value.path, caught.value.session) == ("decision 7", "case-42")
    assert await store.rows("case-42", Kind.BODY) == [a_row(1)]


async def test_an_error_never_quotes_what_is_stored(store, path):
    await store.write(a_write())
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET token = CAST(? AS TEXT)", (CANARY + b"\xff",))
    with pytest.raises(StateInvalid) as caught:
        await store.head("case-42")
    assert CANARY.decode() not in repr([caught.value, caught.value.__cause__, caught.value.args])
    assert caught.value.__suppress_context__


async def test_a_file_that_was_replaced_takes_no_more_writes(store, path):
    await store.write(a_write(rows=[a_row(1)]))
    path.rename(path.with_name("backup.db"))
    for _ in range(2):
        for call in (store.write(a_write(seq=1)), store.delete("case-42")):
            with pytest.raises(HistoryLost, match="was removed or replaced while it was open"):
                await call
        path.write_bytes(b"another file")


async def test_a_database_that_was_overwritten_in_its_place_stays_lost(store, path):
    await store.write(a_write(rows=[a_row(1)]))
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint").fetchall()
    assert (await store.write(a_write(seq=1))).seq == 2
    path.write_bytes(path.read_bytes())  # as cp does, and the log beside it belongs to another database
    for _ in range(2):
        for call in (store.head("case-42"), store.write(a_write(seq=2)), store.delete("case-42")):
            with pytest.raises(HistoryLost, match="was overwritten while it was open"):
                await call
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint").fetchall()


async def test_what_sqlite_itself_writes_into_the_database_is_no_loss(store, path):
    """Processes write the log into the database all the time, and are killed at it."""
    code = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=30)
while True:
    for mode in ("PASSIVE", "FULL", "RESTART", "TRUNCATE"):
        try:
            db.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
            print(mode, flush=True)
        except sqlite3.OperationalError:  # locked
            pass
"""
    seq = 0
    for _ in range(5):
        command = [sys.executable, "-c", code, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:  # noqa: ASYNC220
            writer.stdout.readline()
            for _ in range(40):
                seq = (await store.write(a_write(seq=seq, rows=[a_row(seq + 1, bytes(30_000))]))).seq
            writer.kill()
    assert len(await store.rows("case-42", Kind.BODY)) == seq


async def test_files_that_have_been_in_their_places_for_long_are_missed_as_well(tmp_path):
    """After some seconds, only the folder is looked at, until one of its entries changes."""
    deeds = {
        "log": lambda path: path.with_name("support.db-wal").unlink(),
        "index": lambda path: path.with_name("support.db-shm").unlink(),
        "database": lambda path: path.replace(path.with_name("elsewhere")),
        "folder": lambda path: path.parent.rename(tmp_path / "elsewhere"),
        "nothing": lambda path: path.with_name("another file").touch(),
    }
    async with AsyncExitStack() as stack:
        stores = {}
        for deed in deeds:
            (tmp_path / deed).mkdir()
            stores[deed] = await stack.enter_async_context(opened(tmp_path / deed / "support.db"))
            await stores[deed].write(a_write(rows=[a_row(1)]))
        for store in stores.values():
            while store._files.seen is None:
                await store.head("case-42")
                await asyncio.sleep(0.01)
        for deed, store in stores.items():
            assert (await store.write(a_write(seq=1))).seq == 2
            deeds[deed](tmp_path / deed / "support.db")
            if deed == "nothing":
                assert (await store.write(a_write(seq=2))).seq == 3
                continue
            for call in (store.head("case-42"), store.write(a_write(seq=2)), store.delete("case-42")):
                with pytest.raises(StoreUnavailable if deed == "index" else HistoryLost):
                    await call


async def test_a_log_that_goes_in_the_middle_of_a_commit_is_not_acknowledged(store, path, monkeypatch):
    await store.write(a_write(rows=[a_row(1)]))

    def go(session, check=store._check_caller):
        if store._job.writing:
            path.with_name("support.db-wal").unlink()
        check(session)

    monkeypatch.setattr(store, "_check_caller", go)
    with pytest.raises(HistoryLost, match="-wal was removed or replaced"):
        await store.write(a_write(seq=1, rows=[a_row(2)]))


@pytest.mark.parametrize("when", ["before", "inside"])
async def test_a_transaction_on_a_log_that_is_gone_is_not_acknowledged(store, path, when):
    log = path.with_name("support.db-wal")
    await store.write(a_write(rows=[a_row(1)]))
    if when == "before":
        log.unlink()

    async def transact():
        async with store.transaction() as transaction:
            await transaction.execute("CREATE TABLE mine (x)")
            log.unlink()
            await transaction.write(a_write(seq=1))

    with pytest.raises(HistoryLost, match="-wal was removed or replaced"):
        await transact()
    assert not log.exists(), "a connection has made another log"


async def test_a_link_to_the_file_is_followed_and_must_not_lead_elsewhere(path, tmp_path):
    (tmp_path / "disk").mkdir()
    for name in ("one.db", "other.db"):
        async with opened(tmp_path / "disk" / name):
            pass
    path.symlink_to(tmp_path / "disk" / "one.db")
    async with opened(path) as store:
        await store.write(a_write(rows=[a_row(1)]))
        path.unlink()
        path.symlink_to(tmp_path / "disk" / "other.db")
        with pytest.raises(HistoryLost):
            await store.write(a_write(seq=1))
        with pytest.raises(HistoryLost):
            await store.head("case-42")


# Errors


CODES = sorted(
    value
    for name, value in vars(sqlite3).items()
    if name.startswith("SQLITE_") and isinstance(value, int) and 0 < value & 0xFF <= 26
)


@pytest.mark.parametrize("session", [None, "case-42"])
def test_every_error_of_sqlite_becomes_one_of_ours(path, session):
    for code in CODES:
        error = sqlite3.OperationalError("message")
        error.sqlite_errorcode, error.sqlite_errorname = code, f"SQLITE_{code}"
        found = translated(error, path, session, writing=False)
        assert isinstance(found, MidturnError), code
        assert found.session == session
        assert str(found)
    of_python = sqlite3.OperationalError("of Python")
    assert isinstance(translated(of_python, path, session, writing=False), StateInvalid)


@pytest.mark.parametrize(("writing", "expected"), [(False, StoreUnavailable), (True, OutcomeUnknown)])
def test_a_failing_disk_makes_the_outcome_unknown_only_at_the_commit(path, writing, expected):
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR_FSYNC, "SQLITE_IOERR_FSYNC"
    assert type(translated(error, path, "case-42", writing=writing)) is expected


@pytest.mark.skipif(not shutil.which("strace"), reason="strace makes the disk fail")
@pytest.mark.parametrize("when", ["15", "15+", "15+2"])
async def test_after_a_failing_disk_reading_tells_what_opening_again_tells(path, when):
    script = """
import asyncio, sys
from midturn.errors import OutcomeUnknown
from midturn.stores.sqlite.store import SqliteStore
from midturn.testing import a_row, a_write
async def main(path):
    store = await SqliteStore.open(path)
    seq = failed = 0
    for _ in range(20):
        try:
            seq = (await store.write(a_write(seq=seq, rows=[a_row(seq)]))).seq
        except OutcomeUnknown:
            failed += 1
            seq = (await store.head("case-42")).seq
    print(seq, failed)
asyncio.run(main(sys.argv[1]))
"""
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"]
    inject = ["-e", f"inject=fdatasync:error=EIO:when={when}"]
    with python(script, path, under=[*strace, *inject]) as process:
        said = process.communicate(timeout=60)[0].split()
    if not said:
        pytest.skip("strace may not trace here")
    seq, failed = map(int, said)
    assert failed
    assert seq + failed == 20
    async with opened(path) as store:
        assert (await store.head("case-42")).seq == seq
        assert len(await store.rows("case-42", Kind.BODY)) == seq


async def test_every_call_after_closing_says_so(store):
    await store.close()
    calls = (
        store.head("case-42"),
        store.heads(),
        store.write(a_write()),
        store.rows("case-42", Kind.BODY),
        store.delete("case-42"),
    )
    for call in calls:
        with pytest.raises(StoreUnavailable, match="closed"):
            await call


async def test_labels_that_are_not_json_are_refused_before_the_write(store):
    with pytest.raises(StateInvalid, match="labels"):
        await store.write(a_write(labels={"team": "\ud800"}))
    assert await store.head("case-42") is None


async def test_a_label_with_a_nul_is_found_by_its_whole_value(store):
    await store.write(a_write(labels={"team": "a\0b"}))
    assert await store.heads(labels={"team": "a"}) == []
    assert len(await store.heads(labels={"team": "a\0b"})) == 1


async def test_the_lease_starts_when_the_lock_is_taken(store, path):
    with locked(path) as lock:
        waiting = asyncio.create_task(store.write(a_write(owner="me", lease=60.0)))
        await asyncio.sleep(0.2)
        released = time.time()
        lock.release()
        assert (await waiting).expires >= released + 60.0


async def test_a_conflict_leaves_no_transaction_open(store, path):
    await store.write(a_write(rows=[a_row(1)]))
    for write in (a_write(), a_write(seq=1, rows=[a_row(1)])):
        with pytest.raises(Conflict):
            await store.write(write)
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("order", ["id", "updated"])
async def test_a_head_with_values_that_no_head_has_is_named_and_left_out_of_lists(path, order, reverse, caplog):
    changes = (
        *("labels = '[1]'", "labels = '{\"a\": 1}'", "labels = x'00'", "labels = 'no JSON'"),
        *("status = x'00'", "status = 'odd'", "seq = -1", "seq = 'x'", "epoch = 1.5", "token = x'00'", "data = 'text'"),
        *("expires = 9e999", "expires = 1e300", "expires = 'x'", "created = -1", "owner = 7.5", "owner = x'00'"),
    )
    async with opened(path) as store:
        for name in ("a", *(f"bad {n}" for n in range(len(changes))), "z"):
            await store.write(a_write(name))
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            for n, change in enumerate(changes):
                db.execute(f"UPDATE sessions SET {change} WHERE name = 'bad {n}'")
            nested = "[" * 1000 + "]" * 1000
            db.execute("UPDATE sessions SET labels = ? WHERE name = 'bad 0'", (nested,))
        for n in range(len(changes)):
            if changes[n] != "owner = 7.5":  # which the column makes a text
                with pytest.raises(StateInvalid, match=f"bad {n}"):
                    await store.head(f"bad {n}")
        for limit in (1, 2, 100):
            found = [head.session for head in await store.heads(limit=limit, order=order, reverse=reverse)]
            assert set(found) - {"bad 15"} <= {"a", "z"}
        assert {"a", "z"} <= set(found)


async def test_a_row_whose_number_is_none_is_damage(path):
    async with opened(path) as store:
        await store.write(a_write(rows=[a_row(1), a_row(2)]))
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("UPDATE rows SET n = 1.5 WHERE n = 1")
        with pytest.raises(StateInvalid, match="damaged"):
            await store.rows("case-42", Kind.BODY)
