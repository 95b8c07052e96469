"""Many sessions at the same time in one process, over one server: turns in a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.compare.results import Rate
from benchmarks.compare.talking import command, talk

if TYPE_CHECKING:
    from benchmarks.compare.storage import Storages

SESSIONS = (1, 16, 64)
STORES = ("postgres", "redis")
TURNS = 640
"""Of all sessions together, so that each measurement takes about as long."""
SECONDS = 180.0


def rate(contender: str, sessions: int, storages: Storages, turns: int = TURNS) -> Rate:
    """Turns in a second, after one turn of each session.

    Raises:
        ContenderFailed: it could not have them, or it has one conversation at a time.
    """
    storage = storages.new(contender)
    try:
        words = ("--sessions", sessions, "--last", 1 + max(1, turns // sessions))
        told = talk(command(contender, "crowd", storage.address, "chat", *words), SECONDS)
    finally:
        storage.close()
    return Rate(contender=contender, sessions=sessions, per_second=told["turns"] / told["seconds"])
