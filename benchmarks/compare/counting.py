"""Count the statements of a turn, and how often it waits for the disk."""

from __future__ import annotations

import re
import shutil
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias

import redis

from benchmarks.compare.results import Counts, family
from benchmarks.compare.storage import Database, Instance
from benchmarks.compare.talking import command, talk

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tools.servers import Postgres

    from benchmarks.compare.storage import Storage, Storages
    from benchmarks.workload import Shape

AFTER = 100
TURNS = 20
SECONDS = 120.0
STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]*): ")
CALLS = re.compile(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+).* (?:fsync|fdatasync)$", re.MULTILINE)
END = "midturn-bench-end"

Tally: TypeAlias = dict[str, float | None]


def count(contender: str, shape: Shape, storages: Storages, after: int = AFTER) -> Counts:
    """Return the counts of one turn: the difference between a process with one turn and one with many.

    Raises:
        ContenderFailed: the contender could not run the turns.
    """
    storage = storages.new(contender)
    try:
        _have(contender, shape, storage, 0, after)
        one = _tally(contender, shape, storage, after, after + 1)
        many = _tally(contender, shape, storage, after + 1, after + 2 + TURNS)
    finally:
        storage.close()
    return Counts(**{name: _each(many[name], one[name]) for name in one})


def _each(many: float | None, one: float | None) -> float | None:
    return None if many is None or one is None else (many - one) / TURNS


def _have(contender: str, shape: Shape, storage: Storage, first: int, last: int, *tracer: str) -> float:
    """Run turns, and return the number of statements that SQLite has executed."""
    words = ("--first", first, "--last", last, "--without-plain", "--count")
    told = talk([*tracer, *command(contender, "run", storage.address, shape, *words)], SECONDS)
    return float(told["statements"])


def _tally(contender: str, shape: Shape, storage: Storage, first: int, last: int) -> Tally:
    have = partial(_have, contender, shape, storage, first, last)
    match storage:
        case Database():
            return _of_postgres(storage, have)
        case Instance():
            return _of_redis(storage, have)
        case _:
            fsyncs, statements = _traced(have)
            return {"statements": statements if family(contender) == "sqlite" else None, "fsyncs": fsyncs}


def _traced(have: Callable[..., float]) -> tuple[float | None, float]:
    """Return how often the process waited for the disk, if strace is installed, and its statements."""
    if not (strace := shutil.which("strace")):
        return None, have()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "calls"
        statements = have(strace, "-f", "-c", "-e", "trace=fsync,fdatasync", "-o", str(report))
        return float(sum(int(calls) for calls in CALLS.findall(report.read_text()))), statements


def _of_postgres(storage: Database, have: Callable[..., float]) -> Tally:
    server = storage.server
    server.execute(f"ALTER DATABASE \"{storage.name}\" SET log_statement = 'all'")
    before, synced = len(server.log), _wal_syncs(server)
    have()
    statements = len(STATEMENT.findall(server.log[before:]))
    return {"statements": float(statements), "fsyncs": _wal_syncs(server) - synced}


def _wal_syncs(server: Postgres) -> float:
    if server.version >= 18:
        query = (
            "SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_io WHERE object = 'wal' AND backend_type = 'client backend'"
        )
    else:
        query = "SELECT wal_sync FROM pg_stat_wal"
    [(syncs,)] = server.execute(query)
    return float(syncs)


def _of_redis(storage: Instance, have: Callable[..., float]) -> Tally:
    """Return the counts of a Redis server. Its clients do not wait for the disk."""
    with _monitored(storage) as commands:
        have()
    return {"statements": float(len(commands)), "fsyncs": None}


@contextmanager
def _monitored(storage: Instance) -> Generator[list[str]]:
    """Count the commands of clients meanwhile, with a constant number of commands that end the count."""
    commands: list[str] = []
    client = redis.Redis.from_url(storage.address, socket_timeout=None)

    def listen() -> None:
        for word in monitor.listen():
            if END in word["command"]:
                return
            if word["client_type"] != "lua":  # a script is one command, whatever it does
                commands.append(word["command"])

    with client, client.monitor() as monitor:  # type: ignore[no-untyped-call]  # redis has no types for it
        listener = Thread(target=listen)
        listener.start()
        yield commands
        storage.server.execute("ECHO", END)
        listener.join()
