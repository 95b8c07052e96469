"""Tell by its class what kind of object something is, and whether it can have state."""

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
from autogen_core.tools import BaseTool, Workbench

from midturn.autogen import private
from midturn.record.codec import class_of

KNOWN_CONTEXTS = (
    BufferedChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
"""Contexts that never change a message and contain nothing else. A subclass may."""

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
"""What has nothing inside but its messages."""

CONTAINERS: tuple[Any, ...] = (Callable, Mapping, list, tuple)
"""Values that are no parts and may contain some."""

PACKAGES = {"autogen_agentchat", "autogen_core", "autogen_ext"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What the objects of one class are. It is found once for each class: every value of an agent is asked."""

    is_part: bool
    """Their state can be kept."""
    has_parts: bool
    """Their attributes are searched. Those of users' own objects are not: they may contain anything."""
    may_contain: bool
    """They are parts, or may have some inside."""
    is_runtime: bool
    """They build their agents themselves, when they need them."""
    is_agent_or_team: bool
    """They can be given a task."""
    is_team: bool
    """They are teams of AutoGen's."""
    loads_and_saves: bool
    """They are a user's own, and have the two methods that say what to keep."""
    is_pure: bool
    """Both methods are AutoGen's own: a user's may look at anything."""


@lru_cache(maxsize=1024)
def traits(cls: Any) -> Traits:
    """Return what the objects of a class are."""
    methods = _two_methods(cls)
    autogens = list(map(is_autogens, methods))
    is_runtime = issubclass(cls, AgentRuntime)
    loads_and_saves = all(map(iscoroutinefunction, methods)) and not any(autogens)
    stateful = issubclass(cls, COMPONENTS) or loads_and_saves or private.is_canvas(cls)
    is_part = stateful and not is_runtime
    return Traits(
        is_part=is_part,
        has_parts=issubclass(cls, (*COMPONENTS, BaseAgent)) and cls not in LEAVES,
        may_contain=is_part or issubclass(cls, CONTAINERS),
        is_runtime=is_runtime,
        is_agent_or_team=issubclass(cls, (ChatAgent, Team)),
        is_team=issubclass(cls, BaseGroupChat),
        loads_and_saves=loads_and_saves,
        is_pure=all(autogens),
    )


def traits_of(value: object) -> Traits:
    """Return what an object is by its class."""
    return traits(class_of(value))


def is_stateful(what: object) -> bool:
    """Return whether something is an object that saves and loads its state, not something that builds one."""
    return not isinstance(what, type) and all(map(iscoroutinefunction, _two_methods(what)))


def is_autogens(thing: Any) -> bool:
    """Return whether a class or a function is AutoGen's."""
    return str(getattr(thing, "__module__", "")).partition(".")[0] in PACKAGES


@lru_cache(maxsize=1024)
def is_tool_with_state(cls: Any) -> bool:
    """Return whether tools of a class say that they have a state; one that runs an agent or a team is kept as that."""
    base: Any = BaseTool
    return issubclass(cls, base) and cls.save_state_json not in (base.save_state_json, AgentTool.save_state_json)


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Return whether a value is a mapping of any kind."""
    return isinstance(value, Mapping)


def _two_methods(what: object) -> list[Any]:
    return [getattr(what, name, None) for name in ("save_state", "load_state")]
