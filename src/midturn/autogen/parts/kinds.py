"""Tell by its class what kind of object something is, and whether it can have state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Any, TypeGuard, cast

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

PACKAGES = {"autogen_agentchat", "autogen_core", "autogen_ext"}


def is_stateful(what: object) -> bool:
    """Whether something is an object that saves and loads its state, not something that builds one."""
    return not isinstance(what, type) and all(map(iscoroutinefunction, _two_methods(what)))


def loads_and_saves(cls: type[Any]) -> bool:
    """Whether a class of a user's own has the two methods that say what to keep."""
    methods = _two_methods(cls)
    return all(map(iscoroutinefunction, methods)) and not any(map(is_autogens, methods))


def is_pure(live: Any) -> bool:
    """Whether both methods are AutoGen's own: one of a user's may look at anything."""
    return all(map(is_autogens, _two_methods(class_of(live))))


def is_autogens(thing: Any) -> bool:
    """Whether a class or a function is AutoGen's."""
    return str(getattr(thing, "__module__", "")).partition(".")[0] in PACKAGES


def is_tool_with_state(cls: Any) -> bool:
    """Whether tools of a class say that they have a state; one that runs an agent or a team is kept as that."""
    base: Any = BaseTool
    return issubclass(cls, base) and cls.save_state_json not in (base.save_state_json, AgentTool.save_state_json)


def is_part(value: Any) -> bool:
    """Whether a value has state that can be kept."""
    return are_parts(cast("Any", class_of(value)))


def has_parts(live: Any) -> bool:
    """Whether the attributes of a part are looked through: not those of users' objects, which may contain anything."""
    return _have_parts(cast("Any", class_of(live)))


def is_runtime(live: Any) -> bool:
    """Whether something builds its agents itself, when they are needed."""
    return _are_runtimes(cast("Any", class_of(live)))


def is_agent_or_team(live: Any) -> bool:
    """Whether something can be given a task."""
    return _are_agents_or_teams(cast("Any", class_of(live)))


def is_team(live: Any) -> bool:
    """Whether something is a team of AutoGen's."""
    return _are_teams(cast("Any", class_of(live)))


def class_of(value: object) -> type[Any]:
    """``type()`` of a value, which pyright calls unknown for an Any."""
    return type(value)


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether a value is a mapping of any kind."""
    return isinstance(value, Mapping)


@lru_cache(maxsize=1024)
def are_parts(cls: Any) -> bool:
    """Whether values of a class have state that can be kept."""
    stateful = issubclass(cls, COMPONENTS) or loads_and_saves(cls) or private.is_canvas(cls)
    return stateful and not _are_runtimes(cls)


@lru_cache(maxsize=1024)
def _are_agents_or_teams(cls: Any) -> bool:  # as for runtimes
    return issubclass(cls, (ChatAgent, Team))


@lru_cache(maxsize=1024)
def _are_teams(cls: Any) -> bool:  # as for runtimes
    return issubclass(cls, BaseGroupChat)


@lru_cache(maxsize=1024)
def _are_runtimes(cls: Any) -> bool:  # by class, since AutoGen's is a protocol, which takes long to ask
    return issubclass(cls, AgentRuntime)


@lru_cache(maxsize=1024)
def _have_parts(cls: Any) -> bool:
    return issubclass(cls, (*COMPONENTS, BaseAgent)) and cls not in LEAVES


def _two_methods(what: object) -> list[Any]:
    return [getattr(what, name, None) for name in ("save_state", "load_state")]
