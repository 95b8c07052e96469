"""Measure ``import midturn``, beside Python itself and the imports of any asynchronous program."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES = 15
PROGRAMS = {
    "Python itself": "pass",
    "import midturn": "import midturn",
    "import asyncio": "import asyncio",
    "midturn.open": "import midturn; midturn.open",
    "import autogen_agentchat": "import autogen_agentchat.agents",
}
"""Programs to time. The last but one loads all of midturn that does not need AutoGen."""


@dataclass(frozen=True, slots=True)
class ImportFigures:
    program: str
    ms: float
    """Milliseconds of a whole process."""
    more_ms: float
    """Milliseconds more than Python itself."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def importing(advance: Callable[[], None]) -> list[ImportFigures]:
    times: dict[str, list[float]] = {program: [] for program in PROGRAMS}
    for _ in range(TIMES):  # in turn, so that a slow moment hits all of them
        for program, code in PROGRAMS.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times[program].append((time.perf_counter() - began) * 1e3)
        advance()
    medians = {program: statistics.median(found) for program, found in times.items()}
    bare = medians["Python itself"]
    return [ImportFigures(program, ms, ms - bare) for program, ms in medians.items()]
