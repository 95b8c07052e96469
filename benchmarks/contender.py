"""One contender in a process of its own. It runs turns or restores them, and reports in lines of JSON.

It needs only the standard library, because contenders of the project's environment and of the peers' both use it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sqlite3
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from benchmarks.workload import SHAPES, Shape, Turn, turns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WINDOW = 100
"""Turns at the end of a run whose times are reported."""
RESTORES = 5
TELL = 0.2
"""Seconds between two reports of progress."""


class Unable(Exception):
    """A contender cannot do this work; the message says why.

    It is a class of its own, so that no error of a framework is mistaken for it.
    """


class Contender(Protocol):
    """A project that stores a conversation.

    It gets an address (a folder of its own, or the URL of a server with a database of its own) and a shape. It finds
    the turns of its predecessors there.
    """

    async def open(self) -> None: ...

    async def durable(self, turn: Turn) -> None:
        """Run one turn with a model that answers at once. The turn is durable when this returns."""

    async def plain(self, turn: Turn) -> None:
        """Run the same turn with the same framework and history, only in memory.

        The extra time of ``durable`` is the cost of durability. A contender without a framework does nothing here.
        """

    async def restore(self) -> int:
        """Read all that the next turn needs, with new objects. Return the number of messages found."""

    async def close(self) -> None: ...


@runtime_checkable
class Recalling(Protocol):
    """A contender whose ``plain`` needs the history of its predecessors.

    The history is read before a run, untimed. It is not read in ``open``, where the memory of a restore is measured.
    """

    async def recall(self) -> None: ...


@runtime_checkable
class Hub(Protocol):
    """A contender that can run many conversations over the same connections."""

    async def another(self, name: str) -> Contender:
        """Return a new, open conversation. It is not closed separately."""


def main(contenders: Mapping[str, Callable[[str, Shape], Contender]]) -> None:
    """Run the command of a process.

    ``run`` runs the turns from ``first`` to ``last``, ``restore`` reads them, and ``crowd`` runs them in many
    conversations at the same time. If the contender is ``Unable``, the reason is reported.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("contender", choices=contenders)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("--address", required=True)
    parser.add_argument("--shape", choices=SHAPES, default="chat")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=0)
    parser.add_argument("--without-plain", action="store_true", help="skip the turns in memory, to count system calls")
    parser.add_argument("--count", action="store_true", help="count the statements that SQLite executes")
    parser.add_argument("--sessions", type=int, default=1, help="number of sessions in a crowd")
    options = parser.parse_args()
    try:
        asyncio.run(_work(contenders[options.contender], options))
    except Unable as error:
        _tell(unable=str(error))


async def _work(make: Callable[[str, Shape], Contender], options: argparse.Namespace) -> None:
    executed = _trace_sqlite() if options.count else []
    contender = make(options.address, options.shape)
    try:
        await contender.open()
        facts = await WORKS[options.work](contender, options)
    finally:
        await contender.close()  # else threads could keep a failed process alive
    _tell(**facts, peak_kb=_peak(), statements=len(executed))


async def _run(contender: Contender, options: argparse.Namespace) -> dict[str, Any]:
    if isinstance(contender, Recalling) and not options.without_plain:
        await contender.recall()
    durable: list[float] = []
    plain: list[float] = []
    written = 0
    told = time.monotonic()
    for number, turn in enumerate(turns(options.shape, options.first, options.last), options.first):
        before = _written()
        durable.append(await _timed(contender.durable, turn))
        written += _written() - before
        if not options.without_plain:
            plain.append(await _timed(contender.plain, turn))
        if time.monotonic() - told > TELL:
            told = time.monotonic()
            _tell(turn=number + 1)
    return {"durable_ms": durable[-WINDOW:], "plain_ms": plain[-WINDOW:], "written": written}


async def _restore(contender: Contender, _options: argparse.Namespace) -> dict[str, Any]:
    times: list[float] = []
    before, memory, messages = _peak(), 0, 0
    for _ in range(RESTORES):
        began = time.perf_counter()
        messages = await contender.restore()
        times.append((time.perf_counter() - began) * 1e3)
        memory = memory or _peak() - before  # only of the first: memory that it leaves may be reused by the next
    return {"restore_ms": statistics.median(times), "messages": messages, "restore_kb": memory}


async def _crowd(contender: Contender, options: argparse.Namespace) -> dict[str, Any]:
    if not isinstance(contender, Hub):
        raise Unable("it is measured with one conversation in a process only")
    crowd = [await contender.another(f"case-{number}") for number in range(options.sessions)]
    first, *said = turns(options.shape, options.first, options.last)

    async def converse(member: Contender) -> None:
        for turn in said:
            await member.durable(turn)

    await asyncio.gather(*(member.durable(first) for member in crowd))  # it opens connections and builds agents
    began = time.perf_counter()
    await asyncio.gather(*(converse(member) for member in crowd))
    return {"turns": len(said) * len(crowd), "seconds": time.perf_counter() - began}


WORKS = {"run": _run, "restore": _restore, "crowd": _crowd}


async def _timed(work: Callable[[Turn], Any], turn: Turn) -> float:
    began = time.perf_counter()
    await work(turn)
    return (time.perf_counter() - began) * 1e3


def _trace_sqlite() -> list[str]:
    """Count the statements that SQLite executes from now on, in all new connections."""
    executed: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_trace_callback(executed.append)
        return connection

    sqlite3.connect = sqlite3.dbapi2.connect = traced  # type: ignore[assignment]  # whoever opens it, by either name
    return executed


def _written() -> int:
    """Return the bytes that this process has written to files."""
    return _kernel("io", "wchar") or 0


def _peak() -> int:
    """Return the peak memory of this process, in kilobytes."""
    # From Linux: the other figure may include the process that started this one.
    return _kernel("status", "VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _kernel(file: str, name: str) -> int | None:
    """Return a count of the Linux kernel for this process."""
    lines = Path(f"/proc/self/{file}").read_text().splitlines() if sys.platform == "linux" else []
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def _tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)
