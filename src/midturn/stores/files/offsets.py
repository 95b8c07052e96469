"""Where the rows of a session are in its file."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from midturn.record.head import Kind


class Span(NamedTuple):
    """Where the data of a row is, counted from the start of its line or of its file."""

    kind: Kind
    n: int
    at: int
    size: int
    crc: int
    escaped: bool


class Places:
    """Where the rows of one kind are, ordered by number: four integers a row, because there are many rows."""

    def __init__(self) -> None:
        self._data = array("q")

    def holds(self, n: int) -> bool:
        at = 4 * self._find(n)
        return at < len(self._data) and self._data[at] == n

    def add(self, span: Span, line: int) -> None:
        at = 4 * self._find(span.n)
        size = -span.size if span.escaped else span.size
        self._data[at:at] = array("q", (span.n, line + span.at, size, span.crc))

    def size(self, below: int) -> int:
        """How many bytes the rows with lower numbers have."""
        return sum(abs(self._data[4 * number + 2]) for number in range(self._find(below)))

    def drop(self, below: int) -> None:
        """Forget the rows with lower numbers."""
        del self._data[: 4 * self._find(below)]

    def spans(self, kind: Kind, start: int, stop: int | None) -> Iterator[Span]:
        last = len(self._data) // 4 if stop is None else self._find(stop)
        for number in range(self._find(start), last):
            n, at, size, crc = self._data[4 * number : 4 * number + 4]
            yield Span(kind, n, at, abs(size), crc, size < 0)

    def _find(self, n: int) -> int:
        count = len(self._data) // 4
        if count == 0 or self._data[-4] < n:  # as most are when they are added
            return count
        return bisect_left(range(count), n, key=lambda number: self._data[4 * number])
