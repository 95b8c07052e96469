"""Special to Postgres: a server that goes and comes, rights, versions of its tables, and people with SQL."""

import asyncio
import logging
import os
import socket
import traceback
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import psycopg
import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.replay import ReplayChatCompletionClient
from tools.servers import PgBouncer, Postgres, Proxy, certificates

import midturn
from midturn.errors import (
    Conflict,
    InvalidArgument,
    LeaseLost,
    OutcomeUnknown,
    SessionDeleted,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
    TurnFailed,
    UnknownVersion,
)
from midturn.lease.ledger import Ledger
from midturn.record.head import Kind, cursor
from midturn.record.rows import Progress, encode_record
from midturn.sessions.reader import SessionReader
from midturn.stores.postgres import pool as postgres_pool
from midturn.stores.postgres import schema as postgres_schema
from midturn.stores.postgres.pool import SIZE
from midturn.stores.postgres.store import PostgresStore
from midturn.stores.postgres.write import MOST_ROWS
from midturn.stores.retrying import Tries
from midturn.testing import a_row, a_write

pytestmark = pytest.mark.xdist_group("postgres")


@pytest.fixture(scope="module")
def server():
    with Postgres() as server:
        yield server


@pytest.fixture
def schema(request):
    return f"t_{abs(hash(request.node.nodeid)):x}"


@pytest.fixture
def url(server, schema):
    return f"{server.url}?schema={schema}"


@pytest.fixture
def proxy(server):
    with Proxy(server.port, kind="postgres") as proxy:
        yield proxy


@asynccontextmanager
async def opened(url, deadline=20.0):
    store = await PostgresStore.open(url, deadline=deadline)
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def impatient(store, deadline=1.0):
    """Only for these calls: on a busy machine, connecting takes its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_deadline", deadline)
        yield


async def until(true):
    """Poll what a server does, which tells nobody."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)


async def rows(store, session="case-42"):
    return [row.n for row in await store.rows(session, Kind.BODY)]


def told(caught):
    """All that somebody might see of an error."""
    return "".join(traceback.format_exception(caught.value)) + repr(caught.value)


# Opening


async def test_a_server_that_is_down_is_an_error_at_once(server, url):
    with Postgres() as other:
        address = other.url
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:\d+/midturn cannot be used"):
        await PostgresStore.open(address, deadline=3600)  # if it were waited for, this test would never end


async def test_a_wrong_password_is_said_without_the_password(server):
    url = server.url_for(password="kanari/vogel")
    with pytest.raises(StoreUnavailable, match=r"authentication failed.*check the user, the password") as caught:
        await PostgresStore.open(url)
    assert "kanari" not in told(caught)
    assert "kanari" not in repr(midturn.open(url))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://midturn:kanari%zz@127.0.0.1/midturn",
        "postgresql://midturn:kanari@127.0.0.1:port/midturn",
        "postgresql://midturn:kanari@127.0.0.1/midturn?nothing=kanari",
        "postgresql://midturn:kan/ari@127.0.0.1:1/midturn",
        "postgresql://midturn:kan@ari@127.0.0.1:1/midturn",
        "postgresql://midturn:kan?ari@127.0.0.1:1/midturn",
        "postgresql://midturn:kan#ari@127.0.0.1:1/midturn",
        "postgresql://midturn:kan%ff@127.0.0.1:1/midturn",
        "postgresql://midturn:kan\ud800@127.0.0.1:1/midturn",
        "postgresql://midturn:kan@a..b/midturn",
    ],
)
async def test_a_url_that_is_not_one_is_refused_without_the_password(url):
    with pytest.raises((InvalidArgument, StoreUnavailable)) as caught:
        await PostgresStore.open(url, deadline=5)
    assert "kan" not in told(caught).replace(url, "")


@pytest.mark.parametrize(("option", "hint"), [("shema=x", "did you mean schema="), ("strict=true", "strict=")])
async def test_an_option_that_nobody_knows_is_named(server, option, hint):
    with pytest.raises(InvalidArgument, match="an option that Postgres does not know") as caught:
        await PostgresStore.open(f"{server.url}?{option}")
    assert hint in str(caught.value)


async def test_a_database_that_is_not_there_is_named(server):
    with pytest.raises(StoreUnavailable, match='database "claims" does not exist'):
        await PostgresStore.open(server.url_for(database="claims"))


async def test_a_database_that_cannot_hold_every_text_is_refused(server):
    server.execute("CREATE DATABASE latin ENCODING LATIN1 LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StoreUnavailable, match=r"LATIN1.*createdb -T template0 -E UTF8"):
        await PostgresStore.open(server.url_for(database="latin"))


@pytest.mark.parametrize("name", ["", "a-b", "1a", "a;b", 'a"b', "ä", "x" * 64, "a%20b"])
async def test_a_schema_has_a_plain_name(server, name):
    with pytest.raises(InvalidArgument, match="schema="):
        await PostgresStore.open(f"{server.url}?schema={name}")


async def test_what_else_stands_in_the_url_is_the_drivers(server, schema):
    async with opened(f"{server.url}?application_name=claims&schema={schema}&connect_timeout=7") as store:
        await store.head("case-42")
        assert server.execute(
            "SELECT DISTINCT application_name FROM pg_stat_activity WHERE application_name = 'claims'"
        ) == [("claims",)]


async def test_a_standby_is_never_used(server, url):
    async with opened(url) as store:
        await store.write(a_write())
    with server.standby() as standby:
        address = url.replace(f":{server.port}/", f":{standby.port}/")
        with pytest.raises(StoreUnavailable, match=r"is a standby.*target_session_attrs=read-write"):
            await PostgresStore.open(address)
        several = url.replace(f":{server.port}/", f":{standby.port},127.0.0.1:{server.port}/")
        async with opened(f"{several}&target_session_attrs=read-write") as store:
            assert (await store.head("case-42")).seq == 1
        # A store whose server becomes a standby behind its back does not read old news from it.
        with Proxy(server.port, kind="postgres") as proxy:
            async with opened(proxy.url_through(url)) as store:
                proxy._target = standby.port
                proxy.cut()
                for call in (store.head("case-42"), store.heads(), store.rows("case-42", Kind.BODY)):
                    with impatient(store), pytest.raises(StoreUnavailable, match="is a standby"):
                        await call
                with impatient(store), pytest.raises(StoreUnavailable):
                    await store.write(a_write(seq=1))


async def test_a_server_that_may_lose_turns_is_not_called_strict(server, url, caplog):
    async with opened(url) as store:
        assert store.profile == "strict"
    assert not caplog.records
    async with opened(f"{url}&options=-c%20synchronous_commit%3Doff") as store:
        assert store.profile == "bounded-loss"
    [record] = caplog.records
    assert (record.levelno, "synchronous_commit=off" in record.getMessage()) == (logging.WARNING, True)
    assert server.password not in record.getMessage()


async def test_tls_with_a_stranger_as_authority_is_refused(server, url):
    known = certificates()
    with Proxy(server.port, tls=known.server, kind="postgres") as proxy:
        address = proxy.url_through(url)
        with pytest.raises(StoreUnavailable, match="certificate verify failed") as caught:
            await PostgresStore.open(f"{address}&sslmode=verify-full&sslrootcert={known.stranger}", deadline=5)
        assert server.password not in told(caught)
        async with opened(f"{address}&sslmode=verify-full&sslrootcert={known.authority}") as store:
            assert (await store.write(a_write())).seq == 1


# The tables


async def test_several_make_the_tables_together(server, url, schema):
    stores = [await PostgresStore.connect(url) for _ in range(4)]
    assert {store.version for store in stores} == {0}
    await asyncio.gather(*(store.upgrade() for store in stores))
    assert {store.version for store in stores} == {postgres_schema.NEWEST}
    for store in stores:
        await store.close()
    assert server.execute(f"SELECT number FROM {schema}.migrations") == [(postgres_schema.NEWEST,)]
    async with opened(url) as store:
        assert (await store.write(a_write())).seq == 1


async def test_older_tables_are_not_used(server, url, schema, monkeypatch):
    async with opened(url):
        pass
    monkeypatch.setattr(postgres_schema, "NEWEST", 2)
    with pytest.raises(StoreUnavailable, match="have version 1 and this midturn needs 2; type: midturn db upgrade"):
        await PostgresStore.open(url)
    assert server.execute(f"SELECT max(number) FROM {schema}.migrations") == [(1,)]


async def test_newer_tables_are_refused(server, url, schema):
    async with opened(url):
        pass
    server.execute(f"INSERT INTO {schema}.migrations (number) VALUES (99)")
    with pytest.raises(UnknownVersion, match="version 99, of a newer midturn; upgrade midturn"):
        await PostgresStore.open(url)
    store = await PostgresStore.connect(url)
    with pytest.raises(UnknownVersion):
        await store.upgrade()
    await store.close()


async def test_a_schema_of_another_program_is_left_alone(server, url, schema):
    server.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.heads (mine int)")
    with pytest.raises(StoreUnavailable, match="tables of another program"):
        await PostgresStore.open(url)
    assert server.execute(f"SELECT count(*) FROM {schema}.heads") == [(0,)]
    assert server.execute("SELECT to_regclass(%s)", f"{schema}.migrations") == [(None,)]


async def test_a_role_without_the_right_to_create_works_once_the_tables_are_there(server, url, schema):
    role = f"{schema}_worker"
    server.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'worker'")
    mine = f"{server.url_for(user=role, password='worker')}?schema={schema}&owner=midturn"
    with pytest.raises(StoreUnavailable, match=r"grant rights.*permission denied for database"):
        await PostgresStore.open(mine)
    async with opened(url):
        pass
    with pytest.raises(StoreUnavailable, match=r"grant rights.*permission denied for schema"):
        await PostgresStore.open(mine)
    server.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    server.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    async with opened(mine) as store:
        with pytest.raises(StoreUnavailable, match="permission denied for table"):
            await store.write(a_write())
    server.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.heads, {schema}.rows TO {role}")
    async with opened(mine) as store:
        await store.write(a_write(rows=[a_row(1)]))
        assert (await store.head("case-42")).seq == 1
        assert [head.session for head in await store.heads()] == ["case-42"]
        assert await rows(store) == [1]
        assert await store.delete("case-42")
    with pytest.raises(psycopg.errors.InsufficientPrivilege), psycopg.connect(mine.partition("?")[0]) as connection:
        connection.execute(f"CREATE TABLE {schema}.own (x int)")


async def test_tenants_do_not_see_each_other(server, schema):
    async with opened(f"{server.url}?schema={schema}a") as one, opened(f"{server.url}?schema={schema}b") as other:
        await one.write(a_write(rows=[a_row(1)]))
        assert await other.head("case-42") is None
        assert await other.heads() == []
        await other.write(a_write(rows=[a_row(1)]))
        assert await other.delete("case-42")
        assert await rows(one) == [1]


# What a server can do to a call


async def test_a_write_that_was_applied_and_not_acknowledged_is_found_to_be_ours(url, proxy):
    async with opened(proxy.url_through(url)) as store, opened(url) as other:
        for seq in range(10):
            proxy.cut_after_request()
            written = await store.write(a_write(seq=seq, rows=[a_row(seq)]))
            head = await other.head("case-42")
            assert (written.seq, head.seq, head.token, head.updated) == (
                seq + 1,
                seq + 1,
                written.token,
                written.updated,
            )
        assert proxy.cuts == 10
        assert await rows(other) == list(range(10))


async def test_a_write_that_did_not_arrive_is_made_again(url, proxy):
    async with opened(proxy.url_through(url)) as store:
        for seq in range(5):
            proxy.cut_before_request()
            assert (await store.write(a_write(seq=seq, rows=[a_row(seq)]))).seq == seq + 1
        assert proxy.cuts == 5
        proxy.cut_after_request()
        assert await rows(store) == list(range(5))


async def test_a_write_of_another_is_not_taken_for_ours(url, proxy):
    async with opened(proxy.url_through(url)) as store, opened(url) as other:
        await store.write(a_write())
        await other.write(a_write(seq=1))
        proxy.cut_before_request()
        with pytest.raises(Conflict):
            await store.write(a_write(seq=1))
        await other.write(a_write(seq=2))
        # It may have been ours that others have followed, or not.
        proxy.cut_before_request()
        with pytest.raises(OutcomeUnknown, match="others have written session"):
            await store.write(a_write(seq=1))
        assert (await store.head("case-42")).seq == 3


async def test_a_deletion_that_was_not_acknowledged_is_known_to_have_happened(url, proxy):
    async with opened(proxy.url_through(url)) as store:
        await store.write(a_write())
        proxy.cut_after_request()
        assert await store.delete("case-42") is True
        assert await store.delete("case-42") is False
        proxy.cut_after_request()
        assert await store.delete("another") is False


async def test_a_pooler_that_loses_its_server_is_no_failure(server, url, schema):
    with Proxy(server.port, kind="postgres") as proxy:
        pooler = PgBouncer(server)
        path = pooler.folder / "settings"
        path.write_text(path.read_text().replace(f"port={server.port}", f"port={proxy.port}"))
        with pooler:
            address = url.replace(f":{server.port}/", f":{pooler.port}/")
            async with opened(address) as store, opened(url) as other:
                for seq in range(5):
                    proxy.cut_after_request(matching=b"token")
                    write = a_write(seq=seq, rows=[a_row(seq)])
                    assert (await store.write(write)).token == (await other.head("case-42")).token
                assert proxy.cuts == 5
                assert await rows(other) == list(range(5))


async def test_what_was_given_up_does_not_come_back_after_a_deletion(server, url, proxy, schema):
    async with opened(proxy.url_through(url)) as store:
        await store.head("case-42")
        proxy.refuse()
        proxy.cut_before_request()
        with impatient(store), pytest.raises(OutcomeUnknown):
            await store.write(a_write(rows=[a_row(1)]))
        proxy.accept()
        await store.delete("case-42")
        assert (await store.head("case-42")).status == "deleted"
        assert server.execute(f"SELECT count(*) FROM {schema}.rows") == [(0,)]


async def test_a_write_that_never_arrived_is_settled_too(url, proxy):
    async with opened(proxy.url_through(url)) as store, opened(url) as other:
        await store.write(a_write())
        write = a_write(seq=1, rows=[a_row(1)])
        proxy.refuse()
        proxy.cut_before_request()
        with impatient(store), pytest.raises(OutcomeUnknown):
            await store.write(write)
        proxy.accept()
        head = await store.head("case-42")
        assert head.token == write.token == (await other.head("case-42")).token
        with pytest.raises(Conflict):
            await other.write(a_write(seq=1))


async def test_a_write_that_waits_for_a_standby_is_not_acknowledged_without_it(schema):
    with Postgres() as server:
        async with opened(f"{server.url}?schema={schema}") as store:
            await store.write(a_write())
            server.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            server.execute("SELECT pg_reload_conf()")
            await until(lambda: server.execute("SHOW synchronous_standby_names") == [("nobody",)])
            waits = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            with impatient(store, 2.0):
                task = asyncio.ensure_future(store.write(a_write(seq=1)))
                await until(lambda: server.execute(waits) or task.done())
                with pytest.raises(OutcomeUnknown):
                    await task
            server.execute("ALTER SYSTEM RESET synchronous_standby_names")
            server.execute("SELECT pg_reload_conf()")
            assert (await store.head("case-42")).seq == 2


@pytest.mark.parametrize("pooled", [False, True])
async def test_writers_that_gave_up_do_not_use_up_the_servers_connections(server, url, schema, monkeypatch, pooled):
    assert postgres_pool.LOCK_TIMEOUT == "5s"
    monkeypatch.setattr(postgres_pool, "LOCK_TIMEOUT", "200ms")  # sooner, for a shorter deadline

    async def is_pooled(_):
        return pooled

    monkeypatch.setattr(postgres_pool, "_is_pooled", is_pooled)
    async with opened(f"{url}&application_name=crowd") as store:
        await asyncio.gather(*(store.write(a_write(f"case-{i}")) for i in range(10)))
        shipped = (
            "SELECT proname FROM pg_proc WHERE pronamespace = %s::regnamespace AND 'lock_timeout=5s' = ANY (proconfig)"
        )
        assert sorted(server.execute(shipped, schema)) == [("bury",), ("forget",), ("write",)]
        for function in ("write", "bury", "forget"):
            server.execute(f"ALTER FUNCTION {schema}.{function} SET lock_timeout = '200ms'")
        with psycopg.connect(server.url) as lock:
            lock.execute(f"LOCK TABLE {schema}.heads")
            for _ in range(3):
                writes = (store.write(a_write(f"case-{i}", 1)) for i in range(10))
                with impatient(store):
                    results = await asyncio.gather(*writes, return_exceptions=True)
                assert all(isinstance(result, StoreUnavailable) for result in results)
            [(count,)] = server.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'crowd'")
        assert count <= 2 * SIZE


async def test_a_lease_whose_renewal_was_not_acknowledged_is_still_held(url, proxy):
    async with opened(proxy.url_through(url)) as store:
        ledger = Ledger(store, "case-42")
        await ledger.refresh()
        await ledger.write(status="running", progress=Progress(turn=1))
        proxy.refuse()
        proxy.cut_after_request()
        with impatient(store), pytest.raises(OutcomeUnknown):
            await ledger._renew()
        proxy.accept()
        await ledger.write(status="idle", progress=Progress(turn=1, checkpoint=1), release=True)
        assert (await store.head("case-42")).seq == 3


async def test_a_zombie_with_a_dead_connection_is_told_that_it_lost_the_lease(server, url):
    async with opened(url) as store, opened(url) as other:
        zombie, heir = Ledger(store, "case-42"), Ledger(other, "case-42")
        await zombie.refresh()
        await zombie.write(status="running", progress=Progress(turn=1))
        await heir.refresh()
        heir.head = replace(heir.head, expires=heir.head.now)  # as if the lease had run out
        await heir.write(status="running", progress=Progress(turn=1))
        await heir.write(status="idle", progress=Progress(turn=1, checkpoint=1), release=True)
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'midturn'")
        with pytest.raises(LeaseLost):
            await zombie.write(status="idle", progress=Progress(turn=1, checkpoint=1), release=True)


async def test_a_host_that_hangs_does_not_hide_the_next_one(server, url):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        several = url.replace(
            f"@127.0.0.1:{server.port}/", f"@127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{server.port}/"
        )
        async with opened(several, deadline=12.0) as store:
            assert await store.head("case-42") is None


@pytest.mark.parametrize("many", [1, MOST_ROWS, MOST_ROWS + 1, 5 * MOST_ROWS])
async def test_a_write_may_have_any_number_of_rows(url, many):
    rows = [a_row(n, kind=kind) for n in range(many) for kind in (Kind.BODY, Kind.CALL)]
    async with opened(url) as store:
        await store.write(a_write())
        for seq, batch in enumerate((rows[:many], rows[many:]), start=1):
            assert (await store.write(a_write(seq=seq, rows=batch))).seq == seq + 1
        for kind in (Kind.BODY, Kind.CALL):
            assert list(await store.rows("case-42", kind)) == [row for row in rows if row.kind is kind]
        with pytest.raises(Conflict):
            await store.write(a_write(seq=3, rows=[a_row(many), rows[0]]))
        assert (await store.head("case-42")).seq == 3


async def test_small_and_large_numbers_are_one_statement(url):
    async with opened(url) as store:
        head = await store.write(a_write(epoch=1))
        for n in (first + step for first in (1, 2**15, 2**31, 2**62) for step in range(7)):
            head = await store.write(a_write(seq=head.seq, epoch=n, rows=[a_row(n)]))
        tries = Tries(asyncio.get_running_loop().time() + 60)
        found = await store._pool.run(tries, b"SELECT statement FROM pg_prepared_statements")
        assert sum("statement_timestamp" in statement for (statement,) in found) == 1


async def test_writes_of_different_sizes_are_prepared_side_by_side(url):
    async with opened(url) as store:
        await store.write(a_write())
        for seq in range(1, 25):
            numbers = [10 * seq + i for i in range(seq % 3 + 1)]
            await store.write(a_write(seq=seq, rows=map(a_row, numbers)))
        assert store._pool._prepares
        assert await rows(store) == [10 * seq + i for seq in range(1, 25) for i in range(seq % 3 + 1)]


async def test_statements_are_prepared_only_where_no_pooler_is_between(server, url):
    with PgBouncer(server) as pooler:
        for address, prepares in ((url, True), (url.replace(f":{server.port}/", f":{pooler.port}/"), False)):
            async with opened(address) as store:
                for _ in range(10):
                    await store.head("case-42")
                tries = Tries(asyncio.get_running_loop().time() + 60)
                found = await store._pool.run(tries, b"SELECT statement FROM pg_prepared_statements")
                assert bool(found) is prepares


async def warmed(store):
    """The seq of a session after so many calls that all statements are prepared."""
    for seq in range(10):
        await store.head("case-42")
        await store.write(a_write(seq=seq, rows=[a_row(seq)]))
    return 10


async def test_statements_that_the_driver_gives_up_after_a_rollback_are_prepared_again(url):
    async with opened(url) as store:
        seq = await warmed(store)
        async with store.transaction() as transaction:
            await transaction.execute("SELECT 1")
        seq = (await store.write(a_write(seq=seq, rows=[a_row(seq)]))).seq
        async with store.transaction() as transaction:
            with pytest.raises(psycopg.errors.DivisionByZero):
                await transaction.execute("SELECT 1 / 0")
            seq = (await transaction.write(a_write(seq=seq, rows=[a_row(seq)]))).seq
        assert store._pool._prepares
        assert await rows(store) == list(range(seq))


async def test_a_transaction_in_another_encoding_writes_the_same(url):
    async with opened(url) as store:
        await store.write(a_write(rows=[a_row(0)]))
        async with store.transaction() as transaction:
            await transaction.execute("SET LOCAL client_encoding = 'LATIN1'")
            await transaction.write(a_write(seq=1, labels={"Größe": "ß"}, rows=[a_row(1)]))
        assert (await store.head("case-42")).labels == {"Größe": "ß"}


async def test_a_transaction_waits_for_locks_as_its_caller_has_set(server, url):
    async with opened(f"{url}&options=-c%20lock_timeout%3D1234ms") as store:
        for seq in range(2):
            async with store.transaction() as transaction:
                assert await transaction.execute("SHOW lock_timeout") == [("1234ms",)]
                await transaction.write(a_write(seq=seq))


async def test_a_table_of_the_callers_may_change_between_transactions(server, url, schema):
    async with opened(url) as store:
        await store.write(a_write("other"))
        server.execute(f"CREATE TABLE {schema}.orders (n int)")
        for seq in range(10):  # more often than the driver needs to prepare a statement
            if seq == 9:
                server.execute(f"ALTER TABLE {schema}.orders ADD COLUMN name text DEFAULT 'pump'")
            async with store.transaction() as transaction:
                await transaction.execute(f"INSERT INTO {schema}.orders (n) VALUES (%s)", (seq,))
                found = await transaction.execute(f"SELECT * FROM {schema}.orders ORDER BY n")
                await transaction.write(a_write(seq=seq))
        assert found[-1] == (9, "pump")


async def test_a_pooler_that_hides_costs_nothing_but_another_try(server, url, monkeypatch):
    async def no(_):
        return False

    monkeypatch.setattr(postgres_pool, "_is_pooled", no)
    with PgBouncer(server) as pooler:
        address = url.replace(f":{server.port}/", f":{pooler.port}/")
        async with opened(address) as store, opened(address) as other:
            for seq in range(20):
                await store.write(a_write(seq=seq, rows=[a_row(seq)]))
                assert (await other.head("case-42")).seq == seq + 1
            assert await rows(other) == list(range(20))


async def test_a_temporary_table_of_the_same_name_is_not_taken_for_ours(server, url, schema):
    with PgBouncer(server) as pooler:
        address = url.replace(f":{server.port}/", f":{pooler.port}/")
        async with opened(address) as store, opened(url) as other:
            with psycopg.connect(address.partition("?")[0], autocommit=True, prepare_threshold=None) as stranger:
                for table in ("heads", "rows"):
                    stranger.execute(f"CREATE TEMP TABLE {table} (LIKE {schema}.{table} INCLUDING ALL)")
            await store.write(a_write(rows=[a_row(1)]))
            assert (await other.head("case-42")).seq == 1
            assert await rows(other) == [1]


@pytest.mark.parametrize("setting", ["DateStyle TO 'German'", "search_path TO ''", "bytea_output TO 'escape'"])
async def test_the_settings_of_a_role_do_not_matter(server, url, schema, setting):
    role = f"{schema}_odd"
    server.execute(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'odd'")
    server.execute(f"ALTER ROLE {role} SET {setting}")
    async with opened(f"{server.url_for(user=role, password='odd')}?schema={schema}") as store:
        await store.write(a_write(labels={"a": "b"}, rows=[a_row(1, b"\x00\xff")]))
        assert [head.labels for head in await store.heads()] == [{"a": "b"}]
        assert (await store.rows("case-42", Kind.BODY))[0].data == b"\x00\xff"


async def test_a_cancelled_call_costs_one_connection(server, url):
    async with opened(url) as store:
        await asyncio.gather(*(store.head(f"case-{i}") for i in range(50)))
        before = len(store._pool._idle)
        task = asyncio.ensure_future(store.head("case-42"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(store._pool._idle) >= before - 1 > 5


async def test_a_connection_whose_caller_went_is_not_used_again(url):
    async with opened(url) as store:
        await asyncio.gather(*(store.head(f"case-{i}") for i in range(20)))
        for ticks in range(12):
            tasks = [asyncio.ensure_future(store.head(f"case-{i}")) for i in range(SIZE)]
            for _ in range(ticks):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert await asyncio.gather(*(store.head(f"case-{i}") for i in range(20))) == [None] * 20


async def test_closing_ends_the_calls_that_wait_for_a_connection(url):
    store = await PostgresStore.open(url)
    tasks = [asyncio.ensure_future(store.head(f"case-{i}")) for i in range(100)]
    await asyncio.sleep(0)
    await store.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(result, StoreUnavailable) for result in results) >= 100 - SIZE
    assert store._pool._idle == []


async def test_an_unknown_outcome_is_settled_before_the_next_head(url, proxy):
    async with opened(proxy.url_through(url)) as store, opened(url) as other:
        await store.write(a_write())
        proxy.refuse()
        proxy.cut_after_request()
        write = a_write(seq=1, rows=[a_row(1)])
        with impatient(store), pytest.raises(OutcomeUnknown):
            await store.write(write)
        with impatient(store), pytest.raises(StoreUnavailable):
            await store.head("case-42")
        proxy.accept()
        assert (await store.head("case-42")).token == write.token
        assert await rows(other) == [1]


async def test_a_write_under_way_cannot_take_effect_after_the_session_was_read(server, url, schema):
    """The server holds the write up until its writer has given up; then both go on at once."""
    async with opened(url) as store, opened(url) as other:
        await other.write(a_write())
        for seq in range(1, 6):
            with psycopg.connect(server.url) as lock:
                lock.execute(f"SELECT * FROM {schema}.heads FOR UPDATE")
                write = a_write(seq=seq, rows=[a_row(seq)])
                with impatient(store, 0.6), pytest.raises(OutcomeUnknown):
                    await store.write(write)
            head = await store.head("case-42")
            await asyncio.sleep(0.05)
            assert await other.head("case-42") is not None
            assert ((await other.head("case-42")).token, await rows(other)) == (head.token, list(range(1, seq + 1)))
            assert head.token == write.token


async def test_connections_that_the_server_closed_are_not_used_again(server, url):
    async with opened(url) as store:
        await asyncio.gather(*(store.write(a_write(f"case-{i}")) for i in range(20)))
        for seq in range(1, 4):
            server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'midturn'")
            heads = await asyncio.gather(*(store.write(a_write(f"case-{i}", seq)) for i in range(20)))
            assert {head.seq for head in heads} == {seq + 1}


async def test_a_server_that_restarts_is_waited_for(url, server):
    async with opened(url) as store:
        await store.write(a_write())
        server.crash()
        task = asyncio.ensure_future(store.write(a_write(seq=1)))
        await asyncio.sleep(0.2)
        assert not task.done()
        await asyncio.to_thread(server.start)
        assert (await task).seq == 2


async def test_a_server_that_hangs_is_left_at_the_deadline(url, server):
    async with opened(url, deadline=3600) as store:
        await store.write(a_write())
        server.pause()
        try:
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.01)
                    ticks += 1

            ticker = asyncio.ensure_future(tick())
            calls = [store.write(a_write(seq=1)), store.head("other"), store.heads(), store.rows("x", Kind.BODY)]
            with impatient(store):
                results = await asyncio.gather(*calls, store.delete("other"), return_exceptions=True)
            assert type(results[0]) is OutcomeUnknown
            assert all(isinstance(result, StoreUnavailable) for result in results)
            ticker.cancel()
            assert ticks > 1, "the event loop stood still"
            cancelled = asyncio.ensure_future(store.head("case-42"))
            await asyncio.sleep(0.05)
            cancelled.cancel()  # at once: nobody waits for an hour here
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        finally:
            server.resume()
        head = await store.head("case-42")
        assert head.seq == 2


async def test_a_new_session_is_written_although_its_deleted_namesake_is_forgotten_in_the_middle_of_it(
    server, url, schema
):
    async with opened(url) as store:
        await store.write(a_write(rows=[a_row(1)]))
        await store.delete("case-42")
        # It runs after the statement that finds the deleted session in its way.
        server.execute(
            f"CREATE FUNCTION {schema}.forget_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"DELETE FROM {schema}.heads WHERE status = 'deleted'; RETURN NULL; END $$; "
            f"CREATE TRIGGER forget_all AFTER INSERT ON {schema}.heads EXECUTE FUNCTION {schema}.forget_all()"
        )
        write = a_write(rows=[a_row(2)])
        assert (await store.write(write)).token == write.token
        assert await rows(store) == [2]


async def test_a_full_disk_is_said_and_nothing_is_half_written(server, url, schema):
    async with opened(url) as store:
        before = await store.write(a_write(rows=[a_row(1)]))
        # What the server says when it cannot make its file longer, at the moment when it would.
        server.execute(
            f"CREATE FUNCTION {schema}.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
            f"'could not extend file' USING ERRCODE = '53100'; END $$;"
            f"CREATE TRIGGER full_disk BEFORE INSERT ON {schema}.rows EXECUTE FUNCTION {schema}.full()"
        )
        with pytest.raises(StoreFull, match="no space left"):
            await store.write(a_write(seq=1, rows=[a_row(2)]))
        with pytest.raises(StoreFull):
            await store.write(a_write("other", rows=[a_row(2)]))
        assert (await store.head("case-42")).token == before.token
        assert await store.head("other") is None
        server.execute(f"DROP TRIGGER full_disk ON {schema}.rows")
        assert (await store.write(a_write(seq=1, rows=[a_row(2)]))).seq == 2
        assert await rows(store) == [1, 2]


async def test_transactions_that_the_server_gives_up_are_tried_again(server, url):
    async with opened(f"{url}&options=-c%20default_transaction_isolation%3Dserializable") as store:
        for seq in range(5):
            writes = [a_write(seq=seq, rows=[a_row(10 * seq + i)]) for i in range(8)]
            results = await asyncio.gather(*map(store.write, writes), return_exceptions=True)
            assert sorted(type(result).__name__ for result in results) == ["Conflict"] * 7 + ["Head"]
        assert len(await rows(store)) == 5


async def test_a_deletion_beside_a_write_leaves_no_row(server, url, schema):
    async with opened(url) as store:
        for number in range(40):
            session = f"case-{number}"
            await store.write(a_write(session))
            write = a_write(session, 1, rows=[a_row(n) for n in range(20)])
            results = await asyncio.gather(store.write(write), store.delete(session), return_exceptions=True)
            assert results[1] is True
            assert isinstance(results[0], SessionDeleted | midturn.record.head.Head)
        assert server.execute(f"SELECT count(*) FROM {schema}.rows") == [(0,)]


async def test_many_calls_share_a_few_connections(server, url):
    async with opened(f"{url}&application_name=crowd") as store:
        await asyncio.gather(*(store.write(a_write(f"case-{i}")) for i in range(100)))
        [(count,)] = server.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'crowd'")
        assert count == SIZE
    left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'crowd'"
    await until(lambda: server.execute(left) == [(0,)])


def test_a_store_belongs_to_its_process_and_its_loop(url):
    runner = asyncio.Runner()
    store = runner.run(PostgresStore.open(url))
    runner.run(store.write(a_write()))
    with pytest.raises(StoreUnavailable, match="another event loop; open the store again"):
        asyncio.run(store.head("case-42"))
    child = os.fork()
    if not child:
        try:
            runner.run(store.head("case-42"))
        except StoreUnavailable as error:
            os._exit(0 if "parent process" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert runner.run(store.head("case-42")).seq == 1, "the child closed its parent's connection"
    runner.run(store.close())
    runner.close()


# People with SQL


async def test_people_can_look_with_sql(server, url, schema):
    texts = ["short", "x" * 3000, "NUL \0 in the middle", "caf\u00e9 \N{GRINNING FACE} \\u0000 'quoted' $1", "{}"]
    answers = [text.upper() for text in texts]

    def build():
        return AssistantAgent("helper", model_client=ReplayChatCompletionClient(list(answers)))

    async with midturn.open(url) as store:
        case = store.session("case-42", build(), labels={"team": "claims"})
        for number, text in enumerate(texts):
            await case.run(task=text, key=f"key {number}")
        with pytest.raises(TurnFailed):
            await case.run(task="one too many")
        turns = [turn async for turn in SessionReader(store.store, "case-42").history()]
    [(session, status, labels, count, checkpoint, owner)] = server.execute(
        f"SELECT session, status, labels, turns, checkpoint, owner FROM {schema}.sessions"
    )
    assert (session, status, labels) == ("case-42", "failed", {"team": "claims"})
    assert (count, checkpoint, owner) == (6, 5, None)
    found = server.execute(
        f"SELECT turn, status, key, error, extract(epoch FROM started) FROM {schema}.turns ORDER BY 1"
    )
    assert [row[:3] for row in found] == [(turn.number, turn.status, turn.key) for turn in turns]
    assert [row[3] for row in found] == [turn.error for turn in turns]
    assert [float(row[4]) for row in found] == pytest.approx([turn.started.timestamp() for turn in turns])
    messages = server.execute(f"SELECT turn, source, content, message FROM {schema}.messages ORDER BY turn, position")
    expected = [(turn.number, message) for turn in turns for message in turn.messages]
    assert [row[:3] for row in messages] == [
        (turn, message["source"], message["content"].replace("\0", "\ufffd")) for turn, message in expected
    ]
    assert [row[3] for row in messages] == [
        message | {"content": message["content"].replace("\0", "\ufffd")} for _, message in expected
    ]


async def test_the_views_say_what_is_compressed(server, url, schema):
    text = "Where is my order? The tracking number says that it was delivered yesterday. Please look into it."
    answers = [text.upper(), "Delivered.", text.title()]

    def build():
        return AssistantAgent("helper", model_client=ReplayChatCompletionClient(list(answers)))

    for compress, agent in (("none", live := build()), ("zstd", live)):
        async with midturn.open(url, compress=compress) as store:
            case = store.session("case-42", agent)
            await case.run(task=text, key=f"key {compress}")
    async with midturn.open(url, compress="zstd") as store:
        with pytest.raises(TurnFailed):
            await store.session("case-42", lambda: AssistantAgent("helper", ReplayChatCompletionClient([]))).run(
                task="a"
            )
    [(status, turns, checkpoint)] = server.execute(f"SELECT status, turns, checkpoint FROM {schema}.sessions")
    assert (status, turns, checkpoint) == ("failed", 3, 2)
    found = server.execute(
        f"SELECT turn, status, key, stop_reason, error IS NULL, started IS NULL, ended IS NULL FROM {schema}.turns"
        " ORDER BY 1"
    )
    assert found == [
        (1, "done", "key none", None, True, False, False),
        (2, "done", "key zstd", "(compressed)", True, False, True),
        (3, "failed", None, None, False, False, False),
    ]
    found = server.execute(
        f"SELECT turn, position, source, content, message IS NULL FROM {schema}.messages ORDER BY turn, position"
    )
    assert found == [
        (1, 1, "user", text, False),
        (1, 2, "helper", text.upper(), False),
        (2, None, None, "(compressed)", True),
    ]


@pytest.mark.parametrize(
    ("status", "shown"), [("running", "interrupted"), ("waiting", "waiting"), ("failed", "interrupted")]
)
async def test_a_turn_that_waits_for_a_human_is_shown_so(server, url, schema, status, shown):
    async with opened(url) as store:
        data = encode_record(Progress(turn=2, checkpoint=1, open="waiting" if status == "waiting" else "running"))
        rows = [a_row(n, b'{"v":1,"at":1.0}', kind=Kind.TURN) for n in (1, 2)]
        done = a_row(1, b'{"v":1,"at":2.0}', kind=Kind.CHECKPOINT)
        await store.write(a_write(status=status, data=data, rows=[*rows, done]))
    assert server.execute(f"SELECT turn, status FROM {schema}.turns ORDER BY 1") == [(1, "done"), (2, shown)]
    [(found,)] = server.execute(f"SELECT status FROM {schema}.sessions")
    assert found == ("interrupted" if status == "running" else status)


@pytest.mark.parametrize(
    ("lease", "shown"),
    [
        ({"owner": "me", "lease": 60.0}, ("running", "me")),
        ({"owner": "me", "lease": 0.0}, ("interrupted", None)),
        ({}, ("interrupted", None)),
    ],
)
async def test_an_open_turn_that_nobody_holds_is_shown_as_interrupted(server, url, schema, lease, shown):
    async with opened(url) as store:
        data = encode_record(Progress(turn=1, open="running"))
        turn = a_row(1, b'{"v":1,"at":1.0}', kind=Kind.TURN)
        await store.write(a_write(status="running", data=data, rows=[turn], **lease))
        await store.write(a_write("waits", status="waiting"))
    assert server.execute(f"SELECT status FROM {schema}.turns") == [(shown[0],)]
    found = server.execute(f"SELECT session, status, owner FROM {schema}.sessions ORDER BY 1")
    assert found == [("case-42", *shown), ("waits", "waiting", None)]


async def test_of_equal_changes_the_greater_id_comes_first(server, url, schema):
    async with opened(url) as store:
        for session in "cabd":
            await store.write(a_write(session))
        server.execute(f"UPDATE {schema}.heads SET updated = 7.5 WHERE name <> 'a'")
        for limit in (1, 2, 100):
            found, after = [], ""
            while page := await store.heads(order="updated", after=after, limit=limit):
                found += [head.session for head in page]
                after = cursor(page[-1])
            assert found == ["a", "d", "c", "b"]


async def test_the_calls_of_a_turn_touch_no_index(server, url, schema):
    async with opened(url) as store:
        for seq in range(100):
            await store.write(a_write(seq=seq, status="running" if seq < 99 else "idle", rows=[a_row(seq)]))
    query = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = '{}.heads'::regclass"
    updated = hot = 0
    async with asyncio.timeout(60):
        while updated < 99:  # Postgres counts them when the connection has ended
            await asyncio.sleep(0.05)
            [(updated, hot)] = server.execute(query.format(schema))
    assert hot >= 90


POISON = (
    *(b"\xff", b"{", b"[1", b"[" * 100_000, b"5", b"null", b'"text"', b'{"bodies":[{"a":1},[null]]}'),
    b'{"turn":"x","usage":"x","at":"x","messages":5}',
    b'{"turn":1.5,"usage":[1e30,{}],"at":1e300,"messages":[99999999999,"x",-1,null]}',
)


@pytest.mark.parametrize("poison", POISON)
async def test_what_is_damaged_does_not_hide_the_rest(server, url, schema, poison):
    async with opened(url) as store:
        await store.write(a_write("gone", rows=[a_row(1)]))
        await store.delete("gone")
        kinds = (Kind.BODY, Kind.TURN, Kind.CHECKPOINT, Kind.FAILURE)
        await store.write(a_write("poison", data=poison, rows=[a_row(1, poison, kind=kind) for kind in kinds]))
    async with midturn.open(url) as store:
        agent = AssistantAgent("helper", model_client=ReplayChatCompletionClient(["Noted."]))
        await store.session("sound", agent).run(task="Remember that.")
    unreadable = poison in POISON[:4]
    found = server.execute(f"SELECT session, status, turns FROM {schema}.sessions ORDER BY 1")
    assert found == [("gone", "deleted", 0), ("poison", "unusable" if unreadable else "idle", 0), ("sound", "idle", 1)]
    found = server.execute(f"SELECT session, turn, status FROM {schema}.turns ORDER BY 1")
    assert found == [("poison", 1, "done"), ("sound", 1, "done")]
    assert server.execute(
        f"SELECT session, content FROM {schema}.messages WHERE message IS NOT NULL ORDER BY position"
    ) == [
        ("sound", "Remember that."),
        ("sound", "Noted."),
    ]


DAMAGED_HEADS = (
    "labels = '[1]'",
    "labels = '{\"a\": 1}'",
    'labels = \'{"a": {"b": []}}\'',
    "status = 'odd'",
    "seq = -1",
    "epoch = -1",
    "expires = 'NaN'",
    "expires = 'Infinity'",
    "created = '-Infinity'",
    "created = 1e300",
)


@pytest.mark.parametrize("order", ["id", "updated"])
async def test_a_page_of_damaged_heads_does_not_end_a_list(server, url, schema, order, caplog):
    async with opened(url) as store:
        for name in ("a", *(f"bad {n}" for n in range(len(DAMAGED_HEADS))), "z"):
            await store.write(a_write(name))
        for n, change in enumerate(DAMAGED_HEADS):
            server.execute(f"UPDATE {schema}.heads SET {change} WHERE name = 'bad {n}'")
            with pytest.raises(StateInvalid, match=f"bad {n}"):
                await store.head(f"bad {n}")
        for reverse in (False, True):
            found, after = [], ""
            while page := await store.heads(after=after, limit=1, order=order, reverse=reverse):
                found += page
                after = found[-1].session if order == "id" else cursor(found[-1])
            assert {head.session for head in found} == {"a", "z"}
            assert len(found) == 2
            assert {head.session for head in await store.heads(limit=3, order=order, reverse=reverse)} == {"a", "z"}
    assert "bad 9" in caplog.text
