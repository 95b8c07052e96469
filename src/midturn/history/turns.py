"""The turns of a session, as they are read back."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from midturn.errors import NotFound
from midturn.history.calls import call_of
from midturn.history.checkpoints import messages_of
from midturn.history.lineage import Line, left_behind
from midturn.history.picked_bodies import PickedBodies
from midturn.history.session_info import Fork
from midturn.lease.ledger import holder
from midturn.questions import Decision
from midturn.record.head import Kind
from midturn.record.rows import CallRow, CheckpointRow, DecisionRow, FailureRow, TurnRow, decode_record, moment

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from datetime import datetime

    from midturn.history.calls import Call
    from midturn.lease.ledger import Ledger
    from midturn.questions import Question
    from midturn.record.bodies import BodyReader
    from midturn.record.codec import Json
    from midturn.record.rows import Origin

OfTurnT = TypeVar("OfTurnT", FailureRow, DecisionRow)
MessageT_co = TypeVar("MessageT_co", covariant=True)
UsageT_co = TypeVar("UsageT_co", covariant=True)

TurnStatus: TypeAlias = Literal["done", "running", "interrupted", "waiting", "failed", "cancelled"]

PAGE = 200
"""Turns read at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens that models used, as they are stored."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOf(Generic[MessageT_co, UsageT_co]):
    """One turn of a session's history. Its messages and its usage are JSON, or objects of the framework."""

    session: str
    """The id of the session; in a history with its origins, perhaps that of one that this one was forked from."""
    number: int
    status: TurnStatus
    origin: Origin
    task: Sequence[MessageT_co] | None
    messages: Sequence[MessageT_co] = ()
    """The messages of the result. For a turn without a result, those that are known so far."""
    key: str | None = None
    repairs: Sequence[str] = ()
    """A sentence for each part of the state that had to be repaired before the turn."""
    notes: Sequence[str] = ()
    """Sentences about what earlier turns, or earlier attempts at this one, did that a reader has to know."""
    decisions: Sequence[Decision] = ()
    """The questions that people answered, with their answers."""
    attempts: int = 1
    """The number of attempts."""
    calls: Sequence[Call] | None = None
    """The calls, as :meth:`~midturn.Session.turn` reads them; ``None`` if they were not recorded, or not read."""
    questions: Sequence[Question] = ()
    """The open questions, as :meth:`~midturn.Session.open_turn` reads them."""
    drift: Sequence[str] = ()
    """A sentence for each change of the agents since the turn before: prompts, tools, migrations."""
    forked_from: Fork | None = None
    """The checkpoint of another session that this turn began the session with."""
    restores: int | None = None
    """The older checkpoint whose state this turn restored: a rewind, or the rollback of a migration."""
    left_behind_by: int | None = None
    """The later turn that restored a state from before this one. What this turn did stays done."""
    version: int = 1
    """The version of the blueprint that made the checkpoint; without a checkpoint, the one that accepted the input."""
    error: str | None = None
    stop_reason: str | None = None
    usage: UsageT_co
    started: datetime
    ended: datetime | None = None


StoredTurn: TypeAlias = TurnOf["Json", Usage]
"""A turn as it is stored: messages are JSON, exactly as the framework dumped them."""


async def history(line: Line, *, calls: bool = False) -> AsyncGenerator[StoredTurn, None]:
    """Yield some turns of a session whose head was read, oldest first; with ``calls``, those that are kept, too."""
    ledger, picked = line.ledger, PickedBodies(line.ledger, line.ledger.progress.bodies)
    async with aclosing(_read(line, picked)) as turns:
        async for found in turns:
            yield replace(found.turn, calls=await _calls(ledger, picked, found)) if calls else found.turn


async def read_turn(ledger: Ledger, number: int) -> StoredTurn:
    """Return one turn of a session whose head was read, with its calls.

    Raises:
        NotFound: the session has no such turn.
    """
    if not ledger.progress.first <= number <= ledger.progress.turn:
        raise missing_turn(ledger, number)
    picked = PickedBodies(ledger, ledger.progress.bodies)
    line = Line(ledger=ledger, start=number, stop=number + 1, restored=ledger.progress.restored)
    [found] = [found async for found in _read(line, picked)]
    return replace(found.turn, calls=await _calls(ledger, picked, found))


async def last_failure(ledger: Ledger, turn: int) -> FailureRow | None:
    """Return the record of the last time that a turn has ended without a result, if there is one."""
    kept = range(ledger.progress.first_failure, ledger.progress.failures)
    failures = _of_turns(ledger, Kind.FAILURE, FailureRow, kept, range(turn, turn + 1))
    last = None
    async for failure in failures:
        last = failure
    return last


def missing_turn(ledger: Ledger, number: int) -> NotFound:
    """Make the error for a turn that is not there."""
    if ledger.head is None:
        return NotFound.of(ledger.session)
    latest, first = ledger.progress.turn, ledger.progress.first
    if 1 <= number < first:
        which = f"turn {number} any more; what is before turn {first} was removed"
        return NotFound(f"session {ledger.session!r} has no {which}", session=ledger.session)
    which = f"turn {number}; the latest is {latest}" if latest else "turns yet"
    return NotFound(f"session {ledger.session!r} has no {which}", session=ledger.session)


class _Found(NamedTuple):
    turn: StoredTurn
    calls: Sequence[int]
    """The numbers of the turn's first call and of the one after its last; empty if they were not recorded."""


async def _read(line: Line, picked: PickedBodies) -> AsyncGenerator[_Found, None]:
    ledger, stop = line.ledger, line.stop
    store, session, progress = ledger.store, ledger.session, ledger.progress
    bodies = picked.bodies
    behind = await left_behind(ledger, line.restored, line.start)
    failed = range(progress.first_failure, progress.failures)
    for page in range(line.start, stop, PAGE):
        numbers = range(page, min(page + PAGE, stop))
        failures = {
            failure.turn: failure async for failure in _of_turns(ledger, Kind.FAILURE, FailureRow, failed, numbers)
        }
        decisions: dict[int, list[Decision]] = {}
        async for decision in _of_turns(ledger, Kind.DECISION, DecisionRow, range(progress.decisions), numbers):
            decisions.setdefault(decision.turn, []).append(_decision(decision))
        done = {
            row.n: decode_record(CheckpointRow, row.data, ledger.name(Kind.CHECKPOINT, row.n))
            for row in await store.rows(session, Kind.CHECKPOINT, start=numbers.start, stop=numbers.stop)
            if row.n <= progress.checkpoint  # a later one is not of the head that was read
        }
        turns = {
            row.n: decode_record(TurnRow, row.data, ledger.name(Kind.TURN, row.n))
            for row in await store.rows(session, Kind.TURN, start=numbers.start, stop=numbers.stop)
        }
        for number in numbers:
            if number not in turns:
                raise ledger.missing(Kind.TURN, number)
            if number not in done and number not in failures and (number < progress.turn or progress.open is None):
                raise ledger.missing(Kind.CHECKPOINT, number)
        shown = [number for turn in turns.values() for number in turn.task or ()]
        shown += [number for row in done.values() for number in row.messages]
        await picked.read(shown)
        for number, turn in turns.items():
            ended = done.get(number) or failures.get(number)
            calls: Sequence[int] = ended.calls if ended is not None else ()
            if number == progress.turn and progress.open is not None:
                calls = (progress.journal, progress.calls)
                if progress.open in ("running", "waiting"):
                    ended = None  # it had failed before, and was tried again
            if isinstance(ended, CheckpointRow):
                found = _complete(ledger, number, turn, ended, bodies)
            else:
                found = _incomplete(ledger, number, turn, ended, bodies)
            by = next((by for left, by in behind.items() if number in left), None)
            yield _Found(replace(found, decisions=decisions.get(number, ()), left_behind_by=by), calls)


async def _of_turns(
    ledger: Ledger, kind: Kind, cls: type[OfTurnT], kept: range, turns: range
) -> AsyncGenerator[OfTurnT, None]:
    """Yield the rows of some turns, out of those that are ``kept``. They were written in the order of their turns."""
    low, high = kept.start, kept.stop
    while turns.start > 1 and high - low > PAGE:
        middle = (low + high) // 2
        found = await ledger.read(kind, cls, middle)
        if found is not None and found.turn < turns.start:
            low = middle + 1
        else:
            high = middle
    for page in range(low, kept.stop, PAGE):
        numbers = range(page, min(page + PAGE, kept.stop))
        rows = await ledger.store.rows(ledger.session, kind, start=numbers.start, stop=numbers.stop)
        if gone := set(numbers).difference(row.n for row in rows):
            raise ledger.missing(kind, min(gone))
        for row in rows:
            found = decode_record(cls, row.data, ledger.name(kind, row.n))
            if found.turn >= turns.stop:
                return
            if found.turn >= turns.start:
                yield found


def _complete(ledger: Ledger, number: int, turn: TurnRow, done: CheckpointRow, bodies: BodyReader) -> StoredTurn:
    forked, progress = done.origin == "fork", ledger.progress
    return TurnOf(
        session=ledger.session,
        number=number,
        status="done",
        origin=done.origin,
        task=messages_of(bodies, turn.task),
        messages=messages_of(bodies, done.messages) or (),
        key=turn.key,
        repairs=turn.repairs,
        notes=done.notes,
        attempts=done.attempts,
        drift=done.drift,
        forked_from=Fork(session=progress.forked_from, checkpoint=progress.forked_at) if forked else None,
        restores=done.restores,
        version=done.version,
        stop_reason=done.stop_reason,
        usage=Usage(prompt_tokens=done.usage[0], completion_tokens=done.usage[1]),
        started=moment(turn.at),
        ended=moment(done.at),
    )


def _incomplete(
    ledger: Ledger, number: int, turn: TurnRow, failure: FailureRow | None, bodies: BodyReader
) -> StoredTurn:
    last = number == ledger.progress.turn
    status: TurnStatus = "interrupted"
    if failure is not None:
        status = failure.status
    elif last and ledger.progress.open == "waiting":
        status = "waiting"
    elif last and holder(ledger.head) is not None:
        status = "running"
    usage = ledger.progress.paid if failure is None else failure.usage
    return TurnOf(
        session=ledger.session,
        number=number,
        status=status,
        origin="run",
        task=messages_of(bodies, turn.task),
        key=turn.key,
        repairs=turn.repairs,
        notes=turn.notes,
        attempts=failure.attempts if failure is not None else max(ledger.progress.attempts, 1),
        version=turn.version,
        error=failure.error if failure is not None else None,
        usage=Usage(prompt_tokens=usage[0], completion_tokens=usage[1]),
        started=moment(turn.at),
        ended=moment(failure.at) if failure is not None else None,
    )


async def _calls(ledger: Ledger, picked: PickedBodies, found: _Found) -> Sequence[Call] | None:
    """Return the calls of a turn; ``None`` if they were not recorded, or were removed since."""
    if not found.calls:
        return None
    first, after = found.calls
    rows = await ledger.store.rows(ledger.session, Kind.CALL, start=first, stop=after) if first < after else ()
    if len(rows) < after - first:
        if found.turn.number < ledger.progress.generation[0]:
            return None
        raise ledger.missing(Kind.CALL, first + len(rows))
    decoded = [decode_record(CallRow, row.data, ledger.name(Kind.CALL, row.n)) for row in rows]
    replaced = {number for row in decoded for number in row.instead}
    shown = [
        (row, partial(_value, row, picked.bodies, f"call {first + number}"))
        for number, row in enumerate(decoded)
        if row.stage == "done" and row.what != "tools" and number not in replaced
    ]
    await picked.read_for([value for _, value in shown])
    return tuple(call_of(row, value()) for row, value in shown)


def _value(row: CallRow, bodies: BodyReader, path: str) -> Json:
    return {} if row.value is None else bodies.outline(list(row.value), path)


def _decision(row: DecisionRow) -> Decision:
    return Decision(
        question=row.question,
        kind=row.kind,
        agent=row.agent,
        tool=row.tool or None,
        arguments=row.arguments,
        answer=row.answer,
        changed=row.changed,
        by=row.by or None,
        why=row.why or None,
        at=moment(row.at),
    )
