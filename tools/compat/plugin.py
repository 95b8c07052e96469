"""A pytest plugin that runs the agents and teams of AutoGen's own tests through sessions.

It replaces ``run`` and ``run_stream`` of AutoGen's agents and teams. A call that AutoGen itself makes inside a run
stays plain. ``MIDTURN_COMPAT`` names the mode, and ``MIDTURN_COMPAT_REPORT`` the file for the outcomes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, wraps
from importlib.metadata import version
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import pytest
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.teams import BaseGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.model_context import ChatCompletionContext

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.autogen.calls import interception, recorders
from midturn.autogen.parts.kinds import traits_of
from midturn.autogen.parts.walk import walk
from midturn.record.codec import class_of
from midturn.record.packing import as_json
from midturn.stores.memory import MemoryStore
from midturn.stores.wrapper import wrap
from midturn.testing.crashing_store import Crashed, CrashingStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from midturn.testing.crashing_store import CrashPoint

MODE = os.environ.get("MIDTURN_COMPAT", "plain")
DYING = {"dying before each commit": ("before", {"commit"}), "dying after every call": ("after", None)}
REBUILT = {"rebuilt", "replayed", *DYING}
DECLARED = {'durability="turn"', "dying after every call"}
"""The modes in which each tool counts as declared: without a journal it has to be, and else each death would ask."""
KEPT = {"as is", 'durability="turn"'}
"""The modes in which an object keeps its session from run to run."""
LONGEST = 30.0
"""Seconds after which a turn counts as one that hangs."""

NO_CALLS = {"task", "commit", "failure", "question", "answer"}
"""Writes that are not the end of a call."""

_inside: ContextVar[bool] = ContextVar("inside a run", default=False)
_busy: Counter[int] = Counter()
"""The ``id()`` of each agent and team inside a run: a runtime of the test's own has tasks without the variable."""
_made: list[Any] = []
"""The objects that were rebuilt, kept so that no other object gets their ``id()``."""
_built: dict[int, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}
"""Each object that a test has built, and the arguments."""
deaths = 0


class CannotRebuild(Exception):
    """An object of a test cannot be built a second time."""


@dataclass
class Place:
    """The session and the store of one object."""

    live: Any
    name: str
    store: MemoryStore = field(default_factory=MemoryStore)
    session: Any = None
    left: Any = None
    """The state after the last run. If the object has another one later, the test has changed it."""
    keys: count[int] = field(default_factory=lambda: count(1))


_places: dict[int, Place] = {}


def _place(live: Any) -> Place:
    return _places.setdefault(id(live), Place(live, f"case-{len(_places) + 1}"))


def _options() -> dict[str, Any]:
    return {"durability": "turn"} if MODE == 'durability="turn"' else {}


async def _session(place: Place, store: Any = None) -> Any:
    if place.session is None or MODE not in KEPT:
        what = (lambda: rebuilt(place.live)) if MODE in REBUILT else place.live
        opened = await midturn.open(store=store or place.store).__aenter__()
        place.session = opened.session(place.name, what, **_options())
    return place.session


async def _state(live: Any) -> Any:
    return as_json(await AutoGen().capture(live))


async def _save_changes(place: Place) -> None:
    """Save what the test itself has done to an object since its last run, such as ``reset()``."""
    now = await _state(place.live)
    left = await _state(rebuilt(place.live)) if place.left is None and MODE in REBUILT else place.left
    if left is not None and now != left:
        opened = await midturn.open(store=place.store).__aenter__()
        await opened.session(place.name, place.live).save()


@asynccontextmanager
async def _working(live: Any) -> AsyncGenerator[None]:
    """Let the agents and teams inside an object run plainly."""
    inside = [id(part.live) for part in walk(live) if traits_of(part.live).is_agent_or_team]
    _busy.update(inside)
    try:
        async with asyncio.timeout(LONGEST):
            yield
    finally:
        _busy.subtract(inside)


async def _items(live: Any, options: dict[str, Any], *, streamed: bool) -> AsyncGenerator[Any]:
    """Yield what a session yields, and note the state after the run."""
    place = _place(live)
    if MODE not in KEPT:
        await _save_changes(place)
    try:
        async with aclosing(_run(place, options, streamed=streamed)) as items:
            async for item in items:
                yield item
    finally:
        if MODE not in KEPT:
            place.left = await _state(live)


async def _run(place: Place, options: dict[str, Any], *, streamed: bool) -> AsyncGenerator[Any]:
    """Yield what a session yields, through as many deaths as the mode has."""
    global deaths  # noqa: PLW0603 - a figure for the report
    live, seen = place.live, 0
    item: Any = None
    session: Any = None
    key = f"turn-{next(place.keys)}" if MODE in DYING else None
    framework = AutoGen()
    for attempt in count():
        trigger = partial(_dies, attempt)
        store = wrap(CrashingStore, place.store, trigger=trigger, closes=False) if MODE in DYING else None
        session = await _session(place, store)
        skip, number = seen, 0
        try:
            stream = session.run_stream(key=key, **options) if streamed else _one(session.run(key=key, **options))
            async with aclosing(stream) as items:
                async for item in items:
                    number += 1
                    if number > skip:
                        seen = number
                        yield item
            break
        except Crashed:
            deaths += 1
        finally:
            if store is not None:
                await store.close()
    if MODE in REBUILT:
        tree = {"state": await session.at(item.checkpoint).state(), **await _beside(session, item.checkpoint)}
        await framework.load(live, await framework.fit(live, tree))
    if MODE == "replayed":
        replay = await session.replay(item.turn)
        if not replay.same:
            raise AssertionError(replay.differences)


async def _beside(session: Any, checkpoint: int) -> dict[str, Any]:
    stored = await session.at(checkpoint).read()
    return {name: value for name, value in stored.tree.items() if name != "state"}


async def _one(result: Any) -> AsyncGenerator[Any]:
    yield await result


def _dies(attempt: int, points: Sequence[CrashPoint], _number: int) -> bool:
    when, names = DYING[MODE]
    if attempt and when == "before":
        return False  # it would never come further
    wanted = any(point.write in names if names else _is_a_call(point.write) for point in points)
    return points[0].when == when and wanted


def _is_a_call(name: str) -> bool:
    return name not in NO_CALLS and not name.startswith("start of ")


def rebuilt(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """Return a new object, built with the arguments of the old one; objects that only talk to the world are shared."""
    memo = {} if memo is None else memo
    if id(value) in memo:
        return memo[id(value)]
    cls: Any = class_of(value)
    if cls in (list, tuple):
        return cast("Any", cls(rebuilt(item, memo) for item in value))
    if cls is dict:
        return {name: rebuilt(item, memo) for name, item in value.items()}
    known = _built.get(id(value))
    if known is None or known[0] is not value:
        if traits_of(value).is_agent_or_team:
            raise CannotRebuild(type(value).__name__)
        return value
    _, args, options = known
    made = type(value)(*rebuilt(list(args), memo), **rebuilt(options, memo))
    memo[id(value)] = made
    _busy[id(made)] += 1  # it only ever runs inside a session
    _made.append(made)
    return made


def _plainly(live: Any) -> bool:
    return MODE == "plain" or _inside.get() or _busy[id(live)] > 0


def _through_sessions(cls: type[Any]) -> None:
    run, run_stream = cls.run, cls.run_stream

    @wraps(run)
    async def our_run(self: Any, **options: Any) -> Any:
        if _plainly(self):
            return await run(self, **options)
        token = _inside.set(True)
        try:
            async with _working(self), aclosing(_items(self, options, streamed=False)) as items:
                return [item async for item in items][-1]
        except midturn.TurnFailed as error:
            raise (error.__cause__ or error) from None
        finally:
            _inside.reset(token)

    @wraps(run_stream)
    async def our_stream(self: Any, **options: Any) -> AsyncGenerator[Any]:
        if _plainly(self):
            async with aclosing(run_stream(self, **options)) as plain:
                async for item in plain:
                    yield item
            return
        async with _working(self), aclosing(_items(self, options, streamed=True)) as items:
            while True:
                token = _inside.set(True)
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
                except midturn.TurnFailed as error:
                    raise (error.__cause__ or error) from None
                finally:
                    _inside.reset(token)
                yield item

    cls.run, cls.run_stream = our_run, our_stream


def _remember_arguments(cls: type[Any]) -> None:
    def new(made: type[Any], *args: Any, **options: Any) -> Any:
        live = object.__new__(made)
        _built[id(live)] = (live, args, options)
        return live

    setattr(cls, "__new__", staticmethod(new))  # noqa: B010 - type checkers know it as a method


def pytest_configure() -> None:
    """Replace what the mode replaces."""
    if (wanted := os.environ.get("MIDTURN_COMPAT_VERSION")) not in (None, version("autogen-agentchat")):
        raise pytest.UsageError(f"these are the tests of AutoGen {wanted}, and another one is installed")
    if "anthropic" not in sys.modules:  # its tests need a key, and are skipped without one
        module: Any = ModuleType("autogen_ext.models.anthropic")
        module.AnthropicChatCompletionClient = None
        sys.modules.setdefault(module.__name__, module)
    if MODE in REBUILT:
        for cls in (BaseChatAgent, BaseGroupChat, TerminationCondition, ChatCompletionContext, AgentTool, TeamTool):
            _remember_arguments(cls)
    if MODE in DECLARED:  # as if each tool of the tests were declared
        for module in (interception, recorders):
            module.__dict__["UNSAFE"] = midturn.tool(effect="idempotent")
    if MODE != "plain":
        _through_sessions(BaseChatAgent)
        _through_sessions(BaseGroupChat)


@pytest.fixture(autouse=True)
def _forgotten() -> Any:
    yield
    _places.clear()
    _built.clear()
    _busy.clear()
    _made.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    """Note which test runs now: it may hang."""
    if path := os.environ.get("MIDTURN_COMPAT_REPORT"):
        Path(path).write_text(json.dumps({"hangs": nodeid}))


_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: Any) -> None:
    """Note the outcome of a test."""
    name = report.nodeid.rpartition("/")[2]
    if report.failed:
        _outcomes[name] = "failed"
    elif report.when == "call":
        _outcomes.setdefault(name, report.outcome)
    elif report.skipped:
        _outcomes[name] = "skipped"


def pytest_sessionfinish(session: Any) -> None:
    """Write the outcomes."""
    if (path := os.environ.get("MIDTURN_COMPAT_REPORT")) and not hasattr(session.config, "workerinput"):
        Path(path).write_text(json.dumps({"outcomes": _outcomes, "deaths": deaths}))
