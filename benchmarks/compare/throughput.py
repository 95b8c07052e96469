"""Measure the turns per second of many sessions at the same time, in one process and over one server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.compare.results import Rate
from benchmarks.compare.talking import command, talk

if TYPE_CHECKING:
    from benchmarks.compare.storage import Storages

SESSIONS = (1, 16, 64)
STORES = ("postgres", "redis")
TURNS = 640
"""Turns of all sessions together, so that all measurements take about the same time."""
SECONDS = 180.0


def rate(contender: str, sessions: int, storages: Storages, turns: int = TURNS) -> Rate:
    """Return the turns per second, after one turn of each session.

    Raises:
        ContenderFailed: the contender could not run the turns, or runs only one conversation at a time.
    """
    storage = storages.new(contender)
    try:
        words = ("--sessions", sessions, "--last", 1 + max(1, turns // sessions))
        told = talk(command(contender, "crowd", storage.address, "chat", *words), SECONDS)
    finally:
        storage.close()
    return Rate(contender=contender, sessions=sessions, per_second=told["turns"] / told["seconds"])
