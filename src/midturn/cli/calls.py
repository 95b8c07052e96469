"""What the open turn of a session has done, for people and for scripts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from midturn.cli.messages import Said, text_of
from midturn.cli.output import say
from midturn.questions import decided
from midturn.record.codec import is_object
from midturn.turns.open_turn import read_open_turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from midturn.journal.recorded import Entry
    from midturn.lease.ledger import Ledger
    from midturn.questions import Question

PEOPLE = ("human", "approval", "doubt")
"""Calls that were answered by people."""


@dataclass(frozen=True, slots=True)
class Done:
    """A call that is complete."""

    agent: str
    what: str
    tool: str | None
    result: str

    def as_line(self) -> Text:
        """Who did what, in one line."""
        who = self.what if self.what in PEOPLE else self.agent or self.what
        return Said(who, f"{self.tool}: {self.result}" if self.tool else self.result, aside=True).as_line()


async def open_turn(ledger: Ledger) -> tuple[list[Done], tuple[Question, ...]]:
    """What the open turn has done, and what it asks if it waits; nothing if there is none.

    Raises:
        StateInvalid: it is damaged.
    """
    if ledger.progress.open is None:
        return [], ()
    found = (await read_open_turn(ledger)).recorded
    asked = found.questions.values() if ledger.progress.open == "waiting" else ()
    return list(_done(found.entries)), tuple(question for question, _ in asked)


def print_calls(turn: int, calls: Sequence[Done]) -> None:
    """What an open turn has done, a line for each call."""
    if calls:
        say(f"turn {turn} has done:")
    for call in calls:
        say(Text("  ").append_text(call.as_line()))


def _done(entries: Iterable[Entry]) -> Iterator[Done]:
    for entry in entries:
        row = entry.row
        if not entry.replaced and (row.what != "memory" or row.effect != "read"):
            agent, _, _ = row.path.rpartition("/")
            yield Done(agent, row.what, row.name or None, _result(row.what, entry.value))


def _result(what: str, value: dict[str, Any]) -> str:
    match what, value:
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
