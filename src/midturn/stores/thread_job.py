"""A job that the event loop gives to a worker thread."""

from __future__ import annotations

import time
from dataclasses import dataclass

from midturn.errors import StoreUnavailable


@dataclass(slots=True)
class Job:
    """Shared state of the loop and the worker.

    Each of the two sets its own field before it reads the other's, so neither misses a change.
    """

    until: float
    """Deadline of the worker; the loop sets it to 0 when the caller stops waiting."""
    writing: bool = False
    """True from just before the worker's change takes effect."""

    def drop(self) -> bool:
        """Note that the caller stops waiting, and return whether its write may still take effect."""
        self.until = 0.0
        return self.writing

    def check(self, *, writing: bool = False) -> None:
        """Stop the worker if its caller has stopped waiting."""
        self.writing = writing
        if time.monotonic() >= self.until:
            raise StoreUnavailable("the caller has stopped waiting for this call")
