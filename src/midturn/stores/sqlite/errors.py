"""Translation of SQLite's errors."""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import TYPE_CHECKING

from midturn.errors import (
    Conflict,
    HistoryLost,
    MidturnError,
    OutcomeUnknown,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from pathlib import Path


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NONE_LEFT = "this process has no file descriptors left; raise its limit (ulimit -n)"
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def code(error: sqlite3.Error) -> int | None:
    """Return SQLite's primary result code; ``None`` if Python could not read a value from SQLite."""
    found: int | None = getattr(error, "sqlite_errorcode", None)
    return found if found is None else found & 0xFF


def lost(what: object, how: str, session: str | None) -> HistoryLost:
    """Return the error for a file that may have lost writes; ``how`` says what happened to the file."""
    return HistoryLost(
        f"{what} was {how} while it was open, so writes to it may be lost; "
        "stop all processes that use the database, restore it or check it, then open the store again",
        session=session,
    )


def translated(error: sqlite3.Error, path: Path, session: str | None, *, writing: bool) -> MidturnError:
    """Return the error of midturn for one of SQLite; ``writing`` is true if the change may have taken effect."""
    kind: type[MidturnError] = StoreUnavailable
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHORT_READ:
        return lost(f"{path} or its log", "truncated", session)
    match code(error):
        case sqlite3.SQLITE_CONSTRAINT if session is not None:
            return Conflict.of(session)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | None:
            message = "not a SQLite database, or a damaged one; restore a backup or choose another file"
            return StateInvalid(message, path=str(path), session=session)
        case sqlite3.SQLITE_FULL:
            kind, message = StoreFull, _full(path)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            message = _denied(path) if _may_open_files() else f"{path} cannot be used: {_NONE_LEFT}"
        case sqlite3.SQLITE_IOERR if writing:
            kind, message = OutcomeUnknown, f"the disk failed while {path} was written; read the session again"
        case _:
            message = f"{path} cannot be used: {error}; check the disk"
    return kind(f"{message} ({error.sqlite_errorname})", session=session)


def translated_system(error: OSError, path: Path, session: str | None, *, writing: bool = False) -> MidturnError:
    """Return the error of midturn for one of the system, outside SQLite. ``writing`` as for :func:`translated`."""
    if error.errno in _FULL:
        return StoreFull(_full(path), session=session)
    if error.errno in _DENIED:
        return StoreUnavailable(_denied(path), session=session)
    reason = _NONE_LEFT if error.errno == errno.EMFILE else error.strerror
    kind = OutcomeUnknown if writing else StoreUnavailable
    return kind(f"{path} cannot be used: {reason}", session=session)


def _may_open_files() -> bool:
    """Return whether the process has a file descriptor left; SQLite does not say why it cannot open a file."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    return True


def _full(path: Path) -> str:
    return f"no space is left for {path}; free some and try again"


def _denied(path: Path) -> str:
    return f"{path} cannot be opened for writing; let this user read and write it and its directory"
