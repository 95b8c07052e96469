"""The one JSON codec: strict both ways, the same for every store."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeGuard

import orjson

from midturn.errors import InvalidArgument, StateInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

class_of: Callable[[object], Any] = type
"""``type()``, with a result that type checkers accept for an ``Any`` and as the key of a cache."""

KEYS = {str}
CONTAINERS = {dict, list}
MAX_DEPTH = 100
MAX_RECORD_DEPTH = MAX_DEPTH + 4
"""Most levels of a stored record: those of a value, two around it, and a marker inside it that stands for a text."""
MAX_BYTES = 64 * 1024 * 1024
"""Size limit of one value: a small worker's memory holds four copies of the value while it is written."""


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a JSON value is an object."""
    return type(value) is dict


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return whether a JSON value is an array."""
    return type(value) is list


def encode(value: object, path: str = "$") -> bytes:
    """Return the JSON bytes of a plain value.

    Raises:
        StateInvalid: JSON cannot represent the value exactly; ``path`` names the part.
    """
    check(value, path)
    return encode_checked(value, path)


def encode_checked(value: object, path: str = "$") -> bytes:
    """Return the JSON bytes of a value that the caller has checked already."""
    data = orjson.dumps(value)
    if len(data) > MAX_BYTES:
        raise too_long(len(data), path)
    return data


def too_long(size: int, path: str) -> StateInvalid:
    """Make the error for a value whose JSON is too long."""
    return StateInvalid(f"{size:,} bytes of JSON; the limit for one value is {MAX_BYTES:,}", path=path)


def decode(data: bytes, what: str) -> Any:
    """Return the value of JSON bytes that midturn wrote; ``what`` names the bytes in the error.

    The value is nested so little that functions that call themselves can walk it.

    Raises:
        StateInvalid: the bytes are not JSON, or nested deeper than any record.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        message = f"not JSON: {error}"
        raise StateInvalid(message, path=what) from None
    # Most records are short: without so many brackets they cannot be deep, and counting takes next to no time.
    if data.count(b"[") + data.count(b"{") > MAX_RECORD_DEPTH and _is_deep(value):
        message = f"nested deeper than {MAX_RECORD_DEPTH} levels"
        raise StateInvalid(message, path=what)
    return value


def _is_deep(value: Any) -> bool:
    """Return whether a parsed value is nested deeper than any record."""
    level = [value]
    for _ in range(MAX_RECORD_DEPTH):
        level = [
            item
            for each in level
            for item in (each.values() if class_of(each) is dict else each if class_of(each) is list else ())
            if class_of(item) in CONTAINERS
        ]
        if not level:
            return False
    return True


def decode_foreign(data: bytes, what: str) -> Any:
    """Return the value of JSON bytes from outside.

    Unlike a lenient reader, this one rejects NaN and duplicate keys.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            [(twice, _)] = Counter(name for name, _ in items).most_common(1)
            message = f"the key {twice!r} occurs twice in one object"
            raise StateInvalid(message, path=what)
        return found

    def constant(name: str) -> NoReturn:
        message = f"{name} is not a JSON number"
        raise StateInvalid(message, path=what)

    try:
        value = json.loads(data, object_pairs_hook=pairs, parse_constant=constant)
    except RecursionError:
        message = f"nested deeper than {MAX_DEPTH} levels"
        raise StateInvalid(message, path=what) from None
    except ValueError as error:  # also not UTF-8, and integers of thousands of digits
        message = f"not JSON: {error}"
        raise StateInvalid(message, path=what) from None
    check(value, f"{what} $")
    return value


def check(value: object, path: str = "$", *, depth: int = MAX_DEPTH) -> None:
    """Check that JSON can represent a value exactly, in at most ``depth`` levels.

    Raises:
        StateInvalid: it cannot; the error has the path of the wrong part and the reason.
    """
    if not fits(value, depth):
        part, problem = next(iter(_problems(value, path, depth)))
        raise StateInvalid(problem, path=part)


def check_argument(value: object, path: str) -> None:
    """Check that JSON can represent an argument of a caller exactly.

    Raises:
        InvalidArgument: it cannot; the error has the path of the wrong part and the reason.
    """
    try:
        check(value, path)
    except StateInvalid as error:
        raise InvalidArgument.of(error) from None


def difference(one: Json, other: Json, path: str = "$") -> str | None:
    """Return the path of the first difference between two values, if they differ."""
    if is_object(one) and is_object(other):
        for key in sorted({*one, *other}, key=str):
            if key not in one or key not in other:
                return f"{path}.{key}"
            if found := difference(one[key], other[key], f"{path}.{key}"):
                return found
        return None
    if is_array(one) and is_array(other):
        for index, (left, right) in enumerate(zip(one, other, strict=False)):
            if found := difference(left, right, f"{path}[{index}]"):
                return found
        return None if len(one) == len(other) else f"{path}[{min(len(one), len(other))}]"
    same = type(one) is type(other) and (one == other or (one != one and other != other))  # noqa: PLR0124 - NaN
    return None if same else path


def fits(value: object, depth: int = MAX_DEPTH) -> bool:
    """Return whether JSON can represent a value exactly, in at most ``depth`` levels."""
    # One loop: most of the values in a state are short, and a function call for each would take longer than the check.
    inside: list[Iterator[Any]] = [iter((value,))]
    while inside:
        for item in inside[-1]:
            kind = class_of(item)
            if kind is str:
                good = item.isascii() or _is_unicode(item)
            elif kind is dict or kind is list:
                good = len(inside) <= depth and (kind is list or set(map(class_of, item)) <= KEYS)
                if good:
                    inside.append(iter(item) if kind is list else chain(item, item.values()))
                    break
            else:
                good = item is None or kind is bool or _is_number(item)
            if not good:
                return False
        else:
            inside.pop()
    return True


def _is_number(value: object) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return type(value) is float and math.isfinite(value)


def _is_key(key: object) -> bool:
    return type(key) is str and (key.isascii() or _is_unicode(key))


def _problems(value: object, path: str, depth: int) -> Iterable[tuple[str, str]]:
    if (is_object(value) or is_array(value)) and depth == 0:
        yield path, f"nested deeper than {MAX_DEPTH} levels"
    elif is_object(value):
        for key, item in value.items():
            if not _is_key(key):
                # The repr of a foreign object may fail; that of an integer of thousands of digits does.
                shown = ascii(key) if type(key) is str else f"a {_name(key)}"
                yield path, f"{shown} cannot be the key of a JSON object"
            else:
                yield from _problems(item, f"{path}.{key}", depth - 1)
    elif is_array(value):
        for index, item in enumerate(value):
            yield from _problems(item, f"{path}[{index}]", depth - 1)
    elif not fits(value, depth):
        if type(value) is str:
            yield path, "half of a surrogate pair is not a character"
        elif type(value) is int:
            yield path, "an integer beyond 64 bits"
        else:
            yield path, f"{value} is not a JSON number" if type(value) is float else f"a {_name(value)} is not JSON"


def _name(value: object) -> str:
    return type(value).__name__


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
