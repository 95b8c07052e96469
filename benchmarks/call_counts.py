"""Count what one turn does: Python calls inside midturn, changes of module, reads and writes. No clock is involved."""

from __future__ import annotations

import secrets
import sys
import tempfile
import threading
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage

import midturn
from benchmarks.scripted import instant
from midturn.stores.registry import open_store
from midturn.stores.wrapper import StoreWrapper, wrap
from midturn.testing import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
    from types import FrameType

    from midturn.record.head import Head, Kind, Row, Write
    from midturn.sessions.opening import OpenStore

PACKAGE = str(Path(midturn.__file__).parent)
OUTSIDE = (str(Path(PACKAGE) / "testing"), str(Path(PACKAGE) / "stores" / "wrapper.py"))
"""Files of the package that stand for the user's own here: the scripted model, and the wrapper that counts."""
WARM = 20
"""Turns before the one that is counted."""
ANSWERS = (1, 150, 300)
"""The answers inside one turn that are counted, if no others are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFigures:
    """The work of one call of a session, and its budgets."""

    what: str
    calls: int
    calls_budget: int | None = None
    changes: int
    """Calls in another module than the call before them."""
    changes_budget: int | None = None
    body_reads: int
    """Requests to the store for bodies."""
    writes: int

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return asdict(self)


class _Counting(StoreWrapper):
    """Counts reads by kind, and writes."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.done: Counter[str] = Counter()

    async def rows(self, session: str, kind: Kind, *, start: int = 0, stop: int | None = None) -> Sequence[Row]:
        self.done[kind.name] += 1
        return await self.inner.rows(session, kind, start=start, stop=stop)

    async def write(self, write: Write) -> Head:
        self.done["write"] += 1
        return await self.inner.write(write)  # not super(): without counting, there is no wrapper


class _Profile:
    """Notes the file of each Python call inside midturn, in every thread that starts while it is installed."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._on = False

    @contextmanager
    def installed(self) -> Generator[None]:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def counting(self) -> Generator[None]:
        self.files.clear()
        self._on = True
        try:
            yield
        finally:
            self._on = False

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if self._on and event == "call":
            file = frame.f_code.co_filename
            if file.startswith(PACKAGE) and not file.startswith(OUTSIDE):
                self.files.append(file)


class _Counter:
    """A store in SQLite whose sessions are counted."""

    def __init__(self, folder: str, profile: _Profile, *, sealed: bool = False) -> None:
        self._url = f"sqlite:///{Path(folder) / 'store.db'}"
        self._profile = profile
        self._keys: midturn.Keys | Literal[False] = (
            midturn.Keys({"bench": secrets.token_bytes(32)}) if sealed else False
        )

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[OpenStore, _Counting]]:
        """Open the store as a new process would."""
        store = wrap(_Counting, await open_store(self._url))
        async with midturn.open(store=store, keys=self._keys) as opened:
            yield opened, store

    async def count(
        self, what: str, store: _Counting, call: Callable[[], Awaitable[Any]], **budgets: int
    ) -> CallFigures:
        """Return what one call does."""
        store.done.clear()
        with self._profile.counting():
            await call()
        files = self._profile.files
        return CallFigures(
            what=what,
            calls=len(files),
            changes=sum(one != other for one, other in pairwise(files)),
            body_reads=store.done["BODY"],
            writes=store.done["write"],
            **budgets,
        )


async def call_counts(*, sealed: bool = False) -> list[CallFigures]:
    """Return the work of a warm turn, of an answer and of a resumed turn in a new process, and of reading."""
    profile = _Profile()
    with tempfile.TemporaryDirectory(prefix="midturn-bench-") as folder, profile.installed():
        counter = _Counter(folder, profile, sealed=sealed)
        async with counter.opened() as (store, counted):
            case = store.session("case", _chatty)
            for number in range(WARM):
                await case.run(task=f"hello {number}")
            figures = [
                await counter.count(
                    "a warm turn with one model call",
                    counted,
                    lambda: case.run(task="hello again"),
                    calls_budget=900,
                    changes_budget=350,
                )
            ]
            await store.session("asking", _clerk).run(task="a refund, please")
            failing = store.session("failing", _failing)
            try:
                await failing.run(task="a refund, please")
            except midturn.TurnFailed:
                pass
            else:
                raise AssertionError("the model did not fail")
        async with counter.opened() as (store, counted):
            asking, failed = store.session("asking", _clerk), store.session("failing", _chatty)
            reader = store.session("case", _chatty)
            figures += [
                await counter.count(
                    "answer() in a new process", counted, lambda: asking.answer("approve"), calls_budget=2_600
                ),
                await counter.count("resume() in a new process", counted, failed.resume),
                await counter.count("the first turn in a new process", counted, lambda: reader.run(task="hello")),
                await counter.count("turn(n)", counted, lambda: reader.turn(WARM)),
                await counter.count("history(last=5)", counted, lambda: _last_turns(reader)),
            ]
    return [
        replace(each, what=f"{each.what}, sealed", calls_budget=None, changes_budget=None) if sealed else each
        for each in figures
    ]


async def _last_turns(session: midturn.Session[Any, Any]) -> None:
    found = [turn async for turn in session.history(last=5)]
    if len(found) != 5:
        raise AssertionError("the history has other turns")


async def answer_counts(answers: Sequence[int] = ANSWERS) -> list[CallFigures]:
    """Return the work of answers to one long turn: in the process that the turn rests in, and in a new one."""
    profile = _Profile()
    figures: list[CallFigures] = []
    with tempfile.TemporaryDirectory(prefix="midturn-bench-") as folder, profile.installed():
        counter = _Counter(folder, profile)
        async with counter.opened() as (store, counted):
            case = store.session("talk", _talk)
            await case.run(task="hello")
            for number in range(1, answers[-1] + 1):
                if number not in answers:
                    await case.answer("and then?")
                    continue
                what = f"answer {number} of one turn"
                figures.append(await counter.count(what, counted, partial(case.answer, "and then?")))
                if number > 1:
                    other = store.session("talk", _talk)  # it knows as little as another process does
                    what = f"answer {number} of one turn, in a new process"
                    figures.append(await counter.count(what, counted, partial(other.answer, "and then?")))
                    case = other
    return figures


def _talk() -> RoundRobinGroupChat:
    user = UserProxyAgent("user", input_func=midturn.human)
    return RoundRobinGroupChat([AssistantAgent("support", ScriptedModel(lambda _: "tell me more")), user])


def _chatty() -> AssistantAgent:
    return AssistantAgent("support", instant(f"answer {number}" for number in count()))


@midturn.tool(approval=True)
def _refund(order: str) -> str:
    """Refund an order."""
    return f"{order} is refunded"


def _asks(_: Any) -> CreateResult:
    call = FunctionCall(id="1", name="_refund", arguments='{"order": "A1"}')
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    return CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False)


def _clerk() -> AssistantAgent:
    return AssistantAgent("clerk", ScriptedModel(_asks), tools=[_refund])


def _failing() -> AssistantAgent:
    return AssistantAgent("support", instant(map(_fail, count())))


def _fail(_: int) -> str:
    raise RuntimeError("the model is busy")
