"""The files of an open database, which have to stay in their places and keep what was written to them.

A process that has a file open can write to it after it was removed, moved or replaced. Nobody finds those writes again.
And another program can overwrite the database in its place, while SQLite still remembers pages of before. SQLite
notices neither, so the store looks for the files before and after each change.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import finalize

from midturn.errors import OutcomeUnknown, StoreUnavailable
from midturn.stores.sqlite.errors import lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from midturn.errors import MidturnError

LOG_HEADER, FRAME_HEADER = 32, 24
"""Bytes before the first page in the log, and before each page."""
LOG_NAME, WRITTEN, BEGUN = slice(32, 40), slice(96, 100), slice(128, 132)
"""Places in the index: two numbers that change when the log begins again, and how much of the log was written into the
database, and was to be written. They are part of SQLite's file format."""

SETTLED = 2.0
"""Seconds after a change in a folder in which another change may get the same time, where times are coarse."""


class OpenFiles:
    """The database, its log (``-wal``) and the index of the log (``-shm``), as they were when they were opened."""

    def __init__(self, path: Path) -> None:
        real = path.resolve()  # SQLite opens the log beside the file that a link points to
        self.folder = str(real.parent)
        self.names = str(path), f"{real}-wal", f"{real}-shm"
        self.places = tuple(_place(name) for name in self.names)
        """The device and the number of each file, by which it is recognised."""
        self.is_link = path != real
        self.seen: tuple[int, int, int] | None = None
        """The folder when all files were in their places: they still are, as long as no entry of it has changed."""
        # To ask for the length of the log: by measurement, a stat() of the log makes the next write to it slower.
        # SQLite has no locks on the log, so closing this releases none. It is closed when nobody uses this object.
        self.log = os.open(self.names[1], os.O_RDONLY)
        finalize(self, os.close, self.log)
        self.sizes = path.stat().st_size, self.log_size()
        """The sizes of the database and the log when this process last knew that they were whole."""
        self.overwritten = False
        """True once something other than SQLite has changed the database."""
        self._descriptor: int | None = None
        self.read_index: Callable[[], bytes] = bytes
        """Reads the beginning of the index. It is no method, because each change of the store needs it."""
        self._look()

    def log_size(self) -> int:
        """Return the size of the log."""
        return os.lseek(self.log, 0, os.SEEK_END)

    def check_written(self, found: os.stat_result, session: str | None) -> None:
        """Check that SQLite has changed the database, whose status is now ``found``.

        SQLite changes it only to write the log into it, and notes in the index that it begins and ends that.

        Raises:
            HistoryLost: something else has changed the database. What SQLite remembers of it is no longer true.
        """
        last, now = _progress(self.index), _progress(self.read_index())
        is_ours = self._descriptor is not None and _place(self._descriptor) == self.places[2]
        self.overwritten |= is_ours and now is not None and now == last
        if self.overwritten:
            raise lost(self.names[0], "truncated" if found.st_size < self.sizes[0] else "overwritten", session)
        self._look()

    def _look(self) -> None:
        if self._descriptor is None or _place(self._descriptor) != self.places[2]:
            self._descriptor = _descriptor(self.places[2])
        self.read_index = bytes if self._descriptor is None else partial(os.pread, self._descriptor, BEGUN.stop, 0)
        self.index = self.read_index()  # before the time: what SQLite writes after this is then known as its own
        self.time = Path(self.names[0]).stat().st_mtime_ns

    def missing(self, session: str | None, *, writing: bool) -> MidturnError:
        """Return the error for the first file that is not in its place.

        ``writing`` is true if a change may have taken effect.
        """
        for name, place in list(zip(self.names, self.places, strict=True))[:2]:
            if _place(name) != place:
                return lost(name, "removed or replaced", session)
        # The log has everything, but the locks are in the index: this process no longer sees the writers beside it.
        return (OutcomeUnknown if writing else StoreUnavailable)(
            f"{self.names[2]} was removed or replaced while it was open; "
            "stop all processes that use the database, then open the store again",
            session=session,
        )

    def check_whole(self, *, pages: int, frames: int, page_size: int, session: str | None) -> None:
        """Check that the files are as long as SQLite needs them to be.

        ``pages`` is the number of pages in the database, and ``frames`` the number of those in the log.

        Raises:
            HistoryLost: a file is too short.
        """
        database, log = Path(self.names[0]).stat().st_size, self.log_size()
        if log < (LOG_HEADER + frames * (FRAME_HEADER + page_size) if frames else 0):
            raise lost(self.names[1], "truncated", session)
        # A page beyond the end of the database has to be in the log.
        if not database or pages - database // page_size > frames:
            raise lost(self.names[0], "truncated", session)
        self.sizes = database, log


def _place(name: str | int) -> tuple[int, int] | None:
    try:
        found = os.stat(name)  # noqa: PTH116 - a Path is no descriptor
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _progress(index: bytes) -> bytes | None:
    """Return how far SQLite has written the log into the database; ``None`` if it is at it, or that is unknown."""
    done = index[WRITTEN]
    return index[LOG_NAME] + done if done and index[BEGUN] == done else None


def _descriptor(place: tuple[int, int] | None) -> int | None:
    """Return SQLite's own descriptor of a file; ``None`` if the system does not list descriptors.

    Another one would release SQLite's locks when it is closed.
    """
    with suppress(OSError):
        for name in os.listdir("/dev/fd"):  # noqa: PTH208 - only names
            with suppress(OSError):  # the descriptor of the list itself
                if _place(int(name)) == place:
                    return int(name)
    return None
