"""A password is in nothing that people see: reprs, errors and all that led to them, logs, and the command line."""

import asyncio
import io
import logging
import pickle
import re
import subprocess
import sys
import traceback

import pytest
from click.testing import CliRunner
from tools.servers import Postgres, Redis

import midturn
from midturn.cli import main
from midturn.stores.postgres.store import PostgresStore
from midturn.stores.redis.store import RedisStore
from midturn.stores.registry import open_store, without_secrets
from midturn.stores.secrets import Secret, unchained
from midturn.stores.wrapper import innermost

CANARY = "kanari"

SERVERS = ("postgresql", "postgres", "redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel")
FORMS = (
    "{scheme}://me:kanari@127.0.0.1:1/0",
    "{scheme}://:kanari@127.0.0.1:1/0",
    "{scheme}://me:kanari@127.0.0.1:1,127.0.0.1:2/service/0",
    "{scheme}://me:kanari@no.such.host.invalid/0",
    "{scheme}://127.0.0.1:1/0?password=kanari",
    "{scheme}://127.0.0.1:1/0?user=me&sslpassword=kanari",
    "{scheme}:/:kanari@127.0.0.1:1",
    "{scheme}:/me:kanari@127.0.0.1:1/0",
    "{scheme}:me:kanari@127.0.0.1",
    "{scheme}//me:kanari@127.0.0.1",
    "{scheme}:///me:kanari@127.0.0.1/0",
    "{scheme}://me:kanari@127.0.0.1:port/0",
    "{scheme}://me:kanari@[::1/0",
    "{scheme}://me:kanari/@127.0.0.1:1/0",
    "{scheme}://me:12/kanari@127.0.0.1:1/0",
    "{scheme}://me:12?kanari@127.0.0.1:1/0",
    "{scheme}://me:12?kanari=@127.0.0.1:1/0",
    "{scheme}://me:12#kanari@127.0.0.1:1/0",
    "{scheme}://me:kan@kanari@127.0.0.1:1/0",
    "{scheme}://me:kanari%zz@127.0.0.1:1/0",
    "{scheme}://me:kanari%ff@127.0.0.1:1/0",
    "{scheme}://me:kanari\ud800@127.0.0.1:1/0",
    "{scheme}://me:kanari\0@127.0.0.1:1/0",
    "{scheme}://me:kanari\n@127.0.0.1:1/0",
    "{scheme}://me: kanari@127.0.0.1:1/0",
    "{scheme}://me:kanari@127.0.0.1:1/0?no_such_option=kanari",
    "{scheme}://me:kanari@127.0.0.1:1/0?schema=kanari-x",
    "{scheme}://me:kanari@127.0.0.1:1/0?strict=kanari&ttl=kanari&replicas=kanari",
    "{scheme}://me:kanari@127.0.0.1:1/0?encoding=kanari&db=kanari&max_connections=kanari",
    "{scheme}://me:kanari",
    "me:kanari@{scheme}://127.0.0.1:1/0",
    "//me:kanari@127.0.0.1/{scheme}",
    "host=127.0.0.1 password=kanari dbname={scheme}",
    " {scheme}://me:kanari@127.0.0.1:1/0",
    "{scheme}x://me:kanari@127.0.0.1:1/0",
    "{scheme} ://me:kanari@127.0.0.1:1/0",
)
PATHS = (
    *("sqlite://me:kanari@host/x", "sqlite:///me:kanari@host/x", "file://me:kanari@host/x", "sqlite:me:kanari@host"),
    *(
        "file:me:kanari@host",
        "memory:me:kanari@host",
        "sqlite:/me:kanari@host/x",
        "http://me:kanari@host/x",
        "://:kanari@",
    ),
)
URLS = [*dict.fromkeys(form.replace("{scheme}", scheme) for form in FORMS for scheme in SERVERS), *PATHS]


def chain(error):
    """The error, and every error that can be reached from it."""
    seen, rest = [], [error]
    while rest:
        found = rest.pop()
        if found is not None and not any(found is other for other in seen):
            seen.append(found)
            rest += [found.__cause__, found.__context__, *getattr(found, "exceptions", ())]
            rest += [value for value in vars(found).values() if isinstance(value, BaseException)]
    return seen


def shown(error):
    """All that can be seen of an error."""
    found = [*traceback.format_exception(error)]
    for one in chain(error):
        found += [str(one), repr(one), repr(one.args), repr(vars(one)), repr(getattr(one, "__notes__", ()))]
        found += [str(getattr(one, "diag", "")), str(getattr(one, "filename", ""))]
    return "\n".join(found)


@pytest.fixture
def logged():
    """All that is logged, at every level."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.removeHandler(handler)
    root.setLevel(before)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


async def attempt(url):
    """Open a store, which fails; return what can be seen of it."""
    opening = midturn.open(url)
    before = repr(opening) + str(opening)
    with pytest.raises(midturn.MidturnError) as caught:
        async with asyncio.timeout(60), opening:
            pass
    return before + repr(opening) + shown(caught.value)


async def test_no_url_shows_its_password_whatever_is_wrong_with_it(logged, tmp_path):
    leaks = [url for url in URLS if CANARY in await attempt(url)]
    assert leaks == []
    assert CANARY not in logged.getvalue()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [PostgresStore, RedisStore])
async def test_the_stores_themselves_show_none_either(kind):
    leaks = []
    for url in URLS:
        with pytest.raises(midturn.MidturnError) as caught:
            await kind.open(url, deadline=20)
        if CANARY in shown(caught.value):
            leaks.append(url)
    assert leaks == []


@pytest.mark.parametrize("server", [Postgres, Redis])
async def test_a_server_that_refuses_a_password_or_goes_away_does_not_make_it_seen(server, logged):
    with server() as running:
        secret = running.password
        wrong = running.url.replace(secret, CANARY)
        assert CANARY not in await attempt(wrong)
        store = await open_store(running.url)
        running.stop()
        innermost(store)._deadline = 1.0
        with pytest.raises(midturn.StoreUnavailable) as caught:
            await store.head("case-42")
        await store.close()
        assert secret not in shown(caught.value) + repr(store) + repr(vars(store)) + repr(midturn.open(running.url))
        assert secret not in await attempt(running.url)
        assert secret not in logged.getvalue()
    assert CANARY not in logged.getvalue()


@pytest.mark.parametrize(
    "url", ["redis:/:kanari@h", "redis://:kanari@127.0.0.1:1", "postgresql://me:kanari@127.0.0.1:1/x"]
)
def test_the_command_line_shows_no_password(url):
    lines = [
        *(
            ["ls", "--store", url],
            ["ls", "--json", "--store", url],
            ["ls", url],
            ["show", url],
            ["copy", url, url, "--all"],
        ),
        *(
            ["copy", url, "sqlite:///new.db", "--all"],
            ["db", "status", "--store", url],
            ["db", "upgrade", "--store", url],
        ),
        *(["export", url], ["rm", url, "--yes"], [url], ["ls", f"--label={url}", "--store", url], ["ls", f"--{url}"]),
        *(
            ["import", url, "case-42"],
            ["export", "case-42", "-o", url],
            ["chat", url, "case-42"],
            ["chat", "app:x", url],
        ),
    ]
    leaks = []
    for words in lines:
        result = CliRunner().invoke(main, words)
        seen = result.output + result.stderr
        if CANARY in seen or (result.exception and not isinstance(result.exception, SystemExit)):
            leaks.append((words, seen, result.exception))
    assert leaks == []


def test_the_command_itself_shows_no_password_on_stderr():
    done = subprocess.run(
        [sys.executable, "-c", "from midturn.cli import main; main()", "ls", "--store", "redis://:kanari@127.0.0.1:1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be reached" in done.stderr
    assert CANARY not in done.stderr


def test_a_secret_does_not_show_itself():
    secret = Secret(CANARY)
    assert secret.reveal() == CANARY
    assert CANARY not in f"{secret} {secret!r} {[secret]} {secret:}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_an_error_keeps_what_its_caller_was_handling():
    def quote():
        raise ValueError(CANARY)

    def fail():
        with unchained():
            try:
                quote()
            except ValueError as error:
                raise midturn.StoreUnavailable("it cannot be used") from error

    def handle():
        try:
            {}["the caller's own"]
        except KeyError:
            fail()

    with pytest.raises(midturn.StoreUnavailable) as caught:
        handle()
    assert [type(error) for error in chain(caught.value)] == [midturn.StoreUnavailable, KeyError]


def test_a_url_for_people_has_no_password():
    # The values of other options are shown.
    secret = [url for url in URLS if not re.search(r"(?<!password)=kanari", url)]
    assert [url for url in secret if CANARY in without_secrets(url)] == []
