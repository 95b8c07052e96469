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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def report_if_shared(path: Path, found: os.stat_result | None = None) -> None:
    """Report a file or directory that others can read, write or enter; ``found`` is its status if it is known.

    Its mode stays as it is, because somebody may have chosen it.
    """
    if sys.platform == "win32":
        return
    with suppress(FileNotFoundError):
        found = found or path.stat()
        mode = stat.S_IMODE(found.st_mode)
        if not mode & _OTHERS or not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            return
        right = _DIRECTORY if stat.S_ISDIR(found.st_mode) else _FILE
        _report(
            f"mode {path}",
            f"{path} has mode {mode:o}, so it is open to other users of this machine; type: chmod {right:o} {path}",
        )


def _report(key: str, message: str) -> None:
    if key not in _reported:
        _reported.add(key)
        security.warning("%s", message)
