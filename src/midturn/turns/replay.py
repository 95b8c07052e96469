"""Running a finished turn again from its journal, without any call, to compare today's code with the record."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midturn.errors import InvalidArgument, NotFound
from midturn.framework import Outcome
from midturn.history.checkpoints import input_of, messages_of, read_bodies
from midturn.history.turns import missing_turn
from midturn.journal import recorded
from midturn.record.codec import difference
from midturn.record.head import Kind
from midturn.record.rows import CheckpointRow, TurnRow
from midturn.turns.rerun import RecordedCalls, UnknownCall, built_before, check_kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midturn.autogen.adapter import Event
    from midturn.framework import Framework
    from midturn.lease.ledger import Ledger
    from midturn.stopping import Stop
    from midturn.versions.blueprint import Blueprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The outcome of running a turn again."""

    turn: int
    differences: Sequence[str]
    """The differences from the record: a path in the transcript, or a call."""
    notes: Sequence[str]
    """Requests to models or humans that have changed; they got the recorded answers nevertheless."""
    messages: Sequence[Event]
    """The messages of this run."""

    @property
    def same(self) -> bool:
        """Return whether the turn ran as it is recorded, apart from ids and times."""
        return not self.differences


async def replay(ledger: Ledger, turn: int, blueprint: Blueprint, framework: Framework[Any, Any]) -> Replay:
    """Run a finished turn again in a newly built agent or team.

    Raises:
        NotFound: there is no such turn, or its calls were removed or never recorded.
        InvalidArgument: the turn did not run to its end.
        StateInvalid: the state before it does not fit.
    """
    name = f"turn {turn}"
    if not ledger.progress.first <= turn <= ledger.progress.turn:
        raise missing_turn(ledger, turn)
    row, task = await ledger.read(Kind.CHECKPOINT, CheckpointRow, turn), await ledger.demand(Kind.TURN, TurnRow, turn)
    if row is None or row.origin != "run":
        raise InvalidArgument("did not run to its end", path=name, session=ledger.session)
    bodies = await read_bodies(ledger, row.bodies)
    if not row.calls:
        raise NotFound(f'{name} has no recorded calls; it ran with durability="turn"', session=ledger.session)
    first, after = row.calls
    await check_kept(ledger, first, after, f"the calls of {name} were removed")
    known = await recorded.read(ledger, first, after, bodies, born=task.at)
    redaction = blueprint.redaction(ledger.session)
    live = await built_before(ledger, row.parent, blueprint, framework, redaction)
    halt: Stop = asyncio.get_running_loop().create_future()
    calls, outcome, differences = RecordedCalls(known, halt, redaction=redaction), Outcome(messages=[]), list[str]()
    given = input_of(ledger.session, turn, task, bodies)
    if redaction is not None:
        redaction.learn(given.task)
    try:
        stream = framework.stream(live, given, calls, blueprint.effects, [halt])
        async with aclosing(stream):
            async for item in stream:
                outcome = item if isinstance(item, Outcome) else outcome
    except UnknownCall as other:
        differences.append(str(other))
    except Exception as error:  # noqa: BLE001 - the code of today may raise anything: that is a difference
        differences.append(f"raises {type(error).__name__}: {error}")
    finally:
        await calls.close()
    if not differences:
        then = {"messages": messages_of(bodies, row.messages), "stop_reason": row.stop_reason}
        now = {"messages": list(outcome.messages), "stop_reason": outcome.stop_reason}
        where = difference(_comparable(framework, then), _comparable(framework, now), name)
        differences += [f"{where} is different"] if where else []
        # Models that were asked again after a change, and questions about a tool, need not be there a second time.
        left = [each.row for each in known.left() if each.row.what in ("tool", "code", "memory")]
        differences += [f"{each.path}: {each.name} is not called" for each in left]
    said: Sequence[Event] = ()
    if outcome.native is not None:
        said = framework.result(live, turn=turn, checkpoint=turn, outcome=outcome).messages
    return Replay(turn=turn, differences=differences, notes=calls.notes, messages=tuple(said))


def _comparable(framework: Framework[Any, Any], said: dict[str, Any]) -> dict[str, Any]:
    return {**said, "messages": [framework.identity(message) for message in said["messages"] or ()]}
