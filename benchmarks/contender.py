"""One contender in a process of its own: it has turns, or restores what it has; it tells as lines of JSON.

Stands on the standard library alone: the contenders of the project's environment and those of the peers' both use it.
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
"""Turns at the end of a run whose times are told."""
RESTORES = 5
TELL = 0.2
"""Seconds between two words on how far it is."""


class Unable(Exception):
    """A contender cannot do such work; the message says why.

    A class of its own, so that no error of a framework is taken for it.
    """


class Contender(Protocol):
    """Somebody who keeps a conversation.

    It is made with an address (a folder of its own, or the URL of a server with a database of its own) and a shape, and
    finds there what its predecessors have left.
    """

    async def open(self) -> None: ...

    async def durable(self, turn: Turn) -> None:
        """One turn with a model that answers at once, kept safely when this returns."""

    async def plain(self, turn: Turn) -> None:
        """The same turn by the same framework with the same history, kept in memory alone.

        What ``durable`` takes longer is what keeping it costs. Somebody without a framework does nothing here.
        """

    async def restore(self) -> int:
        """Read all that the next turn needs, with new objects; how many messages it found."""

    async def close(self) -> None: ...


@runtime_checkable
class Recalling(Protocol):
    """A contender whose ``plain`` needs the history that its predecessors have left.

    It is read before a run, untimed, and not in ``open``: the memory that a restore takes is measured from there.
    """

    async def recall(self) -> None: ...


@runtime_checkable
class Hub(Protocol):
    """A contender that can have many conversations over the same connections."""

    async def another(self, name: str) -> Contender:
        """A new one, open; it is not closed apart."""


def main(contenders: Mapping[str, Callable[[str, Shape], Contender]]) -> None:
    """The command of a process.

    ``run`` has the turns from ``first`` to ``last``, ``restore`` reads them, ``crowd`` has them in many conversations
    at the same time.

    Why somebody is ``Unable`` is told.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("contender", choices=contenders)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("--address", required=True)
    parser.add_argument("--shape", choices=SHAPES, default="chat")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=0)
    parser.add_argument("--without-plain", action="store_true", help="for runs in which system calls are counted")
    parser.add_argument("--count", action="store_true", help="count the statements that SQLite executes")
    parser.add_argument("--sessions", type=int, default=1, help="of a crowd")
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
        await contender.close()  # else the threads of some would keep a process that failed
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
        memory = memory or _peak() - before  # the first one's: what it leaves behind may still be there in the next
    return {"restore_ms": statistics.median(times), "messages": messages, "restore_kb": memory}


async def _crowd(contender: Contender, options: argparse.Namespace) -> dict[str, Any]:
    if not isinstance(contender, Hub):
        raise Unable("one conversation in a process is all that is measured of it")
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
    """The statements that SQLite executes from now on, in all connections that are opened from now on."""
    executed: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_trace_callback(executed.append)
        return connection

    sqlite3.connect = sqlite3.dbapi2.connect = traced  # type: ignore[assignment]  # whoever opens it, by either name
    return executed


def _written() -> int:
    """Bytes that this process has given to write calls, which are those to files."""
    return _kernel("io", "wchar") or 0


def _peak() -> int:
    """The most memory that this process has had, in kilobytes."""
    # Where Linux has it: the other one may be that of the process which has started this one.
    return _kernel("status", "VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _kernel(file: str, name: str) -> int | None:
    """What the kernel has counted of this process, where it is Linux."""
    lines = Path(f"/proc/self/{file}").read_text().splitlines() if sys.platform == "linux" else []
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def _tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)
