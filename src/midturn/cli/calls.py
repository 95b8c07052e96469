"""The calls of a turn, for people and scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from midturn.cli.messages import Said, text_of
from midturn.cli.output import say
from midturn.questions import decided
from midturn.record.codec import is_object

if TYPE_CHECKING:
    from midturn.history.calls import Call
    from midturn.history.turns import StoredTurn

PEOPLE = ("human", "approval", "doubt")
"""Kinds of calls that people answer."""


def print_calls(turn: StoredTurn) -> None:
    """Print the calls of a turn, one line each, without reads of a memory."""
    shown = [call for call in turn.calls or () if call.kind != "memory" or call.effect != "read"]
    if shown:
        say(f"turn {turn.number} has done:")
    for call in shown:
        say(Text("  ").append_text(_line(call)))


def _line(call: Call) -> Text:
    who = call.kind if call.kind in PEOPLE else call.path or call.kind
    result = _result(call.kind, call.result)
    return Said(who, f"{call.name}: {result}" if call.name else result, aside=True).as_line()


def who_and_what(call: Call) -> tuple[str, str]:
    """Return who made a call, and what was called with its result, as text."""
    called = f"{call.name}({call.arguments})\n" if call.name else ""
    return call.agent or call.kind, called + _result(call.kind, call.result)


def _result(kind: str, value: Any) -> str:
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
