"""The private name of asyncio that midturn reads; nothing else in the package has any."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Collection

READY = "_ready"


def ready(loop: AbstractEventLoop) -> Collection[object]:
    """Return what a loop is about to run: the same object, which changes. Other loops than asyncio's seem busy."""
    found: Collection[object] = getattr(loop, READY, (None,))
    return found
