"""A write and the caller's own statements are one transaction: all of it, or nothing."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import cache

import psycopg
import pytest
from tools.servers import PgBouncer, Postgres, Proxy
from tools.servers.shared import store_url

from midturn.errors import (
    Conflict,
    InvalidArgument,
    MidturnError,
    OutcomeUnknown,
    SessionDeleted,
    StoreFull,
    StoreUnavailable,
)
from midturn.record.head import Kind
from midturn.store import Transactional
from midturn.stores.postgres.pool import RESERVED, SIZE
from midturn.stores.postgres.store import PostgresStore
from midturn.stores.postgres.transaction import first_word
from midturn.stores.registry import open_store
from midturn.stores.sqlite.store import SqliteStore
from midturn.testing import a_removal, a_row, a_write
from midturn.testing.subject import snapshot

pytestmark = pytest.mark.xdist_group("transactions")


@cache
def server():
    """Started once; it ends with the process."""
    server = Postgres()
    server.start()
    return server


@cache
def bouncer():
    bouncer = PgBouncer(server())
    bouncer.start()
    return bouncer


class Opened:
    """A database with a table of the caller's, on which midturn has a store."""

    def __init__(self, kind, folder, name):
        self.kind = "sqlite" if kind == "sqlite" else "postgres"
        self.many = kind != "pgbouncer"  # it has one connection to the server
        self.table = f"orders_{name}"
        self.path = folder / "support.db"
        urls = {"sqlite": lambda: f"sqlite:///{self.path}", "postgres": lambda: server().url}
        urls["pgbouncer"] = lambda: bouncer().url
        self.url = urls[kind]() + ("" if kind == "sqlite" else f"?schema=t_{name}")
        self.error = sqlite3.Error if kind == "sqlite" else psycopg.Error
        mark = "?" if kind == "sqlite" else "%s"
        self.insert = f"INSERT INTO {self.table} (id, item) VALUES ({mark}, {mark})"

    @asynccontextmanager
    async def opened(self, deadline=20.0, url=None):
        cls = SqliteStore if self.kind == "sqlite" else PostgresStore
        store = await cls.open(self.path if self.kind == "sqlite" else url or self.url, deadline=deadline)
        try:
            yield store
        finally:
            await store.close()

    def sql(self, statement):
        """Return what a program that knows nothing of midturn finds."""
        if self.kind == "postgres":
            return server().execute(statement)
        with closing(sqlite3.connect(self.path)) as db:
            found = db.execute(statement).fetchall()
            db.commit()
            return found

    def orders(self):
        return [item for (item,) in self.sql(f"SELECT item FROM {self.table} ORDER BY id")]


@pytest.fixture(params=["sqlite", "postgres", "pgbouncer"])
async def at(request, tmp_path):
    at = Opened(request.param, tmp_path, f"{abs(hash(request.node.nodeid)):x}")
    async with at.opened():
        at.sql(f"CREATE TABLE {at.table} (id integer PRIMARY KEY, item text NOT NULL)")
    return at


@pytest.fixture
async def store(at):
    async with at.opened() as store:
        yield store


@contextmanager
def impatient(store, deadline):
    """Only for these calls: on a busy machine, opening a store takes its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_deadline", deadline)
        yield


async def until(true):
    """Poll what a server or another task does."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - servers tell nobody
            await asyncio.sleep(0.01)


async def both(at, store, write, number=1):
    """A statement and a write, in one transaction."""
    async with store.transaction() as transaction:
        await transaction.execute(at.insert, (number, "pump"))
        return await transaction.write(write)


async def test_which_stores_have_transactions(tmp_path):
    for kind in ("memory", "file", "sqlite", "postgres", "redis"):
        store = await open_store(store_url(kind, tmp_path / kind))
        assert isinstance(store, Transactional) is (kind in {"sqlite", "postgres"})
        await store.close()


async def test_the_statements_and_the_write_take_effect_together(at, store):
    await store.write(a_write(rows=[a_row(1, kind=Kind.CALL)]))
    async with store.transaction() as transaction:
        assert await transaction.execute(at.insert, (1, "pump")) == []
        assert await transaction.execute(f"SELECT id, item FROM {at.table}") == [(1, "pump")]
        assert at.orders() == []
        if at.many:
            assert (await store.head("case-42")).seq == 1, "readers still read"
        written = await transaction.write(a_write(seq=1, rows=[a_row(2, kind=Kind.CALL)], removes=[a_removal(2)]))
        assert at.orders() == ["pump"]
        assert (await store.head("case-42")).token == written.token
    head, rows = await snapshot(store, "case-42")
    assert (head.seq, head.created <= head.updated, rows) == (2, True, (a_row(2, kind=Kind.CALL),))
    assert (await store.write(a_write(seq=2))).seq == 3


async def test_a_transaction_may_make_a_session(at, store):
    async with store.transaction() as transaction:
        await transaction.execute(at.insert, (1, "pump"))
        await transaction.write(a_write("new", rows=[a_row(1)], labels={"team": "claims"}))
    assert [head.session for head in await store.heads(labels={"team": "claims"})] == ["new"]
    assert at.orders() == ["pump"]


async def test_parameters_are_by_place_or_by_name(at, store):
    names = ":id, :item" if at.kind == "sqlite" else "%(id)s, %(item)s"
    async with store.transaction() as transaction:
        await transaction.execute(f"INSERT INTO {at.table} VALUES ({names})", {"id": 2, "item": "100 % '; --"})
        await transaction.execute(f"INSERT INTO {at.table} VALUES (3, 'like %')")
        assert await transaction.execute(f"SELECT item FROM {at.table} WHERE id > 1 ORDER BY id") == [
            ("100 % '; --",),
            ("like %",),
        ]
        await transaction.write(a_write())
    assert at.orders() == ["100 % '; --", "like %"]


@pytest.mark.parametrize("how", ["left", "raised"])
async def test_a_block_that_ends_without_the_write_is_rolled_back(at, store, how):
    for _ in range(3):
        with suppress(ZeroDivisionError):
            async with store.transaction() as transaction:
                await transaction.execute(at.insert, (1, "pump"))
                assert how == "left" or 1 / 0
        assert at.orders() == []
    assert await store.head("case-42") is None
    with pytest.raises(InvalidArgument, match="it is over"):
        await transaction.execute(at.insert, (1, "pump"))
    with pytest.raises(InvalidArgument, match="it is over"):
        await transaction.write(a_write())
    at.sql(f"INSERT INTO {at.table} VALUES (1, 'nobody holds a lock')")


async def test_a_cancelled_block_is_rolled_back(at, store):
    async def work():
        async with store.transaction() as transaction:
            await transaction.execute(at.insert, (1, "pump"))
            began.set()
            await asyncio.sleep(3600)

    for _ in range(3):
        began = asyncio.Event()
        task = asyncio.create_task(work())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert at.orders() == []
    assert (await store.write(a_write())).seq == 1


async def test_a_transaction_that_is_cancelled_anywhere_is_whole_or_nothing(at, store):
    async def work(number):
        async with store.transaction() as transaction:
            await transaction.execute(at.insert, (number, f"case-{number}"))
            await transaction.write(a_write(f"case-{number}", rows=[a_row(1)]))

    whole = 0
    for number in range(40):
        task = asyncio.create_task(work(number))
        await asyncio.sleep(number / 4000)
        task.cancel()
        await asyncio.wait([task])
        head, rows = await snapshot(store, f"case-{number}")
        assert (head is not None) == (f"case-{number}" in at.orders())
        assert rows == ((a_row(1),) if head else ())
        whole += head is not None
    async with asyncio.timeout(60):
        await work(99)
    assert whole < 40


@pytest.mark.parametrize("seq", [0, 2])
async def test_a_conflict_rolls_the_statements_back(at, store, seq):
    await store.write(a_write(rows=[a_row(1)]))
    before = await snapshot(store, "case-42")
    for write in (
        a_write(seq=seq, rows=[a_row(2)]),
        a_write(seq=1, after="another"),
        a_write(seq=1, rows=[a_row(2), a_row(1)]),
    ):
        with pytest.raises(Conflict) as caught:
            await both(at, store, write)
        assert caught.value.session == "case-42"
        assert (at.orders(), await snapshot(store, "case-42")) == ([], before)
    async with store.transaction() as transaction:
        await transaction.execute(at.insert, (1, "pump"))
        with pytest.raises(Conflict):
            await transaction.write(a_write(seq=seq))
        with pytest.raises(InvalidArgument, match="it is over"):
            await transaction.execute(at.insert, (1, "pump"))
    assert at.orders() == []


async def test_a_deleted_session_rolls_the_statements_back(at, store):
    await store.write(a_write())
    await store.delete("case-42")
    with pytest.raises(SessionDeleted):
        await both(at, store, a_write(seq=2))
    assert at.orders() == []


async def test_what_is_wrong_with_a_statement_is_the_drivers_error_and_the_others_stay(at, store):
    async with store.transaction() as transaction:
        await transaction.execute(at.insert, (1, "pump"))
        for statement, values in (
            (at.insert, (1, "again")),
            (at.insert, (2, None)),
            (at.insert, (3,)),
            ("INSERT INTO nowhere VALUES (1)", ()),
            ("nonsense", ()),
        ):
            with pytest.raises(at.error):
                await transaction.execute(statement, values)
        await transaction.execute(at.insert, (4, "hose"))
        with pytest.raises(at.error):
            await transaction.execute(at.insert, (4, "again"))
        await transaction.write(a_write())
    assert at.orders() == ["pump", "hose"]


CONTROL = [
    "COMMIT",
    "ROLLBACK",
    "BEGIN",
    " end",
    "\n;commit work",
    "savepoint a",
    "-- why\nCOMMIT",
    "/* so */ RollBack",
]


@pytest.mark.parametrize("statement", CONTROL)
async def test_a_statement_cannot_end_the_transaction(at, store, statement):
    async with store.transaction() as transaction:
        await transaction.execute(at.insert, (1, "pump"))
        if not (at.kind == "sqlite" and statement.lstrip().startswith(";")):  # which is an empty statement there
            with pytest.raises(InvalidArgument, match="midturn itself begins and ends"):
                await transaction.execute(statement)
        with pytest.raises((at.error, sqlite3.Warning)):
            await transaction.execute(f"SELECT 1; {statement.replace('-- why', '')}")
        assert at.orders() == []
        await transaction.execute(at.insert, (2, "hose"))
    assert at.orders() == []


def test_the_first_word_is_found_where_postgres_finds_it():
    for text in (
        "COMMIT",
        " ;\t commit;",
        "--a\rcommit",
        "--a\n--b\ncommit",
        "/*a/*b*/c*/commit",
        "/**//**/ Commit/**/",
    ):
        assert first_word(text) == "COMMIT"
    for text in ("", "--commit", "/*commit", "/*/*commit*/commit", "'commit'", '"commit"', "(commit)"):
        assert first_word(text) == ""
    assert first_word("select 'commit'") == "SELECT"


async def test_a_constraint_that_is_checked_at_the_end_is_the_drivers_error(at, store):
    child = f"{at.table}_lines"
    at.sql(
        f"CREATE TABLE {child} (n integer PRIMARY KEY, of_order integer NOT NULL "
        f"REFERENCES {at.table} (id) DEFERRABLE INITIALLY DEFERRED)"
    )
    for _ in range(2):
        async with store.transaction() as transaction:
            await transaction.execute(f"INSERT INTO {child} VALUES (1, 7)")
            with pytest.raises(at.error, match=r"(?i)foreign key"):
                await transaction.write(a_write())
        assert (await store.head("case-42"), at.sql(f"SELECT * FROM {child}")) == (None, [])
    async with store.transaction() as transaction:
        await transaction.execute(f"INSERT INTO {child} VALUES (1, 7)")
        await transaction.execute(at.insert, (7, "pump"))
        await transaction.write(a_write())
    assert at.orders() == ["pump"]


async def test_two_transactions_at_once_both_take_effect(at):
    async def work(store, number):
        async with store.transaction() as transaction:
            await transaction.execute(at.insert, (number, f"item {number}"))
            await asyncio.sleep(0.05)
            await transaction.write(a_write(f"case-{number}"))

    async with at.opened() as one, at.opened() as two, asyncio.timeout(60):
        await asyncio.gather(*(work(store, 2 * i + j) for i in range(2) for j, store in enumerate((one, two))))
        assert at.orders() == [f"item {number}" for number in range(4)]
        assert len(await one.heads()) == 4


async def test_of_two_transactions_of_one_session_one_wins(at):
    async def work(store, number):
        async with store.transaction() as transaction:
            await transaction.execute(at.insert, (number, f"item {number}"))
            return await transaction.write(a_write(rows=[a_row(number)]))

    async with at.opened() as one, at.opened() as two, asyncio.timeout(60):
        results = await asyncio.gather(*(work(store, n) for n, store in enumerate((one, two))), return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["Conflict", "Head"]
        won = next(number for number, result in enumerate(results) if not isinstance(result, Conflict))
        assert at.orders() == [f"item {won}"]
        assert (await snapshot(one, "case-42"))[1] == (a_row(won),)


async def test_a_closed_store_begins_none(at):
    async with at.opened() as store:
        pass
    with pytest.raises(StoreUnavailable, match="closed"):
        async with store.transaction():
            pass


CHILD = """
import asyncio, os, signal, sys
from midturn.testing import a_row, a_write
from midturn.stores.registry import open_store

async def main(url, insert, moment):
    store = await open_store(url)
    async with store.transaction() as transaction:
        await transaction.execute(insert, (1, "pump"))
        if moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        await transaction.write(a_write(rows=[a_row(1)]))
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_process_that_is_killed_leaves_both_or_nothing(at, store, moment):
    run = [sys.executable, "-c", CHILD, at.url, at.insert, moment]
    done = await asyncio.to_thread(subprocess.run, run, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    head, rows = await snapshot(store, "case-42")
    if moment == "before":
        assert (head, rows, at.orders()) == (None, (), [])
        await asyncio.to_thread(at.sql, f"INSERT INTO {at.table} VALUES (1, 'free again')")
    else:
        assert (head.seq, rows, at.orders()) == (1, (a_row(1),), ["pump"])


async def test_a_statement_that_takes_too_long_ends_the_transaction(at):
    slow = {
        "sqlite": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n",
        "postgres": "SELECT pg_sleep(3600)",
    }[at.kind]
    async with at.opened() as store:
        with impatient(store, 1.5):
            async with store.transaction() as transaction:
                await transaction.execute(at.insert, (1, "pump"))
                with pytest.raises((StoreUnavailable, psycopg.errors.QueryCanceled)):
                    await transaction.execute(slow)
                with suppress_over():
                    await transaction.execute(at.insert, (2, "hose"))
        assert at.orders() == []
        async with store.transaction() as transaction:
            await transaction.execute(at.insert, (1, "pump"))
            await transaction.write(a_write())
    assert at.orders() == ["pump"]


@contextmanager
def suppress_over():
    try:
        yield
    except InvalidArgument as error:
        assert "over" in str(error) or "rolled" in str(error)  # noqa: PT017 - it may also go on


# SQLite


@pytest.fixture
async def file(tmp_path):
    at = Opened("sqlite", tmp_path, "x")
    async with at.opened():
        at.sql(f"CREATE TABLE {at.table} (id integer PRIMARY KEY, item text NOT NULL)")
    return at


HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
"""


def running(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def test_a_file_that_another_process_holds_is_waited_for_until_the_deadline(file):
    async with file.opened() as store, file.opened() as hasty:
        with running(HOLD, file.path) as other:
            try:
                assert other.stdout.readline() == "held\n"
                with impatient(hasty, 0.5), pytest.raises(StoreUnavailable, match=r"did not respond within 0.5 s"):
                    async with hasty.transaction():
                        pytest.fail("it has not the lock")
                entering = store.transaction()
                task = asyncio.create_task(entering.__aenter__())
                await asyncio.sleep(0.2)
                assert not task.done()
            finally:
                other.kill()
        transaction = await task
        await transaction.execute(file.insert, (1, "pump"))
        await transaction.write(a_write())
        await entering.__aexit__(None, None, None)
    assert file.orders() == ["pump"]


async def test_the_tables_of_midturn_are_not_written(file):
    async with file.opened() as store:
        await store.write(a_write(rows=[a_row(1)]))
        before = await snapshot(store, "case-42")
        async with store.transaction() as transaction:
            for statement in (
                "DELETE FROM rows",
                "UPDATE Sessions SET seq = 9",
                "INSERT INTO main.rows VALUES (1, 1, 2, x'00')",
                "DROP TABLE sessions",
                "ALTER TABLE rows RENAME TO lost",
            ):
                with pytest.raises(InvalidArgument, match="midturn's own"):
                    await transaction.execute(statement)
            assert await transaction.execute("SELECT count(*) FROM sessions") == [(1,)]
            await transaction.execute("CREATE TABLE sessions_of_mine (n)")
            await transaction.write(a_write(seq=1))
        assert (await snapshot(store, "case-42"))[1] == before[1]
    assert file.sql("SELECT * FROM sessions_of_mine") == []


async def test_a_statement_that_rolls_back_by_itself_ends_the_transaction(file):
    for last in ("execute", "write"):
        async with file.opened() as store, store.transaction() as transaction:
            await transaction.execute(file.insert, (1, "pump"))
            with pytest.raises(sqlite3.IntegrityError):
                await transaction.execute(f"INSERT OR ROLLBACK INTO {file.table} VALUES (1, 'again')")
            with pytest.raises(MidturnError, match="the database has rolled the transaction back"):
                await (
                    transaction.execute(file.insert, (2, "hose")) if last == "execute" else transaction.write(a_write())
                )
        assert file.orders() == []


async def test_a_commit_that_hangs_is_unknown_until_it_has_ended(file, monkeypatch):
    go_on = threading.Event()
    async with file.opened() as store:
        await store.write(a_write())
        with impatient(store, 0.6):
            async with store.transaction() as transaction:
                await transaction.execute(file.insert, (1, "pump"))
                own = transaction._own
                monkeypatch.setattr(own, "_check_caller", lambda session: go_on.wait(120) if own._job.writing else None)
                with pytest.raises(OutcomeUnknown):
                    await transaction.write(a_write(seq=1, token="late"))
        go_on.set()  # not before the block was left, which does not wait for it
        assert (await settled(store)).token == "late"
        assert file.orders() == ["pump"]


async def test_a_transaction_is_synced_as_any_write_is(file):
    async with file.opened() as store, store.transaction() as transaction:
        assert await transaction.execute("PRAGMA synchronous") == [(2,)]
        assert await transaction.execute("PRAGMA foreign_keys") == [(1,)]


# Postgres


@pytest.fixture
async def base(request, tmp_path):
    at = Opened("postgres", tmp_path, f"{abs(hash(request.node.nodeid)):x}")
    async with at.opened():
        at.sql(f"CREATE TABLE {at.table} (id integer PRIMARY KEY, item text NOT NULL)")
    return at


@pytest.fixture
def proxy():
    with Proxy(server().port, kind="postgres") as proxy:
        yield proxy


@pytest.mark.parametrize("seq", [0, 1])
@pytest.mark.parametrize("moment", ["insert", "write", "commit", "committed"])
async def test_a_connection_that_is_cut_leaves_both_or_nothing(base, proxy, moment, seq):
    async with base.opened(url=proxy.url_through(base.url)) as store:
        if seq:
            await store.write(a_write())
        cut = {
            "insert": lambda: proxy.cut_after_request(matching=b"INSERT INTO"),
            "write": lambda: proxy.cut_after_request(matching=b"statement_timestamp" if seq else b".write("),
            "commit": lambda: proxy.cut_before_request(matching=b"COMMIT"),
            "committed": lambda: proxy.cut_after_request(matching=b"COMMIT"),
        }[moment]
        cut()
        with pytest.raises(StoreUnavailable) as caught:
            await both(base, store, a_write(seq=seq, token="mine", rows=[a_row(5)]))
        assert proxy.cuts == 1
        assert isinstance(caught.value, OutcomeUnknown) is moment.startswith("commit")
        head, rows = await snapshot(store, "case-42")
        took = moment == "committed"
        assert (head.token == "mine" if head else False) is took
        assert (rows, base.orders()) == (((a_row(5),), ["pump"]) if took else ((), []))
        assert (await store.write(a_write(seq=seq + took))).seq == seq + took + 1


@pytest.mark.parametrize("seq", [0, 1])
async def test_a_commit_of_unknown_outcome_is_waited_for(base, seq):
    """The server has the locks still, and may commit at any time: a head that is read now must not be the old one."""
    async with base.opened() as store, base.opened() as other:
        if seq:
            await store.write(a_write())
        with commits_held_up(base) as waiting:
            with impatient(store, 1.5):
                async with store.transaction() as transaction:
                    await transaction.execute(base.insert, (1, "pump"))
                    await transaction.execute("SET LOCAL statement_timeout = 0")
                    with pytest.raises(OutcomeUnknown):
                        await transaction.write(a_write(seq=seq, token="slow"))
            found = await other.head("case-42")
            assert (found.seq if found else 0) == seq, "it has not committed yet"
            reading = asyncio.create_task(settled(store))
            await until(lambda: waiting() == 2 or reading.done())
        assert (await reading).token == "slow"
    assert base.orders() == ["pump"]


async def settled(store):
    """The first head that the store tells."""
    async with asyncio.timeout(120):
        while True:
            with suppress(StoreUnavailable):
                return await store.head("case-42")


def at_the_end(base, body):
    """Let the server do this when it commits a row of the table."""
    name = f"{base.table}_end"
    base.sql(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$")
    base.sql(
        f"CREATE CONSTRAINT TRIGGER at_the_end AFTER INSERT ON {base.table} DEFERRABLE INITIALLY DEFERRED "
        f"FOR EACH ROW EXECUTE FUNCTION {name}()"
    )


@contextmanager
def commits_held_up(base):
    """Let the server commit no row of the table before this is over; gives a count of those that wait."""
    number = int(base.table.rpartition("_")[2], 16) % 2**31
    hold = f"pg_advisory_xact_lock({number})"
    at_the_end(base, f"PERFORM set_config('lock_timeout', '0', true); PERFORM {hold}; RETURN NULL;")
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(server().url) as lock:
        lock.execute(f"SELECT {hold}")
        yield lambda: base.sql(waiting)[0][0]
    base.sql(f"SELECT {hold}")  # those that waited come first


async def test_a_cancelled_commit_is_waited_for(base):
    async with base.opened() as store:
        with commits_held_up(base) as waiting:
            task = asyncio.create_task(both(base, store, a_write(token="slow")))
            await until(waiting)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            reading = asyncio.create_task(store.head("case-42"))
            await until(lambda: waiting() == 2 or reading.done())
        head = await reading
        assert (await store.head("case-42") is None) == (head is None), "it came after all"
        assert (base.orders() == []) == (head is None)


async def test_a_stale_connection_is_replaced_before_the_transaction_begins(base, proxy):
    async with base.opened(url=proxy.url_through(base.url)) as store:
        await store.write(a_write())
        proxy.cut()
        async with store.transaction() as transaction:
            await transaction.execute(base.insert, (1, "pump"))
            await transaction.write(a_write(seq=1))
    assert base.orders() == ["pump"]


async def test_many_open_transactions_leave_connections_for_others(base):
    async with base.opened() as store:
        began, end = 0, asyncio.Event()

        async def work(number):
            nonlocal began
            async with store.transaction() as transaction:
                began += 1
                await transaction.execute(base.insert, (number, "pump"))
                await end.wait()
                await transaction.write(a_write(f"case-{number}"))

        tasks = [asyncio.create_task(work(number)) for number in range(SIZE)]
        await until(lambda: began >= RESERVED)
        await asyncio.sleep(0.1)
        assert began == RESERVED
        assert await store.head("case-42") is None
        end.set()
        await asyncio.gather(*tasks)
    assert len(base.orders()) == SIZE


async def test_a_full_disk_rolls_the_transaction_back(base):
    """As the server tells it."""
    at_the_end(base, "RAISE disk_full USING MESSAGE = 'no space';")
    async with base.opened() as store:
        with pytest.raises(StoreFull):
            await both(base, store, a_write())
        assert (await store.head("case-42"), base.orders()) == (None, [])
