"""Changes between two configurations, and the texts that report them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from midturn.record.codec import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from midturn.record.codec import Json

LONGEST = 150
"""Largest number of characters in the text of a change."""

SHORT = 48
"""Largest number of characters of a value that such a text shows."""

MORE = "is in the object that was built, and not in the state"
"""Report of a field of a user's own object that the stored state does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that is configured differently from before."""

    path: str
    """The path of the agent or team; empty for the outermost."""
    agent: str
    """The name of the agent or team."""
    what: str
    """``prompt``, ``tool``, ``agent``, ``team``, ``output``, ``message type``, ``state``, ``version`` and so on."""
    text: str
    """One line for people."""
    before: Json = None
    after: Json = None
    breaking: bool = False
    """True if the stored state may not fit the agents that are built now."""
    code: str | None = None
    """The lines of a migration that handle the change; optional lines are commented out."""


@dataclass(frozen=True, slots=True)
class Drift:
    """All changes; false if there are none."""

    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        return "\n".join(self.texts)

    @property
    def breaking(self) -> bool:
        """Return whether the stored state needs a migration."""
        return any(change.breaking for change in self.changes)

    @property
    def texts(self) -> list[str]:
        """Return a line for each change, the breaking ones first."""
        return [
            f"{change.text} (needs a migration)" if change.breaking else change.text
            for change in sorted(self.changes, key=lambda change: not change.breaking)
        ]

    def failing(self) -> Drift:
        """Return this drift for a state that does not fit: agents whose class changed have to be reset."""
        return Drift(
            tuple(
                replace(each, breaking=True, code=f"state = state.reset_agent({literal(each.agent)})")
                if each.what == "class"
                else each
                for each in self.changes
            )
        )

    def as_json(self) -> dict[str, Any]:
        """Return this drift as JSON."""
        return {
            "breaking": self.breaking,
            "changes": [
                {name: getattr(change, name) for name in Change.__dataclass_fields__} for change in self.changes
            ],
        }


def variable(name: str) -> str:
    """Return a name for a blueprint's variable in code."""
    return name if name.isidentifier() and not iskeyword(name) else "blueprint"


def change(
    where: tuple[str, str],
    what: str,
    text: str,
    before: Any,
    after: Any,
    *,
    breaking: bool = False,
    code: str | None = None,
) -> Change:
    """Return a change at this path and name, with its text shortened to one line."""
    path, agent = where
    told = line(text)
    told = told if len(told) <= LONGEST else f"{told[: LONGEST - 3]}..."
    return Change(
        path=path, agent=agent, what=what, text=told, before=before, after=after, breaking=breaking, code=code
    )


def more(path: str) -> Change:
    """Return the change for a field of a user's own object, at this path, that the stored state does not have."""
    return change(("", ""), "state", f"{path} {MORE}", None, None, code="# state = state.edit(...): if it got lost")


def said(what: str, before: Json, after: Json) -> str:
    """Return the text that something was added, removed or changed, with both values if they are short."""
    if before is None or after is None:
        return f"{what} {'added' if before is None else 'removed'}"
    for show in (_name, _whole):
        old, new = show(before), show(after)
        if old and new and old != new and max(len(old), len(new)) <= SHORT:
            return f"{what} changed from {old} to {new}"
    return f"{what} changed"


def _name(value: Json) -> str:
    """Return the name of a value that has one, or a plain value."""
    if is_object(value):
        named = value.get("name")
        return named if isinstance(named, str) else ""
    return value if isinstance(value, str) else _whole(value)


def _whole(value: Json) -> str:
    if is_object(value) and isinstance(cls := value.get("class"), str):
        others = ", ".join(f"{key}={item}" for key, item in sorted(value.items()) if key != "class")
        return f"{cls}({others})" if others else cls
    return str(value) if isinstance(value, str | int | float) else ""


def line(text: str) -> str:
    """Return a text as one line, for people to read and for a comment in code."""
    return "".join(sign if sign.isprintable() else "?" for sign in " ".join(text.split()))


def literal(value: Json) -> str:
    """Return a value as Python code, with double quotes around strings where possible without escapes."""
    shown = repr(value)
    return f'"{shown[1:-1]}"' if isinstance(value, str) and shown.startswith("'") and '"' not in value else shown


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; 1, 1.0 and true all differ."""
    return canonical(one) == canonical(other)


def canonical(value: Any) -> str:
    """Return the JSON text of a value in a fixed form, which is equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def display_name(configuration: Mapping[str, Any], path: str) -> str:
    """Return the name of an agent or a team, or the end of its path if it has no name."""
    name = configuration.get("name")
    return name if isinstance(name, str) else path.rpartition("/")[2] or "?"
