"""``python -m benchmarks.growing NAME VISION TURNS``: how much longer a turn takes late in a conversation than early.

With a model without vision, AutoGen itself passes over all messages in every turn. So the same conversation is timed
with AutoGen alone. Each runs in a process of its own. The store is SQLite: one in memory would put its rows between the
messages, and AutoGen's pass would take longer.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogen_agentchat.agents import AssistantAgent

import midturn
from benchmarks.long_session import SEED, SIZE
from benchmarks.scripted import instant
from benchmarks.texts import text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

EARLY = 100
"""The turn around which the early ones are timed."""
WINDOW = 50
"""Turns whose median is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthFigures:
    """Times of turns early and late in a conversation, and how much of the growth is AutoGen's own."""

    model: str
    turns: int
    early_ms: float
    late_ms: float
    plain_early_ms: float
    plain_late_ms: float

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        own = self.late_ms - (self.plain_late_ms - self.plain_early_ms)
        return asdict(self) | {"growth": self.late_ms / self.early_ms, "own_growth": own / self.early_ms}


def growing(turns: int, advance: Callable[[], None]) -> list[GrowthFigures]:
    """Return the figures with both kinds of model."""
    figures: list[GrowthFigures] = []
    for model in ("with vision", "without vision"):
        times: list[float] = []
        for who in ("midturn", "AutoGen alone"):
            command = [sys.executable, "-m", "benchmarks.growing", who, model, str(turns)]
            told = subprocess.run(command, check=True, capture_output=True, text=True)
            times += json.loads(told.stdout)
            advance()
        early, late, plain_early, plain_late = times
        figures.append(
            GrowthFigures(
                model=model,
                turns=turns,
                early_ms=early,
                late_ms=late,
                plain_early_ms=plain_early,
                plain_late_ms=plain_late,
            )
        )
    return figures


async def early_and_late(who: str, model: str, turns: int) -> list[float]:
    """Return the medians of the early and the late turns of one conversation, in milliseconds."""
    chance = random.Random(SEED)

    def answers() -> Iterator[str]:
        while True:
            yield text(SIZE, chance)

    client = instant(answers(), vision=model == "with vision")
    agent = AssistantAgent("support_agent", model_client=client)
    with tempfile.TemporaryDirectory(prefix="midturn-bench-") as folder:
        async with midturn.open(f"sqlite:///{Path(folder) / 'store.db'}") as store:
            run = store.session("case-42", lambda: agent).run if who == "midturn" else agent.run
            times = [await _milliseconds(run(task=text(SIZE, chance))) for _ in range(turns)]
    early = times[EARLY - WINDOW // 2 : EARLY + WINDOW // 2]
    return [statistics.median(early), statistics.median(times[-WINDOW:])]


async def _milliseconds(work: Awaitable[Any]) -> float:
    start = time.perf_counter()
    await work
    return 1000 * (time.perf_counter() - start)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(early_and_late(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
