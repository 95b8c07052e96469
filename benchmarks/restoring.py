"""Measure a restore, beside AutoGen's own loading of the same state, and reading and parsing the same rows.

Times are processor times without garbage collection. Nothing waits for a disk, so other load on the machine hardly
changes them.
"""

from __future__ import annotations

import gc
import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from midturn.record.head import Kind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from midturn.sessions.opening import OpenStore

TIMES = 5
"""Number of times that each is timed."""


@dataclass(frozen=True, slots=True)
class RestoreTimes:
    """Medians, in milliseconds."""

    restore: float
    loading: float
    """AutoGen's ``load_state()`` of a state in memory."""
    saving: float
    """AutoGen's ``save_state()`` of the same."""
    rows: float
    """Reading all rows of the session and parsing their JSON."""

    @property
    def own(self) -> float:
        """Return the time of midturn alone."""
        return self.restore - self.loading


async def restore_times(store: OpenStore, session: str, build: Callable[[], Any], checkpoint: int) -> RestoreTimes:
    state = await store.session(session).at(checkpoint).state()

    async def read() -> None:
        for kind in Kind:
            for row in await store.store.rows(session, kind):
                orjson.loads(row.data)

    times: dict[str, list[float]] = {"restore": [], "loading": [], "saving": [], "rows": []}
    for _ in range(TIMES):  # in turn, so that a slow moment hits all of them
        one, other = build(), build()
        await timed_alone(store.load(session, one), times["restore"])
        await timed_alone(other.load_state(state), times["loading"])
        await timed_alone(other.save_state(), times["saving"])
        await timed_alone(read(), times["rows"])
    return RestoreTimes(**{name: statistics.median(found) * 1e3 for name, found in times.items()})


async def timed_alone(call: Awaitable[Any], times: list[float]) -> None:
    """Time a call after a garbage collection, so that earlier work does not count."""
    gc.collect()
    with timed(times):
        await call


@contextmanager
def timed(times: list[float]) -> Generator[None]:
    """Append the processor time of the block to the list, without garbage collection."""
    gc.disable()
    began = time.process_time()
    try:
        yield
    finally:
        times.append(time.process_time() - began)
        gc.enable()
