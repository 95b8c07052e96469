"""Building much at once without Python's search for garbage in it."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def uncollected() -> Generator[None]:
    """Make objects that all stay, in a block that awaits nothing.

    While thousands are made, Python looks again and again through all that there are for cycles that nobody needs. By
    measurement that takes a third of the time in which a long session is restored.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
