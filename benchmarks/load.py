"""``python -m benchmarks.load``: measure turns with thousands of calls at once, and with messages of many megabytes.

Each turn runs in a process of its own, because its memory is measured, and an earlier turn would leave some.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, FunctionExecutionResultMessage, RequestUsage
from tools.servers.shared import store_url

import midturn
from benchmarks.long_session import SEED, SIZE
from benchmarks.texts import text
from midturn.testing import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

ALONE = "AutoGen alone"
STORES = ("memory", "file", "sqlite", "postgres", "redis")
CALLS = (100, 1_000, 10_000)
KILLED = 9
"""The exit code of a process that ends in the middle of a turn."""
BEAT = 0.005
"""Seconds between two beats of the pulse that shows how long the event loop stalls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """One turn under load."""

    what: str
    """``calls``: a turn with parallel tool calls. ``again``: the same, finished from its journal by another process.
    ``message``: a turn whose task is large. ``restore``: reading that task back in a new process."""
    store: str
    size: int
    """The number of calls, or the bytes of the message."""
    seconds: float
    stall_ms: float
    """The longest time between two beats of the event loop."""
    work_ms: float
    """The longest processor time of the event loop's thread between two beats. Other load does not change it."""
    peak_bytes: int
    """The peak of the process's resident memory beyond what it had before."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"rate": self.size / self.seconds, "ratio": self.peak_bytes / self.size}


class Pulse:
    """Measures how long the event loop is kept from running anything else."""

    def __init__(self) -> None:
        self.stall = self.work = 0.0
        self._loop = asyncio.get_running_loop()
        self._due = self._cpu = 0.0
        self._next()

    def _next(self) -> None:
        self._due, self._cpu = time.perf_counter() + BEAT, time.thread_time()
        self._timer = self._loop.call_later(BEAT, self._beat)

    def _beat(self) -> None:
        self.stall = max(self.stall, time.perf_counter() - self._due)
        self.work = max(self.work, time.thread_time() - self._cpu)
        self._next()

    async def end(self) -> None:
        """Let the last stall end, and measure no more."""
        await asyncio.sleep(2 * BEAT)
        self._timer.cancel()


def load(counts: Sequence[int], size: int, stores: Sequence[str], advance: Callable[[], None]) -> list[LoadFigures]:
    figures: list[LoadFigures] = []
    for store in (ALONE, *stores):
        with tempfile.TemporaryDirectory(prefix="midturn-bench-") as folder:
            for count in counts:
                url = "" if store == ALONE else store_url(store, Path(folder) / f"calls-{count}")
                figures += _measure("calls", store, count, url)
                if store not in (ALONE, "memory"):
                    url = store_url(store, Path(folder) / f"again-{count}")
                    _run("killed", count, url, KILLED)
                    figures += _measure("again", store, count, url)
                advance()
            url = "" if store == ALONE else store_url(store, Path(folder) / "message")
            figures += _measure("message", store, size, url)
            if store not in (ALONE, "memory"):
                figures += _measure("restore", store, size, url)
            advance()
    return figures


def _measure(what: str, store: str, size: int, url: str) -> list[LoadFigures]:
    return [LoadFigures(what=what, store=store, size=size, **json.loads(_run(what, size, url, 0)))]


def _run(what: str, size: int, url: str, code: int) -> str:
    """Run this module in a process of its own, which ends with this exit code; return its output."""
    command = [sys.executable, "-m", "benchmarks.load", what, str(size), url]
    told = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if told.returncode != code:
        raise subprocess.CalledProcessError(told.returncode, command)
    return told.stdout


class Asks(ScriptedModel):
    """A model that asks for many tool calls at once, and then ends the turn, or its process."""

    def __init__(self, wanted: int, *, dies: bool) -> None:
        super().__init__(self._next)
        self._wanted, self._dies = wanted, dies

    def _next(self, messages: Any) -> CreateResult:
        usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
        if isinstance(messages[-1], FunctionExecutionResultMessage) or not self._wanted:
            if self._dies:
                os._exit(KILLED)
            return CreateResult(finish_reason="stop", content="done", usage=usage, cached=False)
        calls = [FunctionCall(id=f"{i}", name="look", arguments=f'{{"order": "{i}"}}') for i in range(self._wanted)]
        return CreateResult(finish_reason="function_calls", content=calls, usage=usage, cached=False)


async def look(order: str) -> str:
    """Look an order up."""
    await asyncio.sleep(0)
    return f"order {order} is on its way"


def build(count: int, *, dies: bool = False) -> AssistantAgent:
    model = Asks(count, dies=dies)
    return AssistantAgent("clerk", model, tools=[look], max_tool_iterations=2, reflect_on_tool_use=False)


@asynccontextmanager
async def _runner(url: str, count: int, *, dies: bool = False) -> AsyncGenerator[Any]:
    if not url:
        yield build(count)
        return
    async with midturn.open(url) as store:
        yield store.session("case-42", lambda: build(count, dies=dies))


async def measured(what: str, size: int, url: str) -> dict[str, float]:
    count = size if what in ("calls", "killed", "again") else 0
    async with _runner("" if not url else "memory://", 0) as warm:
        await warm.run(task="Hello.")  # by then all code is loaded
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    before = _kilobytes("VmRSS")
    task = "Look all orders up."
    if what == "message":
        line = text(SIZE, random.Random(SEED)) + "\n"
        task = line * (size // len(line))
    pulse, begun = Pulse(), time.perf_counter()
    async with _runner(url, count, dies=what == "killed") as runner:
        await (runner.resume() if what == "again" else runner.run(task=task))
    seconds = time.perf_counter() - begun
    await pulse.end()
    peak = 1024 * (_kilobytes("VmHWM") - before)
    return {"seconds": seconds, "stall_ms": 1e3 * pulse.stall, "work_ms": 1e3 * pulse.work, "peak_bytes": peak}


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    [found] = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(found)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(sys.argv[1], int(sys.argv[2]), sys.argv[3]))))
