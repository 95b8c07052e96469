"""The storage of contenders: a folder, a database, or a server of their own; and its size."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from tools.servers import Postgres, Redis
from tools.servers.process import wait_until

from benchmarks.compare.results import family

if TYPE_CHECKING:
    from collections.abc import Iterable


class Storage(Protocol):
    """A storage that starts empty and is removed when it is closed."""

    address: str

    def begin(self) -> None:
        """Start to count the bytes written."""

    def written(self, reported: int) -> int:
        """Return the bytes written. ``reported`` is the number that the process reports."""

    def at_rest(self) -> int:
        """Return the bytes on the disk, while nobody has the storage open."""

    def in_memory(self) -> int | None: ...

    def close(self) -> None: ...


class Folder:
    """A folder, for SQLite and files."""

    def __init__(self) -> None:
        self.address = tempfile.mkdtemp(prefix="midturn-bench-")

    def begin(self) -> None:
        pass

    def written(self, reported: int) -> int:
        return reported

    def at_rest(self) -> int:
        return sum(path.stat().st_size for path in Path(self.address).rglob("*") if path.is_file())

    def in_memory(self) -> int | None:
        return None

    def close(self) -> None:
        shutil.rmtree(self.address)


class _Served(ABC):
    """A storage on a server that counts the bytes it writes."""

    _began = 0

    def begin(self) -> None:
        self._began = self._logged()

    def written(self, reported: int) -> int:
        del reported
        return self._logged() - self._began

    @abstractmethod
    def _logged(self) -> int:
        """Return the bytes that the server has written since it started."""


class Database(_Served):
    """A database of its own, on a server that others use, but not at the same time."""

    def __init__(self, server: Postgres, name: str) -> None:
        self.server, self.name = server, name
        server.execute(f'CREATE DATABASE "{name}"')
        self.address = server.url_for(database=name)
        self._empty = self._size()

    def at_rest(self) -> int:
        self.server.execute("CHECKPOINT")
        return self._size() - self._empty

    def in_memory(self) -> int | None:
        return None

    def close(self) -> None:
        self.server.execute(f'DROP DATABASE "{self.name}" WITH (FORCE)')

    def _size(self) -> int:
        [(size,)] = self.server.execute("SELECT pg_database_size(%s)", self.name)
        return int(size)

    def _logged(self) -> int:
        [(position,)] = self.server.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
        return int(position)


class Instance(_Served):
    """A Redis server of its own, which rewrites its file only on command."""

    def __init__(self) -> None:
        self.server = Redis({"appendfsync": "always", "auto-aof-rewrite-percentage": "0"})
        self.server.start()
        self.address = self.server.url
        self._empty = self._info("memory")["used_memory"]

    def at_rest(self) -> int:
        self.server.execute("BGREWRITEAOF")
        wait_until(self._rewritten, f"{self.server!r} did not rewrite its file")
        return sum(path.stat().st_size for path in self.server.folder.glob("appendonlydir/*"))

    def in_memory(self) -> int | None:
        return int(self._info("memory")["used_memory"] - self._empty)

    def close(self) -> None:
        self.server.close()

    def _logged(self) -> int:
        return int(self._info("persistence")["aof_current_size"])

    def _rewritten(self) -> bool:
        about = self._info("persistence")
        return not about["aof_rewrite_in_progress"] and not about["aof_rewrite_scheduled"]

    def _info(self, section: str) -> dict[str, Any]:
        found: dict[str, Any] = self.server.execute("INFO", section)
        return found


class Storages:
    """Makes storages. The Postgres server is started on first use."""

    def __init__(self) -> None:
        self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if "postgres" in vars(self):
            self.postgres.close()

    @cached_property
    def postgres(self) -> Postgres:
        server = Postgres()
        server.start()
        return server

    def versions(self, contenders: Iterable[str]) -> dict[str, str]:
        """Return the versions of the servers in use."""
        found: dict[str, str] = {}
        stores = {family(contender) for contender in contenders}
        if "postgres" in stores:
            [(found["postgres"],)] = self.postgres.execute("SHOW server_version")
        if "redis" in stores:
            instance = Instance()
            about = instance.server.execute("INFO", "server")
            found |= {name: about[f"{name}_version"] for name in ("valkey", "redis") if f"{name}_version" in about}
            instance.close()
        return found

    def new(self, contender: str) -> Folder | Database | Instance:
        self._made += 1
        match family(contender):
            case "postgres":
                return Database(self.postgres, f"bench_{self._made}")
            case "redis":
                return Instance()
            case _:
                return Folder()
