"""Ids that nobody should choose, and places where no store can be: a typed error each, and nothing touched."""

import asyncio
import errno
import sqlite3
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import midturn

ALPHABET = st.sampled_from([*"/\\.%*?~:;'\"|<>&$!#@ \t\n\r\x01\x1f\x7faAzZ09_-", "::", "..", "é", "e\u0301", "ß", "İ"])
NAMES = ["CON", "nul", "aux.txt", ".", "..", "...", "-rf", "~", "$HOME", "%2e%2e", "%00", "a" * 200, "😀" * 200]
HOSTILE = [
    "../../outside",
    "/etc/passwd",
    "a/../../b",
    "x'; DROP TABLE rows; --",
    "a\nb",
    "a%",
    "a_",
    "a*",
    "A",
    "a",
    *NAMES,
]
HOSTILE += [
    "caf\u00e9",
    "cafe\u0301",
    "\u202eabc",
    "\ufeff",
    "\u2028",
    "\uffff",
    "\U0010ffff",
    "midturn.json",
    "x.jsonl",
    "x.tmp",
]
ids = st.one_of(
    st.sampled_from(HOSTILE),
    st.lists(ALPHABET, min_size=1, max_size=40).map("".join),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=200),
)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("", "empty"),
        ("x" * 201, "201 characters"),
        ("x" * 10_240, "10,240 characters"),
        ("a\0b", "NUL"),
        ("a\ud800", "surrogate"),
        (None, "NoneType"),
        (42, "int"),
        (b"case", "bytes"),
        (Path("case"), "Path"),
    ],
)
async def test_an_impossible_id_is_refused_before_anything_is_written(url, bad, why, keeper, tmp_path):
    async with midturn.open(url) as store:
        for attempt in (
            lambda: store.session(bad, keeper).run(task="hi"),
            lambda: store.save(bad, keeper()),
            lambda: store.load(bad, keeper()),
            lambda: store.delete(bad),
        ):
            with pytest.raises(midturn.InvalidArgument, match=why) as caught:
                await attempt()
            assert caught.value.path == "session id"
            assert len(str(caught.value)) < 500
        for status in (None, "deleted"):
            assert [info.id async for info in store.sessions(status=status)] == []
    assert {path.name for path in tmp_path.rglob("*")} <= {"store", "midturn.json", "sessions", "store.db"}


@settings(max_examples=settings().max_examples // 2)
@given(chosen=st.lists(ids, min_size=1, max_size=6, unique=True))
@pytest.mark.parametrize("kind", ["memory", "file", "sqlite"])
def test_every_other_id_is_a_session_of_its_own(kind, chosen, keeper):
    async def play(outer):
        root = outer / "root"
        root.mkdir()
        (outer / "outside").write_text("not yours")
        url = {"memory": "memory://", "file": f"file://{root}/store", "sqlite": f"sqlite:///{root}/store.db"}[kind]
        async with midturn.open(url) as store:
            for id_ in chosen:
                assert (await store.session(id_, keeper, labels={"id": id_}).run(task=id_)).turn == 1
                await store.save(id_, keeper({"id": id_}))
            assert [info.id async for info in store.sessions()] == sorted(chosen)
            for id_ in chosen:
                found = keeper()
                assert await store.load(id_, found) == 2
                assert found.state == {"id": id_}
                (first, _) = [turn async for turn in store.session(id_).history()]
                assert first.task[0].content == id_
                assert [info.id async for info in store.sessions(labels={"id": id_})] == [id_]
                same = [other for other in sorted(chosen) if other.startswith(id_)]
                assert [info.id async for info in store.sessions(prefix=id_)] == same
            assert await store.delete(chosen[0])
            assert [info.id async for info in store.sessions()] == sorted(chosen[1:])
            for id_ in chosen[1:]:
                assert await store.load(id_, keeper()) == 2
        assert sorted(path.name for path in outer.iterdir()) == ["outside", "root"]
        assert (outer / "outside").read_text() == "not yours"
        inside = {"memory": [], "file": ["store"], "sqlite": ["store.db"]}[kind]
        assert sorted(path.name for path in root.iterdir()) == inside

    with TemporaryDirectory() as outer:
        asyncio.run(play(Path(outer)))


async def refused(url, *kinds, match=None):
    """The error of opening a store there."""
    with pytest.raises(kinds or (midturn.InvalidArgument, midturn.StoreUnavailable), match=match) as caught:
        async with midturn.open(url):
            pass
    assert isinstance(caught.value, midturn.MidturnError)
    return caught.value


def everything(root):
    """All files below, with their content."""
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))}


async def test_a_directory_is_no_database(tmp_path):
    (tmp_path / "store.db").mkdir()
    before = everything(tmp_path)
    await refused(f"sqlite:///{tmp_path}/store.db", match="not a file")
    await refused(f"sqlite:///{tmp_path}")
    assert everything(tmp_path) == before


async def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "store").write_text("a letter")
    before = everything(tmp_path)
    await refused(f"file://{tmp_path}/store", match="not a directory")
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    "content", [b"Dear diary,\n", b"x", b"\0" * 8192, b"SQLite format 3\0", bytes(range(256)) * 40]
)
async def test_a_file_that_is_no_database_stays_as_it_is(tmp_path, content):
    (tmp_path / "store.db").write_bytes(content)
    before = everything(tmp_path)
    error = await refused(f"sqlite:///{tmp_path}/store.db")
    assert str(tmp_path) in str(error)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("mode", ["delete", "wal"])
async def test_the_database_of_another_program_stays_as_it_is(tmp_path, mode):
    path = tmp_path / "store.db"
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA journal_mode = {mode}")
    other.execute("CREATE TABLE sessions (id INTEGER PRIMARY KEY, name TEXT)")
    other.execute("INSERT INTO sessions (name) VALUES ('not yours')")
    other.commit()
    before = everything(tmp_path)
    await refused(f"sqlite:///{path}", match="choose another file")
    assert everything(tmp_path) == before
    assert other.execute("SELECT name FROM sessions").fetchall() == [("not yours",)]
    other.close()


async def test_the_directory_of_another_program_stays_as_it_is(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "thesis.tex").write_text("not yours")
    before = everything(tmp_path)
    await refused(f"file://{tmp_path}/store", match="not empty")
    assert everything(tmp_path) == before


@pytest.mark.parametrize("damage", ["header", "middle", "cut", "end"])
async def test_a_damaged_database_is_named_and_never_read_as_empty(tmp_path, damage, keeper):
    path = tmp_path / "store.db"
    async with midturn.open(f"sqlite:///{path}") as store:
        for i in range(20):
            await store.session(f"case {i}", keeper).run(task=f"{i} " + "x" * 2000)
    data = bytearray(path.read_bytes())
    where = {"header": 0, "middle": data.index(b"9 " + b"x" * 100), "cut": 0, "end": len(data) - 9000}[damage]
    data[where : where + 9000] = b"" if damage == "cut" else b"\xaa" * 9000
    path.write_bytes(data)
    seen = set()
    try:
        async with midturn.open(f"sqlite:///{path}") as store:
            for i in range(20):
                try:
                    turns = [turn async for turn in store.session(f"case {i}").history()]
                except (midturn.StateInvalid, midturn.StoreUnavailable) as error:
                    seen.add(type(error))
                else:
                    assert [turn.task[0].content[:4].split()[0] for turn in turns] == [f"{i}"], "read as empty"
    except (midturn.StateInvalid, midturn.StoreUnavailable) as error:
        seen.add(type(error))
    assert seen, "nobody noticed"


async def test_a_damaged_session_file_is_named_and_others_are_unaffected(tmp_path, keeper):
    url = f"file://{tmp_path}/store"
    async with midturn.open(url) as store:
        for name in ("bad", "good"):
            for i in range(3):
                await store.session(name, keeper).run(task=f"{i} " + "x" * 200)
    (path,) = (tmp_path / "store").rglob("bad*.jsonl")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    async with midturn.open(url) as store:
        with pytest.raises(midturn.StateInvalid, match="damaged") as caught:
            await store.session("bad", keeper).run(task="next")
        assert str(path) in str(caught.value)
        assert (await store.session("good", keeper).run(task="next")).turn == 4
    assert path.read_bytes() == data


@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.parametrize("where", ["missing/parent/store", "letter/store", "letter/below/store"])
async def test_a_place_that_is_not_there_is_named(tmp_path, kind, where):
    (tmp_path / "letter").write_text("a file is no place for a store")
    before = everything(tmp_path)
    url = f"file://{tmp_path}/{where}" if kind == "file" else f"sqlite:///{tmp_path}/{where}"
    error = await refused(url)
    assert str(tmp_path) in str(error)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("url", ["file:///proc/midturn", "sqlite:////proc/midturn.db", "sqlite:////dev/null/x.db"])
async def test_a_place_where_nobody_can_write_is_named(url):
    await refused(url)


@pytest.fixture
def read_only(tmp_path):
    """Makes a directory that even root cannot write, as far as this machine lets us; else one without permissions."""
    mounted = []

    def make(path):
        if subprocess.run(["mount", "--bind", path, path], capture_output=True, check=False).returncode == 0:
            mounted.append(path)
            subprocess.run(["mount", "-o", "remount,ro,bind", path], check=True)
        else:
            for found in [path, *path.rglob("*")]:
                found.chmod(found.stat().st_mode & ~0o222)
        with pytest.raises(OSError, match=r"Read-only|denied") as caught:
            (path / "new").touch()
        assert caught.value.errno in (errno.EROFS, errno.EACCES)

    yield make
    for path in mounted:
        subprocess.run(["umount", "--lazy", path], check=True)
    for found in [tmp_path, *tmp_path.rglob("*")]:
        found.chmod(found.stat().st_mode | 0o700)


@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.parametrize("new", [True, False])
async def test_a_read_only_directory_is_named(tmp_path, kind, new, read_only, keeper):
    place = tmp_path / "place"
    place.mkdir()
    url = f"file://{place}/store" if kind == "file" else f"sqlite:///{place}/store.db"
    if not new:
        async with midturn.open(url) as store:
            await store.session("case", keeper).run(task="hi")
    before = everything(place)
    read_only(place)
    with pytest.raises(midturn.StoreUnavailable) as caught:
        async with midturn.open(url) as store:
            await store.session("case", keeper).run(task="again")
    assert str(place) in str(caught.value)
    assert everything(place) == before


@pytest.mark.parametrize(
    "url",
    ["nosuch://x", "://", "http://example.com/store"],
)
async def test_a_url_that_names_no_store_is_answered_with_those_that_do(url):
    error = await refused(url)
    assert "sqlite:///relative.db" in str(error)


@pytest.mark.parametrize("scheme", ["postgresql", "redis", "mongodb", "sqlite", "http"])
async def test_a_password_is_never_repeated(scheme):
    url = f"{scheme}://someone:hunter2@db.example.com:5432/cases"
    error = await refused(url)
    assert "hunter2" not in f"{error} {error!r} {error.__dict__}"
    assert "hunter2" not in repr(midturn.open(url))


async def test_a_nul_in_a_path_is_a_typed_error():
    for url in ("file:///tmp/a\0b", "sqlite:////tmp/a\0b", "file:///tmp/a%00b", "sqlite:////tmp/a%00b"):
        await refused(url)


async def test_a_name_too_long_for_the_disk_is_a_typed_error(tmp_path):
    for url in (f"file://{tmp_path}/{'x' * 300}", f"sqlite:///{tmp_path}/{'x' * 300}"):
        await refused(url)
    assert everything(tmp_path) == {}


async def test_a_store_that_was_closed_says_so(url, keeper):
    async with midturn.open(url) as store:
        case = store.session("case", keeper)
        await case.run(task="hi")
    for attempt in (lambda: case.run(task="again"), case.resume, case.delete, lambda: store.save("x", keeper())):
        with pytest.raises(midturn.StoreUnavailable, match="closed"):
            await attempt()
