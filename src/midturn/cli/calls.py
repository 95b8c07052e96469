"""The calls of a turn, for people and scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from midturn.cli.messages import as_line
from midturn.cli.output import say
from midturn.history.spoken import Said, result_text

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
    result = result_text(call.kind, call.result)
    return as_line(Said(who, f"{call.name}: {result}" if call.name else result, aside=True))
