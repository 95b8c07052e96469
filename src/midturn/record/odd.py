"""Values that JSON cannot represent, in a stored form that no other value has.

Agents, tools and memories have such values: integers beyond 64 bits, infinities, halves of surrogate pairs, times. A
scalar is stored as ``{"$odd": "int -0x1f"}``, a container as ``{"$odd": ["tuple", ...]}`` with its items. A user's own
key "$odd" is stored as "$$odd", as all keys that begin with "$" are.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from midturn.errors import StateInvalid
from midturn.record import codec
from midturn.record.codec import class_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ODD = "$odd"

_WRITTEN: dict[Any, tuple[str, Callable[[Any], str]]] = {
    int: ("int", hex),
    float: ("float", repr),
    str: ("text", lambda text: json.dumps(text)[1:-1]),
    bytes: ("bytes", lambda data: b64encode(data).decode()),
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    time: ("time", time.isoformat),
    timedelta: ("timedelta", lambda span: f"{span.days} {span.seconds} {span.microseconds}"),
    Decimal: ("decimal", str),
    UUID: ("uuid", str),
}
"""The name of each type of scalars, and the function that writes a value as text."""


def _timedelta(text: str) -> timedelta:
    days, seconds, microseconds = map(int, text.split(" "))
    return timedelta(days, seconds, microseconds)


_READ: dict[str, Callable[[str], Any]] = {
    "int": lambda text: int(text, 16),
    "float": {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}.__getitem__,  # one NaN: it equals itself in a list
    "text": lambda text: json.loads(f'"{text}"'),
    "bytes": lambda text: b64decode(text, validate=True),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": _timedelta,
    "decimal": Decimal,
    "uuid": UUID,
}
_CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": lambda items: dict(zip(items[::2], items[1::2], strict=True)),
}


class Stored(dict[str, Any]):
    """The stored form of an odd value. What packs values leaves it as it is."""

    __slots__ = ()


def stored(value: Any, path: str, depth: int = codec.MAX_DEPTH) -> Any:
    """Return a value with the stored form in place of each odd value in it.

    A value of a subclass becomes one of the class itself, and a member of an enumeration becomes its value.

    Raises:
        StateInvalid: a value can be stored in no form, or is nested too deeply; the error has the path of the part.
    """
    kind = class_of(value)
    if value is None or kind is bool:
        return value
    if kind is dict or kind is list:
        return _container(value, path, depth)
    if kind in _WRITTEN:
        name, write = _WRITTEN[kind]
        return value if codec.fits(value, depth) else Stored({ODD: f"{name} {write(value)}"})
    if kind in (tuple, set, frozenset):
        if depth <= 0:
            raise _too_deep(path)
        # Such a container is stored in two levels.
        items = [_whole(item, f"{path}[{i}]", depth - 2) for i, item in enumerate(_sorted(value))]
        return Stored({ODD: [kind.__name__, *items]})
    if (plain := _plain(value)) is not value:
        return stored(plain, path, depth)
    raise StateInvalid(f"a {kind.__name__} is not JSON", path=path)


def packed(value: Any, path: str = "$") -> Any:
    """Return a value as JSON that a record can contain by itself; :func:`unpacked` returns the value."""
    return _escaped(stored(value, path))


def as_bytes(value: Any) -> bytes:
    """Return bytes that are the same for the same value, to compare it later.

    Raises:
        StateInvalid: a value can be stored in no form.
    """
    return orjson.dumps(value if codec.fits(value) else packed(value))


def unpacked(value: Any, path: str = "$") -> Any:
    """Return the value that :func:`packed` was given."""
    if class_of(value) is dict:
        if ODD in value:
            return restored(value[ODD], path, lambda item: unpacked(item, path))
        return {key.removeprefix("$"): unpacked(item, path) for key, item in value.items()}
    return [unpacked(item, path) for item in value] if class_of(value) is list else value


def _container(value: Any, path: str, depth: int) -> Any:
    if depth <= 0:
        raise _too_deep(path)
    if class_of(value) is list:
        return [stored(item, f"{path}[{i}]", depth - 1) for i, item in enumerate(value)]
    if all(class_of(key) is str and codec.fits(key, depth) for key in value):
        return {key: stored(item, f"{path}.{key}", depth - 1) for key, item in value.items()}
    pairs = [part for key, item in value.items() for part in _pair(key, item, path, depth - 2)]
    return Stored({ODD: ["dict", *pairs]})


def _pair(key: Any, item: Any, path: str, depth: int) -> Iterator[Any]:
    shown = key if class_of(key) is str and codec.fits(key, 1) else f"a {class_of(key).__name__}"
    try:
        yield _whole(key, path, depth)
    except StateInvalid:
        raise StateInvalid(f"{shown} cannot be the key of a JSON object", path=path) from None
    yield _whole(item, f"{path}.{shown}", depth)


def _whole(value: Any, path: str, depth: int) -> Any:
    """Return the stored form of a value inside an odd container: nothing else packs it, so its keys are escaped."""
    return _escaped(stored(value, path, depth))


def _escaped(value: Any) -> Any:
    kind = class_of(value)
    if kind is dict:
        return {f"${key}" if key.startswith("$") else key: _escaped(item) for key, item in value.items()}
    if kind is list:
        return [_escaped(item) for item in value]
    return dict[str, Any](value) if kind is Stored else value


def _sorted(items: Any) -> Any:
    """Return the items of a set in an order that does not depend on the process, as far as there is one."""
    if class_of(items) is tuple:
        return items
    try:
        return sorted(items, key=lambda item: (class_of(item).__name__, repr(item)))
    except RecursionError:
        raise _too_deep("$") from None


def _too_deep(path: str) -> StateInvalid:
    return StateInvalid(f"nested deeper than {codec.MAX_DEPTH} levels", path=path)


_BASES: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Enum, lambda value: value.value),
    (str, str.__str__),
    (int, lambda value: int.__add__(value, 0)),
    (float, float.__pos__),
    (dict, dict),
    (list, list),
    (tuple, tuple),
)


def _plain(value: Any) -> Any:
    """Return a value of a subclass as one of the class itself; any other value as it is."""
    return next((convert(value) for base, convert in _BASES if isinstance(value, base)), value)


def restored(value: Any, path: str, whole: Callable[[Any], Any]) -> Any:
    """Return the value of a stored form; ``whole`` returns the items of a container.

    Raises:
        StateInvalid: it is no stored form of a value.
    """
    try:
        if class_of(value) is str:
            name, _, text = value.partition(" ")
            return _READ[name](text)
        name, *items = value
        return _CONTAINERS[name]([whole(item) for item in items])
    except StateInvalid:
        raise
    except Exception as error:
        raise StateInvalid("is a value in a form that midturn does not know", path=path) from error
