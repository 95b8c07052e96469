"""Compacting one session: removing what is before a turn, except what the later states need.

The first write removes the earlier turns and checkpoints, and adds a row in their place that has what they appended to
the lists of the later states. From then on, the session begins with the first turn that is kept. The bodies follow, in
writes of limited size: those that nothing refers to any more. The head says how far that has come, so the next
compaction continues an interrupted one. All writes need the lease, and the session can be used between two of them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from midturn.errors import Conflict, InvalidArgument
from midturn.history.checkpoints import absent, read_bodies
from midturn.lease.ledger import Changed, Ledger
from midturn.record.bodies import gc_paused, references, without
from midturn.record.head import Kind, Removal, Row
from midturn.record.packing import needed
from midturn.record.rows import (
    BaseRow,
    CallRow,
    CheckpointRow,
    FailureRow,
    KeyRow,
    TurnRow,
    calls_before,
    decode_appends,
    decode_record,
    encode_record,
    plain_appends,
)
from midturn.stopping import settled, stop_of
from midturn.turns.acts import Act

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midturn.lease.ledger import Seen
    from midturn.record.packing import Append
    from midturn.stopping import Stop
    from midturn.store import Store

PAGE = 500
"""Number of rows that are read at once."""
CHUNK = 500_000
"""Limit on the bytes of the rows that a write replaces."""
REMOVALS = 200
"""Largest number of ranges of rows that a write removes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """Result of a compaction: the numbers of what it has removed."""

    first: int
    """The number of the first turn that is kept."""
    turns: int
    """Number of turns that were removed."""
    bodies: int
    """Number of messages, texts and states that were removed."""


async def compact(
    store: Store,
    session: str,
    before: int,
    *,
    by: str,
    why: str = "",
    patience: float,
    lease: float | None = None,
    seen: Seen | None = None,
) -> Compacted:
    """Remove the turns, checkpoints and calls before a turn of a session, and return what was removed.

    Raises:
        InvalidArgument: ``before`` is not the number of a turn.
        NotFound: there is no such session, or no checkpoint from that turn on.
        SessionBusy: another worker holds the session for too long.
        LeaseLost: another worker took the session over. What was not removed yet stays; compact it again.
    """
    if type(before) is not int or before < 1:
        raise InvalidArgument(f"is {before!r}; give the number of the first turn to keep", path="before")
    stop, until = stop_of(None), time.monotonic() + patience
    ledger = Ledger(store, session, lease=lease, seen=seen)
    while True:
        await ledger.refresh()
        if ledger.head is None or before > ledger.progress.checkpoint:
            raise absent(ledger, before)
        await ledger.wait(until, stop)
        try:
            async with ledger.reading():
                turns, used = await _cut(ledger, before, by, why)
        except Conflict as conflict:  # another worker was faster
            if time.monotonic() >= until:
                raise conflict.reason if isinstance(conflict, Changed) else conflict from None
            continue
        return Compacted(first=ledger.progress.first, turns=turns, bodies=await _sweep(ledger, used))


async def _cut(ledger: Ledger, before: int, by: str, why: str) -> tuple[int, set[int]]:
    """Remove the turns before a turn, and take the lease.

    Return the number of turns that were removed, and the numbers of the bodies that the rest needs.
    """
    progress, head = ledger.progress, ledger.head
    assert head is not None  # noqa: S101 - for the type checker
    first = max(before, progress.first)
    if before <= progress.first and progress.swept == progress.holes:
        return 0, set()
    rows = await ledger.store.rows(ledger.session, Kind.CHECKPOINT, stop=progress.checkpoint + 1)
    kept = [
        (decode_record(CheckpointRow, row.data, ledger.name(Kind.CHECKPOINT, row.n)), decode_appends(row))
        for row in rows
        if row.n >= first
    ]
    checkpoints, later = [row for row, _ in kept], [appends for _, appends in kept]
    earlier = [decode_appends(row) for row in rows if row.n < first]
    base = needed(earlier, later, [span for row in checkpoints for span in row.spans])
    failures = [failure for failure in await _failures(ledger) if failure.turn >= first]
    ranges = [calls for calls in [row.calls for row in checkpoints] + [row.calls for row in failures] if calls]
    if progress.open is not None:
        ranges.append((progress.journal, progress.calls))
    call = min((start for start, _ in ranges), default=progress.calls)
    used = await _used(ledger, first, call, checkpoints, [*later, base])
    if before <= progress.first:  # an earlier compaction was interrupted
        await ledger.write(status=head.status, progress=progress)
        return 0, used
    first_failure = progress.failures - len(failures)
    act = Act(kind="compact", question=f"Remove the turns before turn {before}?", by=by, why=why)
    await ledger.write(
        status=head.status,
        progress=replace(
            progress,
            first=before,
            first_failure=first_failure,
            holes=progress.bodies,
            swept=0,
            generation=progress.generation if progress.generation[0] >= before else (before, call),
            decisions=progress.decisions + 1,
        ),
        rows=[
            Row(kind=Kind.CHECKPOINT, n=before - 1, data=encode_record(BaseRow(appends=plain_appends(base)))),
            act.row(progress.decisions, progress.turn),
        ],
        removes=[
            Removal(Kind.TURN, 0, before),
            Removal(Kind.CHECKPOINT, 0, before),
            Removal(Kind.FAILURE, 0, first_failure),
            Removal(Kind.CALL, 0, call),
        ],
    )
    return before - progress.first, used


async def _failures(ledger: Ledger) -> list[FailureRow]:
    progress = ledger.progress
    rows = await ledger.store.rows(ledger.session, Kind.FAILURE, start=progress.first_failure, stop=progress.failures)
    if len(rows) < progress.failures - progress.first_failure:
        raise ledger.missing(Kind.FAILURE, progress.first_failure)
    return [decode_record(FailureRow, row.data, ledger.name(Kind.FAILURE, row.n)) for row in rows]


async def _sweep(ledger: Ledger, used: set[int]) -> int:
    """Remove the bodies that are not used, give the lease back, and return the number of removed bodies."""
    if ledger.progress.swept == ledger.progress.holes:
        return 0
    lost: Stop = asyncio.get_running_loop().create_future()
    async with ledger.hold(lost):
        return await settled(_remove(ledger, used))


async def _remove(ledger: Ledger, used: set[int]) -> int:
    """Remove all bodies below ``progress.holes`` that are not used."""
    removed = 0
    removes: list[Removal] = []
    rows: list[Row] = []
    size = 0

    async def write(swept: int) -> None:
        nonlocal removes, rows, size
        assert ledger.head is not None  # noqa: S101 - for the type checker
        progress = replace(ledger.progress, swept=swept)
        last = swept == progress.holes
        await ledger.write(
            status=ledger.head.status, progress=progress, rows=rows, removes=removes, release=last, sheltered=True
        )
        removes, rows, size = [], [], 0

    holes = ledger.progress.holes
    for start in range(ledger.progress.swept, holes, PAGE):
        page = await ledger.store.rows(ledger.session, Kind.BODY, start=start, stop=min(start + PAGE, holes))
        for row in page:
            left, gone = without(row, used)
            if not gone:
                continue
            removed += gone
            if removes and removes[-1].stop == row.n:
                removes[-1] = Removal(Kind.BODY, removes[-1].start, row.n + 1)
            else:
                removes.append(Removal(Kind.BODY, row.n, row.n + 1))
            if left is not None:
                rows.append(left)
                size += len(left.data)
            if size > CHUNK or len(removes) >= REMOVALS:
                await write(row.n + 1)
    await write(holes)
    return removed


async def _used(
    ledger: Ledger, first: int, call: int, checkpoints: Sequence[CheckpointRow], logs: Sequence[Sequence[Append]]
) -> set[int]:
    """Return the numbers of the bodies that the rows from a turn and a call on need, also through other bodies."""
    store, session = ledger.store, ledger.session
    messages = {number for appends in logs for append in appends for number in append.bodies}
    for done in checkpoints:
        messages.update(done.messages if done.fingerprint is None else (done.fingerprint, *done.messages))
    for row in await store.rows(session, Kind.TURN, start=first):
        turn = decode_record(TurnRow, row.data, ledger.name(Kind.TURN, row.n))
        messages.update(turn.task or ())
        messages.update(() if turn.fingerprint is None else (turn.fingerprint,))
    calls = [
        decode_record(CallRow, row.data, ledger.name(Kind.CALL, row.n))
        for row in await store.rows(session, Kind.CALL, start=call)
    ]
    for row in await store.rows(session, Kind.KEY):
        calls += calls_before(decode_record(KeyRow, row.data, ledger.name(Kind.KEY, row.n)))
    bodies = await read_bodies(ledger, ledger.progress.bodies)
    with gc_paused():
        used = references(
            bodies.values,
            messages=messages,
            skeletons=[done.skeleton for done in checkpoints],
            outlines=[list(call.value) for call in calls if call.value],
        )
    ledger.forget_bodies()
    return used
