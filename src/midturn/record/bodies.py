"""Reading the bodies of a session: messages get their keys and their long strings back.

:mod:`midturn.record.packing` writes the bodies and documents their format.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import orjson

from midturn.errors import StateInvalid
from midturn.record.codec import class_of, is_array, is_object
from midturn.record.head import FORMAT, versioned
from midturn.record.odd import ODD, restored

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Iterable, Iterator, Sequence

    from midturn.record.codec import Json
    from midturn.record.head import Row

BODY = "$"
NESTED = (dict, list)


class _Form(NamedTuple):
    """The keys and shared values from which the messages of one form are rebuilt."""

    whole: dict[str, Json]
    """All keys in their order, with the values that every message has."""
    empty: list[tuple[str, type[Any]]]
    """The keys whose value is an empty list or object; each message gets a new one."""
    varying: list[str]
    """The keys whose values each message stores itself."""
    is_odd: bool = False
    """The only value is the stored form of an odd object."""


class Values(Protocol):
    """The values of bodies, by number."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> Any: ...


class BodyReader:
    """Rebuilds messages from the values of bodies."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._forms: dict[int, _Form] = {}

    def message(self, number: int, path: str) -> dict[str, Json]:
        """Return the message whose body has this number."""
        found = self._values[number] if 0 <= number < len(self._values) else None
        if class_of(found) is not list or not found:
            raise StateInvalid(f"body {number} is missing or is not a message", path=path)
        return self.outline(found, path)

    def outline(self, array: list[Any], path: str) -> dict[str, Json]:
        """Return the object that :meth:`midturn.record.packing.Archive.inline` turned into this array."""
        number = array[0] if array else None
        form = self._forms.get(number) if type(number) is int else None
        if form is None:
            form = self._form(number, path)
        if len(form.varying) != len(array) - 1:
            raise _formless(path)
        if form.is_odd:
            odd: dict[str, Json] = self._odd(array[1], path)
            return odd
        found = form.whole.copy()
        for key, kind in form.empty:
            found[key] = kind()
        for key, value in zip(form.varying, array[1:], strict=True):
            found[key] = self.whole(value, path) if class_of(value) in NESTED else value
        return found

    def whole(self, value: Any, path: str) -> Any:
        """Return a value with its long strings back in place."""
        if class_of(value) is dict:
            if BODY in value:
                return self._long(value[BODY], path)
            if ODD in value:
                return self._odd(value[ODD], path)
            return {unescape(key): self.whole(item, path) for key, item in value.items()}
        if class_of(value) is list:
            return [self.whole(item, path) if class_of(item) in NESTED else item for item in value]
        return value

    def _odd(self, value: Any, path: str) -> Any:
        return restored(value, path, lambda item: self.whole(item, path))

    def _long(self, number: Any, path: str) -> Any:
        if class_of(number) is list:
            return self.outline(number, path)
        text = self._values[number] if type(number) is int and 0 <= number < len(self._values) else None
        if type(text) is not str:
            raise StateInvalid(f"body {number} is missing or is not a text", path=path)
        return text

    def _form(self, number: Any, path: str) -> _Form:
        listed = self._values[number] if type(number) is int and 0 <= number < len(self._values) else None
        if listed == [[ODD]]:
            form = _Form({}, [], [ODD], is_odd=True)
            self._forms[number] = form
            return form
        form = _Form({}, [], [])
        for item in listed if is_array(listed) else [None]:
            match item:
                case str(key):
                    form.whole[key] = None
                    form.varying.append(key)
                case [str(key), [] | {} as value] if not value:
                    form.whole[key] = None
                    form.empty.append((key, dict if is_object(value) else list))
                case [str(key), None | str() as value]:
                    form.whole[key] = value
                case _:
                    raise _formless(path)
        self._forms[number] = form
        return form


class Bodies(BodyReader):
    """All bodies of a session, from the first one on."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        super().__init__(self.values)

    def extend(self, rows: Sequence[Row], holes: int = 0) -> None:
        """Add the bodies of the next rows; those below ``holes`` may have been removed.

        Raises:
            StateInvalid: a body is missing.
        """
        for row in rows:
            if row.n > len(self.values):
                self.skip(min(row.n, holes))
            if row.n != len(self.values):
                raise StateInvalid(f"body {len(self.values)} is missing", path=f"body {row.n}")
            self.values += _bodies_in(row)

    def skip(self, stop: int) -> None:
        """Take the bodies up to a number as removed. Whoever needs one of them gets an error."""
        self.values += [None] * (stop - len(self.values))


class SomeBodies(BodyReader):
    """Those bodies of a session that were read; ``missing`` collects the numbers of the others that somebody needs."""

    def __init__(self, count: int) -> None:
        self._read = _Sparse(count)
        super().__init__(self._read)

    @property
    def missing(self) -> set[int]:
        """Return the numbers of the bodies that were needed and not read."""
        return self._read.missing

    def has(self, number: int) -> bool:
        """Return whether a body was read."""
        return number in self._read

    def add(self, rows: Sequence[Row]) -> None:
        """Add the bodies of rows.

        Raises:
            StateInvalid: a row is damaged.
        """
        for row in rows:
            self._read.update(enumerate(_bodies_in(row), start=row.n))


class _Sparse(dict[int, Any]):
    """Values by number. Most of them were not read; ``missing`` collects the numbers of those that are asked for."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self.missing: set[int] = set()

    def __len__(self) -> int:
        return self._count

    def __missing__(self, number: int) -> None:
        self.missing.add(number)


def references(
    bodies: Sequence[Any], *, messages: Iterable[int], skeletons: Iterable[int], outlines: Iterable[list[Any]]
) -> set[int]:
    """Return the numbers of all bodies that messages, skeletons and outlined objects need, with those inside them.

    Raises:
        StateInvalid: one of them is missing.
    """
    found, rest = set(messages), set(skeletons)
    used = found | rest
    for number in used:
        if number >= len(bodies) or bodies[number] is None:
            raise StateInvalid("is missing; restore it from a backup", path=f"body {number}")
    for array in (*(bodies[number] for number in found), *outlines):
        used.update(_outlined(array) if class_of(array) is list else ())
    for number in rest:
        used.update(_inside(bodies[number]))
    return used


def _outlined(array: list[Any]) -> Iterator[int]:
    """Yield the numbers that the stored form of an object refers to: that of its keys, then those in its values."""
    yield from array[:1]
    for value in array[1:]:
        yield from _inside(value)


def _inside(value: Any) -> Iterator[int]:
    """Yield the numbers that a value refers to."""
    if class_of(value) is dict and BODY in value:
        yield from _outlined(value[BODY]) if class_of(value[BODY]) is list else [value[BODY]]
    elif class_of(value) in NESTED:
        for item in value.values() if class_of(value) is dict else value:
            if class_of(item) in NESTED:
                yield from _inside(item)


def without(row: Row, used: Container[int]) -> tuple[Row | None, int]:
    """Return a row without the bodies that are not used, and the number of these; ``None`` if no body is left."""
    bodies = _bodies_in(row)
    left = [value if row.n + index in used else None for index, value in enumerate(bodies)]
    gone = sum(value is not None for value in bodies) - sum(value is not None for value in left)
    if not gone:
        return row, 0
    if not any(value is not None for value in left):
        return None, gone
    return replace(row, data=orjson.dumps({"v": FORMAT, "bodies": left})), gone


def is_without_some(old: Row, new: Row) -> bool:
    """Return whether a row has the bodies of an older one, apart from those that were removed since."""
    before, after = _bodies_in(old), _bodies_in(new)
    return len(before) == len(after) and all(
        value is None or value == other for other, value in zip(before, after, strict=True)
    )


def _bodies_in(row: Row) -> list[Any]:
    found = versioned(row.data, f"body {row.n}").get("bodies")
    if not is_array(found) or not found:  # a row without bodies would be read again and again
        raise StateInvalid(f"body {row.n} is missing", path=f"body {row.n}")
    return found


@contextmanager
def gc_paused() -> Generator[None]:
    """Pause Python's garbage collector in a block that creates many lasting objects and awaits nothing.

    While thousands of objects are created, Python searches all existing ones for unused cycles again and again. By
    measurement that takes a third of the time that restoring a long session needs.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def unescape(key: str) -> str:
    """Return the key of an object whose stored form this is: without the ``$`` that keeps it apart from a marker."""
    return key.removeprefix("$")


def _formless(path: str) -> StateInvalid:
    return StateInvalid("is an object whose form is missing or damaged", path=path)
