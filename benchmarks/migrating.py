"""Migrate many sessions and roll them back: sessions per second, and whether memory stays flat."""

from __future__ import annotations

import random
import resource
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogen_agentchat.agents import AssistantAgent
from tools.many import multiply
from tools.servers import shared

import midturn
from benchmarks.scripted import instant
from benchmarks.texts import text
from midturn.autogen.adapter import AutoGen
from midturn.maintenance.migrating import MigrationRun, RollbackRun, in_bulk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

TURNS, SIZE, JOBS = 5, 400, 8
EARLY = 1000
"""Number of migrated sessions before memory is first measured."""


@dataclass(frozen=True, slots=True)
class MigrationFigures:
    """The figures of one run."""

    store: str
    sessions: int
    migrated_per_s: float
    looked_at_per_s: float
    """Sessions per second when all of them already have the version."""
    undone_per_s: float
    early_mb: float
    """Peak memory of the process after the first thousand sessions, and at the end."""
    late_mb: float

    def as_dict(self) -> dict[str, Any]:
        return {"what": "migration", **asdict(self), "memory_growth": self.late_mb / self.early_mb}


def build() -> AssistantAgent:
    chance = random.Random(7)
    return AssistantAgent("clerk", instant(text(SIZE, chance) for _ in range(TURNS)))


def blueprint() -> midturn.Blueprint:
    new = midturn.Blueprint("desk", build, version=2)

    @new.migration(1, 2)
    def without_references(state: midturn.State) -> midturn.State:
        return state.redact(r"\d{5}", "[number]")

    return new


async def migrating(kind: str, sessions: int, advance: Callable[[], None]) -> MigrationFigures:
    """Migrate, run again without changes, and roll back."""
    with tempfile.TemporaryDirectory() as folder:
        async with midturn.open(shared.store_url(kind, Path(folder) / "store")) as store:
            chance = random.Random(8)
            first = store.session("case-0", midturn.Blueprint("desk", build))
            for _ in range(TURNS):
                await first.run(task=text(SIZE, chance))
            await multiply(store.store, "case-0", (f"case-{i}" for i in range(1, sessions)))
            memory: list[float] = []

            async def run(make: Callable[[], Any]) -> float:
                async def ids() -> AsyncGenerator[str, None]:
                    async for info in store.sessions():
                        yield info.id

                began, done = time.perf_counter(), 0

                def tell(_: object) -> None:
                    nonlocal done
                    done += 1
                    if done == EARLY:
                        memory.append(_peak_mb())
                    advance()

                await in_bulk(ids(), [make() for _ in range(JOBS)], tell)
                memory.append(_peak_mb())
                return done / (time.perf_counter() - began)

            forward = await run(lambda: MigrationRun(store.store, blueprint(), AutoGen(), run="v2"))
            again = await run(lambda: MigrationRun(store.store, blueprint(), AutoGen(), run="v2"))
            back = await run(lambda: RollbackRun(store.store, run="v2"))
    return MigrationFigures(kind, sessions, forward, again, back, early_mb=memory[0], late_mb=memory[-1])


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
