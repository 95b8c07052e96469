"""One Postgres and one Redis for all tests of a process. Each is started on first use."""

import os
from functools import cache
from hashlib import sha256
from pathlib import Path

from .postgres import Postgres
from .redis import Redis

EMBEDDED = ("memory", "file", "sqlite")
STORES = (*EMBEDDED, "postgres", "redis")
"""The kinds of stores."""
DURABLE = STORES[1:]
"""The kinds that outlive a process."""


def store_url(kind: str, where: Path) -> str:
    """Return the URL of a store of this kind for this path: a file, or a name of its own on a server."""
    name = f"t_{sha256(bytes(where)).hexdigest()[:20]}"
    match kind:
        case "memory":
            return "memory://"
        case "postgres":
            return f"{_postgres()}?schema={name}"
        case "redis":
            return f"{_redis()}?prefix={name}"
        case _:
            return f"{kind}:///{where}"


@cache
def _postgres() -> str:
    if url := os.environ.get("MIDTURN_TEST_POSTGRES_URL"):
        return url
    server = Postgres()
    server.start()
    return server.url


@cache
def _redis() -> str:
    if url := os.environ.get("MIDTURN_TEST_REDIS_URL"):
        return url
    server = Redis()
    server.start()
    return server.url
