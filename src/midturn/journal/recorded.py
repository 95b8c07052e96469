"""The recorded calls of a turn: complete calls, begun calls, and open questions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from midturn.errors import StateInvalid
from midturn.journal.order import Completion
from midturn.questions import Question
from midturn.record.digests import digest
from midturn.record.head import Kind
from midturn.record.readable import readable, visible
from midturn.record.rows import CallRow, decode_record

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from midturn.lease.ledger import Ledger
    from midturn.record.bodies import Bodies


HUMAN = ("human", "approval", "doubt")
"""The kinds of questions to humans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An accepted input: its key, and the time at which its turn was begun."""

    key: str | None = None
    born: float = 0.0
    """The time of the turn's beginning: no other turn of the session has the same time and number."""


@dataclass(slots=True, eq=False)
class Entry(Completion):
    """A recorded call."""

    row: CallRow = field(kw_only=True)
    value: dict[str, Any] = field(kw_only=True)
    number: int = field(kw_only=True)
    """The number of its row in the turn."""
    claimed: bool = False
    """True if this attempt has made the call again."""
    replaced: bool = False
    """True if the model was asked again in a later attempt, and gave another answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A tool call that was begun, or may have been begun."""

    number: int
    """The number of the first row that says so."""
    tool: str
    text: str
    """The call as text for people to read."""


def call_key_of(ledger: Ledger, delivery: Delivery, path: str, key: str, nth: int) -> str:
    """Return the key that a tool gets for its call. It is the same in every attempt, and in every delivery of a key."""
    turn = (delivery.key,) if delivery.key is not None else (ledger.progress.turn, delivery.born)
    return digest(ledger.session, *turn, path, key, nth)


def name_of(ledger: Ledger) -> str:
    """Return a name of the last turn that no other turn of any session has, unless an id was used again."""
    return f"{ledger.progress.turn} {ledger.session}"


def question_of(row: CallRow, value: dict[str, Any], turn: str, born: float) -> Question:
    """Return the question that a row of a turn asks. Its id is unique among all turns of all sessions.

    The time at which the turn was ``born`` is a part of it: an answer must not reach a later session with the same id.
    """
    return Question(
        id=digest(turn, born, row.path, row.what, row.key, row.nth)[:8],
        kind=row.what,  # type: ignore[arg-type]  # only rows with a question get here
        question=visible(value.get("question", "")),  # an answer has none; its question is looked up by the id
        agent=value.get("agent", ""),
        tool=row.name or None,
        arguments=value.get("arguments"),
        schema=value.get("schema"),
    )


class Recorded:
    """The journal of a turn as it was read: complete calls, begun calls, and open questions."""

    def __init__(self, rows: Sequence[tuple[CallRow, dict[str, Any]]] = (), turn: str = "", born: float = 0.0) -> None:
        """Sort the rows of a turn; ``turn`` is the name from :func:`name_of`, ``born`` the time of its beginning."""
        self._turn = turn
        self._born = born
        self.entries: list[Entry] = []
        self.questions: dict[str, tuple[Question, CallRow]] = {}
        """The questions without an answer and their rows, by the ids of the questions."""
        self.seen: dict[str, list[tuple[int, list[Any]]]] = {}
        self._known: dict[tuple[str, str, str, int], Entry] = {}
        self._numbered: dict[int, Entry] = {}
        # A turn may have ten thousand calls, so a call never looks through all others: these have the unclaimed ones.
        self._unclaimed: dict[tuple[str, str], dict[int, Entry]] = {}
        self._effects: dict[str, dict[int, Entry]] = {}
        """The unclaimed calls with an effect, by the name of the tool."""
        self._humans: dict[int, Entry] = {}
        """The unclaimed answers of humans."""
        self._announced: dict[str, list[int]] = {}
        """The numbers of the models' answers that ask for a call, by the key of the call."""
        self._started: Counter[tuple[str, int]] = Counter()
        self._begun: dict[str, Begun] = {}
        self._done: Counter[str] = Counter()
        self.spent = max((row.spent for row, _ in rows), default=0.0)
        self.rows: list[CallRow] = []
        for row, value in rows:
            self.add(row, value)

    def add(self, row: CallRow, value: dict[str, Any]) -> None:
        """Add a row that was written after the others.

        Raises:
            StateInvalid: the value is not one that such a call records.
        """
        number = len(self.rows)
        self.rows.append(row)
        if not _is_sound(row, value):
            raise StateInvalid("the record is damaged", path=f"call {number} of turn {self._turn}")
        if row.what == "tools":
            tools: list[Any] = value["tools"]
            self.seen.setdefault(row.path, []).append((row.nth, tools))
        elif row.stage == "started":
            self._started[row.key, row.nth] += 1
            self._begin(number, row.key, f"{row.name}({row.about})")
        elif row.stage == "asked":
            question = question_of(row, value, self._turn, self._born)
            self.questions[question.id] = question, row
        else:
            self._add_complete(number, row, value)

    def _begin(self, number: int, key: str, text: str) -> None:
        begun = Begun(number=number, tool=text.partition("(")[0], text=text)
        self._begun.setdefault(key, begun)

    def _add_complete(self, number: int, row: CallRow, value: dict[str, Any]) -> None:
        # Once a tool call is complete, nobody asks again for its approval, or whether it took effect.
        entry = Entry(number=number, row=row, value=value, optional=row.what in ("approval", "doubt"))
        entry.gap = max(0.0, row.spent - (self.entries[-1].row.spent if self.entries else 0.0))
        self.entries.append(entry)
        self._known[row.path, row.what, row.key, row.nth] = self._numbered[number] = entry
        self._unclaimed.setdefault((row.path, row.what), {})[number] = entry
        if row.effect != "read":
            self._effects.setdefault(row.name, {})[number] = entry
        for earlier in row.instead:
            if earlier in self._numbered:
                self._numbered[earlier].replaced = True
        for start in row.starts:
            key, _, about = start.partition(" ")
            self._announced.setdefault(key, []).append(number)
            self._begin(number, key, about)
        self._done[row.key] += 1
        if row.what in HUMAN:
            self._humans[number] = entry
            self.questions.pop(question_of(row, {}, self._turn, self._born).id, None)

    def find(self, path: str, what: str, key: str, nth: int) -> Entry | None:
        """Return a complete call, if it is recorded."""
        return self._known.get((path, what, key, nth))

    def demand(self, path: str, what: str, key: str, nth: int) -> Entry:
        """Return a complete call, which has to be recorded."""
        return self._known[path, what, key, nth]

    def begun(self, key: str, nth: int, *, announced: bool) -> int:
        """Return how many times a tool call was begun, or may have been begun."""
        return self._started[key, nth] + (announced and len(self._announced.get(key, ())) > nth)

    def pending(self) -> dict[str, Begun]:
        """Return the tool calls that were begun and never completed, by their keys."""
        return {key: found for key, found in self._begun.items() if not self._done[key]}

    def announced(self, key: str, nth: int) -> int:
        """Return the number of the model's answer that asks for this call; without one, that of the next row."""
        numbers = self._announced.get(key, ())
        return numbers[nth] if nth < len(numbers) else len(self.rows)

    def answered(self, path: str) -> Entry | None:
        """Return the next answer of a model at this path, if something was done because of that answer.

        Either a human has answered a later question, or an earlier turn with the same key got the answer. If the model
        were asked again, it might answer something else.
        """
        last = next(reversed(self._humans), 0)
        for entry in self._unclaimed.get((path, "model"), {}).values():
            if not entry.replaced and (entry.number < last or not entry.row.attempt):
                return entry
        return None

    def acted(self) -> list[str]:
        """Return the calls that had an effect, or may have had one, and what people typed, for people to read."""
        done = [
            f"the answer {readable(entry.value['text'])}" if entry.row.what == "human" else shown_row(entry.row)
            for entry in self.entries
            if entry.row.what == "human" or entry.row.effect != "read"
        ]
        in_doubt = [f"{begun.text}, which may have taken effect" for begun in self.pending().values()]
        return done + in_doubt

    def names(self) -> set[str]:
        """Return the agents and tools of the calls that must not be lost: calls with an effect, and questions."""
        rows = [entry.row for entry in self.entries] + [row for _, row in self.questions.values()]
        kept = [row for row in rows if row.effect != "read" or row.starts or row.what in HUMAN]
        tools = {row.name for row in kept} | {begun.tool for begun in self._begun.values()}
        return {name for row in kept for name in row.path.split("/")} | tools - {""}

    def claim(self, entry: Entry) -> None:
        """Note that this attempt makes a recorded call again."""
        entry.claimed, row = True, entry.row
        self._unclaimed[row.path, row.what].pop(entry.number, None)
        self._effects.get(row.name, {}).pop(entry.number, None)
        self._humans.pop(entry.number, None)

    def left(self) -> list[Entry]:
        """Return the complete calls that this attempt has not made."""
        return [entry for entry in self.entries if not entry.claimed]

    def unclaimed(self, path: str, what: str) -> Collection[Entry]:
        """Return the complete calls of this kind through this path that this attempt has not made."""
        return self._unclaimed.get((path, what), {}).values()

    def effects(self) -> Mapping[str, Mapping[int, Entry]]:
        """Return the complete calls with an effect that this attempt has not made: by the tool, then by number."""
        return self._effects


def shown_row(row: CallRow) -> str:
    """Return a recorded call as text for people to read."""
    return f"{row.name or row.what}({row.about})"


def _is_sound(row: CallRow, value: dict[str, Any]) -> bool:
    """Return whether a value is one that such a call records. What models and tools answer is checked by its reader."""
    match row.stage, row.what, value:
        case (
            "asked",
            "human" | "approval" | "doubt",
            {"question": str(), "agent": str(), "arguments": None | dict(), **more},
        ):
            return isinstance(more.get("schema"), dict | None)
        case (
            ("done", "tools", {"tools": list()})
            | ("done", "human", {"text": str()})
            | ("done", "approval", {"decision": "deny", "text": str()})
            | ("done", "approval", {"decision": "approve", "arguments": None | dict()})
            | ("done", "doubt", {"decision": "done", "text": str()})
            | ("done", "doubt", {"decision": "retry" | "fail"})
        ):
            return True
        case _:
            return row.stage != "asked" and row.what not in (*HUMAN, "tools")


async def read_rows(ledger: Ledger, start: int, stop: int) -> list[CallRow]:
    """Read the rows of the recorded calls with ``start <= number < stop``.

    Raises:
        StateInvalid: a call is missing or damaged.
    """
    found: list[CallRow] = []
    for row in await ledger.store.rows(ledger.session, Kind.CALL, start=start, stop=stop) if stop > start else ():
        name = ledger.name(Kind.CALL, row.n)
        if row.n != start + len(found):
            break
        found.append(decode_record(CallRow, row.data, name))
    if len(found) < stop - start:
        raise ledger.missing(Kind.CALL, start + len(found))
    return found


async def read_values(ledger: Ledger, start: int, stop: int, bodies: Bodies) -> list[tuple[CallRow, dict[str, Any]]]:
    """Read the rows of the recorded calls with ``start <= number < stop``, with their values.

    Raises:
        StateInvalid: a call is missing or damaged.
    """
    rows = await read_rows(ledger, start, stop)
    values = [
        {} if row.value is None else bodies.outline(list(row.value), ledger.name(Kind.CALL, start + i))
        for i, row in enumerate(rows)
    ]
    return list(zip(rows, values, strict=True))


async def read(ledger: Ledger, start: int, stop: int, bodies: Bodies, *, born: float) -> Recorded:
    """Read the recorded calls with ``start <= number < stop``, with their values, of a turn ``born`` at a time.

    Raises:
        StateInvalid: a call is missing or damaged.
    """
    return Recorded(await read_values(ledger, start, stop, bodies), name_of(ledger), born)
