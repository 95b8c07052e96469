"""From a URL to a store: the registered schemes, and the function that opens each."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast
from urllib.parse import unquote

from midturn import store as contract
from midturn.errors import MissingExtra, StateInvalid, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from midturn.store import Store
    from midturn.stores.postgres.store import PostgresStore

    Opener: TypeAlias = Callable[[str], Awaitable[Store]]

POSTGRES = ("postgresql", "postgres")
REDIS = tuple(f"{scheme}{layout}" for scheme in ("redis", "rediss") for layout in ("", "+cluster", "+sentinel"))
PATHS = ("file", "sqlite")
WITHOUT_OPTIONS = ("memory", *PATHS)
SCHEMES = (
    "memory://, file:///path/to/a/directory, sqlite:///file.db, postgresql://user@host/database, redis://host, "
    "redis+cluster://host1,host2, redis+sentinel://host1,host2/name"
)

_LIKE_A_SERVER = re.compile(r"^(postgres|redis|sqlite:|file:|memory:)\w*[:/+]|@|password=", re.IGNORECASE)
"""Matches a mistyped URL of a server, which is unlikely to be the name of a file."""
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")

_openers: dict[str, Opener] = {}
"""The function that opens the stores of each scheme."""


def register_store(scheme: str, opener: Opener) -> None:
    """Let URLs that begin with ``scheme://`` open stores of your own, here and in the command line.

    ``opener`` is an async function that gets the whole URL and returns a :class:`midturn.store.Store`. Register it at
    the top of a module that every worker imports. A command such as ``midturn resume app:support`` imports your app.

    Raises:
        StateInvalid: the scheme is taken, or is not a scheme: lower-case letters, then also digits and ``+ . -``.
    """
    if not _SCHEME.fullmatch(scheme):
        raise StateInvalid(f"{scheme!r} cannot come before :// in a URL; write it like 'mystore'", path="scheme")
    if scheme in _openers:
        raise StateInvalid(f"{scheme}:// is taken; choose another name", path="scheme")
    _openers[scheme] = opener


def locate(url: str) -> tuple[str, Path | None]:
    """Return the scheme of a URL, and the path of its store if it has one.

    Raises:
        StoreUnavailable: no store is registered for the URL.
    """
    scheme, sep, rest = url.partition("://")
    if not sep:
        if _LIKE_A_SERVER.search(url):  # The message does not repeat the URL: there may be a password in it.
            raise StoreUnavailable(f"this is neither a path nor a URL with ://; use one of {_known()}")
        scheme, rest = "sqlite", "/" + url
    elif scheme in PATHS:
        rest = unquote(rest)
    if "\0" in rest:
        raise StoreUnavailable("the URL has a NUL character; no file and no server can have such a name")
    match scheme:
        case "file" if rest:
            return scheme, Path(rest)
        case "sqlite" if rest.startswith("/") and len(rest) > 1:
            return scheme, Path(rest[1:])
        case _ if scheme in _openers and scheme not in PATHS:
            return scheme, None
        case _:
            near = get_close_matches(scheme, _openers, n=1) if scheme not in _openers else []
            instead = f"did you mean {near[0]}://?" if near else f"use one of {_known()}"
            raise StoreUnavailable(f"no store is known for a URL like {scheme}://; {instead}")


def _known() -> str:
    own = [f"{scheme}://" for scheme in _openers if scheme not in _BUILT_IN]
    return ", ".join([SCHEMES, *own])


def without_secrets(url: str) -> str:
    """Return the URL with *** in place of its passwords, so that it can be shown."""
    scheme, sep, rest = url.partition("://")
    if not sep or scheme in WITHOUT_OPTIONS:
        return url
    user, at, place = rest.rpartition("@")  # the last @: a password may have others that nobody escaped
    name, colon, _ = user.partition(":")
    host, mark, query = place.partition("?")
    query = re.sub(r"((?:^|&)[a-z_]*password=)[^&]*", r"\1***", query)
    return f"{scheme}{sep}{name}{colon and ':***'}{at}{host}{mark}{query}"


async def open_store(url: str) -> Store:
    """Open the store behind a URL, and create it if it does not exist yet."""
    scheme, _ = locate(url)
    return check_store(await _openers[scheme](url))


def check_store(store: Store) -> Store:
    """Return the store, if it has all methods of the contract.

    Raises:
        StateInvalid: it lacks a method, or is a class or a URL.
    """
    kind = type(store).__name__
    if isinstance(store, type):
        raise StateInvalid(f"{store.__name__} is a class; pass an instance of it", path="store")
    asked = ["profile", *(name for name in vars(contract.Store) if not name.startswith("_"))]
    if missing := [name for name in asked if not hasattr(store, name)]:
        raise StateInvalid(f"a {kind} is not a midturn.store.Store: it lacks {', '.join(missing)}", path="store")
    return store


async def exists(url: str) -> bool:
    """Return whether the store of a URL exists already; ``True`` where that cannot be checked."""
    scheme, path = locate(url)
    if path is not None:
        if path.is_dir():
            return any(path.iterdir())
        return path.exists() and not (path.is_file() and path.stat().st_size == 0)
    if scheme in POSTGRES:
        store = await postgres().connect(url)
        await store.close()
        return store.version > 0
    return True


def postgres() -> type[PostgresStore]:
    """Return the store for Postgres, if its driver is installed."""
    try:
        from midturn.stores.postgres.store import PostgresStore
    except ImportError as error:
        raise MissingExtra("postgres", f"postgresql:// needs psycopg ({error})") from None
    return PostgresStore


# Each opener imports its backend only when the first store of that kind is opened.


async def _open_memory(_url: str) -> Store:
    from midturn.stores.memory import MemoryStore

    return MemoryStore()


async def _open_file(url: str) -> Store:
    from midturn.stores.files.store import FileStore

    return await FileStore.open(_path(url))


async def _open_sqlite(url: str) -> Store:
    from midturn.stores.sqlite.store import SqliteStore

    return await SqliteStore.open(_path(url))


async def _open_postgres(url: str) -> Store:
    return await postgres().open(url)


async def _open_redis(url: str) -> Store:
    try:
        from midturn.stores.redis.store import RedisStore
    except ImportError as error:
        raise MissingExtra("redis", f"{url.partition('://')[0]}:// needs redis ({error})") from None
    return await RedisStore.open(url)


def _path(url: str) -> Path:
    _, path = locate(url)
    return cast("Path", path)  # locate() lets no URL of these schemes through without one


register_store("memory", _open_memory)
register_store("file", _open_file)
register_store("sqlite", _open_sqlite)
for _scheme in POSTGRES:
    register_store(_scheme, _open_postgres)
for _scheme in REDIS:
    register_store(_scheme, _open_redis)
_BUILT_IN = frozenset(_openers)
