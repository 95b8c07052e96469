"""Speakers and texts of messages and of the results of calls: for the command line and for the page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midturn.questions import decided
from midturn.record.codec import is_object
from midturn.record.odd import stored

if TYPE_CHECKING:
    from midturn.history.calls import Call
    from midturn.history.turns import StoredTurn

ORIGINS = {
    "run": "",
    "save": "saved by hand",
    "reset": "reset",
    "import": "imported",
    "migration": "migrated",
    "rollback": "rolled back",
    "rewind": "rewound to checkpoint {turn.restores}",
    "edit": "edited",
    "fork": "forked from {turn.forked_from}",
}
"""The origin of a checkpoint, in words; empty for one that a turn made."""


def origin_of(turn: StoredTurn) -> str:
    """Return how a checkpoint came about that no turn made; an empty text for a turn."""
    return ORIGINS[turn.origin].format(turn=turn)


@dataclass(frozen=True, slots=True)
class Said:
    """A speaker and a text. ``aside`` marks a text that is not for the reader: a tool call, its result, a thought."""

    who: str
    text: str
    aside: bool


def said(message: Any) -> Said:
    """Return who says what in a dumped message."""
    match message:
        case {"type": str(kind), "source": str(who), "content": content}:
            return Said(who, text_of(content), kind.endswith("Event"))
        case _:
            return Said("?", text_of(message), aside=False)


def text_of(content: Any) -> str:
    """Return the content of a message, of any kind, as text."""
    match content:
        case str():
            return content
        case {"name": name, "arguments": arguments}:
            return f"{name}({arguments})"
        case {"name": name, "content": result, "call_id": _}:
            return f"{name} returned {result}"
        case {"data": str(), **rest} if not rest:
            return "[image]"
        case [*parts] if parts:
            return "\n".join(text_of(part) for part in parts)
        case _:
            return json.dumps(stored(content, "$"), ensure_ascii=False)


def who_and_what(call: Call) -> tuple[str, str]:
    """Return who made a call, and what was called with its result, as text."""
    called = f"{call.name}({call.arguments})\n" if call.name else ""
    return call.agent or call.kind, called + result_text(call.kind, call.result)


def result_text(kind: str, value: Any) -> str:
    """Return the result of a call of this kind as text."""
    match kind, value:
        case _, {"decision": _}:
            return decided(value)
        case "model", {"content": content}:
            return text_of(content)
        case "code", {"exit_code": code, "output": output}:
            return f"exit code {code}, {text_of(output)}"
        case "tool", {"result": {"result": [*parts]} as found} if all(map(is_object, parts)):
            failed = "failed: " if found.get("is_error") else ""
            return f"{failed}{text_of([part.get('content') for part in parts])}"
        case "memory", _:
            return "changed"
        case _:
            return text_of(value)
