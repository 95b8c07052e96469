"""Find the parts in the attributes of an object, each with a name that is the same in every process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType
from typing import TYPE_CHECKING, Any, cast

from autogen_agentchat.teams import BaseGroupChat, GraphFlow
from autogen_core import SingleThreadedAgentRuntime

from midturn.autogen import private
from midturn.autogen.parts.kinds import traits
from midturn.record.codec import class_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DEPTH = 2
"""Number of levels of nested lists and mappings, and of functions around functions, that are searched."""

TOOL_FUNCTION = "__midturn_tool_function__"
"""The attribute of a wrapper around the function of a tool; it holds the function."""

PLAIN = (str, int, float, bytes, NoneType)
"""Types of plain data, which get no names in a list."""

MANY = 1000
"""Number of items of a list or mapping that are searched; a nested one has a tenth of that."""


def parts_of(live: Any) -> list[tuple[str, str, Any]]:
    """Return the parts in an object: the attribute, the name, and the part."""
    found: list[tuple[str, str, Any]] = []
    attributes: dict[str, Any] = getattr(live, "__dict__", {}) if traits(class_of(live)).has_parts else {}
    for attribute, value in attributes.items():
        kind = traits(class_of(value))
        if kind.may_contain and attribute not in private.NOT_WALKED:
            bare = attribute.lstrip("_")
            name = attribute if bare != attribute and bare in attributes else bare
            if kind.is_part:
                found.append((attribute, name, value))
            else:
                found += [(attribute, join(name, key), part) for key, part in parts_in(value)]
    return found + _elsewhere(live)


def _elsewhere(live: Any) -> list[tuple[str, str, Any]]:
    """Return the parts that belong to an object and are not in its attributes."""
    found: list[tuple[str, str, Any]] = []
    kind = traits(class_of(live))  # asked first, since isinstance() takes long with AutoGen's protocols
    if not kind.is_runtime and not kind.is_team:
        return found
    if isinstance(live, SingleThreadedAgentRuntime):
        found += [("", f"agents/{_quote(name)}", agent) for name, agent in private.instantiated(live).items()]
    elif isinstance(live, BaseGroupChat):
        if isinstance(live, GraphFlow):
            found += [("", f"graph/{key}", part) for key, part in parts_in(private.edge_conditions(live))]
        if (manager := private.manager(live)) is not None:
            found.append(("", "manager", manager))
    return found


def join(path: str, name: str) -> str:
    """Return a path with a name added to it."""
    return f"{path}/{name}" if path and name else path or name


def parts_in(value: Any, depth: int = DEPTH) -> list[tuple[str, Any]]:
    """Return the parts that a value is or contains, with their names in it."""
    kind = traits(class_of(value))
    if kind.is_part:
        return [("", value)]
    if not kind.may_contain:
        return []
    if callable(value):
        return list(_behind(value, depth))
    if not depth:
        return []
    many = MANY if depth == DEPTH else MANY // 10
    named = _keyed if issubclass(class_of(value), Mapping) else _named
    return [(join(own, name), part) for own, item in named(value, many) for name, part in parts_in(item, depth - 1)]


def _behind(function: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the parts that a function uses: a method's object, the parts in a closure, a partial's arguments."""
    function = getattr(function, TOOL_FUNCTION, function)
    if isinstance(function, MethodType):
        yield "", function.__self__
    elif isinstance(function, FunctionType):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # a name that is defined further down has no value yet
                inside = cell.cell_contents
                if traits(class_of(inside)).is_part or (callable(inside) and depth):
                    for key, part in parts_in(inside, depth - 1):
                        yield join(name, key), part
    elif isinstance(function, partial):
        bound = cast("Any", function)
        yield from parts_in(bound.func, depth)
        yield from parts_in([item for item in bound.args if traits(class_of(item)).is_part], depth)
        yield from parts_in(
            {name: item for name, item in bound.keywords.items() if traits(class_of(item)).is_part}, depth
        )
    elif not isinstance(function, type | BuiltinFunctionType):
        yield "", function


def _named(items: Iterable[Any], many: int) -> list[tuple[str, Any]]:
    """Return the items of a list that may contain parts, each with a name: its own if it is a part, else its class."""
    count: Counter[str] = Counter()
    found: list[tuple[str, Any]] = []
    for item in islice(items, many):
        if isinstance(item, PLAIN):
            continue
        kind = traits(class_of(item))
        own = getattr(item, "name", None) if kind.is_part else None
        name = _quote(own) if isinstance(own, str) else class_of(item).__name__
        count[name] += 1
        if kind.may_contain:
            found.append((f"{name}#{count[name]}" if count[name] > 1 else name, item))
    return found


def _keyed(values: Mapping[Any, Any], many: int) -> list[tuple[str, Any]]:
    """Return the values of a mapping that may contain parts, each with a name.

    The name is the key if it is the same in every process, else a number.
    """
    return [
        (_quote(str(key)) if isinstance(key, str | int | Enum) else f"#{index + 1}", item)
        for index, (key, item) in enumerate(islice(values.items(), many))
        if traits(class_of(item)).may_contain
    ]


def _quote(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F").replace("#", "%23")
