"""Index of a session's file: its head, and the positions of its rows."""

from __future__ import annotations

import os
import threading
import zlib
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

from midturn.errors import StateInvalid, UnknownVersion
from midturn.record.head import Kind, Row
from midturn.stores.files.format import CHECKSUM, Damaged, Extent, read_change, read_header, unescaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from midturn.record.head import Head, Removal, Write
    from midturn.stores.files.format import Change


HEADER_AND_FIRST_CHANGE = 2
"""Number of lines in a new file after its first write. In a rewritten file, lines of kept rows come between the two."""


class Index:
    """Index of a session's file up to ``end``: the head, and the positions of the rows."""

    def __init__(self, path: Path, session: str) -> None:
        self.lock = threading.Lock()
        self.path = path
        self.session = session
        self.clear()

    def clear(self) -> None:
        """Forget everything, so that the next :meth:`catch_up` reads the whole file."""
        self.head: Head | None = None
        self.end = 0
        self.lines = 0
        self.changes = 0
        """Number of lines that are writes."""
        self.live = 0
        """Number of bytes in the rows."""
        self._created = 0.0
        self._seq = 0
        self._mark = (0, b"")
        self._extents = {kind: Extents() for kind in Kind}

    def catch_up(self, file: int) -> bool:
        """Read the lines that were added since the last time, and return whether there were any.

        If the file no longer has the last known line, read all of it.

        Raises:
            StateInvalid: a line is damaged.
            UnknownVersion: a line was written by a newer midturn.
        """
        at, mark = self._mark
        size = os.fstat(file).st_size
        # The file may have been replaced, cut or restored: the checksum of the last known line must still be there.
        if size < self.end or os.pread(file, len(mark), at) != mark:
            self.clear()
        known = self.end
        if size > known:
            try:
                with open(file, "rb", buffering=1 << 16, closefd=False) as lines:
                    lines.seek(known)
                    self.add(line for line in lines if line.endswith(b"\n"))
            except (Damaged, UnknownVersion, OSError) as error:
                where, changes = f"{self.path}:{self.lines}", self.changes
                self.clear()
                if isinstance(error, OSError):
                    raise
                if isinstance(error, UnknownVersion):
                    raise UnknownVersion(f"{where}: {error}", session=self.session) from None
                message = f"this line is damaged: {error}; restore the file from a backup"
                if changes:
                    message += ", or remove this line and all lines after it to return to the session before them"
                raise StateInvalid(message, path=where, session=self.session) from None
        return self.end > known

    def add(self, lines: Iterable[bytes]) -> None:
        """Add the next lines of the file to the index."""
        newest: Change | None = None
        for line in lines:
            self.lines += 1
            if self.lines > 1:
                newest = read_change(line)
                self._follow(newest)
            else:
                session, self._created = read_header(line)
                if session != self.session:
                    raise Damaged(f"it is the header of session {session!r}")
            self._mark = (self.end, line[:CHECKSUM])
            self.end += len(line)
        if newest:
            self.head = newest.head(self.session, self._created)

    def refuses(self, write: Write) -> bool:
        """Return whether the file has one of the write's rows already, and the write does not remove it."""
        there = [(row.kind, row.n) for row in write.rows if self._extents[row.kind].has(row.n)]
        return bool(there and write.left(there))

    def dead(self, removes: Iterable[Removal]) -> int:
        """Return the number of bytes in the file that are not rows, once these rows are removed.

        A row that two ranges have in common counts twice, which only makes the file a little smaller.
        """
        return self.end - self.live + sum(self._extents[kind].size(start, stop) for kind, start, stop in removes)

    def left(self, file: int, removes: Sequence[Removal]) -> Iterator[Row]:
        """Yield all rows except the removed ones."""
        for kind in Kind:
            at = 0
            for start, stop in sorted((start, stop) for each, start, stop in removes if each is kind and start < stop):
                if start > at:
                    yield from self.rows(file, kind, at, start)
                at = max(at, stop)
            yield from self.rows(file, kind, at, None)

    def rows(self, file: int, kind: Kind, start: int, stop: int | None) -> Iterator[Row]:
        """Yield the rows with ``start <= n < stop``, in order."""
        for extent in self._extents[kind].extents(kind, start, stop):
            data = os.pread(file, extent.size, extent.at)
            if zlib.crc32(data) != extent.crc:
                self.clear()
                self.catch_up(file)  # raises with the number of the line that was damaged since the first reading
                raise StateInvalid("changed while it was read; try again", path=str(self.path), session=self.session)
            try:
                row = Row(kind=kind, n=extent.n, data=unescaped(data) if extent.escaped else data)
            except Damaged as error:
                where = f"{self.path}: {kind.name.lower()} {extent.n}"
                raise StateInvalid(str(error), path=where, session=self.session) from None
            yield row

    def _follow(self, new: Change) -> None:
        if "kept" in new.members:
            if self.changes:
                raise Damaged("it has kept rows, which are allowed only before the first write")
        else:
            seq, last = new.members.get("seq"), new.members.get("status") == "deleted"
            # A rewritten file has only a deletion, or its first write comes after lines of kept rows.
            anew = not self.changes and (last or self.lines > HEADER_AND_FIRST_CHANGE)
            if type(seq) is not int or (seq != self._seq + 1 and not anew):
                raise Damaged("it does not follow from the line before it")
            # Nothing follows a deletion.
            self._seq = -1 if last else seq
            self.changes += 1
        for kind, start, stop in new.removes():
            self.live -= self._extents[kind].size(start, stop)
            self._extents[kind].drop(start, stop)
        for extent in new.extents:
            if self._extents[extent.kind].has(extent.n):
                raise Damaged(f"it repeats {extent.kind.name} {extent.n}")
            self._extents[extent.kind].add(extent, self.end)
            self.live += extent.size


class Extents:
    """Positions of the rows of one kind, ordered by number: four integers a row, because there are many rows."""

    def __init__(self) -> None:
        self._data = array("q")

    def has(self, n: int) -> bool:
        at = 4 * self._find(n)
        return at < len(self._data) and self._data[at] == n

    def add(self, extent: Extent, line: int) -> None:
        at = 4 * self._find(extent.n)
        size = -extent.size if extent.escaped else extent.size
        self._data[at:at] = array("q", (extent.n, line + extent.at, size, extent.crc))

    def size(self, start: int, stop: int) -> int:
        """Return the number of bytes in the rows with ``start <= n < stop``."""
        return sum(abs(self._data[4 * number + 2]) for number in range(self._find(start), self._find(stop)))

    def drop(self, start: int, stop: int) -> None:
        """Forget the rows with ``start <= n < stop``."""
        del self._data[4 * self._find(start) : 4 * self._find(stop)]

    def extents(self, kind: Kind, start: int, stop: int | None) -> Iterator[Extent]:
        last = len(self._data) // 4 if stop is None else self._find(stop)
        for number in range(self._find(start), last):
            n, at, size, crc = self._data[4 * number : 4 * number + 4]
            yield Extent(kind, n, at, abs(size), crc, size < 0)

    def _find(self, n: int) -> int:
        count = len(self._data) // 4
        if count == 0 or self._data[-4] < n:  # true for most rows when they are added
            return count
        return bisect_left(range(count), n, key=lambda number: self._data[4 * number])
