"""PgBouncer in front of a PostgreSQL server, as strict as it can be set."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import ClassVar

import psycopg

from .postgres import NAME, Postgres
from .process import HOST, Folder, Server, ServerFailed, ServerMissing, plain_user, run

KEEPS_STATEMENTS = (1, 21)
"""The first version that supports prepared statements of its clients by default."""


def pgbouncer_binary(*, installed: bool = True) -> Path:
    """Return the path of the program: the installed one if it is wanted, else one from Debian's packages."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
    found = shutil.which("pgbouncer", path=path) if installed else None
    return Path(found) if found else _fetched() / "pgbouncer"


@cache
def _fetched() -> Path:
    """Return a folder with the program and the folder ``libraries``. It is downloaded once per environment."""
    base = Path(sys.prefix) / "servers"
    final = base / "pgbouncer"
    if final.is_dir():
        return final
    work = Folder("packages").path
    try:
        _unpack(work)
    except (OSError, ServerFailed) as error:
        raise ServerMissing(f"PgBouncer is neither installed nor downloadable: install pgbouncer\n{error}") from None
    with contextlib.suppress(OSError):  # it belongs to another user, or another process was faster
        base.mkdir(exist_ok=True)
        shutil.copytree(work / "pgbouncer", new := Path(tempfile.mkdtemp(dir=base)), dirs_exist_ok=True)
        new.rename(final)
    return final if final.is_dir() else work / "pgbouncer"


def _download(folder: Path) -> None:
    """Download the package and its libraries, as far as the system's package lists have them."""
    needs = run(["apt-cache", "depends", "pgbouncer"], folder, None)
    libraries = set(re.findall(r"Depends: (lib[\w.+-]+)", needs)) - {"libc6"}  # the C library has to be the system's
    run(["apt-get", "download", "pgbouncer", *sorted(libraries)], folder, None)


def _unpack(folder: Path) -> None:
    try:
        _download(folder)
    except ServerFailed:  # the system has no package lists, or outdated ones
        if os.geteuid() != 0:
            raise
        run(["apt-get", "update"], folder, None)
        _download(folder)
    for package in folder.glob("*.deb"):
        run(["dpkg-deb", "-x", package, folder / "root"], folder, None)
    (folder / "pgbouncer/libraries").mkdir(parents=True)
    shutil.copy(folder / "root/usr/sbin/pgbouncer", folder / "pgbouncer")
    for library in (folder / "root").rglob("lib*.so.*"):
        shutil.copy(library, folder / "pgbouncer/libraries")


class PgBouncer(Server):
    """Lends ``pool_size`` connections of a server to its clients, for one transaction at a time.

    Args:
        server: the server, which must be started before.
        pool_size: the number of connections to the server for one user and database.
        binary: the program; by default ``pgbouncer_binary()``.
    """

    _goodbye: ClassVar = signal.SIGKILL  # it has nothing to lose

    def __init__(self, server: Postgres, pool_size: int = 1, binary: Path | None = None) -> None:
        binary = binary or pgbouncer_binary()
        super().__init__("pgbouncer", plain_user())
        self._server = server
        # A copy, because the user that it runs as may not be able to read the original.
        self._binary = shutil.copy(binary, self.folder)
        self._libraries = self.folder / "libraries"
        if binary.with_name("libraries").is_dir():
            shutil.copytree(binary.with_name("libraries"), self._libraries)
            self._libraries.chmod(0o755)
        self._write(pool_size)

    def _write(self, pool_size: int) -> None:
        settings: dict[str, object] = {
            "listen_addr": HOST,
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "md5",
            "auth_file": self.folder / "users",
            "pool_mode": "transaction",
            "default_pool_size": pool_size,
        }
        if self._version() >= KEEPS_STATEMENTS:
            settings["max_prepared_statements"] = 0
        lines = [f"{name} = {value}" for name, value in settings.items()]
        lines = ["[databases]", f"* = host={HOST} port={self._server.port}", "[pgbouncer]", *lines]
        for name, text in {"settings": "\n".join(lines), "users": f'"{NAME}" "{self._server.password}"'}.items():
            (self.folder / name).write_text(f"{text}\n")
            (self.folder / name).chmod(0o644)  # the folder is private

    def _version(self) -> tuple[int, ...]:
        ask = [self._binary, "--version"]
        said = subprocess.run(ask, env=self._environment(), check=True, capture_output=True, text=True).stdout
        return tuple(map(int, re.findall(r"\d+", said)[:2]))

    @property
    def url(self) -> str:
        """Return the URL of the server's database through this PgBouncer."""
        return self._server.url.replace(f"@{HOST}:{self._server.port}/", f"@{HOST}:{self.port}/")

    def _command(self) -> list[str | Path]:
        return [self._binary, self.folder / "settings"]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(self._libraries)} if self._libraries.is_dir() else dict(os.environ)

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=10):
                return True
        except psycopg.OperationalError:
            return False
