"""Read only the bodies that somebody wants to see."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from midturn.errors import StateInvalid
from midturn.record.bodies import SomeBodies, gc_paused
from midturn.record.head import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from midturn.lease.ledger import Ledger
    from midturn.record.codec import Json

GAP = 100
"""Largest distance between two bodies that are read together: another read takes longer than a hundred bodies."""
MANY = 4000
"""Bodies read at once: until they are parsed, their rows take as much memory again."""
BACK = 8
"""Distance before a body at which the search for its row begins: a row has the number of its first body."""


class PickedBodies:
    """Reads the bodies of a session as they are needed, out of the first ``count``."""

    def __init__(self, ledger: Ledger, count: int) -> None:
        self._ledger = ledger
        self.bodies = SomeBodies(count)

    async def messages(self, numbers: Sequence[int]) -> list[Json]:
        """Return the messages whose bodies have these numbers."""
        await self.read(numbers)
        return [self.bodies.message(number, f"body {number}") for number in numbers]

    async def read(self, numbers: Sequence[int]) -> None:
        """Read what messages need. Whoever uses a damaged one gets its error."""
        await self.read_for([partial(self.bodies.message, number, "") for number in numbers])

    async def read_for(self, parts: Sequence[Callable[[], object]]) -> None:
        """Read all bodies that these functions need. While one is missing, they raise ``StateInvalid``."""
        missing, sought = self.bodies.missing, set[int]()
        while True:
            missing.clear()
            for part in parts:
                with suppress(StateInvalid):  # whoever uses the damaged body gets it again
                    part()
            if not missing - sought:
                return
            sought |= missing
            for first, last in _ranges(sorted(missing)):
                await self._read(first, last)

    async def _read(self, first: int, last: int) -> None:
        """Read the rows that have the bodies from the first to the last one."""
        back, until = BACK, min(first + MANY, last + 1)
        start = max(0, first + 1 - back)
        await self._add(start, until)
        while start and not self.bodies.has(first):
            stop, back = start, back * 8
            start = max(0, first + 1 - back)
            await self._add(start, stop)
        for page in range(until, last + 1, MANY):
            await self._add(page, min(page + MANY, last + 1))

    async def _add(self, start: int, stop: int) -> None:
        rows = await self._ledger.store.rows(self._ledger.session, Kind.BODY, start=start, stop=stop)
        with gc_paused():
            self.bodies.add(rows)


def _ranges(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each group of numbers that are close to each other."""
    first = last = numbers[0]
    for number in numbers:
        if number - last > GAP:
            yield first, last
            first = number
        last = number
    yield first, last
