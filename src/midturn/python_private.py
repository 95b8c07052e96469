"""The private names of Python itself that midturn reads; nothing else in the package has any.

``tests/test_python_private.py`` names each of them. A Python without one is served as well: see each function.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Collection
    from types import FrameType

READY = "_ready"
FRAMES = "_current_frames"
FUNCTION = "fn"
"""The attribute of what a thread of a pool is busy with that has the function."""


def ready(loop: AbstractEventLoop) -> Collection[object]:
    """Return what a loop is about to run: the same object, which changes. Other loops than asyncio's seem busy."""
    found: Collection[object] = getattr(loop, READY, (None,))
    return found


def functions_in_threads() -> list[object]:
    """Return the functions in C, such as ``input``, that threads of pools are in; none if Python does not tell."""
    frames: dict[int, FrameType] = getattr(sys, FRAMES, dict)()
    items = (frame.f_locals.get("self") for frame in frames.values())
    return [getattr(item, FUNCTION) for item in items if hasattr(item, FUNCTION)]
