"""The turns of a session, as they are read back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from midturn.history.checkpoints import messages_of, read_bodies
from midturn.questions import Decision
from midturn.record.head import Kind
from midturn.record.rows import CheckpointRow, DecisionRow, FailureRow, TurnRow, decode_record

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from midturn.lease.ledger import Ledger
    from midturn.record.bodies import Bodies
    from midturn.record.codec import Json
    from midturn.record.rows import Origin

PAGE = 200
"""Turns read at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of a session's history; messages are JSON, exactly as the framework dumped them."""

    number: int
    status: Literal["done", "running", "waiting", "failed", "cancelled"]
    origin: Origin
    task: Sequence[Json] | None
    messages: Sequence[Json] = ()
    key: str | None = None
    repairs: Sequence[str] = ()
    """What was broken in the state before the turn and was mended for it."""
    notes: Sequence[str] = ()
    """What was not as it had been when the turn was finished after an interruption."""
    decisions: Sequence[Decision] = ()
    """What people were asked, and what they answered."""
    attempts: int = 1
    """How many times the turn was begun."""
    drift: Sequence[str] = ()
    """What had changed in the agents since the turn before, which prompts and which tools, and what was migrated."""
    version: int = 1
    """Of the blueprint: the one that made the checkpoint, or that accepted the input."""
    error: str | None = None
    stop_reason: str | None = None
    usage: tuple[int, int] = (0, 0)
    started: float
    ended: float | None = None


async def history(ledger: Ledger, *, start: int = 0, stop: int | None = None) -> AsyncGenerator[Turn, None]:
    """The turns with ``start <= number < stop``, oldest first."""
    store, session, progress = ledger.store, ledger.session, ledger.progress
    bodies = await read_bodies(ledger, progress.bodies)
    failures: dict[int, FailureRow] = {}
    for row in await store.rows(session, Kind.FAILURE, stop=progress.failures):
        failure = decode_record(FailureRow, row.data, ledger.name(Kind.FAILURE, row.n))
        failures[failure.turn] = failure
    decisions: dict[int, list[Decision]] = {}
    for row in await store.rows(session, Kind.DECISION, stop=progress.decisions):
        decision = decode_record(DecisionRow, row.data, ledger.name(Kind.DECISION, row.n))
        decisions.setdefault(decision.turn, []).append(_decision(decision))
    stop = progress.turn + 1 if stop is None else min(stop, progress.turn + 1)
    for page in range(start, stop, PAGE):
        limits = {"start": page, "stop": min(page + PAGE, stop)}
        done = {
            row.n: decode_record(CheckpointRow, row.data, ledger.name(Kind.CHECKPOINT, row.n))
            for row in await store.rows(session, Kind.CHECKPOINT, **limits)
            if row.n <= progress.checkpoint  # a later one is not of the head that was read
        }
        for row in await store.rows(session, Kind.TURN, **limits):
            turn = decode_record(TurnRow, row.data, ledger.name(Kind.TURN, row.n))
            going = row.n == progress.turn and progress.open in ("running", "waiting")
            ended = None if going else failures.get(row.n)
            found = _turn(row.n, turn, done.get(row.n), ended, bodies)
            found = replace(found, decisions=decisions.get(row.n, ()))
            yield replace(found, status="waiting") if going and progress.open == "waiting" else found


def _turn(number: int, turn: TurnRow, done: CheckpointRow | None, failure: FailureRow | None, bodies: Bodies) -> Turn:
    task = messages_of(bodies, turn.task)
    if done is not None:
        return Turn(
            number=number,
            status="done",
            origin=done.origin,
            task=task,
            messages=messages_of(bodies, done.messages) or (),
            key=turn.key,
            repairs=turn.repairs,
            notes=done.notes,
            attempts=done.attempts,
            drift=done.drift,
            version=done.version,
            stop_reason=done.stop_reason,
            usage=(done.usage[0], done.usage[1]),
            started=turn.at,
            ended=done.at,
        )
    return Turn(
        number=number,
        status=failure.status if failure else "running",
        origin="run",
        task=task,
        key=turn.key,
        repairs=turn.repairs,
        version=turn.version,
        error=failure.error if failure else None,
        started=turn.at,
        ended=failure.at if failure else None,
    )


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
        at=row.at,
    )
