"""A store that compresses is as good as the one inside, and keeps less."""

import asyncio
import hashlib
import json
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tools.servers.shared import store_url

import midturn
from midturn.errors import InvalidArgument, StateInvalid, UnknownVersion
from midturn.record.codec import MAX_BYTES
from midturn.record.head import Kind
from midturn.stores import registry
from midturn.stores.compressed import store as module
from midturn.stores.compressed.store import (
    KINDS,
    LARGE,
    MARK,
    NEWEST,
    CompressedStore,
    Decoder,
    DecompressingStore,
    encode_large,
)
from midturn.stores.memory import MemoryStore
from midturn.stores.registry import compressed, open_backend, open_store, split_compress
from midturn.stores.wrapper import innermost
from midturn.testing import a_row, a_write

sys.path.insert(0, str(Path(__file__).parents[1] / "autogen"))

DICTIONARIES = {1: "4cf12fe6c3ee758743b02418aab5f07cd3c9088789c1bbf9b6a0eadc668f8507"}
"""The SHA-256 of each shipped dictionary. Records need them for ever, so a file that was released never changes."""

TEXT = b'{"v":1,"bodies":["Thank you for contacting us. I have checked the order, and it has been shipped today."]}'


@asynccontextmanager
async def opened(url):
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


def with_option(kind, where, compress="zstd"):
    url = store_url(kind, where)
    return f"{url}{'&' if '?' in url else '?'}compress={compress}"


def raw(store):
    """Return the store in which the records lie as they are kept."""
    return innermost(store)


# --- the form of a record


def encode(data):
    """Return the form in which a record is kept."""
    store = compressed(MemoryStore(), "zstd")
    run(store.write(a_write(rows=(a_row(0, data),))))
    [row] = run(store.inner.rows("case-42", Kind.BODY))
    return row.data


def decode(*args):
    return Decoder().decode(*args)


def run(work):
    """Return the result of a coroutine that waits for nothing."""
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    return ended.value.value


def test_the_shipped_dictionaries_are_those_that_were_released():
    folder = Path(module.__file__).parent / "dictionaries"
    found = {int(path.stem): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.dict")}
    assert found == DICTIONARIES
    assert max(found) == NEWEST


@given(data=st.binary(max_size=3000).map(lambda more: b"{" + more))
def test_a_record_comes_back_as_it_was_and_is_never_longer(data):
    kept = encode(data)
    assert len(kept) <= len(data)
    assert (decode(kept, "body 0", "case") if kept[:1] == MARK else kept) == data


def test_a_record_that_does_not_become_shorter_stays_plain():
    noise = b"{" + random.Random(1).randbytes(500)
    assert encode(noise) is noise
    large = b"{" + random.Random(1).randbytes(3 * LARGE)
    assert encode_large(large) is large


@pytest.mark.parametrize("size", [LARGE, 3 * 1024 * 1024 + 5])
def test_a_large_record_comes_back_as_it_was(size):
    data = b"{" + (b" %d" % 7).join(b"%d" % n for n in range(size))[: size - 1]
    kept = encode_large(data)
    assert len(kept) < len(data) / 2
    assert decode(kept, "body 0", "case") == data


@given(data=st.data())
def test_a_damaged_record_is_named_and_never_another_one(data):
    kept = encode(TEXT)
    at = data.draw(st.integers(1, len(kept) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "longer", "other"])):
        case "flip":
            damaged = bytearray(kept)
            damaged[at] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            damaged = kept[:at]
        case "longer":
            damaged = kept + data.draw(st.binary(min_size=1, max_size=9))
        case _:
            damaged = kept[:2] + data.draw(st.binary(max_size=80))
    found = None
    try:
        found = decode(bytes(damaged), "body 3", "case-42")
    except (StateInvalid, UnknownVersion) as error:
        named = (error.session, "body 3" in str(error))
    else:
        named = None
    assert named == ("case-42", True) or found == TEXT  # zstd does not read all bits


def frame(data, *, write_content_size=True):
    parameters = zstandard.ZstdCompressionParameters.from_level(
        3, format=zstandard.FORMAT_ZSTD1_MAGICLESS, write_content_size=write_content_size
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


@pytest.mark.parametrize(
    "bomb", [frame(bytes(MAX_BYTES + 2000)), frame(bytes(1000), write_content_size=False), b"\xe0" + b"\xff" * 40]
)
def test_a_bomb_is_refused(bomb):
    with pytest.raises(StateInvalid, match="compressed record would be larger"):
        decode(MARK + b"\0" + bomb, "body 0", "case")


def test_a_frame_that_grows_beyond_the_size_that_it_names_is_refused():
    said, grows = frame(bytes(100_000)), frame(bytes(30_000_000))
    header = 1 + 4  # the descriptor and the size
    for bomb in (said[:header] + grows[header:], said + grows):
        with pytest.raises(StateInvalid, match="compressed record is damaged"):
            decode(MARK + b"\0" + bomb, "body 0", "case")


def test_a_dictionary_of_a_newer_midturn_says_to_upgrade():
    with pytest.raises(UnknownVersion, match=rf"'case-42' .*dictionary {NEWEST + 1}, .*upgrade midturn") as caught:
        decode(MARK + bytes((NEWEST + 1,)) + frame(TEXT), "body 0", "case-42")
    assert caught.value.session == "case-42"


# --- what is compressed


async def test_bodies_checkpoints_and_calls_are_compressed_and_the_rest_is_plain():
    rows = tuple(a_row(0, TEXT, kind=kind) for kind in Kind)
    async with opened("memory://?compress=zstd") as store:
        await store.write(a_write("case", rows=rows, data=TEXT))
        kept = {kind: (await raw(store).rows("case", kind))[0].data for kind in Kind}
        assert {kind for kind, data in kept.items() if data[:1] == MARK} == KINDS
        assert {data for kind, data in kept.items() if kind not in KINDS} == {TEXT}
        assert (await raw(store).head("case")).data == TEXT
        assert [(await store.rows("case", kind))[0].data for kind in Kind] == [TEXT] * len(Kind)


async def test_a_store_can_begin_and_cease_to_compress_at_any_time(tmp_path):
    turned = ["none", "zstd", "none", "zstd"]
    for number, compress in enumerate(turned):
        async with opened(with_option("sqlite", tmp_path / "store", compress)) as store:
            row = a_row(number, TEXT)
            await store.write(a_write("case", number, rows=(row,)))
            assert [row.data for row in await store.rows("case", Kind.BODY)] == [TEXT] * (number + 1)
            kept = [row.data[:1] == MARK for row in await raw(store).rows("case", Kind.BODY)]
            assert kept == [each == "zstd" for each in turned[: number + 1]]


async def test_a_compressed_record_in_a_store_that_does_not_know_it_says_what_to_do(tmp_path):
    inner = MemoryStore()
    async with midturn.open(store=compressed(inner, "zstd")) as store:
        await store.session("case", chatting).run(task="Where is my order?")
        await store.session("case", chatting).run(task="Where is my order now?")
        async with midturn.open(store=inner) as bare:
            with pytest.raises(UnknownVersion, match="is compressed: open the store by its URL"):
                await bare.session("case", chatting).run(task="And now?")


# --- the option


@pytest.mark.parametrize(
    ("url", "cls"),
    [
        ("memory://", MemoryStore),
        ("memory://?compress=zstd", CompressedStore),
        ("sqlite:///{}", DecompressingStore),
        ("sqlite:///{}?compress=zstd&lease=10", CompressedStore),
        ("sqlite:///{}?compress=none", DecompressingStore),
        ("file:///{}", DecompressingStore),
        ("file:///{}?lease=10&compress=zstd", CompressedStore),
    ],
)
async def test_the_url_says_whether_a_store_compresses(url, cls, tmp_path):
    async with midturn.open(url.format(f"{tmp_path}/store")) as store:
        assert type(store.store).__name__ == cls.__name__


async def test_postgres_compresses_if_asked_and_redis_unless_asked_not_to(tmp_path):
    for kind, cls in (("postgres", DecompressingStore), ("redis", CompressedStore)):
        async with opened(store_url(kind, tmp_path)) as store:
            assert type(store).__name__ == cls.__name__
        async with opened(with_option(kind, tmp_path, "zstd")) as store:
            assert type(store).__name__ == CompressedStore.__name__
        async with opened(with_option(kind, tmp_path, "none")) as store:
            assert type(store).__name__ == DecompressingStore.__name__


async def test_the_option_may_be_given_by_name(tmp_path):
    async with midturn.open(f"{tmp_path}/x.db", compress="zstd") as store:
        assert type(store.store).__name__ == CompressedStore.__name__


@pytest.mark.parametrize("scheme", ["memory://", "sqlite:///x.db", "postgresql://host/db", "redis://host", "drawer://"])
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("compress=gzip", "compress= must be zstd or none"),
        ("compress=", "compress= must be zstd or none"),
        ("compress", "compress= must be zstd or none"),
        ("compress=zstd&compress=none", "the option compress more than once"),
    ],
)
async def test_a_wrong_option_is_refused_before_anything_is_opened(scheme, options, problem, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_openers", dict(registry._openers))
    midturn.register_store("drawer", open_store)
    with pytest.raises(InvalidArgument, match=problem):
        await midturn.open(f"{scheme}?{options}")
    assert list(tmp_path.iterdir()) == []


def test_the_option_is_taken_out_of_a_url():
    assert split_compress("redis://h?strict=true&compress=none&replicas=1") == (
        "redis://h?strict=true&replicas=1",
        "none",
    )
    assert split_compress("sqlite:///a?compress=zstd") == ("sqlite:///a", "zstd")
    assert split_compress("drawer://x?decompress=1") == ("drawer://x?decompress=1", None)


async def test_a_scheme_of_ones_own_compresses_if_asked(monkeypatch):
    monkeypatch.setattr(registry, "_openers", dict(registry._openers))
    made, urls = MemoryStore(), []

    async def open_drawer(url):
        urls.append(url)
        return made

    midturn.register_store("drawer", open_drawer)
    async with midturn.open("drawer://top?size=2&compress=zstd&lease=5") as store:
        assert raw(store.store) is made
        assert isinstance(store.store, CompressedStore)
    assert urls == ["drawer://top?size=2"]
    assert await open_backend("drawer://top?compress=zstd") is made


# --- sessions


def chatting():
    from autogen_agentchat.agents import AssistantAgent
    from scripted import Scripted, remembered

    return AssistantAgent("clerk", Scripted(remembered))


SAID = "My parcel has not arrived, although the tracking number says that it was delivered. Please look into it."


@pytest.mark.parametrize("kind", ["sqlite", "file", "postgres", "redis"])
async def test_a_session_takes_less_space_and_is_the_same(kind, tmp_path):
    sizes, told = [], []
    for compress in ("none", "zstd"):
        async with midturn.open(with_option(kind, tmp_path / compress, compress)) as store:
            for number in range(5):
                await store.session("case", chatting).run(task=f"{SAID} {number}")
            turn = await store.session("case").turn(3)
            told.append([message.content for message in (*turn.task, *turn.messages)])
            rows = [row for each in Kind for row in await raw(store.store).rows("case", each)]
            sizes.append(sum(len(row.data) for row in rows))
    assert sizes[1] < 0.65 * sizes[0]
    assert told[0] == told[1]


async def test_a_copy_is_equal_whether_or_not_a_store_compresses(tmp_path):
    from midturn.maintenance.copying import copy

    async def rows(store):
        return [row for kind in Kind for row in await store.rows("case", kind)]

    urls = [with_option("sqlite", tmp_path / "a", "none"), with_option("sqlite", tmp_path / "b"), "memory://"]
    async with midturn.open(urls[0]) as store:
        await store.session("case", chatting).run(task=SAID)
        written = await rows(store.store)
    for source, target in pairwise(urls):
        async with opened(source) as one, opened(target) as other:
            assert await copy(one, other, "case", on_write=lambda size: None) == "copied"
            assert await copy(one, other, "case", on_write=lambda size: None) == "unchanged"
            assert await rows(other) == written


def booking():
    from autogen_agentchat.agents import AssistantAgent
    from scripted import Scripted, calls, remembered

    @midturn.tool(effect="transactional")
    async def book(order: str) -> str:
        """Book an order."""
        await midturn.transaction().execute("INSERT INTO bookings VALUES (?)", (order,))
        return f"booked: {SAID}"

    def answer(messages):
        return remembered(messages) if len(messages) > 2 else calls(("book", '{"order": "A1"}'))

    return AssistantAgent("clerk", Scripted(answer), tools=[book], max_tool_iterations=2)


async def test_a_transactional_tool_writes_a_compressed_record(tmp_path):
    async with midturn.open(f"sqlite:///{tmp_path}/store.db?compress=zstd") as store:
        async with store.store.transaction() as transaction:
            await transaction.execute("CREATE TABLE bookings (number TEXT)")
            await transaction.write(a_write("first", rows=(a_row(0, TEXT, kind=Kind.CALL),)))
        assert (await raw(store.store).rows("first", Kind.CALL))[0].data[:1] == MARK
        await store.session("case", booking).run(task="Book A1.")
        async with store.store.transaction() as transaction:
            assert await transaction.execute("SELECT number FROM bookings") == [("A1",)]


async def test_damage_to_a_compressed_row_names_the_session_and_the_record(tmp_path):
    async with midturn.open(f"sqlite:///{tmp_path}/store.db?compress=zstd") as store:
        await store.session("case-42", chatting).run(task=SAID)
        await store.session("case-43", chatting).run(task=SAID)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as db:
        changed = db.execute(
            "UPDATE rows SET data = CAST(substr(data, 1, 20) || x'ff' || substr(data, 22) AS BLOB)"
            " WHERE kind = 1 AND session = 1"
        )
        assert changed.rowcount
    async with midturn.open(f"sqlite:///{tmp_path}/store.db?compress=zstd") as store:
        with pytest.raises(StateInvalid, match="compressed record is damaged") as caught:
            await store.session("case-42", chatting).run(task="And now?")
        assert (caught.value.session, "body" in caught.value.path) == ("case-42", True)
        assert (await store.info("case-42")).turns == 1
        await store.session("case-43", chatting).run(task="And now?")


async def test_a_large_record_is_compressed_while_others_have_their_turn():
    text = json.dumps({"v": 1, "bodies": [" ".join(map(str, range(600_000)))]}).encode()
    row = a_row(0, text)
    async with opened("memory://?compress=zstd") as store:
        for work in (store.write(a_write("case", rows=(row,))), store.rows("case", Kind.BODY)):
            task = asyncio.ensure_future(work)
            beats = 0
            while not task.done():
                await asyncio.sleep(0)
                beats += 1
            assert beats > 3
        assert (await task)[0].data == text
        assert len((await raw(store).rows("case", Kind.BODY))[0].data) < len(text) / 2


async def test_compressed_lines_of_a_file_are_json(tmp_path):
    async with opened(f"file://{tmp_path}/store?compress=zstd") as store:
        for number in range(20):
            await store.write(a_write("case", number, rows=(a_row(number, TEXT + b" " * number),)))
        [path] = (tmp_path / "store" / "sessions").iterdir()
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert {type(data) for line in lines[1:] for data in line["data"]} == {str}
        assert [row.data for row in await store.rows("case", Kind.BODY)] == [TEXT + b" " * n for n in range(20)]


async def test_sessions_are_migrated_forked_and_compacted(tmp_path):
    async with midturn.open(f"sqlite:///{tmp_path}/store.db?compress=zstd") as store:
        old = midturn.Blueprint("desk", chatting, version=1)
        for number in range(4):
            await store.session("case", old).run(task=f"{SAID} My card is 1234-5678. {number}")
        new = midturn.Blueprint("desk", chatting, version=2)

        @new.migration(1, 2)
        def forget_cards(state):
            return state.redact(r"\d{4}-\d{4}", "[card]")

        case = store.session("case", new)
        await case.run(task=SAID)
        assert "1234-5678" not in json.dumps(await case.at(5).state())
        assert "[card]" in json.dumps(await case.at(5).state())
        fork = await case.fork("case-b", at=5)
        await fork.run(task=SAID)
        await case.compact(before=5)
        await case.run(task=SAID)
        assert (await store.info("case")).turns == 6
        assert [line async for line in store.audit("case")] != []


CHILD = """
import asyncio, os, signal, sys
import midturn
from midturn.stores.wrapper import innermost
from midturn.testing import ScriptedModel
from autogen_agentchat.agents import AssistantAgent

async def main():
    async with midturn.open(sys.argv[1]) as store:
        inner, writes = innermost(store.store), []
        swap = inner._swap

        def dies(write, labels):
            if any(row.data[:1] == b"\\x01" for row in write.rows):
                writes.append(write)
            if len(writes) == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
            return swap(write, labels)

        inner._swap = dies
        model = ScriptedModel({"": "I have checked the order, and it has been shipped today. Is there anything else?"})
        await store.session("case", lambda: AssistantAgent("clerk", model)).run(task=sys.argv[3], key="mail-1")

asyncio.run(main())
"""


@pytest.mark.fault("F1")
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_worker_killed_before_a_compressed_write_loses_nothing(number, tmp_path):
    url = f"sqlite:///{tmp_path}/store.db?compress=zstd"
    command = [sys.executable, "-c", CHILD, url, str(number), SAID]
    child = await asyncio.to_thread(subprocess.run, command, check=False, timeout=120)
    assert child.returncode == -signal.SIGKILL
    async with midturn.open(url, lease=3) as store:
        case = store.session("case", chatting, timeout=60)
        result = await case.run(task=SAID, key="mail-1")
        assert result.messages[0].content == SAID
        assert (await store.info("case")).turns == 1
