"""Compare stores that compress with the same stores that do not: bytes at rest, the time of a turn, and a restore.

Both kinds of text are ones that the dictionary was not made from: random words, as in the other benchmarks, and
sentences of letters, which are natural language. Turns with and without compression take turns, so other load on the
machine hits both.
"""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import redis.asyncio
from autogen_agentchat.agents import AssistantAgent
from tools.servers.shared import store_url

import midturn
from benchmarks.long_session import SEED
from benchmarks.restoring import restore_times
from benchmarks.scripted import instant
from benchmarks.texts import sentences, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


STORES = ("sqlite", "postgres", "redis", "file")
TYPICAL = 700
"""Median number of characters in a text, as in the comparison with others."""
WARM = 20
"""Turns that are not timed."""


def words(size: int, chance: random.Random) -> str:
    """Return random words."""
    return text(size, chance)


def letters(size: int, chance: random.Random) -> str:
    """Return sentences of letters in a random order."""
    found = sentences()
    chance.shuffle(found)
    return " ".join(found)[:size]


TEXTS: dict[str, Callable[[int, random.Random], str]] = {"words": words, "letters": letters}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressingFigures:
    """The figures of one store with one kind of text. Times are medians."""

    store: str
    texts: str
    turns: int
    plain_bytes: float
    """Bytes at rest for each byte of text."""
    bytes: float
    adds: float
    """The same for the second half of the turns, without what is there from the beginning."""
    turn_ratio: float
    """A turn with compression against one without."""
    turn_ms: float
    restore_ratio: float

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return asdict(self)


class _Pair:
    """One conversation in two stores of a kind, of which one compresses."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind, self._folder = kind, folder
        self._said: list[str] = []
        self.urls: dict[str, str] = {}
        for compress in ("none", "zstd"):
            (folder / compress).mkdir()
            url = store_url(kind, folder / compress / "store")
            self.urls[compress] = f"{url}{'&' if '?' in url else '?'}compress={compress}"
        self.times: dict[str, list[float]] = {compress: [] for compress in self.urls}
        self.sizes: dict[str, list[int]] = {compress: [] for compress in self.urls}
        self.raw = [0]
        """Bytes of text so far, beside each size."""

    def build(self) -> AssistantAgent:
        return AssistantAgent("support_agent", model_client=instant(self._answers()))

    def _answers(self) -> Iterator[str]:
        while True:
            yield self._said[1]

    async def run(self, texts: Iterator[tuple[str, str]], turns: int, advance: Callable[[], None]) -> None:
        raw = self.raw[-1]
        async with AsyncExitStack() as stack:
            cases = [
                (compress, (await stack.enter_async_context(midturn.open(url))).session("case-42", self.build))
                for compress, url in self.urls.items()
            ]
            for number, said in enumerate(islice(texts, turns)):
                self._said[:] = said
                raw += sum(len(each.encode()) for each in said)
                for compress, case in cases if number % 2 else reversed(cases):
                    began = time.perf_counter()
                    await case.run(said[0])
                    if number >= min(WARM, turns // 2):
                        self.times[compress].append(time.perf_counter() - began)
                advance()
        self.raw.append(raw)
        for compress, url in self.urls.items():
            self.sizes[compress].append(await size_at_rest(self._kind, url, self._folder / compress))

    async def restore(self, compress: str, turns: int) -> float:
        async with midturn.open(self.urls[compress]) as store:
            return (await restore_times(store, "case-42", self.build, turns)).restore


async def compressing(kind: str, texts: str, turns: int, advance: Callable[[], None]) -> CompressingFigures:
    """Return the figures of one store with one kind of text."""
    chance = random.Random(SEED)
    pairs = (
        (TEXTS[texts](typical_length(chance), chance), TEXTS[texts](typical_length(chance), chance))
        for _ in range(turns)
    )
    folder = Path(tempfile.mkdtemp(prefix="midturn-bench-"))
    pair = _Pair(kind, folder)
    try:
        for half in (turns // 2, turns - turns // 2):
            await pair.run(pairs, half, advance)
        restored = {compress: await pair.restore(compress, turns) for compress in pair.urls}
    finally:
        shutil.rmtree(folder)
    medians = {compress: statistics.median(found) for compress, found in pair.times.items()}
    (_, half, whole), (early, late) = pair.raw, pair.sizes["zstd"]
    return CompressingFigures(
        store=kind,
        texts=texts,
        turns=turns,
        plain_bytes=pair.sizes["none"][1] / whole,
        bytes=late / whole,
        adds=(late - early) / (whole - half),
        turn_ratio=medians["zstd"] / medians["none"],
        turn_ms=medians["zstd"] * 1e3,
        restore_ratio=restored["zstd"] / restored["none"],
    )


def typical_length(chance: random.Random) -> int:
    return min(5_000, max(20, int(chance.lognormvariate(0, 0.8) * TYPICAL)))


async def size_at_rest(kind: str, url: str, folder: Path) -> int:
    """Return the bytes of a store that nobody has open; of Redis, the memory of the session."""
    place, _, options = url.partition("?")
    name = options.partition("&")[0].partition("=")[2]
    if kind == "postgres":
        async with await psycopg.AsyncConnection.connect(place, autocommit=True) as connection:
            query = (
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
                " WHERE relkind = 'r' AND relnamespace = %s::regnamespace"
            )
            [(size,)] = await (await connection.execute(query, (name,))).fetchall()
            return int(size)
    if kind == "redis":
        async with redis.asyncio.Redis.from_url(place) as server:
            return int(await server.memory_usage(f"{name}:{{case-42}}", samples=0) or 0)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
