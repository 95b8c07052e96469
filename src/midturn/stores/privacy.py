"""Keeping others out: files that only their owner can read, and reports of what others can read.

The reports go to the log ``midturn.security``, each once in a process.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
import threading
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

security = logging.getLogger("midturn.security")
"""Log that reports what others can read."""

_FILE, _DIRECTORY = 0o600, 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)

_reported: set[str] = set()
_creating = threading.Lock()
if hasattr(
    os, "register_at_fork"
):  # A child that is forked meanwhile must not wait for a thread that it does not have.
    os.register_at_fork(before=_creating.acquire, after_in_parent=_creating.release, after_in_child=_creating.release)


def create(path: Path, flags: int) -> int:
    """Create a file that only its owner can read and write, whatever the umask, and return its descriptor.

    Raises:
        FileExistsError: there is something at the path already, also a symbolic link.
    """
    file = os.open(path, flags | os.O_CREAT | os.O_EXCL | _NO_LINK, _FILE)
    try:
        if sys.platform != "win32" and os.fstat(file).st_mode & _FILE != _FILE:
            os.fchmod(file, _FILE)  # the umask has taken rights from the owner, too
    except BaseException:
        os.close(file)
        raise
    return file


def create_for_sqlite(path: Path) -> None:
    """Create an empty file before SQLite does, which would let others read it; leave an existing file as it is.

    SQLite gives its side files the mode of the database.
    """
    # The lock: closing a file releases all locks that this process has on it. So no other thread of the process may
    # let SQLite open the new file before it is closed here.
    with _creating, suppress(FileExistsError):
        os.close(create(path.resolve(), os.O_RDWR))  # resolved: a link may name a file that does not exist yet


def create_directory(path: Path) -> None:
    """Create a directory that only its owner can enter, whatever the umask.

    Raises:
        FileExistsError: there is something at the path already.
    """
    path.mkdir(_DIRECTORY)
    if path.lstat().st_mode & _DIRECTORY != _DIRECTORY:
        path.chmod(_DIRECTORY)  # the umask has taken rights from the owner, too


def report_if_shared(path: Path, found: os.stat_result | None = None) -> bool:
    """Report a file or directory that others can read, write or enter, and return whether it is one.

    ``found`` is its status, if that is known. Its mode stays as it is, because somebody may have chosen it.
    """
    with suppress(FileNotFoundError):
        found = found or path.stat()
        if not is_shared(path, found):
            return False
        mode, right = stat.S_IMODE(found.st_mode), _DIRECTORY if stat.S_ISDIR(found.st_mode) else _FILE
        _report(
            f"mode {path}",
            f"{path} has mode {mode:o}, so it is open to other users of this machine; type: chmod {right:o} {path}",
        )
        return True
    return False


def is_shared(path: Path, found: os.stat_result | None = None) -> bool:
    """Return whether a path is a file or directory that others can read, write or enter."""
    if sys.platform == "win32":
        return False
    mode = (found or path.stat()).st_mode
    return bool(mode & _OTHERS) and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def report_without_tls(hosts: Iterable[str], how: str) -> None:
    """Report every remote host to which a connection may go without TLS; ``how`` says how to turn it on."""
    for host in hosts:
        if not _is_local(host):
            _report(f"tls {host}", f"the connection to {host} need not be encrypted, so others may read it; {how}")


def _is_local(host: str) -> bool:
    """Return whether a host is this machine: a Unix socket, ``localhost`` or a loopback address."""
    name = host.lower().rstrip(".")
    if not name or name.startswith(("/", "@")) or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def _report(key: str, message: str) -> None:
    if key not in _reported:
        _reported.add(key)
        security.warning("%s", message)
