"""Telling users, once for each class, that something of their own has changed and is not kept."""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Set as AbstractSet
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from weakref import WeakSet

from autogen_core.models import ChatCompletionClient
from autogen_core.tools import Workbench
from pydantic import BaseModel

from leftoff.autogen.parts import class_of, is_mapping, is_tool_with_state, loads_and_saves
from leftoff.errors import NotKept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leftoff.autogen.parts import Part

SEEN_DEPTH = 4
"""How deep lists and objects that are data are looked into."""

_WARNED: WeakSet[type[Any]] = WeakSet()

Seen: TypeAlias = dict[int, dict[str, Any]]
"""What the attributes were, by the ``id()`` of what has them."""


def look(parts: Sequence[Part], built: frozenset[str]) -> Seen:
    """What everything that cannot be kept is like now; of the parts, those are kept that it was ``built`` with."""
    inside = {id(part.live) for part in parts if part.path in built}
    return {id(part.live): _attributes(part.live, inside) for part in parts if _is_unkept(part)}


def warn(parts: Sequence[Part], built: frozenset[str], before: Seen) -> None:
    """Warn of what has changed since ``before``."""
    now = look(parts, built)
    for part in parts:
        then = before.get(id(part.live), {})
        changed = [name for name, value in now.get(id(part.live), {}).items() if (name, value) not in then.items()]
        cls = class_of(part.live)
        if changed and cls not in _WARNED:
            _WARNED.add(cls)
            what, names = part.path or "the agent", ", ".join(sorted(changed))
            warnings.warn(
                f"{what} is a {cls.__name__}, and what has changed in it is not kept ({names}): give it the methods "
                "`async def save_state(self)`, which returns a dict of JSON, and `async def load_state(self, state)`",
                NotKept,
                stacklevel=2,
            )


def _is_unkept(part: Part) -> bool:
    cls = class_of(part.live)
    package = cls.__module__.partition(".")[0]
    if cls in _WARNED or package.startswith("autogen_") or package in sys.stdlib_module_names or loads_and_saves(cls):
        return False
    return not issubclass(cls, Workbench) and not is_tool_with_state(cls)  # these have to say what is kept


def _attributes(live: Any, inside: set[int]) -> dict[str, Any]:
    """The attributes that a user's own class has added, in a form that can be compared later."""
    known: set[str] = set()
    for cls in type(live).__mro__:
        if cls.__module__.startswith("autogen_") and "__init__" in vars(cls):
            known |= set(cast("Any", cls).__init__.__code__.co_names)
    found: dict[str, Any] = {}
    for name, value in getattr(live, "__dict__", {}).items():
        if name not in known and id(value) not in inside and not _is_configuration(value):
            found[name] = _frozen(value, inside, SEEN_DEPTH)
    return found


def _is_configuration(value: Any) -> bool:
    return callable(value) or isinstance(value, ChatCompletionClient | type)


def _frozen(value: Any, inside: set[int], depth: int) -> Any:
    """Something equal as long as the value is; parts are looked at by themselves."""
    if isinstance(value, bool | int | float | str | bytes | None):
        return value
    if depth == 0 or id(value) in inside:
        return id(value)
    if is_mapping(value):
        return [(_frozen(key, inside, depth - 1), _frozen(item, inside, depth - 1)) for key, item in value.items()]
    if isinstance(value, list | tuple | deque):
        return [_frozen(item, inside, depth - 1) for item in cast("list[Any]", value)]
    if isinstance(value, AbstractSet):
        return {item if isinstance(item, str | int) else id(item) for item in cast("set[Any]", value)}
    return _frozen(vars(value), inside, depth - 1) if _is_data(value) else id(value)


def _is_data(value: Any) -> bool:
    return (is_dataclass(value) or isinstance(value, BaseModel)) and hasattr(value, "__dict__")
