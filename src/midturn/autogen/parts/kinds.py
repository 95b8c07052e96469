"""Find out from the class of an object what kind it is, and whether it can have state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Any, TypeGuard

from autogen_agentchat.base import ChatAgent, Team, TerminationCondition
from autogen_agentchat.teams import BaseGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import AgentRuntime, BaseAgent
from autogen_core.code_executor import CodeExecutor
from autogen_core.memory import ListMemory, Memory
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, Workbench

from midturn.autogen import private
from midturn.autogen.parts.abilities import is_only_able, kind_by_class
from midturn.autogen.parts.proxy import real_class
from midturn.record.codec import class_of

KNOWN_CONTEXTS = (
    BufferedChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
"""Contexts that never change a message and contain nothing but messages. A subclass may be different."""

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

LEAVES = (*KNOWN_CONTEXTS, ListMemory)
"""Classes whose objects contain nothing but messages or memories."""

CONTAINERS: tuple[Any, ...] = (Callable, Mapping, list, tuple)
"""Types that are not parts and may contain parts."""

PACKAGES = {"autogen_agentchat", "autogen_core", "autogen_ext"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The traits that all objects of a class share. They are cached, since every value of an agent is checked."""

    is_part: bool
    """The state of an object can be kept."""
    has_parts: bool
    """The attributes of an object are searched. Those of users' own objects are not: they may contain anything."""
    may_contain: bool
    """An object is a part, or may contain parts."""
    is_runtime: bool
    """An object builds its agents itself, when it needs them."""
    is_agent_or_team: bool
    """An object can run a task."""
    is_team: bool
    """An object is a team of AutoGen."""
    is_only_able: bool
    """An object is called, and its class is no subclass of AutoGen's."""


@lru_cache(maxsize=1024)
def traits(cls: Any) -> Traits:
    """Return the traits of the objects of a class. Loops over many values call this, and not :func:`traits_of`."""
    cls = real_class(cls)
    is_runtime = issubclass(cls, AgentRuntime)
    able = is_only_able(cls) and kind_by_class(cls) is not ChatCompletionClient
    stateful = issubclass(cls, COMPONENTS) or able or loads_and_saves(cls) or private.is_canvas(cls)
    is_part = stateful and not is_runtime
    return Traits(
        is_part=is_part,
        has_parts=(able or issubclass(cls, (*COMPONENTS, BaseAgent))) and cls not in LEAVES,
        may_contain=is_part or issubclass(cls, CONTAINERS),
        is_runtime=is_runtime,
        is_agent_or_team=issubclass(cls, (ChatAgent, Team)),
        is_team=issubclass(cls, BaseGroupChat),
        is_only_able=is_only_able(cls),
    )


def traits_of(value: object) -> Traits:
    """Return the traits of an object."""
    return traits(class_of(value))


# Not traits, which are cached: a class may get its two methods after an object of it was found, in a notebook say.


def loads_and_saves(cls: Any) -> bool:
    """Return whether a class is a user's own and has the methods ``save_state()`` and ``load_state()``."""
    methods = _two_methods(cls)
    return all(map(iscoroutinefunction, methods)) and not any(map(is_autogens, methods))


def is_pure(live: Any) -> bool:
    """Return whether both methods of an object are AutoGen's own; a method of a user may read anything."""
    return all(map(is_autogens, _two_methods(class_of(live))))


def is_stateful(what: object) -> bool:
    """Return whether ``what`` is an object that saves and loads its state, and not a class."""
    return not isinstance(what, type) and all(map(iscoroutinefunction, _two_methods(what)))


def is_autogens(thing: Any) -> bool:
    """Return whether a class or a function belongs to AutoGen."""
    return str(getattr(thing, "__module__", "")).partition(".")[0] in PACKAGES


@lru_cache(maxsize=1024)
def is_tool_with_state(cls: Any) -> bool:
    """Return whether tools of a class save a state. A tool for an agent does not count: the agent itself is kept."""
    base: Any = BaseTool
    return issubclass(cls, base) and cls.save_state_json not in (base.save_state_json, AgentTool.save_state_json)


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Return whether a value is a mapping of any kind."""
    return isinstance(value, Mapping)


def _two_methods(what: object) -> list[Any]:
    return [getattr(what, name, None) for name in ("save_state", "load_state")]
