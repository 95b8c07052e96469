"""URLs: what they mean, and what of them may be seen."""

import pytest

import midturn
from midturn.errors import StateInvalid, StoreUnavailable
from midturn.stores import registry
from midturn.stores.memory import MemoryStore
from midturn.stores.registry import locate, without_secrets


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:/worker:kanari@host/db",
        "postgresql:worker:kanari@host",
        "redis//app:kanari@host/0",
        "host=db password=kanari dbname=support",
        "worker:kanari@host",
        "Redis:kanari",
    ],
)
def test_a_slip_in_a_url_is_not_a_file(url):
    with pytest.raises(StoreUnavailable, match="neither a path nor a URL") as caught:
        locate(url)
    assert "kanari" not in str(caught.value)


@pytest.mark.parametrize("path", ["support.db", "data/redis.db", "postgres.db", "redis", "./x", "/var/lib/my redis/x"])
def test_a_path_is_a_file(path):
    assert locate(path)[0] == "sqlite"


@pytest.mark.parametrize(("scheme", "instead"), [("postgress", "postgres"), ("redi", "redis"), ("sqlit", "sqlite")])
def test_a_scheme_that_is_nearly_right_is_recognised(scheme, instead):
    with pytest.raises(StoreUnavailable, match=f"did you mean {instead}://"):
        locate(f"{scheme}://host")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:kanari@host:1/db?schema=x", "postgresql://u:***@host:1/db?schema=x"),
        ("postgresql://u:kan@ari@host/db", "postgresql://u:***@host/db"),
        ("postgresql://u:kan?ari@host/db", "postgresql://u:***@host/db"),
        ("postgresql://u@host/db?password=kanari&a=b", "postgresql://u@host/db?password=***&a=b"),
        ("redis://:kanari@host/0", "redis://:***@host/0"),
        ("rediss+cluster://u:kanari@a:1,b:2?prefix=x", "rediss+cluster://u:***@a:1,b:2?prefix=x"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
        ("drawer://u:kanari@host/x?db_password=kanari", "drawer://u:***@host/x?db_password=***"),
    ],
)
def test_a_password_is_not_shown(url, shown):
    assert without_secrets(url) == shown


async def test_options_may_be_given_by_name():
    with pytest.raises(StoreUnavailable, match="replicas= is part of strict mode"):
        async with midturn.open("redis://127.0.0.1:1/0", replicas=1):
            pass
    with pytest.raises(StoreUnavailable, match="strict= must be true or false"):
        async with midturn.open("redis://127.0.0.1:1/0?prefix=x", strict="yes"):
            pass
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        async with midturn.open("redis://127.0.0.1:1/0", strict=True, replicas=1):
            pass


@pytest.mark.parametrize("url", ["sqlite:///x.db", "x.db", "memory://", "file://x"])
def test_a_store_without_options_refuses_them(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreUnavailable, match="has no option strict"):
        midturn.open(url, strict=True)
    assert list(tmp_path.iterdir()) == []


# --- stores and schemes of one's own


@pytest.fixture
def schemes(monkeypatch):
    """What is registered in a test is forgotten after it."""
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
    with pytest.raises(StateInvalid, match="is taken"):
        midturn.register_store(scheme, registry.open_store)


@pytest.mark.parametrize("scheme", ["", "Drawer", "my_drawer", "drawer://", "2drawers"])
def test_what_cannot_stand_in_a_url_is_no_scheme(schemes, scheme):
    with pytest.raises(StateInvalid, match="cannot come before ://"):
        midturn.register_store(scheme, registry.open_store)


def test_a_registered_scheme_is_known_to_hints(schemes):
    midturn.register_store("drawer", registry.open_store)
    with pytest.raises(StoreUnavailable, match="did you mean drawer://"):
        locate("drawr://top")
    with pytest.raises(StoreUnavailable, match="name, drawer://"):
        locate("nothing-like-it://top")


async def test_an_opener_that_returns_no_store_is_told_what_is_missing(schemes):
    async def opener(url):
        return {}

    midturn.register_store("drawer", opener)
    with pytest.raises(StateInvalid, match=r"a dict is not a midturn\.store\.Store: it lacks profile, head, heads"):
        async with midturn.open("drawer://"):
            pass


def test_a_store_is_an_instance_that_keeps_the_contract():
    with pytest.raises(StateInvalid, match="MemoryStore is a class"):
        midturn.open(store=MemoryStore)
    with pytest.raises(StateInvalid, match=r"a str is not a midturn\.store\.Store"):
        midturn.open(store="sqlite:///x.db")


def test_a_store_takes_the_place_of_a_url_and_of_its_options(monkeypatch):
    with pytest.raises(StateInvalid, match="not both"):
        midturn.open("memory://", store=MemoryStore())
    with pytest.raises(StateInvalid, match="takes no option strict"):
        midturn.open(store=MemoryStore(), strict=True)
    monkeypatch.setenv("MIDTURN_URL", "nothing-like-it://")
    assert repr(midturn.open(store=MemoryStore())) == "midturn.open(store=MemoryStore)"
