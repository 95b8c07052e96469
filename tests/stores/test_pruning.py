"""Pruning gives back the space of calls: the file that is written anew, and the tables."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from midturn.errors import OutcomeUnknown, StateInvalid, StoreFull
from midturn.record.head import Kind
from midturn.stores.files import store as files
from midturn.stores.files.format import name_of
from midturn.stores.files.store import FileStore
from midturn.testing import a_removal, a_row, a_write
from midturn.testing.subject import snapshot

LARGE = b'"' + b"x" * 30_000 + b'"'


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def file(root):
    return root / "sessions" / name_of("case-42")


@asynccontextmanager
async def opened(root, **options):
    store = await FileStore.open(root, **options)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(root):
    async with opened(root) as store:
        yield store


def call(n, data=LARGE):
    return a_row(n, data, kind=Kind.CALL)


async def calls_and_rows(store, calls=6):
    """A session of several writes, most of it calls; the seq that it has then."""
    for n in range(calls):
        rows = [call(n), a_row(n, b" [\n] "), a_row(n, b"", kind=Kind.DECISION)]
        await store.write(a_write(seq=n, rows=rows, labels={"n": str(n)}))
    return calls


async def test_a_file_is_written_anew_without_the_calls_that_are_gone(store, root, file):
    seq = await calls_and_rows(store)
    assert file.stat().st_size > 6 * 30_000
    await store.write(
        a_write(seq=seq, removes=[a_removal(5)], labels={"now": "less"}, rows=[a_row(99)], data=b"\0\xff")
    )
    after = await snapshot(store, "case-42")
    assert file.stat().st_size < 40_000
    assert b'"kept":true' in file.read_bytes()
    assert [path.name for path in (root / "sessions").iterdir()] == [file.name]
    assert after[0].seq == seq + 1
    assert [row.n for row in after[1] if row.kind is Kind.CALL] == [5]
    assert len(after[1]) == 6 + 6 + 1 + 1
    async with opened(root) as other:
        assert await snapshot(other, "case-42") == after
        assert [head.labels for head in await other.heads()] == [{"now": "less"}]
        written = await other.write(a_write(seq=seq + 1, rows=[call(6)]))
    assert (await snapshot(store, "case-42"))[0].token == written.token
    await store.write(a_write(seq=seq + 2, removes=[a_removal(7)]))
    assert len((await snapshot(store, "case-42"))[1]) == 6 + 6 + 1


async def test_a_file_without_much_waste_only_grows(store, file):
    await store.write(a_write(rows=[a_row(1, LARGE * 4), call(1), call(2)]))
    before = file.read_bytes()
    await store.write(a_write(seq=1, removes=[a_removal(3)]))
    assert file.read_bytes().startswith(before)
    await store.write(a_write("small", rows=[call(n, b"[]") for n in range(9)]))
    await store.write(a_write("small", seq=1, removes=[a_removal(9)]))
    assert b'"kept"' not in file.with_name(name_of("small")).read_bytes()


async def test_a_large_session_is_written_anew_in_lines_of_limited_length(store, root, file):
    rows = [a_row(n, b'"' + b"y" * 400_000 + b'"') for n in range(8)]
    await store.write(a_write(rows=rows))
    for seq in range(1, 9):
        await store.write(a_write(seq=seq, rows=[call(seq, b'"' + b"x" * 1_000_000 + b'"')]))
    await store.write(a_write(seq=9, removes=[a_removal(9)]))
    _, *kept, _ = file.read_bytes().splitlines()
    assert len(kept) == 3
    async with opened(root) as other:
        assert (await snapshot(other, "case-42"))[1] == tuple(rows)


async def test_a_file_of_kept_rows_without_a_head_is_damage(store, root, file):
    seq = await calls_and_rows(store)
    await store.write(a_write(seq=seq, removes=[a_removal(6)]))
    lines = file.read_bytes().splitlines(keepends=True)
    for left in (lines[:-1], [*lines, lines[1]], [lines[0], lines[2]]):
        file.write_bytes(b"".join(left))
        async with opened(root) as other:
            with pytest.raises(StateInvalid, match="restore the file from a backup"):
                await other.head("case-42")
            with pytest.raises(StateInvalid):
                await other.write(a_write())
    file.write_bytes(b"".join([lines[0], lines[1].replace(b"kept", b"kepp"), *lines[2:]]))
    async with opened(root) as other:
        with pytest.raises(StateInvalid, match=r"backup$"):  # there is no earlier state to go back to
            await other.head("case-42")


async def test_a_disk_without_space_for_a_second_file_takes_the_write_all_the_same(store, root, file, monkeypatch):
    seq = await calls_and_rows(store)
    real = os.write

    def full(target, data):
        if Path(f"/proc/self/fd/{target}").readlink().suffix == ".tmp":
            raise OSError(errno.ENOSPC, "no space")
        return real(target, data)

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full)
        await store.write(a_write(seq=seq, removes=[a_removal(6)]))
    assert not file.with_name(f"{file.name}.tmp").exists()
    assert file.stat().st_size > 100_000
    assert [row for row in (await snapshot(store, "case-42"))[1] if row.kind is Kind.CALL] == []
    with monkeypatch.context() as disk:
        disk.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
        before = await snapshot(store, "case-42")
        with pytest.raises(StoreFull):
            await store.write(a_write(seq=seq + 1, removes=[a_removal(7)]))
        assert await snapshot(store, "case-42") == before
    await store.write(a_write(seq=seq + 1, removes=[a_removal(7)]))
    assert file.stat().st_size < 10_000


async def test_a_new_file_is_on_the_disk_before_the_write_is_acknowledged(store, root, file, monkeypatch):
    seq = await calls_and_rows(store)
    events = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def spy(what, *args, name=name, real=real):
            place = Path(f"/proc/self/fd/{what}").readlink() if isinstance(what, int) else Path(what)
            events.append((name, place.name))
            return real(what, *args)

        monkeypatch.setattr(os, name, spy)
    await store.write(a_write(seq=seq, removes=[a_removal(6)]))
    spare = f"{file.name}.tmp"
    assert [event for event in events if event[0] == "fsync"] == [("fsync", spare), ("fsync", "sessions")]
    events.clear()
    async with opened(root) as other:  # whoever made it may have died before it was durable
        events.clear()
        await other.head("case-42")
    assert events == [("fsync", file.name), ("fsync", "sessions")]


async def test_a_directory_that_cannot_be_synced_leaves_the_outcome_unknown(store, root, file, monkeypatch):
    seq = await calls_and_rows(store)
    sync = files._sync_directory

    def fail(path):
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as disk:
        disk.setattr(files, "_sync_directory", fail)
        with pytest.raises(OutcomeUnknown):
            await store.write(a_write(seq=seq, removes=[a_removal(6)], token="new"))
    assert files._sync_directory is sync
    assert (await store.head("case-42")).token == "new"


PRUNE = """
import asyncio, os, signal, sys
from midturn.stores.files.store import FileStore
from midturn.testing import a_removal, a_write

async def main(root, moment):
    store = await FileStore.open(root)
    real = os.replace
    def replace(*names):
        if moment == "after":
            real(*names)
        os.kill(os.getpid(), signal.SIGKILL)
    os.replace = replace
    await store.write(a_write(seq=6, removes=[a_removal(6)], token="killed"))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_writer_that_is_killed_while_the_file_is_replaced_leaves_the_old_or_the_new(store, root, file, moment):
    seq = await calls_and_rows(store)
    before = await snapshot(store, "case-42")
    run = [sys.executable, "-c", PRUNE, str(root), moment]
    done = await asyncio.to_thread(subprocess.run, run, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    head, rows = await snapshot(store, "case-42")
    if moment == "before":
        assert (head, rows) == before
        assert len(await store.heads()) == 1
        await store.write(a_write(seq=seq, removes=[a_removal(6)], token="killed"))
        rows = (await snapshot(store, "case-42"))[1]
    else:
        assert head.token == "killed"
    assert rows == tuple(row for row in before[1] if row.kind is not Kind.CALL)
    assert [path.name for path in (root / "sessions").iterdir()] == [file.name]
