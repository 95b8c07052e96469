"""Convert values of any type to JSON that people can read, without secrets, and the same in every process."""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from midturn.autogen.parts.children import TOOL_FUNCTION
from midturn.autogen.parts.kinds import is_mapping
from midturn.record.codec import class_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from midturn.autogen.fingerprint.secrets import Hiding
    from midturn.record.codec import Json

DEPTH = 60
"""Levels of a nested value that are kept. Deeper levels are omitted."""

INTEGERS = 2**63

Reading: TypeAlias = Literal["names", "prose", "schema", "schemas"]
"""The kind of the texts in a value. In a schema most texts are names, and some keys have prose."""

PROSE_OF_SCHEMAS = {"description", "default", "examples"}
SCHEMAS_BY_NAMES = {"properties", "patternProperties", "$defs", "definitions"}


class Prose(str):
    """A text that people wrote, not a name. Secrets of the environment are hidden in it."""

    __slots__ = ()


class Shown(str):
    """A text from which secrets have been removed."""

    __slots__ = ()


class Schema(dict[str, Any]):
    """A JSON schema, or the description of a tool with one in it."""


def plain(value: Any, hide: Hiding, read: Reading = "names", above: tuple[int, ...] = ()) -> Json:
    """Return a value as JSON without secrets. A recursive schema ends where it repeats."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, Shown):
        return str(value)
    if value is None or isinstance(value, bool | str | int | float):
        return _scalar(value, hide.prose if read == "prose" or isinstance(value, Prose) else hide.names)
    if id(value) in above or len(above) > DEPTH:
        return "..."
    above = (*above, id(value))
    if is_mapping(value):
        read = "schema" if isinstance(value, Schema) else read
        return _keyed((_key(key, hide), plain(item, hide, _below(read, key), above)) for key, item in value.items())
    if isinstance(value, list | tuple | AbstractSet):
        items = [plain(item, hide, read, above) for item in cast("list[Any]", value)]
        return sorted(items, key=partial(json.dumps, sort_keys=True)) if isinstance(value, AbstractSet) else items
    return hide.names(function_name(value) if callable(value) else class_of(value).__name__)


def function_name(function: Any) -> str:
    """Return the name of a function in the code; for a callable object, the name of its class."""
    function = getattr(function, TOOL_FUNCTION, function)
    while isinstance(function, partial):
        function = cast("Any", function).func
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else class_of(function).__name__


def _below(read: Reading, key: object) -> Reading:
    """Return the kind of the texts under a key of an object."""
    if read == "schemas":  # the key is a name, even if it is "default"
        return "schema"
    if read == "schema" and key in PROSE_OF_SCHEMAS:
        return "prose"
    return "schemas" if read == "schema" and key in SCHEMAS_BY_NAMES else read


def _key(key: Any, hide: Hiding) -> str:
    """Return a key as text, unchanged: keys identify things."""
    return _text(key) if isinstance(key, str) and not isinstance(key, Enum) else str(plain(key, hide))


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()


def _scalar(value: bool | str | float | None, hide: Callable[[str], str]) -> Json:  # noqa: FBT001 - a value of JSON
    if isinstance(value, str):
        return hide(_text(value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -INTEGERS <= value < INTEGERS else hex(value)
    return float(value) if isfinite(value) else str(value)


def _keyed(items: Iterator[tuple[str, Json]]) -> dict[str, Json]:
    """Return an object of these items. Keys that are equal as JSON are numbered."""
    found: dict[str, Json] = {}
    for key, item in items:
        free, number = key, 1
        while free in found:
            number += 1
            free = f"{key}#{number}"
        found[free] = item
    return found
