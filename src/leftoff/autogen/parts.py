"""What an agent or a team is made of: everything in it that can hold state, each by a path of names.

Components are found by looking through the attributes of what holds them, so one that AutoGen's own ``save_state()``
passes over is found like any other, in AutoGen's classes and in a user's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from inspect import iscoroutinefunction
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent
from autogen_agentchat.base import ChatAgent, Team, TerminationCondition
from autogen_agentchat.teams import BaseGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import AgentRuntime, SingleThreadedAgentRuntime
from autogen_core.code_executor import CodeExecutor
from autogen_core.memory import ListMemory, Memory
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.tools import BaseTool, Workbench

from leftoff.autogen import private

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KNOWN_CONTEXTS = (
    BufferedChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
"""Contexts that never change a message they hold, and hold nothing else. A subclass may."""

COMPONENTS: tuple[type[Any], ...] = (
    BaseTool,
    ChatAgent,
    ChatCompletionContext,
    CodeExecutor,
    Memory,
    Team,
    TerminationCondition,
    Workbench,
)

HELD_DEPTH = 3
"""How deep lists and mappings inside each other are looked through."""

LEAVES = (*KNOWN_CONTEXTS, ListMemory)
"""What has nothing inside but its messages."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that can hold state; the path of the agent or team itself is empty."""

    path: str
    live: Any
    covered: bool = False
    """Whether AutoGen's state of what holds it has its state."""
    others: list[str] = field(default_factory=list[str])
    """The other paths that lead to it: two agents may share a memory."""

    def at(self, name: str) -> str:
        """The path of something inside."""
        return _join(self.path, name)


def walk(live: Any) -> list[Part]:
    """An agent or team and all that is in it, each once, what holds before what is held."""
    found: dict[int, Part] = {}

    def visit(part: Part) -> None:
        if known := found.get(id(part.live)):
            known.others.append(part.path)
            return
        found[id(part.live)] = part
        for attribute, name, child in _children(part.live):
            visit(Part(part.at(name), child, covered=_covers(part.live, attribute)))

    visit(Part("", live))
    return list(found.values())


def teams(parts: Sequence[Part]) -> list[BaseGroupChat]:
    """The teams among parts."""
    return [part.live for part in parts if isinstance(part.live, BaseGroupChat)]


async def settle(live: Any) -> list[Part]:
    """All parts, after AutoGen has built the managers and containers of teams, which it does when they are first used.

    Each team knows the structured answers of all agents then; AutoGen wants them in ``custom_message_types``.
    """
    parts = walk(live)
    if any(private.manager(team) is None for team in teams(parts)):
        for team in teams(parts):
            await private.initialize(team)
        parts = walk(live)
    answers = [private.structured_type(part.live) for part in parts if isinstance(part.live, AssistantAgent)]
    for factory in [private.message_factory(team) for team in teams(parts)]:
        for answer in answers:
            if answer is not None and not factory.is_registered(answer):
                factory.register(answer)
    return parts


def is_stateful(what: object) -> bool:
    """Whether something is an object that saves and loads its state, not something that builds one."""
    methods = (getattr(what, name, None) for name in ("save_state", "load_state"))
    return not isinstance(what, type) and all(iscoroutinefunction(method) for method in methods)


def saves_as_autogen(live: Any) -> bool:
    """Whether ``save_state()`` is AutoGen's own."""
    return _is_autogens(cast("Any", type(live)).save_state)


def class_of(value: object) -> type[Any]:
    """``type()`` of a value, which pyright calls unknown for an Any."""
    return type(value)


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether a value is a mapping of any kind."""
    return isinstance(value, Mapping)


def loads_and_saves(cls: type[Any]) -> bool:
    """Whether a class of a user's own has the two methods that say what to keep."""
    methods = [getattr(cls, name, None) for name in ("save_state", "load_state")]
    return all(iscoroutinefunction(method) and not _is_autogens(method) for method in methods)


def is_tool_with_state(cls: Any) -> bool:
    """Whether tools of a class say that they have a state; one that runs an agent or a team is kept as that."""
    base: Any = BaseTool
    return issubclass(cls, base) and cls.save_state_json not in (base.save_state_json, AgentTool.save_state_json)


def _is_autogens(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith("autogen_")


def _covers(holder: Any, attribute: str) -> bool:
    """Whether the state that AutoGen saves of the holder has the state of what this attribute holds."""
    if isinstance(holder, SingleThreadedAgentRuntime):
        return True
    covering: tuple[tuple[type, str], ...] = (
        (BaseGroupChat, private.TEAM_PARTICIPANTS),
        (SocietyOfMindAgent, private.SOCIETY_TEAM),
        (AssistantAgent, private.AGENT_CONTEXT),
    )
    return any(isinstance(holder, cls) and attribute == name and saves_as_autogen(holder) for cls, name in covering)


def _children(live: Any) -> Iterator[tuple[str, str, Any]]:
    """What an object holds: the attribute, a name that is stable from process to process, and the part."""
    if isinstance(live, SingleThreadedAgentRuntime):
        for name, agent in private.instantiated(live).items():
            yield "", f"agents/{_quote(name)}", agent
        return
    if type(live) in LEAVES:
        return
    for attribute, value in getattr(live, "__dict__", {}).items():
        if attribute not in private.NOT_WALKED:
            name = attribute.lstrip("_")
            for key, part in _held(value):
                yield attribute, _join(name, key), part
    if isinstance(live, BaseGroupChat) and (manager := private.manager(live)) is not None:
        yield "", "manager", manager


def _held(value: Any, depth: int = HELD_DEPTH) -> Iterator[tuple[str, Any]]:
    """The parts that the value of an attribute is or has, with their names in it."""
    if isinstance(value, str | int | float | None):
        return
    if _is_part(value):
        yield "", value
    elif callable(value):
        yield from _behind(value)
    elif depth:
        items: list[tuple[str, Any]] = []
        if is_mapping(value):
            items = [(_quote(str(key)), item) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            items = _named([item for item in cast("list[Any]", value) if not isinstance(item, str | int)])
        for own, item in items:
            for name, part in _held(item, depth - 1):
                yield _join(own, name), part


def _behind(function: Any) -> Iterator[tuple[str, Any]]:
    """The parts that a function works with: the object it belongs to, what it was made around, what it was given."""
    if isinstance(function, MethodType):
        yield "", function.__self__
    elif isinstance(function, FunctionType):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # what is defined further down is not there yet
                if _is_part(cell.cell_contents):
                    yield name, cell.cell_contents
    elif isinstance(function, partial):
        bound = cast("Any", function)
        yield from _held(bound.func)
        yield from _held([item for item in bound.args if _is_part(item)])
        yield from _held({name: item for name, item in bound.keywords.items() if _is_part(item)})
    elif not isinstance(function, type | BuiltinFunctionType):
        yield "", function


def _is_part(value: Any) -> bool:
    return _are_parts(cast("Any", class_of(value)))


@lru_cache(maxsize=1024)
def _are_parts(cls: Any) -> bool:
    stateful = issubclass(cls, COMPONENTS) or loads_and_saves(cls) or private.is_canvas(cls)
    return stateful and not issubclass(cls, AgentRuntime)


def _named(items: list[Any]) -> list[tuple[str, Any]]:
    """The items of a list with a name for each: its own if it has one, else its class; counted if need be."""
    count: Counter[str] = Counter()
    named: list[tuple[str, Any]] = []
    for item in items:
        own = getattr(item, "name", None)
        name = _quote(own) if isinstance(own, str) else class_of(item).__name__
        count[name] += 1
        named.append((f"{name}#{count[name]}" if count[name] > 1 else name, item))
    return named


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path and name else path or name


def _quote(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F").replace("#", "%23")
