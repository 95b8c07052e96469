"""Open the page on a long session and on many sessions: the records that it reads, and the time that it takes."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from autogen_agentchat.agents import AssistantAgent
from tools.servers.shared import store_url

import midturn
from benchmarks.finding import FILL
from benchmarks.scripted import instant
from midturn.stores.registry import open_store
from midturn.stores.wrapper import StoreWrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from midturn.record.head import Head, Kind, Row

STORES = ("sqlite", "postgres", "redis")
TIMES = 7
"""Number of times that a page is opened."""
TOKEN = "bench"  # noqa: S105 - the benchmark's own


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFigures:
    """The figures of one page."""

    store: str
    page: str
    heads: int
    turns: int
    bodies: int
    kilobytes: float
    ms: float
    """Median, from the request to the whole answer."""

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return asdict(self)


class Reads(StoreWrapper):
    """A store that counts the records that it returns."""

    returned: Counter[str]

    async def rows(self, session: str, kind: Kind, **limits: Any) -> Sequence[Row]:
        found = await super().rows(session, kind, **limits)
        self.returned[kind.name] += len(found)
        return found

    async def heads(self, **limits: Any) -> Sequence[Head]:
        found = await super().heads(**limits)
        self.returned["HEAD"] += len(found)
        return found

    async def head(self, session: str) -> Head | None:
        self.returned["HEAD"] += 1
        return await super().head(session)


async def long_case(url: str, turns: int, advance: Callable[[], None]) -> None:
    """Make a session of so many turns."""
    words = (f"Answer {number}. " * 8 for number in range(turns))
    async with midturn.open(url) as store:
        case = store.session("long", lambda: AssistantAgent("support_agent", instant(words)))
        for number in range(turns):
            await case.run(task=f"Question {number}. " * 8)
            advance()


async def pages(kind: str, turns: int, sessions: int, advance: Callable[[], None]) -> list[PageFigures]:
    """Return the figures for one store with a session of so many turns, and so many other sessions."""
    folder = Path(tempfile.mkdtemp(prefix="midturn-bench-"))
    try:
        url = store_url(kind, folder / "store")
        async with midturn.open(url) as store:
            await FILL[kind](store.store, url, sessions, lambda _: None)
        await long_case(url, turns, advance)
        reads = Reads(await open_store(url))
        async with midturn.open(store=reads) as store:
            transport = httpx.ASGITransport(midturn.asgi(store, token=TOKEN))
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
                named = {f"a session of {turns:,} turns": "/s/long", f"the list of {sessions + 1:,} sessions": "/"}
                return [await _opened(kind, name, client, path, reads) for name, path in named.items()]
    finally:
        shutil.rmtree(folder)


async def _opened(kind: str, name: str, client: httpx.AsyncClient, path: str, reads: Reads) -> PageFigures:
    times: list[float] = []
    size = 0
    for _ in range(TIMES):
        reads.returned = Counter()
        began = time.perf_counter()
        answer = (await client.get(path)).raise_for_status()
        times.append(time.perf_counter() - began)
        size = len(answer.content)
    return PageFigures(
        store=kind,
        page=name,
        heads=reads.returned["HEAD"],
        turns=reads.returned["TURN"],
        bodies=reads.returned["BODY"],
        kilobytes=size / 1e3,
        ms=statistics.median(times) * 1e3,
    )
