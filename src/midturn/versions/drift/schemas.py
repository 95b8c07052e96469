"""Comparison of JSON schemas: can values that were written under one of them be read under another?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from midturn.record.codec import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from midturn.record.codec import Json

PROSE = {"title", "description", "default", "examples", "deprecated"}
"""Keys of a schema that do not restrict its values."""

DEFAULTS: dict[str, Json] = {"string": "", "integer": 0, "number": 0.0, "boolean": False, "array": [], "object": {}}


@dataclass(frozen=True, slots=True)
class Misfit:
    """A field that may keep old values from fitting."""

    field: str
    """The field's name; inside another field ``customer.name``, inside a list ``lines[].price``."""
    what: Literal["added", "removed", "changed"]
    default: Json = None
    """A value of the field's type, for a field that was added."""

    @property
    def is_nested(self) -> bool:
        """Return whether the field is inside another field or a list."""
        return "." in self.field or "[" in self.field


def misfits(before: Json, after: Json) -> list[Misfit]:
    """Return the required fields that were added, the fields that were removed, and those that take other values."""
    return list(_Pair(before, after).walk(before, after, "", frozenset()))


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two whole schemas, in which references are resolved."""

    before: Json
    after: Json

    def walk(self, old: Json, new: Json, at: str, seen: frozenset[tuple[str, str]]) -> Iterator[Misfit]:
        both = (_reference(old), _reference(new))
        if both in seen:
            return
        seen = seen | {both} if all(both) else seen
        old, new = _resolved(old, self.before), _resolved(new, self.after)
        fields, present = _object(old, "properties"), _object(new, "properties")
        if fields or present:
            yield from self._fields(fields, present, _required(new), at, seen)
        elif is_object(old) and is_object(new) and "items" in old and "items" in new:
            yield from self.walk(old["items"], new["items"], f"{at}[]", seen)
        elif not _fits(_options(old, self.before), _options(new, self.after)):
            yield Misfit(at or "it", "changed")

    def _fields(
        self,
        old: dict[str, Any],
        new: dict[str, Any],
        required: set[str],
        at: str,
        seen: frozenset[tuple[str, str]],
    ) -> Iterator[Misfit]:
        before = f"{at}." if at else ""
        for name, schema in old.items():
            if name in new:
                yield from self.walk(schema, new[name], f"{before}{name}", seen)
            else:
                yield Misfit(f"{before}{name}", "removed")
        for name, schema in new.items():
            if name not in old and name in required:
                yield Misfit(f"{before}{name}", "added", _default(_resolved(schema, self.after)))


def _object(schema: Json, key: str) -> dict[str, Any]:
    value = schema.get(key) if is_object(schema) else None
    return value if is_object(value) else {}


def _list(schema: Json, key: str) -> list[Any]:
    value = schema.get(key) if is_object(schema) else None
    return value if is_array(value) else []


def _required(schema: Json) -> set[str]:
    return {name for name in _list(schema, "required") if isinstance(name, str)}


def _reference(schema: Json) -> str:
    found = schema.get("$ref") if is_object(schema) else None
    return found if isinstance(found, str) else ""


def _resolved(schema: Json, root: Json) -> Json:
    """Return a schema, or the schema that it refers to."""
    followed: set[str] = set()
    while (reference := _reference(schema)) and reference not in followed:
        followed.add(reference)
        schema = _object(root, "$defs").get(reference.removeprefix("#/$defs/"))
    return schema


def _options(schema: Json, root: Json) -> list[Json]:
    """Return the alternatives for a value, each as a schema without prose and references."""
    found: list[Json] = []
    for each in _list(schema, "anyOf") or [schema]:
        shape = _shape(each, root, frozenset())
        enumerated = _list(shape, "enum")
        found += [{**_object({"it": shape}, "it"), "enum": [one]} for one in enumerated] or [shape]
    return found


def _fits(old: list[Json], new: list[Json]) -> bool:
    """Return whether each of the old options is one of the new ones."""
    known = {_canonical(option) for option in new}
    if _canonical({"type": "number"}) in known:
        known.add(_canonical({"type": "integer"}))
    return {_canonical(option) for option in old} <= known


def _shape(schema: Json, root: Json, seen: frozenset[str]) -> Json:
    if is_array(schema):
        return [_shape(item, root, seen) for item in schema]
    if reference := _reference(schema):
        return "again" if reference in seen else _shape(_resolved(schema, root), root, seen | {reference})
    if not is_object(schema):
        return schema
    shape = {key: _shape(value, root, seen) for key, value in schema.items() if key not in PROSE | {"properties"}}
    if "const" in shape:
        shape["enum"] = [shape.pop("const")]
    if properties := _object(schema, "properties"):  # a field may have the same name as a key of prose
        shape["properties"] = {name: _shape(value, root, seen) for name, value in properties.items()}
    return shape


def _default(schema: Json) -> Json:
    """Return a value that probably fits a schema; ``None`` if there is no obvious one."""
    if not is_object(schema):
        return None
    if values := _list(schema, "enum") or [schema[key] for key in ("const", "default") if key in schema]:
        first: Json = values[0]
        return first
    kind = schema.get("type")
    return DEFAULTS.get(kind) if isinstance(kind, str) else None


def _canonical(value: Json) -> str:
    return json.dumps(value, sort_keys=True)
