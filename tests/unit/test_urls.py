"""URLs: what they mean, and what of them may be seen."""

import pytest

import midturn
from midturn.errors import StoreUnavailable
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
