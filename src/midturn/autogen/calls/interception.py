"""Send every call of an agent or team through the journal during a run.

During the run, stand-ins replace the clients, workbenches, memories, executors and human inputs in all parts. After the
run, the real objects are put back.
"""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from autogen_agentchat.agents import ApprovalResponse, AssistantAgent, CodeExecutorAgent, UserProxyAgent
from autogen_agentchat.conditions import TimeoutTermination
from autogen_core.memory import Memory
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import FunctionTool, StaticWorkbench, Workbench

from midturn.autogen import private
from midturn.autogen.calls.guard import Exited, in_thread, watched
from midturn.autogen.calls.recorders import (
    CODE,
    UNSAFE,
    ClientRecorder,
    CodeRecorder,
    HumanRecorder,
    MemoryRecorder,
    ToolRecorder,
)
from midturn.autogen.calls.request_keys import Digests, called, tool_key
from midturn.autogen.calls.stand_ins import NESTED, is_recorded, may_be_called, put_back, stand_in, without_stand_ins
from midturn.autogen.messages import conversion, texts
from midturn.autogen.parts.abilities import HELD, kind_of, may_call_tools
from midturn.autogen.parts.children import DEPTH, MANY, TOOL_FUNCTION, join, parts_in
from midturn.autogen.parts.kinds import traits
from midturn.autogen.parts.proxy import ProxyType
from midturn.autogen.parts.walk import Part, teams, walk
from midturn.autogen.state.kept import kept
from midturn.errors import InvalidArgument, NotRecorded, RedactionFailed
from midturn.framework import Outcome
from midturn.record.codec import class_of
from midturn.record.readable import readable_call
from midturn.redaction import Where
from midturn.tools import human, marked, needs_journal, without_partials

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
    from weakref import WeakValueDictionary

    from autogen_core import FunctionCall

    from midturn.autogen.state.kept import Kept
    from midturn.framework import Calls
    from midturn.redaction import Clean
    from midturn.tools import Declaration

T = TypeVar("T")

_log = logging.getLogger(__name__)


SPECIAL = (private.INPUT, private.INPUT_IS_ASYNC, private.APPROVAL, private.APPROVAL_IS_ASYNC, *HELD)
"""The attributes of agents that hold the functions which ask people, and those that hold what other agents call."""

LONGEST = 10.0
"""Seconds that a failing agent waits for what others have said: an agent of a user may talk for ever."""

PIECE = 100
"""Number of calls in a model's answer after which other work may run."""

_WARNED: WeakSet[type[Any]] = WeakSet()

_CHANGED: dict[int, InterceptedRun] = {}
"""The run of each part that has stand-ins now, by the part's ``id()``: two sessions cannot run one agent at once."""


def known_function(function: Any) -> Any:
    """Wrap the function of a tool. A function that is not async runs in a thread, which can then read the current call.

    If the function calls ``sys.exit()``, the turn fails. The process continues, because it may run other sessions.
    """
    is_async = iscoroutinefunction(function)

    @wraps(function)
    async def call(*args: Any, **options: Any) -> Any:
        try:
            return await (function(*args, **options) if is_async else in_thread(function, *args, **options))
        except SystemExit as error:
            raise Exited(error) from error

    setattr(call, TOOL_FUNCTION, function)
    return call


class InterceptedRun:
    """A run of an agent or a team whose calls go through the journal."""

    def __init__(
        self,
        parts: Sequence[Part],
        calls: Calls,
        declared: Mapping[str, Declaration],
        digests: dict[str, Digests],
        stand_ins: WeakValueDictionary[str, Any],
    ) -> None:
        self.calls = calls
        self.effects = declared
        self.redaction = calls.redaction
        self.live = parts[0].live
        self.handling: set[asyncio.Task[Any]] = set()
        """The tasks in which the members of teams handle messages. A runtime of the user's own has other tasks, too."""
        self.mark = object()
        """The mark of the run's own tasks."""
        self.resting: Any = None
        """The driver of the run, while the run rests."""
        self.ended = False
        """True if the members of teams handle no message any more."""
        self._parts = parts
        self._digests = digests
        self._stand_ins = stand_ins
        self._workbenches: dict[str, list[Workbench]] = {}
        self.schemas: dict[tuple[str, str], Any] = {}
        """The schemas of tools that only a server knows, by the path of the workbench and the name of the tool."""
        self.listed: set[tuple[str, str]] = set()
        """The tools that only a server knows, each with the agent that has listed it."""
        self._runners = {id(part.live) for part in parts if traits(class_of(part.live)).is_agent_or_team}
        self._clocks = [part.live for part in parts if isinstance(part.live, TimeoutTermination)]
        self._heard: dict[int, Sequence[Any]] = {}
        """The last messages to the agents that stand for humans, by the ``id()`` of the agent."""

    @contextmanager
    def installed(self) -> Generator[None]:
        """Replace all objects that are called by stand-ins, and put the real objects back at the end."""
        done: list[tuple[Any, str, Any, Any]] = []
        members: list[Callable[[], None]] = []
        try:
            for part in self._parts:
                if isinstance(part.live, FunctionTool):
                    private.let_know_its_call(part.live, known_function, TOOL_FUNCTION)
                for attribute, value in _attributes(part.live):
                    changed = self._changed(part, attribute, value)
                    if changed is not value:
                        self._take(part, {id(owner) for owner, *_ in done})
                        done.append((part.live, attribute, value, changed))
                        vars(part.live)[attribute] = changed  # without the owner's __setattr__(), as it was read
                if isinstance(part.live, UserProxyAgent):
                    self._listen(part.live)
                if isinstance(part.live, AssistantAgent):
                    private.watch_tool_calls(part.live, self._watch)
            for member in [each for team in teams(self._parts) for each in private.containers(team).values()]:
                members += [self._watch_member(member), private.hold_errors(member, partial(self._arrive, member))]
            self._check_names()
            self._check_effects()
            yield
        except BaseException:
            self.forget_stand_ins()
            raise
        finally:
            self._restore(done)
            for leave in members:
                leave()

    def forget_stand_ins(self) -> None:
        """Use no stand-in again: a task that did not end must not make calls in the next run."""
        self._stand_ins.clear()

    def resting_rivals(self) -> list[Any]:
        """Return the drivers of the resting runs that use parts of this one."""
        found = {_CHANGED[id(part.live)] for part in self._parts if id(part.live) in _CHANGED}
        return [run.resting for run in found if run.resting is not None]

    def _restore(self, done: list[tuple[Any, str, Any, Any]]) -> None:
        """Put the real objects back."""
        for owner, attribute, value, changed in reversed(done):
            put_back(owner, attribute, value, changed)
            _CHANGED.pop(id(owner), None)
        for part in self._parts:
            for attribute, value in _attributes(part.live):
                if class_of(class_of(value)) is ProxyType:  # the part itself has put a stand-in there
                    vars(part.live)[attribute] = without_stand_ins(value)
            if isinstance(part.live, UserProxyAgent):
                vars(part.live).pop("on_messages_stream", None)
            if isinstance(part.live, AssistantAgent):
                private.leave_tool_calls(part.live)

    def _watch(self, work: Awaitable[Any], token: Any) -> Awaitable[Any]:
        """Await work in a task of AutoGen whose CancelledError would get lost."""
        return watched(work, token, self.calls)

    def _watch_member(self, member: Any) -> Callable[[], None]:
        """Watch how an agent of a team, or the team's manager, handles its messages: the team waits for it.

        Return a function that ends the watch.
        """
        real = member.on_message_impl

        async def on_message_impl(message: Any, ctx: Any) -> Any:
            if self.ended:  # the runtime of a user still has messages of this run
                return None
            if (task := asyncio.current_task()) is not None:
                self.handling.add(task)
                task.add_done_callback(self.handling.discard)
            if self.redaction is None:
                return await self._watch(real(message, ctx), ctx.cancellation_token)
            return await self._watch(self._told(real(message, ctx)), ctx.cancellation_token)

        return private.replace_method(member, "on_message_impl", on_message_impl)

    async def _told(self, work: Awaitable[Any]) -> Any:
        """Await the work of a member of a team. AutoGen logs its error, so the error gets its text redacted."""
        try:
            return await work
        except Exception as error:  # noqa: BLE001 - it is raised again
            caught: BaseException = error
        caught = await self.without_secrets(caught)
        raise caught

    async def without_secrets(self, error: BaseException, agent: str = "") -> BaseException:
        """Return the error that an agent gets, and that others may see."""
        if self.redaction is None:
            return error
        try:
            return await self.redaction.error(error, agent)
        except RedactionFailed as failed:
            await self.calls.fail(failed)

    async def shown(self, told: Any) -> Any:
        """Return an event or the outcome of the run with its texts redacted. A text that agents got stays."""
        if not isinstance(told, Outcome):
            before = conversion.dump(told)
            after = await self._redacted(before)
            return told if after == before else conversion.load(self.live, [after], "event")[0]
        messages = [await self._redacted(message) for message in told.messages]
        [stop_reason] = await self._own(lambda clean: [told.stop_reason and clean(told.stop_reason)], "")
        if messages == told.messages and stop_reason == told.stop_reason:
            return told
        return replace(told, messages=messages, stop_reason=stop_reason, native=None)

    async def _redacted(self, message: Any) -> Any:
        return await self._own(lambda clean: texts.message(message, clean), str(message.get("source", "")))

    async def _own(self, walk: Callable[[Clean], T], agent: str) -> T:
        if self.redaction is None:
            raise AssertionError
        return await self.redaction.own(walk, Where(kind="agent", agent=agent))

    async def _arrive(self, member: Any, error: Any) -> None:
        """Wait until all that was said has arrived at the manager of the member's team; redact the member's error."""
        if self.redaction is not None:
            error.error_message = await self.redaction.described(error.error_message)
            error.traceback = await self.redaction.described(error.traceback or "")
        until = time.monotonic() + LONGEST
        while True:
            await self.calls.quiet()
            if not member.runtime.unprocessed_messages_count or time.monotonic() > until:
                return

    def _take(self, part: Part, mine: set[int]) -> None:
        """Reserve a part for this run.

        Raises:
            InvalidArgument: another run uses the part.
        """
        if id(part.live) in _CHANGED.keys() - mine:
            raise InvalidArgument(
                "is in use by another running session; build a new one for each session", path=part.path or "what"
            )
        _CHANGED[id(part.live)] = self

    def _check_names(self) -> None:
        """Check that each declared effect names a tool: otherwise, a wrong name would be ignored in silence."""
        benches = [bench for each in self._workbenches.values() for bench in each]
        if all(isinstance(bench, StaticWorkbench) for bench in benches):
            for name in self.effects.keys() - {CODE}:
                if not any(private.find_tool(bench, name) for bench in benches):
                    text = "the blueprint declares an effect of %r, but there is no tool of that name"
                    if self.effects[name].approval:  # the tool that was meant would be called without approval
                        raise InvalidArgument(text % name, path="effects")
                    _log.warning(text, name)

    def _check_effects(self) -> None:
        """Check that no known tool needs a journal. A tool that only a server knows is checked when it is called."""
        if self.calls.recording:
            return
        for bench in (bench for each in self._workbenches.values() for bench in each):
            for name in private.tool_names(bench) if isinstance(bench, StaticWorkbench) else ():
                declared = self.declared(bench, name)
                error = needs_journal(name, declared.effect, approval=declared.approval)
                if error is not None and not private.runs_a_task(bench, name):
                    raise error

    def _changed(self, part: Part, attribute: str, value: Any) -> Any:
        """Return a value with stand-ins in it; the value itself, if it holds no object that is called."""
        if attribute in private.NOT_WALKED:
            return value
        if attribute in (private.INPUT, private.INPUT_IS_ASYNC) and isinstance(part.live, UserProxyAgent):
            return attribute == private.INPUT_IS_ASYNC or self._input(part, value)
        if attribute in (private.APPROVAL, private.APPROVAL_IS_ASYNC) and _asks_first(part.live):
            return attribute == private.APPROVAL_IS_ASYNC or self._approval(part, value)
        cls, changed = class_of(value), self._with_stand_ins(part, attribute, attribute.lstrip("_"), value)
        if changed is value and attribute in HELD and issubclass(cls, Sequence) and cls not in NESTED:
            return self._with_stand_ins(part, attribute, attribute.lstrip("_"), list(value))
        return changed

    def _with_stand_ins(self, part: Part, attribute: str, name: str, value: Any, depth: int = DEPTH) -> Any:
        cls = class_of(value)
        if cls not in NESTED:
            return self._stand_in(part, attribute, name, value)
        if not depth or len(value) > MANY:
            return value
        if cls is dict:
            found = {
                key: self._with_stand_ins(part, attribute, f"{name}/{key}", item, depth - 1)
                for key, item in value.items()
            }
            return value if all(found[key] is value[key] for key in found) else found
        items: list[Any] | tuple[Any, ...] = value
        if attribute not in HELD and not any(map(may_be_called, map(class_of, items))):
            return items
        named = [f"{name}#{i + 1}" if i else name for i in range(len(items))]
        changed = [self._with_stand_ins(part, attribute, *each, depth - 1) for each in zip(named, items, strict=True)]
        return items if all(a is b for a, b in zip(changed, items, strict=True)) else type(items)(changed)

    def _stand_in(self, part: Part, attribute: str, name: str, value: Any) -> Any:
        """Return a stand-in for an object that is called; any other value as it is."""
        cls, path = class_of(value), join(part.path, name)
        kind = kind_of(value, attribute) if is_recorded(cls) else None
        if kind is None:
            if may_call_tools(cls) and traits(class_of(part.live)).is_agent_or_team:
                _warn(cls, path)
            return value
        if kind is ChatCompletionClient and isinstance(part.live, Workbench):
            return value  # its tools use the client, perhaps after the run; the calls of the tools are recorded
        made = stand_in(value, kind, self._site(kind, part, path, value), self._stand_ins.get(path))
        self._stand_ins[path] = made
        return made

    def _site(self, kind: type[Any], part: Part, path: str, value: Any) -> Any:
        where: dict[str, Any] = {"run": self, "path": path, "agent": part.path, "who": _name(part)}
        if kind is ChatCompletionClient:
            return ClientRecorder(**where, digests=self._digests.setdefault(path, Digests()))
        if kind is Workbench:
            self._workbenches.setdefault(part.path, []).append(value)
            return ToolRecorder(**where, workbench=value)
        return MemoryRecorder(**where, memory=value) if kind is Memory else CodeRecorder(**where, executor=value)

    # People.

    def _listen(self, agent: UserProxyAgent) -> None:
        """Remember the messages to an agent that stands for a human: the last message is the question."""
        real: Any = agent.on_messages_stream

        async def on_messages_stream(messages: Sequence[Any], token: Any) -> AsyncGenerator[Any, None]:
            self._heard[id(agent)] = messages
            async for item in real(messages, token):
                yield item

        agent.on_messages_stream = on_messages_stream  # type: ignore[method-assign, assignment]  # during the run

    def _input(self, part: Part, real: Any) -> Any:
        """Return the function that asks a human for an agent."""
        agent, recorder = part.live, self._asker(part, "input_func")

        async def ask(prompt: str, token: Any = None) -> Any:
            heard = self._heard.get(id(agent))
            question = heard[-1].to_text() if heard else prompt
            if without_partials(real) is human:
                return await recorder.ask(question)

            async def hear() -> Any:
                if iscoroutinefunction(real) or iscoroutinefunction(getattr(real, "__call__", None)):  # noqa: B004 - its type counts
                    return await real(prompt, token)
                return await in_thread(real, prompt)

            return await recorder.hear(question, hear, str, real)

        return ask

    def _asker(self, part: Part, function: str) -> HumanRecorder:
        return HumanRecorder(run=self, path=join(part.path, function), agent=part.path, who=_name(part))

    def _approval(self, part: Part, real: Any) -> Any:
        """Return the function that asks whether code may be executed."""
        recorder = self._asker(part, "approval_func")

        async def ask(request: Any) -> Any:
            async def hear() -> Any:
                said = real(request)
                return await said if isawaitable(said) else said

            return await recorder.hear(request.code, hear, ApprovalResponse.model_validate_json, real)

        return ask

    # Tools.

    def declared(self, workbench: Workbench, name: str) -> Declaration:
        """Return the declaration of a tool's effect, from the blueprint or from the tool itself."""
        if name in self.effects:
            return self.effects[name]
        mark = marked(private.find_tool(workbench, name)) or marked(private.function_of(workbench, name))
        return mark or UNSAFE

    async def starts(self, agent: str, calls: Sequence[FunctionCall]) -> list[str]:
        """Return the calls of a model that start at once and must not be repeated, each with its key."""
        found: list[str] = []
        begins: dict[str, bool] = {}
        for number, call in enumerate(calls, start=1):
            if number % PIECE == 0:
                await asyncio.sleep(0)
            arguments = called(call)
            if arguments is not None and call.name not in begins:
                begins[call.name] = any(
                    self._begins(agent, each, call.name) for each in self._workbenches.get(agent, ())
                )
            if arguments is not None and begins[call.name]:
                found.append(
                    f"{tool_key(agent, call.name, arguments)} {readable_call(call.name, arguments, brief=True)}"
                )
        return found

    def _begins(self, agent: str, workbench: Workbench, name: str) -> bool:
        is_static = isinstance(workbench, StaticWorkbench)
        known = private.find_tool(workbench, name) is not None if is_static else (agent, name) in self.listed
        if not known:  # AutoGen tells the model that there is no such tool
            return False
        declared = self.declared(workbench, name)
        return not private.runs_a_task(workbench, name) and declared.effect == "unsafe" and not declared.approval

    def kept_by(self, value: Any) -> list[Kept]:
        """Return the keepers of the objects that a tool or a function uses, without the agents and teams of the run."""
        found: list[Part] = []
        for name, root in () if value is None else parts_in(value):
            inside = walk(root, without=self._runners)
            found += [replace(part, path=join(join("in", name), part.path)) for part in inside]
        return [keep for part in found for keep in kept(part)]

    def pass_time(self, spent: float) -> None:
        """Set the team's clocks to the time when a recorded call was complete."""
        for clock in self._clocks:
            private.set_elapsed(clock, spent)


def _name(part: Part) -> str:
    """Return the name of the agent that a part is."""
    return str(getattr(part.live, "name", ""))


def _attributes(live: Any) -> list[tuple[str, Any]]:
    """Return the attributes of a part that may hold objects which are called."""
    kind = traits(class_of(live))
    if not kind.has_parts or kind.is_only_able:  # the calls of the part itself are recorded
        return []
    named = SPECIAL if isinstance(live, UserProxyAgent | CodeExecutorAgent) else HELD
    return [
        item
        for item in vars(live).items()
        if may_be_called(class_of(item[1])) or (item[0] in named and item[1] is not None)
    ]


def _warn(cls: Any, path: str) -> None:
    """Warn about an object that calls tools, once for each class."""
    if cls not in _WARNED:
        _WARNED.add(cls)
        warnings.warn(
            f"{path} is a {cls.__name__}, and the calls of tools through it are not recorded: a crash would repeat "
            "them. Make it a subclass of autogen_core.tools.Workbench, or wrap its tools in tools of the agent",
            NotRecorded,
            stacklevel=2,
        )


def _asks_first(live: Any) -> bool:
    return isinstance(live, CodeExecutorAgent) and private.asks_first(live)
