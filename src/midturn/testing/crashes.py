"""Running an agent or a team with a crash at every point, to compare the outcome with that of an uninterrupted run."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, replace
from inspect import isawaitable
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NoReturn

from midturn.autogen.adapter import AutoGen
from midturn.autogen.messages import conversion
from midturn.errors import InvalidArgument
from midturn.record.codec import is_array, is_object
from midturn.record.readable import readable
from midturn.sessions.opening import Door, OpenStore
from midturn.stores.registry import split_lease
from midturn.stores.sealed.keys import Keys
from midturn.stores.wrapper import wrap
from midturn.testing.crashing_store import Crashed, CrashingStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from midturn.autogen.adapter import Event, TurnResult
    from midturn.framework import Answer, Calls, Input, Outcome, Request
    from midturn.questions import Question
    from midturn.record.codec import Json
    from midturn.record.rows import What
    from midturn.stopping import Stop
    from midturn.store import Store
    from midturn.testing.crashing_store import CrashPoint, When
    from midturn.tools import Declaration

SHOWN = 200
"""Number of characters of a value that a report shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedCall:
    """A call that was repeated after a crash, because the crash left no record of its end."""

    agent: str
    """The name of the agent."""
    kind: What
    name: str | None = None
    """The name of the tool."""
    arguments: str = ""
    """A tool's arguments as JSON, with long texts shortened."""

    def __str__(self) -> str:
        return f"{self.agent}: {f'{self.name}({self.arguments})' if self.name else self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The outcome of a run that crashed at one point and was continued by another process."""

    point: CrashPoint | None
    """The moment of the crash; ``None`` for the second run without one, which shows whether two runs are the same."""
    differences: Sequence[str] = ()
    """The differences from the uninterrupted run, for people to read."""
    repeated: Sequence[RepeatedCall] = ()

    @property
    def same(self) -> bool:
        """Return whether the crash made no difference."""
        return not self.differences

    def __str__(self) -> str:
        point = "without a crash" if self.point is None else f"crash_at({self.point})"
        return "\n".join([point, *(f"    {difference}" for difference in self.differences)])


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """The outcomes of all runs. Its text shows those that differ: ``assert report.same, report``."""

    crashes: Sequence[Crash]

    @property
    def same(self) -> bool:
        """Return whether no crash made a difference."""
        return all(crash.same for crash in self.crashes)

    @property
    def repeated(self) -> Mapping[RepeatedCall, int]:
        """Return how often each call was repeated, over all runs."""
        return Counter(call for crash in self.crashes for call in crash.repeated)

    def __str__(self) -> str:
        wrong = [crash for crash in self.crashes if not crash.same]
        lines = [f"{len(self.crashes)} runs, {len(wrong)} of them not as the uninterrupted one"]
        lines += map(str, wrong)
        lines += [f"made again, {times}x: {call}" for call, times in self.repeated.items()]
        return "\n".join(lines)


async def every_crash(
    build: Any,
    *tasks: Any,
    answer: Callable[[Question], str | Awaitable[str | None] | None] | None = None,
    effects: Callable[[], Any] | None = None,
    reset: Callable[[], Any] | None = None,
    url: str = "memory://",
) -> CrashReport:
    """Run an agent or a team again and again, each time with a crash at another point, and compare the outcomes.

    ``build`` is a factory or a :class:`~midturn.Blueprint`, and each of the ``tasks`` is a turn. The first run has no
    crash. Each other run crashes before or after one of its writes to the store, which are the ends of calls, the
    beginning and the end of turns, and the questions and answers of people. A new agent in a new session object
    continues. The messages, the state and the effects must be those of the first run.

    ``answer`` answers the questions, also about calls in doubt; where it returns ``None``, or if there is no such
    function, a question is a difference. ``effects`` returns what the tools have done, in any form, and ``reset``
    undoes all of it before each run. The functions can be async. The store at ``url`` gets a session for each run;
    transactional tools need ``sqlite:///``.

    Raises:
        InvalidArgument: ``build`` is a live agent or team, there is no task, or nobody answers in the first run.
        Exception: what the first run raised.
    """
    if AutoGen().is_live(build):
        raise InvalidArgument("must be a function that builds a new agent or team each time", path="build")
    if not tasks:
        raise InvalidArgument("give at least one; None runs a turn without a task", path="tasks")
    store = await Door(keys=Keys.in_env()).open(split_lease(url)[0])
    try:
        name = f"every-crash-{token_hex(3)}"
        trials = _Trials(store=store, build=build, tasks=tasks, answer=answer, effects=effects, reset=reset, name=name)
        first = await trials.run(None)
        if first.asked is not None:
            hint = "Give every_crash(..., answer=FUNCTION)."
            raise InvalidArgument(f"nobody answers {first.asked.question!r}", path="answer", hint=hint)
        second = await trials.run(None)
        crashes = [_compared(None, first, second)]
        for number in count(1):
            for when in ("before", "after"):
                tried = await trials.run((number, when))
                if tried.crashed is None:
                    return CrashReport(crashes=tuple(crashes))
                crashes.append(_compared(tried.crashed, first, tried))
    finally:
        await store.close()
    raise AssertionError


@dataclass(slots=True, kw_only=True)
class _Seen:
    """The outcome of a run."""

    crashed: CrashPoint | None = None
    results: list[TurnResult]
    made: Counter[tuple[RepeatedCall, str]]
    state: Json = None
    beside: Json = None
    """The state that AutoGen's own lacks."""
    effects: Any = None
    asked: Question | None = None
    error: Exception | None = None


class _Unanswered(Exception):
    def __init__(self, question: Question) -> None:
        super().__init__(question.question)
        self.question = question


@dataclass(slots=True, kw_only=True)
class _Trials:
    """The runs of one agent or team."""

    store: Store
    build: Any
    tasks: Sequence[Any]
    answer: Callable[[Question], str | Awaitable[str | None] | None] | None
    effects: Callable[[], Any] | None
    reset: Callable[[], Any] | None
    name: str
    runs: int = 0

    async def run(self, at: tuple[int, When] | None) -> _Seen:
        """Run the tasks in a new session, with a crash at a write or without one."""
        if self.reset is not None:
            await _awaited(self.reset())
        self.runs += 1
        session, seen = f"{self.name}-{self.runs}", _Seen(results=[], made=Counter())
        try:
            await self._process(session, seen, at)
            if seen.crashed is not None:
                await self._process(session, seen, None)
        except _Unanswered as unanswered:
            seen.asked = unanswered.question
        except Exception as error:
            if at is None:
                raise
            seen.error = error
        if self.effects is not None:
            seen.effects = deepcopy(await _awaited(self.effects()))
        return seen

    async def _process(self, session: str, seen: _Seen, at: tuple[int, When] | None) -> None:
        """Run the tasks that are left, until the last one ends or the process crashes."""

        def trigger(points: Sequence[CrashPoint], number: int) -> bool:
            return (number, points[0].when) == at

        store = wrap(CrashingStore, self.store, trigger=trigger, closes=False)
        try:
            async with _Process(store, seen.made) as process:
                case = process.session(session, self.build)
                for number in range(len(seen.results), len(self.tasks)):
                    # Delivered with the same key, as a queue or a client does that got no answer.
                    result: TurnResult | None = await case.run(self.tasks[number], key=f"task-{number + 1}")
                    while result is not None and result.waiting is not None:
                        question = result.waiting.questions[0]
                        result = await case.answer(await self._ask(question), question=question.id)
                    if result is not None:  # always: the session has agents
                        seen.results.append(result)
                checkpoint = case.at(seen.results[-1].checkpoint)
                seen.state, seen.beside = await checkpoint.state(), await checkpoint.beside()
        except Crashed:
            seen.crashed = store.crashed

    async def _ask(self, question: Question) -> str:
        given = None if self.answer is None else await _awaited(self.answer(question))
        if given is None:
            raise _Unanswered(question)
        return str(given)


class _Process(OpenStore):
    """The sessions of one process, which count the calls that they make."""

    def __init__(self, store: Store, made: Counter[tuple[RepeatedCall, str]]) -> None:
        super().__init__(store)
        self._made = made

    def _framework(self) -> AutoGen:
        return _Counting(self._made)


class _Counting(AutoGen):
    def __init__(self, made: Counter[tuple[RepeatedCall, str]]) -> None:
        super().__init__()
        self._made = made

    def stream(
        self,
        live: Any,
        given: Input,
        calls: Calls,
        effects: Mapping[str, Declaration],
        stops: Sequence[Stop],
    ) -> AsyncGenerator[Event | Outcome, None]:
        return super().stream(live, given, _CountedCalls(calls, self._made), effects, stops)


class _CountedCalls:
    """The calls of a turn, which counts those that are made and not answered from the record."""

    def __init__(self, calls: Calls, made: Counter[tuple[RepeatedCall, str]]) -> None:
        self._calls = calls
        self._made = made
        self.recording, self.redaction = calls.recording, calls.redaction

    @property
    def replaying(self) -> bool:
        return self._calls.replaying

    async def enter(self) -> None:
        await self._calls.enter()

    async def quiet(self) -> None:
        await self._calls.quiet()

    async def call(self, request: Request, make: Callable[[Any], Awaitable[Answer]]) -> Answer:
        def counted(arguments: Any) -> Awaitable[Answer]:
            text = readable(arguments, brief=True) if request.name else ""
            made = RepeatedCall(agent=request.who, kind=request.what, name=request.name or None, arguments=text)
            self._made[made, f"{request.path} {request.key}"] += 1
            return make(arguments)

        return await self._calls.call(request, counted)

    async def approve(self, request: Request) -> tuple[Any, str | None]:
        return await self._calls.approve(request)

    async def fail(self, error: Exception) -> NoReturn:
        await self._calls.fail(error)

    async def ask(self, request: Request, question: str) -> str:
        return await self._calls.ask(request, question)

    async def look(self, path: str, see: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        return await self._calls.look(path, see)


def _compared(point: CrashPoint | None, first: _Seen, seen: _Seen) -> Crash:
    again = seen.made - first.made
    crash = Crash(point=point, repeated=tuple(call for (call, _), n in again.items() for _ in range(n)))
    return replace(crash, differences=tuple(_differences(first, seen)))


def _differences(first: _Seen, seen: _Seen) -> list[str]:
    if seen.asked is not None:
        hint = " Answer it (answer=), or declare what the tool does to the world." * (seen.asked.kind == "doubt")
        return [f"asks people: {seen.asked.question}{hint}"]
    if seen.error is not None:
        return [f"raises {type(seen.error).__name__}: {seen.error}"]
    parts: list[tuple[str, Any, Any]] = []
    for number, (one, other) in enumerate(zip(first.results, seen.results, strict=True), start=1):
        parts.append((f"turn {number}", _said(one), _said(other)))
    parts.append(("state", _timeless(first.state), _timeless(seen.state)))
    parts.append(("beside", _timeless(first.beside), _timeless(seen.beside)))
    parts.append(("effects", first.effects, seen.effects))
    return [found for path, one, other in parts if (found := _changed(one, other, path))]


def _said(result: TurnResult) -> Json:
    messages = [conversion.identity(conversion.dump(message)) for message in result.messages]
    return {"messages": messages, "stop_reason": result.stop_reason}


def _changed(one: Any, other: Any, path: str) -> str | None:
    """Return the first difference between two values, if there is one, with both of them."""
    if is_object(one) and is_object(other) and one.keys() == other.keys():
        pairs = [(f"{path}.{key}", one[key], other[key]) for key in one]
    elif is_array(one) and is_array(other) and len(one) == len(other):
        pairs = [(f"{path}[{index}]", *pair) for index, pair in enumerate(zip(one, other, strict=True))]
    elif one != other:
        return f"{path} is {_shown(other)}, and without a crash {_shown(one)}"
    else:
        return None
    return next(filter(None, (_changed(left, right, where) for where, left, right in pairs)), None)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _timeless(value: Any) -> Any:
    """Return a state without the ids and times of its messages, which no two runs share."""
    if is_object(value):
        fleeting = ("id", "created_at", "request_id") if "created_at" in value else ("request_id",)
        return {key: _timeless(item) for key, item in value.items() if key not in fleeting}
    return [_timeless(item) for item in value] if is_array(value) else value


async def _awaited(value: Any) -> Any:
    return await value if isawaitable(value) else value
