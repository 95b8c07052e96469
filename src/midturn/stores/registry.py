"""From a URL to a store: the registered schemes, and the function that opens each."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal, TypeAlias, cast
from urllib.parse import quote, unquote, urlencode

from midturn import store as contract
from midturn.errors import InvalidArgument, MissingExtra, StoreUnavailable
from midturn.stores import path_urls
from midturn.stores.secrets import scheme_of
from midturn.stores.wrapper import wrap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from midturn.store import Store
    from midturn.stores.postgres.store import PostgresStore

    Opener: TypeAlias = Callable[[str], Awaitable[Store]]

Compression: TypeAlias = Literal["zstd", "none"]
"""The form in which records are written; both forms are always read."""

POSTGRES = ("postgresql", "postgres")
REDIS = tuple(f"{scheme}{layout}" for scheme in ("redis", "rediss") for layout in ("", "+cluster", "+sentinel"))
WITHOUT_OPTIONS = ("memory", "file", "sqlite")
"""The stores on this machine. They have no options but ``lease`` and ``compress``, which are those of every store."""
COMPRESSING = frozenset(REDIS)
"""The stores that compress unless the URL says otherwise. They keep all in memory, and nobody reads rows there."""
READING = frozenset({"file", "sqlite", *POSTGRES})
"""The stores that write plain records, and read compressed ones, which another worker may have been told to write."""
SCHEMES = (
    f"memory://, {path_urls.FILE}, {path_urls.SQLITE}, postgresql://user@host/database, redis://host, "
    "redis+cluster://host1,host2, redis+sentinel://host1,host2/name"
)

_LIKE_A_URL = re.compile(
    r"^(postgres|redis)\w*[:/+]|^(sqlite|file|memory)//|^[a-z][a-z0-9+.-]*:|@|password=", re.IGNORECASE
)
"""Matches a mistyped URL, which is unlikely to be the name of a file."""
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_LIKE_A_LOGIN = re.compile(r"/?[^/]*:[^/]*@")
"""Matches the rest of a URL that begins with a user, a password and a host, which a path does not have."""
_ODD_PORT = re.compile(r":(?!\d*(?:,|$))")

_openers: dict[str, Opener] = {}
"""The function that opens the stores of each scheme."""


def register_store(scheme: str, opener: Opener) -> None:
    """Let URLs that begin with ``scheme://`` open stores of your own, here and in the command line.

    ``opener`` is an async function that gets the whole URL and returns a :class:`midturn.store.Store`. Register it at
    the top of a module that every worker imports. A command such as ``midturn resume app:support`` imports your app.

    Raises:
        InvalidArgument: the scheme is taken, or is not a scheme: lower-case letters, then also digits and ``+ . -``.
    """
    if not isinstance(scheme, str) or not _SCHEME.fullmatch(scheme):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"{scheme!r} cannot come before :// in a URL; write it like 'mystore'", path="scheme")
    if scheme in _openers:
        raise InvalidArgument(f"{scheme}:// is taken; choose another name", path="scheme")
    if not callable(opener):
        raise InvalidArgument(f"must be an async function, not a {type(opener).__name__}", path="opener")
    _openers[scheme] = opener


def split_lease(url: str) -> tuple[str, str | None]:
    """Return a URL without the option ``lease``, which sessions use and not the store, and the value of the option.

    Raises:
        InvalidArgument: the URL has the option twice.
    """
    return _split(url, "lease")


def split_compress(url: str) -> tuple[str, Compression | None]:
    """Return a URL without the option ``compress``, which is one of every store, and its value if the URL has it.

    Raises:
        InvalidArgument: the URL has the option twice, or there is no such value.
    """
    rest, value = _split(url, "compress")
    match value:
        case None | "zstd" | "none":
            return rest, value
        case _:
            raise InvalidArgument("compress= must be zstd or none", path="url")


def compression(url: str) -> Compression | None:
    """Return the form in which the store of a URL writes records; ``None`` if it has nothing to do with compression."""
    scheme, _ = locate(url)
    _, given = split_compress(url)
    return given or ("zstd" if scheme in COMPRESSING else "none" if scheme in READING else None)


def _split(url: str, name: str) -> tuple[str, str | None]:
    place, mark, query = url.rpartition("?")
    options = query.split("&")
    others = [option for option in options if option.partition("=")[0] != name]
    if "://" not in place or len(others) == len(options):
        return url, None
    value, *more = [option.partition("=")[2] for option in options if option not in others]
    if more:
        raise InvalidArgument(f"the URL has the option {name} more than once", path="url")
    return f"{place}{mark}{'&'.join(others)}" if others else place, value


def _backend_url(url: str) -> str:
    """Return a URL with the options of the store itself only."""
    return split_compress(split_lease(url)[0])[0]


def locate(url: str) -> tuple[str, Path | None]:
    """Return the scheme of a URL, and the path of its store if it has one.

    Raises:
        InvalidArgument: the URL is wrong, or no store is registered for the URL.
    """
    scheme, sep, rest = _backend_url(url).partition("://")
    if not url.strip():
        raise InvalidArgument(f"the URL of the store is empty; use one of {_known()}", path="url")
    if not sep:
        if url == ":memory:" or not _LIKE_A_URL.search(url):
            return "sqlite", path_urls.bare_path(url)
        # The message does not repeat the URL: there may be a password in it.
        raise InvalidArgument(
            f"this is neither a path nor a URL with ://; use one of {_known()}, or ./ and a path", path="url"
        )
    if scheme not in _openers:
        near = get_close_matches(scheme.strip().lower(), _openers, n=1)
        instead = f"did you mean {near[0]}://?" if near else f"use one of {_known()}"
        shown = f"like {scheme}://" if scheme_of(url) == scheme else "that begins like this one"
        raise InvalidArgument(f"no store is known for a URL {shown}; {instead}", path="url")
    if "\0" in rest:
        raise InvalidArgument("the URL has a NUL character; no file and no server can have such a name", path="url")
    if scheme not in WITHOUT_OPTIONS:
        return scheme, None
    if rest != rest.strip() or not rest.isprintable():
        raise InvalidArgument(
            "the URL has a space at its end or a control character; remove it, or write a %-escape", path="url"
        )
    if _LIKE_A_LOGIN.match(unquote(rest)):  # The message does not repeat it, as above.
        raise InvalidArgument(f"a {scheme}:// store has no user, password and host; use one of {_known()}", path="url")
    return scheme, path_urls.parse(scheme, rest)


def with_options(url: str, options: Mapping[str, str | int | bool]) -> str:
    """Return the URL with more options. A bare path becomes a URL.

    Raises:
        InvalidArgument: a store on this machine has no such option.
    """
    if "://" not in url and not _LIKE_A_URL.search(url):
        path_urls.bare_path(url)  # raises if it is none
        url = f"sqlite:///{quote(url)}"
    values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()}
    url += f"{'&' if '?' in url else '?'}{urlencode(values)}"
    locate(url)
    return url


def _known() -> str:
    own = [f"{scheme}://" for scheme in _openers if scheme not in _BUILT_IN]
    return ", ".join([SCHEMES, *own])


def without_secrets(url: str) -> str:
    """Return the URL with *** in place of its passwords, so that it can be shown."""
    scheme, sep, rest = url.partition("://")
    if not sep:
        return "***" if _LIKE_A_URL.search(url) else url
    if scheme in WITHOUT_OPTIONS:
        return f"{scheme}://***" if _LIKE_A_LOGIN.match(rest) else url
    user, at, place = rest.rpartition("@")  # the last @: a password may have others that nobody escaped
    name, colon, _ = user.partition(":")
    host, mark, query = place.partition("?")
    if scheme_of(url) != scheme or _ODD_PORT.search(re.sub(r"\[.*?\]", "", host.partition("/")[0])):
        return "***"  # what is wrong with it may be the place of the password
    query = re.sub(r"((?:^|&)[a-z_]*password=)[^&]*", r"\1***", query)
    return f"{scheme}{sep}{name}{colon and ':***'}{at}{host}{mark}{query}"


async def open_store(url: str) -> Store:
    """Open the store behind a URL, and create it if it does not exist yet."""
    return compressed(await open_backend(url), compression(url))


async def open_backend(url: str) -> Store:
    """Open the store behind a URL as :func:`open_store` does, without what the options of every store put around it."""
    scheme, _ = locate(url)
    plain = _backend_url(url)
    if scheme not in _BUILT_IN:
        return check_store(await _openers[scheme](plain))
    try:
        return await _openers[scheme](plain)
    except OSError as error:  # the first store of a kind imports its modules, which takes file descriptors
        message = f"the {scheme}:// store cannot be opened: {error.strerror or type(error).__name__}"
        raise StoreUnavailable(message) from error


def compressed(store: Store, compress: Compression | None) -> Store:
    """Return a store that reads compressed and plain records of another, and writes those that ``compress`` says.

    With ``None``, it is the other store itself.
    """
    if compress is None:
        return store
    from midturn.stores.compressed.store import CompressedStore, DecompressingStore

    return wrap(CompressedStore if compress == "zstd" else DecompressingStore, store)


def check_store(store: Store) -> Store:
    """Return the store, if it has all methods of the contract.

    Raises:
        InvalidArgument: it lacks a method, or is a class or a URL.
    """
    kind = type(store).__name__
    if isinstance(store, type):
        raise InvalidArgument(f"{store.__name__} is a class; pass an instance of it", path="store")
    asked = ["profile", *(name for name in vars(contract.Store) if not name.startswith("_"))]
    if missing := [name for name in asked if not hasattr(store, name)]:
        raise InvalidArgument(f"a {kind} is not a midturn.store.Store: it lacks {', '.join(missing)}", path="store")
    return store


async def exists(url: str) -> bool:
    """Return whether the store of a URL exists already; ``True`` where that cannot be checked."""
    scheme, path = locate(url)
    if path is not None:
        if path.is_dir():
            return any(path.iterdir())
        return path.exists() and not (path.is_file() and path.stat().st_size == 0)
    if scheme in POSTGRES:
        store = await connect_postgres(url)
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


async def connect_postgres(url: str) -> PostgresStore:
    """Connect to a Postgres store without a check or a change of its tables."""
    return await postgres().connect(_backend_url(url))


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
