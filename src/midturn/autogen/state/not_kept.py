"""Warn users, once for each class, that an object of theirs has changed and that its state is not kept."""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Set as AbstractSet
from dataclasses import is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from weakref import WeakSet

from pydantic import BaseModel

from midturn.autogen.parts.kinds import (
    is_autogens,
    is_mapping,
    is_tool_with_state,
    loads_and_saves,
    traits_of,
)
from midturn.errors import NotKept
from midturn.record.codec import class_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from midturn.autogen.parts.walk import Part

MANY = 10_000
"""Number of values that are compared in one part."""

UNSEEN: Any = object()

_WARNED: WeakSet[type[Any]] = WeakSet()

Seen: TypeAlias = dict[int, dict[str, Any]]
"""The values of attributes, by the ``id()`` of the object that has them."""


def look(parts: Sequence[Part], built: frozenset[str]) -> Seen:
    """Return the attributes of each part whose state cannot be kept; ``built`` has the paths of the other parts."""
    inside = {id(part.live) for part in parts if part.path in built}
    return {id(part.live): _attributes(part.live, inside) for part in parts if _is_unseen(part)}


def warn(parts: Sequence[Part], built: frozenset[str], before: Seen) -> None:
    """Warn about each attribute that has changed since ``before``."""
    now = look(parts, built)
    for part in parts:
        then = before.get(id(part.live), {})
        changed = [
            name
            for name, value in now.get(id(part.live), {}).items()
            if value != then.get(name) and value is not UNSEEN
        ]
        cls = class_of(part.live)
        if changed and cls not in _WARNED:
            _WARNED.add(cls)
            what, names = part.path or "the agent", ", ".join(sorted(changed))
            warnings.warn(
                f"{what} is a {cls.__name__}, and changes in it are not kept ({names}): give the class the methods "
                "`async def save_state(self)`, which returns a dict of JSON, and `async def load_state(self, state)`",
                NotKept,
                stacklevel=2,
            )


def _is_unseen(part: Part) -> bool:
    """Return whether the state of a part cannot be kept, and no warning about its class was given yet."""
    cls = class_of(part.live)
    return _is_users(cls) and not loads_and_saves(cls) and cls not in _WARNED


@lru_cache(maxsize=1024)
def _is_users(cls: Any) -> bool:
    """Return whether a class is a user's own, and not of tools that say what to keep."""
    standard = cls.__module__.partition(".")[0] in sys.stdlib_module_names
    return not (standard or is_autogens(cls) or is_tool_with_state(cls))


def _attributes(live: Any, inside: set[int]) -> dict[str, Any]:
    """Return the attributes that a user's own class has added, in a form that can be compared later."""
    known: set[str] = set()
    for cls in class_of(live).__mro__:
        if is_autogens(cls) and "__init__" in vars(cls):
            known |= set(cls.__init__.__code__.co_names)
    look_at = _Look(inside, parts=traits_of(live).has_parts)
    return {
        name: look_at.frozen(value)
        for name, value in getattr(live, "__dict__", {}).items()
        if name not in known and id(value) not in inside
    }


class _Look:
    """A look at the attributes of one object; ``parts`` is true if a new part in it counts as a change."""

    def __init__(self, inside: set[int], *, parts: bool) -> None:
        self._inside, self._parts = inside, parts
        self._left = MANY

    def frozen(self, value: Any) -> Any:
        """Return a copy of a value, to compare later; ``UNSEEN`` if the value is not data, or too large."""
        self._left -= 1
        if isinstance(value, bool | int | float | str | bytes | None):
            return value
        if id(value) in self._inside:
            return None
        if traits_of(value).is_part:
            return "a part that was not there" if self._parts else UNSEEN
        if is_mapping(value):
            return self._all([*value.keys(), *value.values()])
        if isinstance(value, list | tuple | deque | AbstractSet):
            return self._all(cast("Collection[Any]", value))
        data = is_dataclass(value) or isinstance(value, BaseModel)
        return self.frozen(getattr(value, "__dict__", None)) if data else UNSEEN

    def _all(self, items: Collection[Any]) -> Any:
        if len(items) > self._left:
            return UNSEEN
        found = [self.frozen(item) for item in items]
        return UNSEEN if UNSEEN in found else found
