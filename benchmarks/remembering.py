"""``python -m benchmarks.remembering NAME TURNS``: measure the memory of a running conversation.

Each conversation is measured in a process of its own, because memory of an earlier one would be reused.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import resource
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from autogen_agentchat.agents import AssistantAgent

import midturn
from benchmarks.long_session import SEED, SIZE
from benchmarks.scripted import instant
from benchmarks.texts import text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

Run: TypeAlias = "Callable[[str], Awaitable[Any]]"
WARM = 20
"""Turns before memory is first measured. By then all code is loaded."""


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """The memory that a conversation adds to a process."""

    who: str
    messages: int
    text_bytes: int
    grown_bytes: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.grown_bytes / self.text_bytes}


def remembering(turns: int, advance: Callable[[], None]) -> list[MemoryFigures]:
    figures: list[MemoryFigures] = []
    for who in RUNS:
        command = [sys.executable, "-m", "benchmarks.remembering", who, str(turns)]
        told = subprocess.run(command, check=True, capture_output=True, text=True)
        figures.append(MemoryFigures(who, 2 * turns, 2 * turns * SIZE, json.loads(told.stdout)))
        advance()
    return figures


@asynccontextmanager
async def _plain(build: Callable[[], AssistantAgent]) -> AsyncGenerator[Run]:
    agent = build()
    yield lambda task: agent.run(task=task)


@asynccontextmanager
async def _kept(build: Callable[[], AssistantAgent]) -> AsyncGenerator[Run]:
    with tempfile.TemporaryDirectory(prefix="midturn-bench-") as folder:
        async with midturn.open(f"sqlite:///{Path(folder) / 'store.db'}") as store:
            yield store.session("case-42", build).run


RUNS = {"AutoGen alone": _plain, "midturn": _kept}


async def grown(who: str, turns: int) -> int:
    """Return the number of bytes by which this process grows."""
    chance = random.Random(SEED)

    def answers() -> Iterator[str]:
        while True:
            yield text(SIZE, chance)

    async with RUNS[who](lambda: AssistantAgent("support_agent", model_client=instant(answers()))) as run:
        for _ in range(WARM):
            await run(text(SIZE, chance))
        before = _resident()
        for _ in range(turns):
            await run(text(SIZE, chance))
        return _resident() - before


def _resident() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    print(asyncio.run(grown(sys.argv[1], int(sys.argv[2]))))
