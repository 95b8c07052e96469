"""From a URL to a store."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from midturn.errors import MissingExtra, StoreUnavailable

if TYPE_CHECKING:
    from midturn.store import Store
    from midturn.stores.postgres.store import PostgresStore

POSTGRES = ("postgresql", "postgres")
REDIS = tuple(f"{scheme}{layout}" for scheme in ("redis", "rediss") for layout in ("", "+cluster", "+sentinel"))
SCHEMES = (
    "memory://, file:///path/to/a/directory, sqlite:///file.db, postgresql://user@host/database, redis://host, "
    "redis+cluster://host1,host2, redis+sentinel://host1,host2/name"
)

_LIKE_A_SERVER = re.compile(r"^(postgres|redis|sqlite:|file:|memory:)\w*[:/+]|@|password=", re.IGNORECASE)
"""What nobody calls a file, but many a URL with a slip of the pen."""


def locate(url: str) -> tuple[str, Path | None]:
    """What kind of store a URL means, and where it is if that is a path.

    Raises:
        StoreUnavailable: no store is known for it.
    """
    scheme, sep, rest = url.partition("://")
    if not sep:
        if _LIKE_A_SERVER.search(url):  # It is not repeated: there may be a password in it.
            raise StoreUnavailable(f"this is neither a path nor a URL with ://; use one of {SCHEMES}")
        scheme, rest = "sqlite", "/" + url
    elif scheme in ("file", "sqlite"):
        rest = unquote(rest)
    if "\0" in rest:
        raise StoreUnavailable("the URL has a NUL character; no file and no server can have such a name")
    match scheme:
        case "file" if rest:
            return scheme, Path(rest)
        case "sqlite" if rest.startswith("/") and len(rest) > 1:
            return scheme, Path(rest[1:])
        case _ if scheme in ("memory", *POSTGRES, *REDIS):
            return scheme, None
        case _:
            known = ("file", "sqlite", "memory", *POSTGRES, *REDIS)
            near = get_close_matches(scheme, known, n=1) if scheme not in known else []
            instead = f"did you mean {near[0]}://?" if near else f"use one of {SCHEMES}"
            raise StoreUnavailable(f"no store is known for a URL like {scheme}://; {instead}")


def without_secrets(url: str) -> str:
    """The URL as it may be shown: without what stands in it for a password."""
    scheme, sep, rest = url.partition("://")
    if scheme not in (*POSTGRES, *REDIS):
        return url
    user, at, place = rest.rpartition("@")  # the last one: also where it was forgotten that a password may have some
    name, colon, _ = user.partition(":")
    host, mark, query = place.partition("?")
    query = re.sub(r"((?:^|&)[a-z_]*password=)[^&]*", r"\1***", query)
    return f"{scheme}{sep}{name}{colon and ':***'}{at}{host}{mark}{query}"


async def open_store(url: str) -> Store:
    """The store, made if there is none yet."""
    scheme, path = locate(url)
    if path is not None:
        if scheme == "file":
            from midturn.stores.files.store import FileStore

            return await FileStore.open(path)
        from midturn.stores.sqlite.store import SqliteStore

        return await SqliteStore.open(path)
    if scheme == "memory":
        from midturn.stores.memory import MemoryStore

        return MemoryStore()
    if scheme in POSTGRES:
        return await postgres().open(url)
    try:
        from midturn.stores.redis.store import RedisStore
    except ImportError as error:
        raise MissingExtra("redis", f"{scheme}:// needs redis ({error})") from None
    return await RedisStore.open(url)


async def exists(url: str) -> bool:
    """Whether there is a store: opening it would not make one."""
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
    """The store for Postgres, if its driver is installed."""
    try:
        from midturn.stores.postgres.store import PostgresStore
    except ImportError as error:
        raise MissingExtra("postgres", f"postgresql:// needs psycopg ({error})") from None
    return PostgresStore
