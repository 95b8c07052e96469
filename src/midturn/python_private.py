"""All private names of Python itself that midturn uses.

``tests/test_python_private.py`` tests each of them. midturn also runs on a Python that lacks one: see each function.
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
"""Attribute of a thread pool's work item that holds the function to run."""


def ready(loop: AbstractEventLoop) -> Collection[object]:
    """Return the live queue of callbacks that a loop is about to run.

    For a loop without such a queue, return one that is never empty, so that the loop seems busy.
    """
    found: Collection[object] = getattr(loop, READY, (None,))
    return found


def functions_in_threads() -> list[object]:
    """Return the functions in C, such as ``input``, that pool threads run; none if Python does not show them."""
    frames: dict[int, FrameType] = getattr(sys, FRAMES, dict)()
    items = (frame.f_locals.get("self") for frame in frames.values())
    return [getattr(item, FUNCTION) for item in items if hasattr(item, FUNCTION)]
