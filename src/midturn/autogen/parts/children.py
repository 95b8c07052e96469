"""Find the parts in the attributes of an object, each with a name that is the same in every process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from functools import lru_cache, partial
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType
from typing import TYPE_CHECKING, Any, cast

from autogen_agentchat.teams import BaseGroupChat, GraphFlow
from autogen_core import SingleThreadedAgentRuntime

from midturn.autogen import private
from midturn.autogen.parts.kinds import are_parts, class_of, has_parts, is_mapping, is_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DEPTH = 2
"""How deep lists and mappings inside each other, and functions around functions, are looked through."""

IN_A_THREAD = "__midturn_in_a_thread__"
"""The attribute, of a function that only starts a thread, with the function that runs in it."""

CONTAINERS: tuple[Any, ...] = (Callable, Mapping, list, tuple)
"""Values that are no parts and may contain some."""

PLAIN = (str, int, float, bytes, NoneType)
"""What is data in a list, and has no name in it."""

MANY = 1000
"""How many items of a list or mapping are looked at; of those inside another, a tenth."""


def parts_of(live: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the parts in an object: the attribute, the name, and the part."""
    attributes: dict[str, Any] = getattr(live, "__dict__", {}) if has_parts(live) else {}
    for attribute, value in attributes.items():
        if _may_contain(cast("Any", class_of(value))) and attribute not in private.NOT_WALKED:
            bare = attribute.lstrip("_")
            name = attribute if bare != attribute and bare in attributes else bare
            for key, part in parts_in(value):
                yield attribute, join(name, key), part
    for name, part in _elsewhere(live):
        yield "", name, part


def _elsewhere(live: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts that belong to an object and are not in its attributes."""
    if not _may_have_others(cast("Any", class_of(live))):
        return
    if isinstance(live, SingleThreadedAgentRuntime):
        for name, agent in private.instantiated(live).items():
            yield f"agents/{_quote(name)}", agent
    if isinstance(live, GraphFlow):
        for key, part in parts_in(private.edge_conditions(live)):
            yield f"graph/{key}", part
    if isinstance(live, BaseGroupChat) and (manager := private.manager(live)) is not None:
        yield "manager", manager


@lru_cache(maxsize=1024)
def _may_have_others(cls: Any) -> bool:  # by class: one look instead of three
    return issubclass(cls, SingleThreadedAgentRuntime | BaseGroupChat)


@lru_cache(maxsize=1024)
def _may_contain(cls: Any) -> bool:  # by class: most values contain nothing, and are asked in every turn
    """Whether values of a class can be a part or have one in them."""
    return are_parts(cls) or issubclass(cls, CONTAINERS)


def join(path: str, name: str) -> str:
    """Return the path of a name inside a path."""
    return f"{path}/{name}" if path and name else path or name


def parts_in(value: Any, depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the parts that a value is or contains, with their names in it."""
    if not _may_contain(cast("Any", class_of(value))):
        return
    if is_part(value):
        yield "", value
    elif callable(value):
        yield from _behind(value, depth)
    elif depth:
        many = MANY if depth == DEPTH else MANY // 10
        items: Iterable[tuple[str, Any]] = ()
        if is_mapping(value):
            items = _keyed(islice(value.items(), many))
        elif isinstance(value, list | tuple):
            items = _named(islice(cast("list[Any]", value), many))
        for own, item in items:
            for name, part in parts_in(item, depth - 1):
                yield join(own, name), part


def _behind(function: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """What a function works with: the object it belongs to, the parts it was made around, those it was given."""
    function = getattr(function, IN_A_THREAD, function)
    if isinstance(function, MethodType):
        yield "", function.__self__
    elif isinstance(function, FunctionType):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # what is defined further down is not there yet
                inside = cell.cell_contents
                if is_part(inside) or (callable(inside) and depth):
                    for key, part in parts_in(inside, depth - 1):
                        yield join(name, key), part
    elif isinstance(function, partial):
        bound = cast("Any", function)
        yield from parts_in(bound.func, depth)
        yield from parts_in([item for item in bound.args if is_part(item)], depth)
        yield from parts_in({name: item for name, item in bound.keywords.items() if is_part(item)}, depth)
    elif not isinstance(function, type | BuiltinFunctionType):
        yield "", function


def _named(items: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """The items of a list with a name for each: its own if it is a part and has one, else its class."""
    count: Counter[str] = Counter()
    for item in items:
        if isinstance(item, PLAIN):
            continue
        own = getattr(item, "name", None) if is_part(item) else None
        name = _quote(own) if isinstance(own, str) else class_of(item).__name__
        count[name] += 1
        yield f"{name}#{count[name]}" if count[name] > 1 else name, item


def _keyed(items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    """The values of a mapping by their keys, where these are the same in every process, else by number."""
    for index, (key, item) in enumerate(items):
        yield _quote(str(key)) if isinstance(key, str | int | Enum) else f"#{index + 1}", item


def _quote(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F").replace("#", "%23")
