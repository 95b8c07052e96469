"""Measure a team of four: bytes at rest, an early and a late capture, and a restore."""

from __future__ import annotations

import random
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType

import midturn
from benchmarks.restoring import TIMES, restore_times, timed, timed_alone
from benchmarks.scripted import instant
from benchmarks.texts import text
from midturn.autogen.adapter import AutoGen
from midturn.sessions.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from autogen_agentchat.teams import BaseGroupChat

    from midturn.record.head import Head, Write
    from midturn.store import Store

SIZE = 1024
SEED = 7
NAMES = ("reader", "writer", "critic", "editor")
NOTES = 5
"""Memories of ``SIZE`` characters for each agent that has any."""
EARLY = 100
"""The length of the conversation that a late capture is compared with."""
NEAR = 50
"""Captures within this many messages of a length count for it."""
SESSION = "case-42"


@dataclass(frozen=True, slots=True)
class TeamFigures:
    """The figures of one run. Times are medians."""

    team: str
    store: str
    messages: int
    """Messages in the team's thread, including events."""
    turns: int
    raw_bytes: int
    """Bytes of every text, counted once: tasks, answers, memories."""
    stored_bytes: int
    bytes_ratio: float
    early_ms: float
    """Capture and packing of a turn at ``EARLY`` messages."""
    late_ms: float
    growth: float
    ready_growth: float
    """The same growth for the work before each turn."""
    saving_ratio: float
    """A late capture against AutoGen's ``save_state()`` of the same team."""
    restore_ms: float
    loading_ratio: float
    """A restore against AutoGen's ``load_state()`` of the same state in memory."""
    rows_ratio: float
    """A restore against reading all rows of the session and parsing their JSON."""
    own_ratio: float
    """The same without AutoGen's own loading."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Watch(AutoGen):
    """AutoGen, with timers of the work before a turn, and of capture and packing after it."""

    def __init__(self) -> None:
        super().__init__()
        self._capturing = ExitStack()
        self.ready_times: list[float] = []
        self.capture_times: list[float] = []

    async def prepare(self, live: Any) -> list[str]:
        with timed(self.ready_times):
            return await super().prepare(live)

    async def capture(self, live: Any) -> Any:
        self._capturing.enter_context(timed(self.capture_times))
        return await super().capture(live)

    def packed(self) -> None:
        self._capturing.close()


class Watched:
    """A store that reports when a write arrives. By then all packing is done."""

    def __init__(self, store: Store, watch: Watch) -> None:
        self._store, self._watch = store, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, write: Write) -> Head:
        self._watch.packed()
        return await self._store.write(write)


class Texts:
    """The texts of one conversation, and their total length."""

    def __init__(self) -> None:
        self._chance = random.Random(SEED)
        self.bytes = 0

    def __iter__(self) -> Texts:
        return self

    def __next__(self) -> str:
        found = text(SIZE, self._chance)
        self.bytes += len(found.encode())
        return found


def round_robin(texts: Texts) -> Callable[[], BaseGroupChat]:
    return lambda: RoundRobinGroupChat([_agent(name, texts) for name in NAMES], max_turns=len(NAMES))


def with_memories(texts: Texts) -> Callable[[], BaseGroupChat]:
    notes = {
        name: [MemoryContent(content=next(texts), mime_type=MemoryMimeType.TEXT) for _ in range(NOTES)]
        for name in NAMES
    }

    def build() -> BaseGroupChat:
        agents = [_agent(name, texts, [ListMemory(memory_contents=list(notes[name]))]) for name in NAMES]
        return RoundRobinGroupChat([*agents], max_turns=len(NAMES))

    return build


def selector(texts: Texts) -> Callable[[], BaseGroupChat]:
    def build() -> BaseGroupChat:
        agents = [_agent(name, texts) for name in NAMES]
        return SelectorGroupChat([*agents], model_client=instant(cycle(NAMES)), max_turns=len(NAMES))

    return build


TEAMS: dict[str, Callable[[Texts], Callable[[], BaseGroupChat]]] = {
    "round robin": round_robin,
    "+ ListMemory": with_memories,
    "selector": selector,
}


def _agent(name: str, texts: Texts, memory: Sequence[ListMemory] | None = None) -> AssistantAgent:
    return AssistantAgent(name, model_client=instant(texts), description=f"The {name}.", memory=memory)


async def team_state(team: str, kind: str, messages: int, advance: Callable[[int], None]) -> TeamFigures:
    texts, watch = Texts(), Watch()
    build = TEAMS[team](texts)
    built: list[BaseGroupChat] = []

    def remembered() -> BaseGroupChat:
        built.append(build())
        return built[-1]

    with tempfile.TemporaryDirectory(prefix="midturn-bench-") as folder:
        where = Path(folder) / "store"
        url = f"sqlite:///{where}" if kind == "sqlite" else f"file://{where}"
        lengths: list[int] = []
        async with midturn.open(url) as store:
            case = Session(cast("Store", Watched(store.store, watch)), SESSION, remembered, watch)
            async for length in _converse(case, texts, messages + NEAR):
                advance(length - (lengths[-1] if lengths else 0))
                lengths.append(length)
        stored = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        [live] = built
        savings: list[float] = []
        for _ in range(TIMES):
            await timed_alone(live.save_state(), savings)
        async with midturn.open(url) as store:
            times = await restore_times(store, SESSION, build, len(lengths))
    early, late = (_near(watch.capture_times, lengths, length) for length in (EARLY, messages))
    ready = [_near(watch.ready_times, lengths, length) for length in (EARLY, messages)]
    return TeamFigures(
        team=team,
        store=kind,
        messages=lengths[-1],
        turns=len(lengths),
        raw_bytes=texts.bytes,
        stored_bytes=stored,
        bytes_ratio=stored / texts.bytes,
        early_ms=early * 1e3,
        late_ms=late * 1e3,
        growth=late / early,
        ready_growth=ready[1] / ready[0],
        saving_ratio=late / statistics.median(savings),
        restore_ms=times.restore,
        loading_ratio=times.restore / times.loading,
        rows_ratio=times.restore / times.rows,
        own_ratio=times.own / times.rows,
    )


async def _converse(case: Session[Any, Any], texts: Texts, messages: int) -> AsyncGenerator[int, None]:
    """Run turns until the team's thread has this many messages. Return its length after each turn."""
    length = 0
    while length < messages:
        length += len((await case.run(next(texts))).messages)
        yield length


def _near(times: Sequence[float], lengths: Sequence[int], length: int) -> float:
    """Return the median of the times at about this length of the thread."""
    return statistics.median(taken for taken, found in zip(times, lengths, strict=True) if abs(found - length) <= NEAR)
