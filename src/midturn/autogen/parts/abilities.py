"""Recognise what agents call by what it can do: model clients, workbenches, memories and code executors.

AutoGen takes any object that has the methods, such as a wrapper for tracing, or a mock. It need not be a subclass.
"""

from __future__ import annotations

from functools import lru_cache
from types import FunctionType
from typing import Any

from autogen_agentchat.base import ChatAgent, Team, TerminationCondition
from autogen_core import BaseAgent
from autogen_core.code_executor import CodeExecutor
from autogen_core.memory import Memory
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, Workbench

from midturn.autogen import private
from midturn.autogen.parts.proxy import lineage
from midturn.record.codec import class_of

ANYWHERE: dict[Any, frozenset[str]] = {
    ChatCompletionClient: frozenset({"create", "create_stream"}),
    CodeExecutor: frozenset({"execute_code_blocks"}),
    Memory: frozenset({"query", "update_context"}),
    Workbench: frozenset({"call_tool", "list_tools", "start", "stop"}),
}
"""The methods by which an object of each kind is known, wherever it is. Nothing else has them all."""

HELD: dict[str, tuple[Any, frozenset[str]]] = {
    private.CODE_EXECUTOR: (CodeExecutor, frozenset({"execute_code_blocks"})),
    private.MEMORY: (Memory, frozenset({"update_context"})),
    private.MODEL_CLIENT: (ChatCompletionClient, frozenset({"create", "model_info"})),
    private.WORKBENCH: (Workbench, frozenset({"call_tool", "list_tools"})),
}
"""The attributes in which AutoGen's agents hold an object of each kind, and what they need it to have."""

OTHERS = (BaseAgent, BaseTool, ChatAgent, Team, TerminationCondition)
"""Kinds of objects that midturn recognises in other ways, whatever methods they have."""

NOBODY = "no_object_of_a_user_has_this_name"


@lru_cache(maxsize=1024)
def kind_by_class(cls: Any) -> Any:
    """Return which kind the objects of a class are; ``None`` if they are of no kind, or the class does not show it."""
    found = next((kind for kind in ANYWHERE if issubclass(cls, kind)), None)
    return found or (None if issubclass(cls, OTHERS) else _able(cls, ANYWHERE))


@lru_cache(maxsize=1024)
def is_only_able(cls: Any) -> bool:
    """Return whether a class is known by its methods alone."""
    return kind_by_class(cls) is not None and not issubclass(cls, tuple(ANYWHERE))


@lru_cache(maxsize=1024)
def is_elusive(cls: Any) -> bool:
    """Return whether the class of an object does not say what the object can do, as for a wrapper or a mock."""
    own = [vars(each) for each in lineage(cls) if each is not object and not each.__module__.startswith("pydantic.")]
    reads = any(isinstance(names.get("__getattribute__"), FunctionType) for names in own)  # all classes in C have one
    return reads or any("__getattr__" in names or "__class__" in names for names in own)


@lru_cache(maxsize=1024)
def may_call_tools(cls: Any) -> bool:
    """Return whether objects of a class call tools, but need not be workbenches, such as a client of an MCP server."""
    return kind_by_class(cls) is None and not issubclass(cls, OTHERS) and HELD[private.WORKBENCH][1] <= _names(cls)


def kind_of(value: Any, attribute: str) -> Any:
    """Return which kind an object in this attribute of an agent is; ``None`` for any other object."""
    cls = class_of(value)
    if (kind := kind_by_class(cls)) is not None:
        return kind
    elusive = is_elusive(cls)
    if elusive and (kind := next((kind for kind in ANYWHERE if _is_instance(value, kind)), None)) is not None:
        return kind
    kind, needed = HELD.get(attribute, (None, frozenset[str]()))
    if kind is not None and not issubclass(cls, OTHERS) and all(_has(value, name) for name in needed):
        return kind
    if not elusive or _has(value, NOBODY):  # a mock has everything, and may stand for anything
        return None
    return next((kind for kind, names in ANYWHERE.items() if all(_has(value, name) for name in names)), None)


def _is_instance(value: Any, kind: Any) -> bool:
    try:
        return isinstance(value, kind)
    except Exception:  # noqa: BLE001 - a property of a user's own
        return False


def _has(value: Any, name: str) -> bool:
    try:
        return getattr(value, name, None) is not None
    except Exception:  # noqa: BLE001 - the same
        return False


def _able(cls: Any, abilities: dict[Any, frozenset[str]]) -> Any:
    names = _names(cls)
    return next((kind for kind, needed in abilities.items() if needed <= names), None)


def _names(cls: Any) -> set[str]:
    return {name for each in lineage(cls) for name in vars(each)}
