"""Special to files: torn and flipped bytes, fsync, full disks, names, locks, and other processes."""

import asyncio
import errno
import fcntl
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
import zlib
from base64 import b64decode
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from midturn.errors import (
    MidturnError,
    OutcomeUnknown,
    SessionDeleted,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
    UnknownVersion,
)
from midturn.record.codec import encode
from midturn.record.head import Head, Kind
from midturn.stores.files import format as lines
from midturn.stores.files import row_index
from midturn.stores.files import store as files
from midturn.stores.files.format import CHECKSUM, MAX_NAME, SUFFIX, name_of
from midturn.stores.files.store import FileStore
from midturn.testing import a_row, a_write
from midturn.testing.samples import HOSTILE_IDS

LONG = bool(os.environ.get("MIDTURN_LONG"))


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def file(root):
    return root / "sessions" / "case-42.jsonl"


@asynccontextmanager
async def opened(root):
    store = await FileStore.open(root)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(root):
    async with opened(root) as store:
        yield store


@pytest.fixture
def no_fsync(monkeypatch):
    """For tests that read a thousand damaged files, and ask nothing about durability."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


async def said(store, session="case-42"):
    """All that a store says about a session, but for the moment."""
    head = await store.head(session)
    rows = [row for kind in Kind for row in await store.rows(session, kind)]
    return head and replace(head, now=0.0), rows


def forget(store):
    """As another process would, that has read nothing yet."""
    store._indexes.clear()


async def three_writes(store):
    """Return what readers see before the last of three writes, and after it."""
    await store.write(a_write(owner="me", lease=30.0, labels={"team": "claims"}, rows=[a_row(1), a_row(2, b"")]))
    await store.write(a_write(seq=1, data=b"\xff\n", rows=[a_row(3), a_row(1, kind=Kind.DECISION)]))
    old = await said(store)
    await store.write(a_write(seq=2, epoch=2, status="failed", rows=[a_row(2, kind=Kind.DECISION), a_row(4)]))
    return old, await said(store)


def failing(monkeypatch, name, error, *, times=1000, when=lambda file: True):
    """Have a function of ``os`` fail, as a disk would."""
    real = getattr(os, name)
    left = [times]

    def fail(file, *args):
        if left[0] and when(file):
            left[0] -= 1
            if name == "write":
                real(file, bytes(args[0])[:7])
            raise OSError(error, os.strerror(error))
        return real(file, *args)

    monkeypatch.setattr(os, name, fail)


# Torn and flipped bytes


async def test_a_last_line_that_is_cut_anywhere_was_never_written(store, file, no_fsync):
    old, _ = await three_writes(store)
    content = file.read_bytes()
    last = content.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(content)):
        file.write_bytes(content[:end])
        forget(store)
        assert await said(store) == old
        assert [replace(head, now=0.0) for head in await store.heads()] == [old[0]]
        written = await store.write(a_write(seq=2, rows=[a_row(9)]))
        forget(store)
        assert await said(store) == (replace(written, now=0.0), sorted([*old[1], a_row(9)], key=lambda row: row.kind))


async def test_a_first_write_that_is_cut_anywhere_was_never_made(store, file, no_fsync):
    await store.write(a_write(rows=[a_row(1)]))
    content = file.read_bytes()
    for end in range(len(content)):
        file.write_bytes(content[:end])
        forget(store)
        assert await said(store) == (None, [])
        assert list(await store.heads()) == []
        assert await store.delete("case-42") is False
        assert (await store.write(a_write(rows=[a_row(1)]))).seq == 1


MASKS = (0x01, 0x20, 0x80)


@pytest.mark.fault("F31")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("known", [False, True], ids=["read for the first time", "read before"])
async def test_a_flipped_byte_yields_the_old_the_new_or_an_error(store, file, no_fsync, mask, known):
    """In a long run, flip all three bits of each byte, else one of them."""
    old, new = await three_writes(store)
    await store.write(a_write("other", rows=[a_row(1)]))
    other = await said(store, "other")
    content = file.read_bytes()
    errors = 0
    places = range(len(content)) if LONG else range(MASKS.index(mask), len(content), len(MASKS))
    for at in places:
        file.write_bytes(content)
        forget(store)
        if known:
            assert await said(store) == new
        file.write_bytes(content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :])
        try:
            found = await said(store)
        except StateInvalid as error:
            errors += error.session == "case-42" and error.path.startswith(f"{file}:")
        else:
            assert found == new if known else found == old and at == len(content) - 1
            errors += 1
        listed = {head.session: head for head in await store.heads()}
        assert replace(listed.pop("other"), now=0.0) == other[0]
        assert all(head.seq < 3 or replace(head, now=0.0) == new[0] for head in listed.values())
    assert errors == len(places)
    assert await said(store, "other") == other


async def test_a_damaged_line_is_named_and_the_lines_before_it_can_be_kept(store, file):
    old, _ = await three_writes(store)
    good = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*good[:3], good[3].replace(b"failed", b"idling")]))
    forget(store)
    for call in (store.head, store.delete, lambda session: store.write(a_write(session, 3))):
        with pytest.raises(StateInvalid, match="remove this line and all lines after it") as caught:
            await call("case-42")
        assert caught.value.path == f"{file}:4"
    file.write_bytes(b"".join(good[:3]))
    assert await said(store) == old
    assert (await store.write(a_write(seq=2))).seq == 3


@pytest.mark.parametrize("taken", [1, 2])
async def test_a_missing_or_repeated_line_is_damage(store, file, taken):
    await three_writes(store)
    good = file.read_bytes().splitlines(keepends=True)
    for damaged in ([*good[:taken], *good[taken + 1 :]], [*good[: taken + 1], *good[taken:]]):
        file.write_bytes(b"".join(damaged))
        forget(store)
        with pytest.raises(StateInvalid, match="does not follow"):
            await store.head("case-42")


async def test_a_listing_shows_what_is_readable_and_warns_of_what_is_not(store, file, caplog):
    old, _ = await three_writes(store)
    await store.write(a_write("other"))
    good = file.read_bytes()
    file.write_bytes(good[:-2] + b"?\n")
    assert next(replace(head, now=0.0) for head in await store.heads()) == old[0]
    file.write_bytes(b"?" * 20_000 + b"\n")
    with caplog.at_level(logging.WARNING):
        assert [head.session for head in await store.heads()] == ["other"]
    assert str(file) in caplog.text


async def test_a_file_that_was_replaced_by_a_longer_one_is_read_anew(store, root, file):
    await three_writes(store)
    first = file.read_bytes().splitlines(keepends=True)[:2]
    file.write_bytes(b"".join(first))
    async with opened(root) as other:
        for seq in range(1, 6):
            await other.write(a_write(seq=seq, rows=[a_row(seq + 10, encode("x" * 100))]))
        assert await said(store) == await said(other)


async def test_a_file_under_the_name_of_another_session_is_damage(store, file):
    await store.write(a_write())
    file.rename(file.with_name("stolen.jsonl"))
    with pytest.raises(StateInvalid, match="'case-42'"):
        await store.head("stolen")
    assert list(await store.heads()) == []


async def test_a_line_of_a_newer_midturn_is_not_guessed_at(store, file, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(lines, "FORMAT", 2)
        await store.write(a_write())
    forget(store)
    with pytest.raises(UnknownVersion, match=r"case-42\.jsonl:1"):
        await store.head("case-42")


# What is in a file


async def test_a_line_is_json_and_has_the_data_as_it_is(store, file):
    data = encode({"float": [0.1, 1e22, -0.0], "int": 2**63 - 1, "text": "caf\u00e9 \0 \u2028"})
    await store.write(a_write(data=data, rows=[a_row(1, data), a_row(2, b" [1,\n2]"), a_row(3, b"")]))
    header, line = map(json.loads, file.read_text().split("\n")[:-1])
    assert header["session"] == "case-42"
    assert line["head"] == line["data"][0] == json.loads(data)
    assert data in file.read_bytes()
    assert [b64decode(text) for text in line["data"][1:]] == [b" [1,\n2]", b""]
    assert [row.data for row in await store.rows("case-42", Kind.BODY)] == [data, b" [1,\n2]", b""]


async def test_a_line_has_little_besides_its_data(store, file):
    row = a_row(1, encode("x" * 1000), kind=Kind.TURN)
    await store.write(a_write(token="0123456789ab", data=b'{"turn":1}', rows=[row]))
    last = file.read_bytes().splitlines()[-1]
    assert len(last) - len(row.data) - len(b'{"turn":1}') <= 150


async def test_what_a_line_cannot_tell_exactly_is_refused_before_it_is_written(store, file):
    await store.write(a_write())
    content = file.read_bytes()
    for bad in (
        {"labels": {"n": 1}},
        {"labels": {"a": "b", "data": ["x"]}},
        {"epoch": 1.5},
        {"rows": [a_row(2**63, b"1")]},
    ):
        with pytest.raises(StateInvalid):
            await store.write(a_write(seq=1, **bad))
    assert file.read_bytes() == content


async def test_a_write_does_not_read_what_was_written_before(store, root, monkeypatch):
    async with opened(root) as other:
        for seq in range(0, 50, 2):
            await store.write(a_write(seq=seq, rows=[a_row(seq)]))
            await other.write(a_write(seq=seq + 1, rows=[a_row(seq + 1)]))
        read = []
        real = lines.read_change
        for module in (lines, row_index):
            monkeypatch.setattr(module, "read_change", lambda line: read.append(line) or real(line))
        await store.write(a_write(seq=50))
        # The other's last line, its own before it is written, and its own afterwards.
        assert len(read) == 3


async def test_only_so_many_sessions_are_kept_in_memory(store, monkeypatch):
    monkeypatch.setattr(files, "MAX_INDEXES", 3)
    for seq in range(2):
        for number in range(6):
            await store.write(a_write(f"case-{number}", seq, rows=[a_row(seq)]))
    assert len(store._indexes) == 3


# Durability


async def test_a_write_and_a_deletion_are_synced_before_they_are_acknowledged(store, file, monkeypatch):
    events = []
    for name in ("write", "fsync", "replace"):
        real = getattr(os, name)

        def spy(what, *args, name=name, real=real):
            place = Path(f"/proc/self/fd/{what}").readlink() if isinstance(what, int) else Path(what)
            events.append((name, place.name))
            return real(what, *args)

        monkeypatch.setattr(os, name, spy)
    await store.write(a_write())
    # The header of the file, and the line of the write.
    assert events == [("write", file.name)] * 2 + [("fsync", file.name), ("fsync", "sessions")]
    events.clear()
    await store.write(a_write(seq=1))
    assert events == [("write", file.name), ("fsync", file.name)]
    events.clear()
    await store.delete("case-42")
    spare = f"{file.name}.tmp"
    assert [event for event in events if event[0] != "replace"] == [
        *(("write", spare), ("fsync", spare)),
        ("fsync", "sessions"),
    ]


async def test_what_another_process_wrote_is_synced_before_it_is_relied_on(store, root, monkeypatch):
    await store.write(a_write())
    synced = []
    real = os.fsync
    async with opened(root) as other:
        monkeypatch.setattr(os, "fsync", lambda file: synced.append(file) or real(file))
        assert await other.head("case-42")
        assert len(synced) == 2
        assert await other.head("case-42")
        assert len(synced) == 2


@pytest.mark.parametrize("seq", [0, 3])
@pytest.mark.parametrize("fault", ["no space", "write fails", "fsync fails"])
async def test_a_write_that_fails_is_taken_back(store, file, monkeypatch, seq, fault):
    name, error, expected = {
        "no space": ("write", errno.ENOSPC, StoreFull),
        "write fails": ("write", errno.EIO, StoreUnavailable),
        "fsync fails": ("fsync", errno.EIO, StoreUnavailable),
    }[fault]
    if seq:
        await three_writes(store)
    before, content = await said(store), file.read_bytes() if seq else b""
    with monkeypatch.context() as disk:
        failing(disk, name, error, times=1)
        with pytest.raises(expected) as caught:
            await store.write(a_write(seq=seq, rows=[a_row(8)]))
    assert type(caught.value) is expected
    assert file.read_bytes() == content
    assert await said(store) == before
    assert (await store.write(a_write(seq=seq, rows=[a_row(8)]))).seq == seq + 1


async def test_a_new_file_whose_directory_cannot_be_synced_is_not_acknowledged(store, root, monkeypatch):
    with monkeypatch.context() as disk:
        failing(
            disk, "fsync", errno.EIO, when=lambda file: os.path.samestat(os.fstat(file), (root / "sessions").stat())
        )
        with pytest.raises(StoreUnavailable):
            await store.write(a_write())
        assert await store.head("case-42") is None
    assert (await store.write(a_write())).seq == 1


async def test_a_disk_that_never_syncs_leaves_the_outcome_unknown_and_the_rest_readable(store, monkeypatch):
    _, new = await three_writes(store)
    with monkeypatch.context() as disk:
        failing(disk, "fsync", errno.EIO)
        with pytest.raises(OutcomeUnknown):
            await store.write(a_write(seq=3))
        assert await said(store) == new
        with pytest.raises(StoreUnavailable):
            await store.delete("case-42")
        assert await said(store) == new
    assert (await store.write(a_write(seq=3))).seq == 4


def mount(*arguments):
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path):
    """A disk of its own, 128 KB small."""
    where = tmp_path / "disk"
    where.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=128k", "none", where):
        pytest.skip("mounting needs the rights of root")
    yield where
    subprocess.run(["umount", "-l", where], check=True)


async def test_a_full_disk_is_told_read_from_and_used_again(disk):
    (disk / "filler").write_bytes(bytes(60_000))
    async with opened(disk / "store") as store:
        writes = [a_write(seq=seq, rows=[a_row(seq, encode("x" * 10_000))]) for seq in range(9)]
        kept = 0
        with suppress(StoreFull):
            for write in writes:
                kept = (await store.write(write)).seq
        assert 0 < kept < 9
        assert [row.n for row in await store.rows("case-42", Kind.BODY)] == list(range(kept))
        (disk / "filler").unlink()
        for write in writes[kept:]:
            assert (await store.write(write)).seq == write.seq + 1


async def test_a_read_only_disk_is_told_and_read_from(disk):
    async with opened(disk / "store") as store:
        await store.write(a_write())
        assert mount("-o", "remount,ro", disk)
        forget(store)
        assert (await said(store))[0].seq == 1
        with pytest.raises(StoreUnavailable):
            await store.write(a_write(seq=1))
    with pytest.raises(StoreUnavailable, match="writable"):
        await FileStore.open(disk / "store")


# Opening


async def test_a_directory_of_something_else_is_refused_and_left_alone(root):
    root.mkdir()
    (root / "thesis.txt").write_text("all of it")
    with pytest.raises(StoreUnavailable, match="another directory"):
        await FileStore.open(root)
    assert [path.name for path in root.iterdir()] == ["thesis.txt"]


async def test_a_place_where_no_directory_can_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "no" / "store", tmp_path / "file" / "store", Path("/sys/midturn")):
        with pytest.raises(StoreUnavailable, match=r"directory|this user"):
            await FileStore.open(place)
    assert (tmp_path / "file").read_text() == ""


async def test_a_store_of_a_newer_midturn_is_refused_and_a_damaged_marker_is_named(root):
    async with opened(root):
        pass
    marker = root / "midturn.json"
    marker.write_text('{"midturn":"files","v":2}')
    with pytest.raises(UnknownVersion):
        await FileStore.open(root)
    for damaged in ("", "{}", '{"midturn":"files"}'):
        marker.write_text(damaged)
        with pytest.raises(StateInvalid, match=re.escape(str(marker))):
            await FileStore.open(root)


async def test_an_opening_that_was_cut_off_is_gone_on_with(root):
    root.mkdir()
    (root / "midturn.json.0123").write_text("{")
    (root / "lost+found").mkdir()
    async with opened(root) as store:
        assert (await store.write(a_write())).seq == 1


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_goes_in_the_middle_of_a_write_is_not_acknowledged(store, file, monkeypatch, *, replaced):
    await store.write(a_write(rows=[a_row(1)]))
    before, real = file.read_bytes(), os.fsync

    def fsync(number):
        real(number)
        file.unlink(missing_ok=True)
        if replaced:
            file.write_bytes(before)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(OutcomeUnknown, match="was removed or replaced while it was written"):
            await store.write(a_write(seq=1, rows=[a_row(2)]))
    head = await store.head("case-42")
    assert (head and head.seq) == (1 if replaced else None)


async def test_a_store_that_is_gone_does_not_look_empty(store, root):
    await store.write(a_write())
    root.rename(root.with_name("moved"))
    for call in (store.head("case-42"), store.heads(), store.write(a_write("new")), store.delete("case-42")):
        with pytest.raises(StoreUnavailable):
            await call


# Names


text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)


@given(st.lists(st.sampled_from(HOSTILE_IDS) | text | st.text("aA.%~/", min_size=1), min_size=2, unique=True))
@example([*HOSTILE_IDS, "." * 200, "..%2F", "\N{GRINNING FACE}" * 20, "\N{GRINNING FACE}" * 20 + "~"])
def test_every_id_has_a_file_of_its_own_in_the_directory(ids):
    names = {name_of(session).removesuffix(SUFFIX) for session in ids}
    # Not even one that differs by case or accents only, which some file systems take for the same.
    assert len({name.casefold() for name in names}) == len(ids)
    for name in names:
        assert len(name) <= MAX_NAME
        assert re.fullmatch(r"(?!\.)([a-z0-9._-]|%[0-9A-F]{0,2})+(~[0-9a-f]{32})?", name)


async def test_foreign_files_and_links_are_left_alone(store, root, tmp_path):
    await store.write(a_write())
    outside = tmp_path / "outside.jsonl"
    folder = root / "sessions"
    (folder / "link.jsonl").symlink_to(outside)
    (folder / "folder.jsonl").mkdir()
    for name in ("notes.txt", "case-42.jsonl.tmp", "UPPER.jsonl", "%zz.jsonl", "%ff.jsonl", "a~b.jsonl", ".jsonl"):
        (folder / name).write_text("not ours\n")
    assert [head.session for head in await store.heads()] == ["case-42"]
    for session in ("link", "folder"):
        with pytest.raises(StoreUnavailable):
            await store.write(a_write(session))
    assert not outside.exists()


# Others at the same file


RIVAL = """
import asyncio, sys
from midturn.errors import Conflict
from midturn.stores.files.store import FileStore
from midturn.testing import a_row, a_write

async def main(root, name):
    store = await FileStore.open(root)
    print("ready", flush=True)
    sys.stdin.readline()
    for seq in range(60):
        try:
            await store.write(a_write(seq=seq, token=name, rows=[a_row(seq, b'"%s"' % name.encode())]))
            print(seq, flush=True)
        except Conflict:
            pass
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_of_two_processes_one_wins_each_seq(store, root):
    def start(name):
        return subprocess.Popen(
            [sys.executable, "-c", RIVAL, root, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    with start("one") as one, start("two") as two:
        for rival in (one, two):
            assert rival.stdout.readline() == "ready\n"
        for rival in (one, two):
            rival.stdin.write("go\n")
            rival.stdin.flush()
        won = {name: set(map(int, rival.communicate()[0].split())) for name, rival in (("one", one), ("two", two))}
    assert one.returncode == two.returncode == 0
    assert won["one"] | won["two"] == set(range(60))
    assert won["one"].isdisjoint(won["two"])
    rows = await store.rows("case-42", Kind.BODY)
    assert {name: {row.n for row in rows if json.loads(row.data) == name} for name in won} == won


async def test_a_writer_beside_a_deletion_is_before_it_or_refused(root):
    async with opened(root) as one, opened(root) as two:
        for number in range(20):
            session = f"case-{number}"
            await one.write(a_write(session))
            written, deleted = await asyncio.gather(
                two.write(a_write(session, 1)), one.delete(session), return_exceptions=True
            )
            assert isinstance(written, Head | SessionDeleted)
            assert deleted is True
            assert (await two.head(session)).seq == (3 if isinstance(written, Head) else 2)


async def test_a_writer_that_waits_for_a_replaced_file_notices(store, file, monkeypatch):
    await store.write(a_write())
    tomb = file.with_name("spare")
    real = fcntl.flock

    def replaced_just_before(held, how):
        if tomb.exists():
            tomb.replace(file)
        return real(held, how)

    with monkeypatch.context() as beside:
        head = (await store.head("case-42")).deleted(now=time.time())
        tomb.write_bytes(lines.header_line("case-42", head.created) + lines.change_line(head))
        beside.setattr(fcntl, "flock", replaced_just_before)
        with pytest.raises(SessionDeleted):
            await store.write(a_write(seq=1))
    assert (await store.head("case-42")).status == "deleted"


async def test_a_lock_that_is_held_too_long_is_told_and_nothing_is_written_later(store, file, monkeypatch):
    await store.write(a_write())
    with file.open() as held, monkeypatch.context() as hasty:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert [head.session for head in await store.heads()] == ["case-42"]
        hasty.setattr(store, "_deadline", 0.1)
        for call in (store.write(a_write(seq=1)), store.head("case-42"), store.delete("case-42")):
            with pytest.raises(StoreUnavailable) as caught:
                await call
            assert type(caught.value) is StoreUnavailable
    assert (await store.head("case-42")).seq == 1


async def test_a_write_that_hangs_is_unknown_until_it_has_ended(store, monkeypatch):
    await store.write(a_write())
    hanging, ended, real = asyncio.Event(), threading.Event(), os.fsync
    loop = asyncio.get_running_loop()

    def hang(file):
        loop.call_soon_threadsafe(hanging.set)
        ended.wait(60)
        real(file)

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", hang)
        disk.setattr(store, "_deadline", 0.5)
        write = asyncio.ensure_future(store.write(a_write(seq=1, token="slow")))
        await hanging.wait()
        with pytest.raises(OutcomeUnknown):
            await write
    asked = asyncio.ensure_future(store.head("case-42"))
    await asyncio.wait({asked}, timeout=0.1)
    assert not asked.done()
    ended.set()
    assert (await asked).token == "slow"


async def test_a_write_whose_caller_has_gone_turns_back(store, file, monkeypatch):
    await store.write(a_write())
    hanging, go_on, real = asyncio.Event(), threading.Event(), files.change_line
    loop = asyncio.get_running_loop()

    def hang(*args):
        loop.call_soon_threadsafe(hanging.set)
        go_on.wait(60)
        return real(*args)

    monkeypatch.setattr(files, "change_line", hang)
    write = asyncio.ensure_future(store.write(a_write(seq=1)))
    await hanging.wait()
    write.cancel()
    with pytest.raises(asyncio.CancelledError):
        await write
    go_on.set()
    assert (await store.head("case-42")).seq == 1
    assert (await store.write(a_write(seq=1))).seq == 2


def test_a_store_is_not_used_in_a_forked_child(root):
    store = asyncio.run(FileStore.open(root))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: what is tested here
        child = os.fork()
    if child == 0:
        told = 1
        try:
            asyncio.run(store.head("case-42"))
        except StoreUnavailable as error:
            told = 0 if "open the store again" in str(error) else 2
        finally:
            os._exit(told)
    assert os.waitpid(child, 0)[1] == 0
    assert asyncio.run(store.write(a_write())).seq == 1
    asyncio.run(store.close())


async def test_a_child_that_is_forked_during_a_write_does_not_keep_its_lock(store, monkeypatch):
    real, children = os.fsync, []

    def fork_and_sync(file):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            children.append(os.fork())
        if children[-1] == 0:
            time.sleep(60)
            os._exit(0)
        real(file)

    with monkeypatch.context() as beside:
        beside.setattr(os, "fsync", fork_and_sync)
        await store.write(a_write())
    try:
        assert (await store.write(a_write(seq=1))).seq == 2
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            await asyncio.to_thread(os.waitpid, child, 0)


async def test_every_error_of_the_system_is_translated(store, monkeypatch):
    for error in (errno.EIO, errno.EACCES, errno.EMFILE, errno.ENOSPC, errno.ESTALE, errno.ETIMEDOUT, errno.EDQUOT):
        with monkeypatch.context() as disk:
            failing(disk, "open", error)
            for call in (store.write(a_write()), store.write(a_write("x" * 200))):
                with pytest.raises(MidturnError) as caught:
                    await call
                assert isinstance(caught.value, StoreFull | StoreUnavailable)


FORGED = {
    "status": [7, None, [], {}, "odd"],
    "seq": [-1, "2", 2.0, True, None, []],
    "epoch": [-1, "1", 1.5, True, None, 2**63],
    "at": [-1, "1", None, 1e300, True, []],
    "token": [7, None, [], True],
    "labels": [7, [], {"a": 7}, {"a": {}}, None],
    "owner": [7, [], {}, True],
    "expires": [-1, "1", None, 1e300, True, []],
    "removes": [7, "x", [7], [["CALL", 1]], [["CALL", -1, 2]], [["CALL", 1, "2"]], [["ODD", 1, 2]], [["CALL", 1, 1.5]]],
    "rows": [
        *(7, None, "x", {"a": 1}, [7], [[]], [["BODY", 1]], [["BODY", -1, 2]], [["BODY", 2**63, 2]]),
        *([["BODY", "1", 2]], [["BODY", 1, -2]], [["BODY", 1, 1.5]], [[["BODY"], 1, 2]], [["ODD", 1, 2]]),
        *([["BODY", 1, 2**62]], [["BODY", True, 2]], [["BODY", 1, None]]),
    ],
}


@pytest.mark.parametrize("name", FORGED)
async def test_a_forged_line_with_the_right_checksum_is_named(store, file, name, no_fsync):
    await store.write(a_write(labels={"a": "b"}))
    await store.write(a_write("other"))
    await store.write(a_write(seq=1))
    *before, last = file.read_bytes().splitlines(keepends=True)
    members, rest = last[CHECKSUM:].split(b',"data":[')
    for value in FORGED[name]:
        forged = json.dumps(json.loads(b"{%b}" % members) | {name: value})[1:-1].encode() + b',"data":[' + rest[:-1]
        file.write_bytes(b"".join([*before, b'{"crc":"%08x",' % zlib.crc32(forged), forged, b"\n"]))
        forget(store)
        for call in (store.head("case-42"), store.rows("case-42", Kind.BODY), store.write(a_write(seq=2))):
            with pytest.raises(StateInvalid, match="this line is damaged"):
                await call
        assert "other" in [head.session for head in await store.heads()]
        assert sum((await store.counts()).values()) >= 1


async def test_a_row_that_is_nested_deeply_in_place_of_its_bytes_is_named(store, file):
    await store.write(a_write(rows=[a_row(1, b"\n")]))
    *before, last = file.read_bytes().splitlines(keepends=True)
    nested = b"[" * 1000 + b"]" * 1000
    forged = last[CHECKSUM:-1].replace(b'"Cg=="', nested).replace(b',6,"bytes"', b',%d,"bytes"' % len(nested))
    assert nested in forged
    file.write_bytes(b"".join([*before, b'{"crc":"%08x",' % zlib.crc32(forged), forged, b"\n"]))
    forget(store)
    with pytest.raises(StateInvalid, match="form of a string"):
        await store.rows("case-42", Kind.BODY)
