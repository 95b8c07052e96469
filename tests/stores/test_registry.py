"""URLs: what they mean, and what of them may be seen."""

import re
from pathlib import Path

import pytest

import midturn
from midturn.errors import InvalidArgument, StoreUnavailable
from midturn.stores import registry
from midturn.stores.memory import MemoryStore
from midturn.stores.registry import locate, split_lease, without_secrets


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:/worker:kanari@host/db",
        "postgresql:worker:kanari@host",
        "redis//app:kanari@host/0",
        "host=db password=kanari dbname=support",
        "worker:kanari@host",
        "Redis:kanari",
        "sqlite:x.db",
        "sqlite:/x.db",
        "sqlite//x.db",
        "file:cases",
        "memory:",
        "mysql:x",
    ],
)
def test_a_slip_in_a_url_is_not_a_file(url):
    with pytest.raises(InvalidArgument, match="neither a path nor a URL") as caught:
        locate(url)
    assert "kanari" not in str(caught.value)


@pytest.mark.parametrize("path", ["support.db", "data/redis.db", "postgres.db", "redis", "./x", "/var/lib/my redis/x"])
def test_a_path_is_a_file(path):
    assert locate(path)[0] == "sqlite"


@pytest.mark.parametrize(
    ("scheme", "instead"), [("postgress", "postgres"), ("redi", "redis"), ("SQLite", "sqlite"), (" file", "file")]
)
def test_a_scheme_that_is_nearly_right_is_recognised(scheme, instead):
    with pytest.raises(InvalidArgument, match=f"did you mean {instead}://"):
        locate(f"{scheme}://host")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///x.db", "x.db"),
        ("sqlite:////var/x.db", "/var/x.db"),
        ("sqlite:///a%20b%3F%23%25.db", "a b?#%.db"),
        ("sqlite:///./~x.db", "~x.db"),
        ("sqlite:///x.db?", "x.db"),
        ("file:///var/cases", "/var/cases"),
        ("file:////var/cases", "/var/cases"),
        ("file:///var/cases/", "/var/cases"),
        ("file://./cases", "cases"),
        ("file://../cases", "../cases"),
        ("a #1%20.db", "a #1%20.db"),
        ("./a:b.db", "a:b.db"),
    ],
)
def test_a_url_names_a_path(url, path):
    assert locate(url)[1] == Path(path)


WRONG = {
    "": "is empty",
    "sqlite:///:memory:": "write memory://",
    "sqlite://:memory:": "write memory://",
    "sqlite:///%3Amemory%3A": "write memory://",
    "sqlite:////tmp/:memory:": "write memory://",
    ":memory:": "write memory://",
    "sqlite://": "names no file; write sqlite:///relative.db or sqlite:////absolute",
    "sqlite:///": "names no file",
    "sqlite:////": "names no file",
    "sqlite:///data/": "is a directory, and a SQLite store is a file",
    "data/": "is a directory, and a SQLite store is a file",
    "sqlite://x.db": "takes no host, user or password, and a path needs its own /; write sqlite:///relative.db",
    "sqlite://ann:kanari@host/x.db": "has no user, password and host",
    "sqlite:///x.db?foo=1": "has no option foo",
    "sqlite:///x.db&lease=10": "write a ? before the first option",
    "file:///cases&lease=10": "write a ? before the first option",
    "sqlite:///x.db?foo=1&bar": "has no option foo, bar",
    "x.db?foo=1": "takes no options after a",
    "sqlite:///x.db#a": "write a # in a name as %23",
    "sqlite:///a%zz.db": "'%zz' in the URL is not an escape; write a % in a name as %25",
    "sqlite:///100%": "'%' in the URL is not an escape",
    "sqlite:///a%ff.db": "are not UTF-8",
    "sqlite:///a%00.db": "NUL",
    "sqlite:///x.db ": "has a space at its end",
    "sqlite:///x.db\n": "has a space at its end",
    "sqlite:///a\x1b.db": "a control character",
    "sqlite:///~/x.db": "does not replace a ~",
    "~/x.db": "does not replace a ~",
    "file://": "names no directory; write file:///absolute/directory or file://./relative",
    "file:///": "names no directory",
    "file://cases": "takes no host, user or password; write file:///absolute/directory or file://./relative",
    "file://localhost/var/cases": "takes no host",
    "file://ann:kanari@host/cases": "has no user, password and host",
    "file:///~ann/cases": "does not replace a ~",
    "file:///cases?foo=1": "has no option foo",
    "file:///cases#a": "write a # in a name as %23",
    "file:///a%ff": "are not UTF-8",
    "memory://name": "has no name or path; write memory://",
    "memory:///x": "has no name or path; write memory://",
    "memory://?foo=1": "has no option foo",
    "memory://#a": "has no name or path; write memory://",
}


@pytest.mark.parametrize("url", WRONG)
async def test_a_wrong_url_says_what_to_write_and_makes_no_file(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match=re.escape(WRONG[url])) as caught:
        await registry.open_store(url)
    assert "kanari" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:kanari@host:1/db?schema=x", "postgresql://u:***@host:1/db?schema=x"),
        ("postgresql://u:kan@ari@host/db", "postgresql://u:***@host/db"),
        ("postgresql://u:kan?ari@host/db", "postgresql://u:***@host/db"),
        ("postgresql://u@host/db?password=kanari&a=b", "postgresql://u@host/db?password=***&a=b"),
        ("redis://:kanari@host/0", "redis://:***@host/0"),
        ("rediss+cluster://u:kanari@a:1,b:2?prefix=x", "rediss+cluster://u:***@a:1,b:2?prefix=x"),
        ("sqlite:////data/a:b@c.db", "sqlite:////data/a:b@c.db"),
        ("sqlite:///u:kanari@host/db", "sqlite://***"),
        ("redis:/:kanari@host", "***"),
        ("redis://u:kanari", "***"),
        ("drawer://u:kanari@host/x?db_password=kanari", "drawer://u:***@host/x?db_password=***"),
    ],
)
def test_a_password_is_not_shown(url, shown):
    assert without_secrets(url) == shown


async def test_options_may_be_given_by_name():
    with pytest.raises(InvalidArgument, match="replicas= is part of strict mode"):
        async with midturn.open("redis://127.0.0.1:1/0", replicas=1):
            pass
    with pytest.raises(InvalidArgument, match="strict= must be true or false"):
        async with midturn.open("redis://127.0.0.1:1/0?prefix=x", strict="yes"):
            pass
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        async with midturn.open("redis://127.0.0.1:1/0", strict=True, replicas=1):
            pass


@pytest.mark.parametrize("url", ["sqlite:///x.db", "x.db", "memory://", "file://./x"])
def test_a_store_without_options_refuses_them(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="has no option strict"):
        midturn.open(url, strict=True)
    assert list(tmp_path.iterdir()) == []


# --- stores and schemes of one's own


@pytest.fixture
def schemes(monkeypatch):
    """Forget after a test what it has registered."""
    monkeypatch.setattr(registry, "_openers", dict(registry._openers))


async def test_a_registered_scheme_opens_what_its_opener_returns(schemes):
    made, urls = MemoryStore(), []

    async def open_drawer(url):
        urls.append(url)
        return made

    midturn.register_store("drawer", open_drawer)
    async with midturn.open("drawer://top?size=2", strict=True) as store:
        assert store.store is made
    assert urls == ["drawer://top?size=2&strict=true"]
    assert await registry.exists("drawer://top")
    with pytest.raises(StoreUnavailable, match="closed"):
        await made.head("case")


@pytest.mark.parametrize("scheme", ["sqlite", "memory", "file", "postgres", "redis+cluster"])
def test_a_scheme_that_is_taken_is_refused(schemes, scheme):
    with pytest.raises(InvalidArgument, match="is taken"):
        midturn.register_store(scheme, registry.open_store)


@pytest.mark.parametrize("scheme", ["", "Drawer", "my_drawer", "drawer://", "2drawers"])
def test_what_cannot_stand_in_a_url_is_no_scheme(schemes, scheme):
    with pytest.raises(InvalidArgument, match="cannot come before ://"):
        midturn.register_store(scheme, registry.open_store)


def test_a_registered_scheme_is_known_to_hints(schemes):
    midturn.register_store("drawer", registry.open_store)
    with pytest.raises(InvalidArgument, match="did you mean drawer://"):
        locate("drawr://top")
    with pytest.raises(InvalidArgument, match="name, drawer://"):
        locate("nothing-like-it://top")


async def test_an_opener_that_returns_no_store_is_told_what_is_missing(schemes):
    async def opener(url):
        return {}

    midturn.register_store("drawer", opener)
    with pytest.raises(InvalidArgument, match=r"a dict is not a midturn\.store\.Store: it lacks profile, head, heads"):
        async with midturn.open("drawer://"):
            pass


def test_a_store_is_an_instance_that_keeps_the_contract():
    with pytest.raises(InvalidArgument, match="MemoryStore is a class"):
        midturn.open(store=MemoryStore)
    with pytest.raises(InvalidArgument, match=r"a str is not a midturn\.store\.Store"):
        midturn.open(store="sqlite:///x.db")


def test_a_store_takes_the_place_of_a_url_and_of_its_options(monkeypatch):
    with pytest.raises(InvalidArgument, match="not both"):
        midturn.open("memory://", store=MemoryStore())
    with pytest.raises(InvalidArgument, match="takes no option strict"):
        midturn.open(store=MemoryStore(), strict=True)
    monkeypatch.setenv("MIDTURN_URL", "nothing-like-it://")
    assert repr(midturn.open(store=MemoryStore())) == "midturn.open(store=MemoryStore)"


# --- the length of a lease


@pytest.mark.parametrize(
    ("url", "rest", "lease"),
    [
        ("memory://", "memory://", None),
        ("memory://?lease=10", "memory://", "10"),
        ("sqlite:///a?b.db?lease=4.5", "sqlite:///a?b.db", "4.5"),
        ("sqlite:///a?b.db", "sqlite:///a?b.db", None),
        ("file:///a?lease=10", "file:///a", "10"),
        ("x.db?lease=10", "x.db?lease=10", None),
        ("sqlite:///x.db?lease", "sqlite:///x.db", ""),
        ("redis://host/0?strict=true&lease=10&replicas=1", "redis://host/0?strict=true&replicas=1", "10"),
        ("postgresql://host/a?lease=10&sslmode=require", "postgresql://host/a?sslmode=require", "10"),
        ("drawer://x?release=10", "drawer://x?release=10", None),
    ],
)
def test_the_lease_is_taken_out_of_a_url(url, rest, lease):
    assert split_lease(url) == (rest, lease)


@pytest.mark.parametrize("lease", ["", "x", "nan", "inf", "2.9", "3601", 2, 3601, -1, True, None])
def test_a_lease_has_limits(lease):
    with pytest.raises(InvalidArgument, match=r"lease: is .*; give a number of seconds from 3 to 3600"):
        midturn.open("memory://?lease=x" if lease is None else "memory://", lease=lease)
    with pytest.raises(InvalidArgument, match="lease"):
        midturn.open(store=MemoryStore(), lease=lease or "x")


async def test_an_empty_url_is_not_the_default_store(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="the URL of the store is empty"):
        await midturn.open("")
    assert list(tmp_path.iterdir()) == []


def test_a_lease_that_is_given_twice_is_rejected():
    with pytest.raises(InvalidArgument, match="the option lease more than once"):
        midturn.open("sqlite:///x.db?lease=10&lease=20")
