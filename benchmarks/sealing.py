"""Compare sealed stores with the same stores in plain: the time of a turn, a restore, and bytes at rest.

Turns of both take turns, so other load on the machine hits both.
"""

from __future__ import annotations

import random
import secrets
import shutil
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autogen_agentchat.agents import AssistantAgent
from tools.servers.shared import store_url

import midturn
from benchmarks.compressing import WARM, letters, size_at_rest, typical_length
from benchmarks.long_session import SEED
from benchmarks.restoring import restore_times
from benchmarks.scripted import instant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STORES = ("sqlite", "postgres", "redis", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class SealingFigures:
    """The figures of one store. Times are medians."""

    store: str
    turns: int
    plain_ms: float
    """A turn without keys."""
    turn_ratio: float
    """A turn with keys against one without."""
    restore_ratio: float
    plain_bytes: float
    """Bytes at rest for each byte of text."""
    bytes: float

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return asdict(self)


async def sealing(kind: str, turns: int, advance: Callable[[], None]) -> SealingFigures:
    """Return the figures of one store."""
    folder = Path(tempfile.mkdtemp(prefix="midturn-bench-"))
    try:
        return await _figures(kind, turns, folder, advance)
    finally:
        shutil.rmtree(folder)


async def _figures(kind: str, turns: int, folder: Path, advance: Callable[[], None]) -> SealingFigures:
    chance, raw = random.Random(SEED), 0
    keys: dict[str, midturn.Keys | Literal[False]] = {
        "plain": False,
        "sealed": midturn.Keys({"bench": secrets.token_bytes(32)}),
    }
    urls: dict[str, str] = {}
    for form in keys:
        (folder / form).mkdir()
        url = store_url(kind, folder / form / "store")
        urls[form] = f"{url}{'&' if '?' in url else '?'}compress=none"
    times: dict[str, list[float]] = {form: [] for form in keys}
    said = ["", ""]

    def answers() -> Iterator[str]:
        while True:
            yield said[1]

    def build() -> AssistantAgent:
        return AssistantAgent("support_agent", model_client=instant(answers()))

    async with AsyncExitStack() as stack:
        cases = [
            (
                form,
                (await stack.enter_async_context(midturn.open(urls[form], keys=keys[form]))).session("case-42", build),
            )
            for form in keys
        ]
        for number in range(turns):
            said[:] = (letters(typical_length(chance), chance) for _ in range(2))
            raw += sum(len(each.encode()) for each in said)
            for form, case in cases if number % 2 else reversed(cases):
                began = time.perf_counter()
                await case.run(said[0])
                if number >= min(WARM, turns // 2):
                    times[form].append(time.perf_counter() - began)
            advance()
    restored: dict[str, float] = {}
    for form, used in keys.items():
        async with midturn.open(urls[form], keys=used) as store:
            restored[form] = (await restore_times(store, "case-42", build, turns)).restore
    sizes = {form: await size_at_rest(kind, urls[form], folder / form) for form in keys}
    medians = {form: statistics.median(found) for form, found in times.items()}
    return SealingFigures(
        store=kind,
        turns=turns,
        plain_ms=medians["plain"] * 1e3,
        turn_ratio=medians["sealed"] / medians["plain"],
        restore_ratio=restored["sealed"] / restored["plain"],
        plain_bytes=sizes["plain"] / raw,
        bytes=sizes["sealed"] / raw,
    )
