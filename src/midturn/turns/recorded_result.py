"""The recorded result of a turn that is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from midturn.errors import StateInvalid
from midturn.framework import EventT_co, Outcome, ResultT_co
from midturn.history.picked_bodies import PickedBodies
from midturn.record.head import Kind
from midturn.record.rows import CheckpointRow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from midturn.framework import Framework
    from midturn.lease.ledger import Ledger


async def recorded_result(
    ledger: Ledger,
    turn: int,
    framework: Framework[EventT_co, ResultT_co],
    live: Callable[[], Awaitable[Any]],
) -> ResultT_co:
    """Return the recorded result of a turn that is done."""
    row = await ledger.demand(Kind.CHECKPOINT, CheckpointRow, turn)
    return await result_of(row, ledger, turn, framework, live=None, another=live)


async def result_of(
    row: CheckpointRow,
    ledger: Ledger,
    turn: int,
    framework: Framework[EventT_co, ResultT_co],
    *,
    live: Any,
    another: Callable[[], Awaitable[Any]],
) -> ResultT_co:
    """Return the result in a record; ``another`` returns an agent or team that knows the types of its messages."""
    messages = await PickedBodies(ledger, row.bodies).messages(row.messages)
    outcome = Outcome(messages=messages, stop_reason=row.stop_reason, usage=(row.usage[0], row.usage[1]))

    def known(live: Any) -> ResultT_co:
        return framework.result(live, turn=turn, checkpoint=turn, outcome=outcome, notes=row.notes)

    try:
        return known(live)
    except StateInvalid:  # messages of types that only the agent or team itself knows
        return known(await another())
