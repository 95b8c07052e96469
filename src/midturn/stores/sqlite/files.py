"""The files of an open database, which have to stay in their places and keep what was written to them.

A process that has a file open can write to it after it was removed, moved or replaced. Nobody finds those writes again.
SQLite does not notice that, so the store looks for the files before and after each change.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import finalize

from midturn.errors import OutcomeUnknown, StoreUnavailable
from midturn.stores.sqlite.errors import lost

if TYPE_CHECKING:
    from midturn.errors import MidturnError

LOG_HEADER, FRAME_HEADER = 32, 24
"""Bytes before the first page in the log, and before each page."""


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

    def log_size(self) -> int:
        """Return the size of the log."""
        return os.lseek(self.log, 0, os.SEEK_END)

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


def _place(name: str) -> tuple[int, int] | None:
    try:
        found = Path(name).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
