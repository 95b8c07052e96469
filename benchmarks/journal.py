"""Measure the journal: an append against a bare INSERT, a replay, long contexts, and turns with and without it."""

from __future__ import annotations

import asyncio
import gc
import random
import shutil
import sqlite3
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast
from weakref import WeakValueDictionary

import psycopg
from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage, UserMessage
from tools.servers.shared import store_url

import midturn
from benchmarks.long_session import SEED, SIZE, Watched
from benchmarks.scripted import instant
from benchmarks.texts import text
from midturn.autogen.calls.interception import InterceptedRun
from midturn.autogen.parts import walk as parts
from midturn.framework import Answer, Request
from midturn.journal.divergence import Divergence
from midturn.journal.journal import Journal
from midturn.journal.recorded import Delivery, Recorded
from midturn.lease.ledger import Ledger
from midturn.record.packing import Archive
from midturn.record.rows import Progress
from midturn.stores.memory import MemoryStore
from midturn.stores.registry import open_store
from midturn.testing import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator

    from midturn.store import Store

APPEND_BUDGET = 1.3
REPLAY_BUDGET_MS = 100
STEPS = 100
"""Steps of a replayed turn. Each is one call of a model and one of a tool."""
CONTEXTS = (10, 100, 1000, 5000)
NEW = 50
"""Timed calls for each length of the context. Each call has one message more than the one before."""
TURN_STEPS = (0, 10)
TURNS = 50
TIMES = 5
PAUSE = 0.002
"""Seconds before each write, as after a model's answer. Without a pause, server and disk would still be warm."""
LOG_PAGES = 1000
"""Pages after which SQLite starts to overwrite its log."""
USAGE = RequestUsage(prompt_tokens=1, completion_tokens=1)


@dataclass(frozen=True, slots=True)
class AppendFigures:
    """Recording one call whose answer has ``SIZE`` characters. Times are medians."""

    store: str
    calls: int
    call_ms: float
    """From the call to its durable return. The model itself takes no time."""
    write_ms: float
    """The part of the time that the store takes."""
    bare_ms: float
    """One INSERT of the same bytes, in a transaction of its own, with the same durability."""
    async_ms: float
    """The same without blocking the event loop, for which SQLite's driver needs a thread."""

    def as_dict(self) -> dict[str, Any]:
        ratios = {
            "append_ratio": self.call_ms / self.bare_ms,
            "write_ratio": self.write_ms / self.bare_ms,
            "append_async_ratio": self.call_ms / self.async_ms,
            "write_async_ratio": self.write_ms / self.async_ms,
        }
        return {"what": "append"} | asdict(self) | ratios


@dataclass(frozen=True, slots=True)
class ReplayFigures:
    """Finishing, in another process, a turn that was interrupted before its last call. Times are medians."""

    calls: int
    replay_ms: float
    plain_ms: float
    """AutoGen alone, with a model that answers at once."""
    replay_cpu_ms: float
    plain_cpu_ms: float

    @property
    def own_ms(self) -> float:
        return self.replay_ms - self.plain_ms

    @property
    def own_cpu_ms(self) -> float:
        return self.replay_cpu_ms - self.plain_cpu_ms

    def as_dict(self) -> dict[str, Any]:
        return {"what": "replay"} | asdict(self) | {"own_ms": self.own_ms, "own_cpu_ms": self.own_cpu_ms}


@dataclass(frozen=True, slots=True)
class ContextFigures:
    """A model call with one message more than the last call. Times are medians of processor time."""

    messages: int
    journaled_us: float
    plain_us: float
    hashing_us: float
    """Dumping and hashing the new message alone."""
    growth: float
    """Time of a journaled call, against the shortest context."""

    def as_dict(self) -> dict[str, Any]:
        return {"what": "context"} | asdict(self)


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """Whole turns in SQLite with a model that answers at once. Times are medians."""

    calls: int
    """Calls in one turn."""
    call_ms: float
    turn_ms: float

    def as_dict(self) -> dict[str, Any]:
        ratios = {"ratio": self.call_ms / self.turn_ms, "each_ms": (self.call_ms - self.turn_ms) / self.calls}
        return {"what": "turn"} | asdict(self) | ratios


AnyFigures: TypeAlias = AppendFigures | ReplayFigures | ContextFigures | TurnFigures


class Bare(Protocol):
    async def insert(self, data: bytes) -> None: ...

    async def insert_async(self, data: bytes) -> None: ...

    async def close(self) -> None: ...


class BareSqlite:
    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, body BLOB)")
        for _ in range(LOG_PAGES):  # A growing log is slower than one that is overwritten.
            self._insert(b"-" * SIZE)

    def _insert(self, data: bytes) -> None:
        self._db.execute("INSERT INTO bare (body) VALUES (?)", (data,))

    async def insert(self, data: bytes) -> None:
        self._insert(data)

    async def insert_async(self, data: bytes) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._insert, data)

    async def close(self) -> None:
        self._thread.shutdown()
        self._db.close()


class BarePostgres:
    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> BarePostgres:
        connection = await psycopg.AsyncConnection.connect(url.partition("?")[0], autocommit=True)
        await connection.execute("DROP TABLE IF EXISTS bare_journal")
        await connection.execute(
            "CREATE TABLE bare_journal (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea)"
        )
        return cls(connection)

    async def insert(self, data: bytes) -> None:
        await self._connection.execute("INSERT INTO bare_journal (body) VALUES (%b)", (data,))

    insert_async = insert

    async def close(self) -> None:
        await self._connection.close()


@asynccontextmanager
async def journal(store: Store) -> AsyncGenerator[Journal]:
    """Open the journal of a running turn."""
    ledger = Ledger(store, "case-42")
    await ledger.refresh()
    await ledger.write(status="running", progress=Progress(turn=1, open="running"))
    halt: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    made = Journal(
        ledger,
        Archive(),
        Recorded(),
        delivery=Delivery(born=time.time()),
        halt=halt,
        divergence=Divergence(ledger, Recorded()),
    )
    yield made
    await made.close()
    if halt.done():
        halt.result()


async def appends(kind: str, calls: int, advance: Callable[[], None]) -> AppendFigures:
    chance = random.Random(SEED)
    times: dict[str, list[float]] = {"call": [], "write": [], "bare": [], "async": []}
    with tempfile.TemporaryDirectory(prefix="midturn-bench-") as folder:
        url = store_url(kind, Path(folder) / "store")
        store = Watched(await open_store(url))
        path = Path(folder) / "bare.db"
        bare: Bare = await BarePostgres.open(url) if kind == "postgres" else BareSqlite(path)
        async with journal(cast("Store", store)) as made:
            for number in range(calls):
                value = _said(text(SIZE, chance)).model_dump()

                async def make(_: Any, value: dict[str, Any] = value) -> Answer:
                    return Answer(value=value, native=value)

                request = Request(path="model_client", agent="", what="model", key=f"{number:024x}")
                # In turn, so that other load on the machine hits all of them.
                await asyncio.sleep(PAUSE)
                await _timed(made.call(request, make), times["call"])
                times["write"].append(store.took)
                for which in ("bare", "async") if number % 2 else ("async", "bare"):
                    await asyncio.sleep(PAUSE)
                    await _timed((bare.insert if which == "bare" else bare.insert_async)(store.data), times[which])
                advance()
        await bare.close()
        await store.close()
    call, write, insert, threaded = (statistics.median(found) * 1e3 for found in times.values())
    return AppendFigures(kind, calls, call_ms=call, write_ms=write, bare_ms=insert, async_ms=threaded)


async def replay(advance: Callable[[], None]) -> ReplayFigures:
    """Finish a turn of ``2 * STEPS`` calls that was stopped before its last call."""
    found: dict[str, list[float]] = {"replay": [], "plain": [], "replay cpu": [], "plain cpu": []}
    with tempfile.TemporaryDirectory(prefix="midturn-bench-") as folder:
        made = Path(folder) / "made.db"
        async with midturn.open(f"sqlite:///{made}") as store:
            try:
                await store.session("case-42", lambda: stepping(STEPS, fails=True)).run("go")
            except midturn.TurnFailed:
                pass
            else:
                raise AssertionError
        for number in range(TIMES):
            copy = Path(folder) / f"{number}.db"
            shutil.copy(made, copy)
            async with midturn.open(f"sqlite:///{copy}") as store:
                case = store.session("case-42", lambda: stepping(0))
                with _clocks(found["replay"], found["replay cpu"]):
                    result = await case.resume()
            assert result is not None
            assert result.waiting is None
            with _clocks(found["plain"], found["plain cpu"]):
                plain = await stepping(STEPS).run(task="go")
            assert len(plain.messages) == len(result.messages)
            advance()
    middle = {name: statistics.median(times) * 1e3 for name, times in found.items()}
    return ReplayFigures(2 * STEPS, middle["replay"], middle["plain"], middle["replay cpu"], middle["plain cpu"])


async def contexts(advance: Callable[[], None]) -> list[ContextFigures]:
    """Call a model with longer and longer contexts. Each has one new message since the last call."""
    chance = random.Random(SEED)
    figures: list[ContextFigures] = []
    for length in CONTEXTS:
        times: dict[str, list[float]] = {"journaled": [], "plain": [], "hashing": []}
        context = [UserMessage(content=text(256, chance), source="user") for _ in range(length)]
        client = instant(f"answer {number}" for number in count())
        agent = AssistantAgent("support_agent", model_client=client)
        async with journal(MemoryStore()) as made:
            with InterceptedRun(parts.walk(agent), made, {}, {}, WeakValueDictionary()).installed():
                stand_in = vars(agent)["_model_client"]
                assert stand_in is not client
                await stand_in.create(list(context))
                for _ in range(NEW):
                    context.append(UserMessage(content=text(256, chance), source="user"))
                    with _clocks([], times["journaled"]):
                        await stand_in.create(list(context))
                    with _clocks([], times["plain"]):
                        await client.create(list(context))
                    with _clocks([], times["hashing"]):
                        blake2b(context[-1].model_dump_json().encode()).hexdigest()
        advance()
        journaled, plain, hashing = (statistics.median(found) * 1e6 for found in times.values())
        growth = journaled / figures[0].journaled_us if figures else 1.0
        figures.append(ContextFigures(length, journaled, plain, hashing, growth))
    return figures


async def turns(steps: int, number: int, advance: Callable[[], None]) -> TurnFigures:
    """Run turns of this many steps with and without the journal, one after the other."""
    times: dict[str, list[float]] = {"call": [], "turn": []}

    def build() -> AssistantAgent:
        return stepping(steps, endless=True)

    with tempfile.TemporaryDirectory(prefix="midturn-bench-") as folder:
        async with (
            midturn.open(f"sqlite:///{Path(folder) / 'call.db'}") as one,
            midturn.open(f"sqlite:///{Path(folder) / 'turn.db'}") as other,
        ):
            cases = {
                "call": one.session("case-42", build),
                "turn": other.session("case-42", build, durability="turn"),
            }
            for _ in range(number):
                for name, case in cases.items():
                    await _timed(case.run("go"), times[name])
                advance()
    call, turn = (statistics.median(times[name]) * 1e3 for name in ("call", "turn"))
    return TurnFigures(calls=2 * steps + 1, call_ms=call, turn_ms=turn)


def stepping(steps: int, *, fails: bool = False, endless: bool = False) -> AssistantAgent:
    """Return an agent that calls its model and a tool this many times in a turn, and then answers."""

    def answers() -> Iterator[CreateResult]:
        while True:
            for number in range(steps):
                call = FunctionCall(id=str(number), name="step", arguments=f'{{"number": {number}}}')
                yield CreateResult(finish_reason="function_calls", content=[call], usage=USAGE, cached=False)
            if fails:
                raise ConnectionError("the model is out of reach")
            yield _said("done")
            if not endless:
                return

    async def step(number: int) -> str:
        """Take a step."""
        return f"step {number} is taken"

    served = answers()
    client = ScriptedModel(lambda _: next(served))
    return AssistantAgent("walker", client, tools=[step], max_tool_iterations=STEPS + 1)


def _said(content: str) -> CreateResult:
    return CreateResult(finish_reason="stop", content=content, usage=USAGE, cached=False)


async def _timed(work: Awaitable[object], times: list[float]) -> None:
    began = time.perf_counter()
    await work
    times.append(time.perf_counter() - began)


@contextmanager
def _clocks(wall: list[float], cpu: list[float]) -> Generator[None]:
    """Append the time and the processor time of the block to the lists, without garbage collection."""
    gc.collect()
    gc.disable()
    began, worked = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        cpu.append(time.process_time() - worked)
        wall.append(time.perf_counter() - began)
        gc.enable()
