"""A job that the event loop gives to a worker thread."""

from __future__ import annotations

import time
from dataclasses import dataclass

from midturn.errors import StoreUnavailable


@dataclass(slots=True)
class Job:
    """What the two know of each other. Each sets its own mark before it looks at the other's, so none is missed."""

    until: float
    """Set to 0 by the loop when the caller has gone."""
    writing: bool = False
    """Set by the worker just before its change takes effect."""

    def drop(self) -> bool:
        """The caller goes; whether its write may take effect all the same."""
        self.until = 0.0
        return self.writing

    def check(self, *, writing: bool = False) -> None:
        """Stop the worker if its caller has gone."""
        self.writing = writing
        if time.monotonic() >= self.until:
            raise StoreUnavailable("nobody waits for this call any more")
