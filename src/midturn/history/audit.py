"""The audit trail: who did what to a session, when and why. It is read from decisions and tombstones alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from midturn.errors import SessionDeleted, StateInvalid, UnknownVersion
from midturn.history.session_info import tombstone_of
from midturn.lease.ledger import Ledger, consistent
from midturn.record.head import Kind
from midturn.record.rows import Decided, DecisionRow, decode_record, moment, progress_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Mapping
    from datetime import datetime

    from midturn.record.codec import Json
    from midturn.record.head import Head
    from midturn.record.rows import Tombstone
    from midturn.store import Store

Audited: TypeAlias = Decided | Literal["delete", "unreadable"]
"""The kind of an act: that of a decision, or ``delete``. ``unreadable`` is no act: the session's trail is damaged."""

PAGE = 200
"""Decisions of a session that are read at once."""
AT_ONCE = 50
"""Sessions whose trails are read at once."""
FACTS = ("question", "answer", "agent", "tool", "arguments", "changed")
"""The fields of a decision that become details, if they say anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One act of a person or an operator on a session."""

    session: str
    at: datetime
    what: Audited
    by: str | None = None
    """The person who did it, as given by the caller."""
    why: str | None = None
    turn: int | None = None
    """The turn that the act decided about or made; ``None`` for a deletion."""
    details: Mapping[str, Json] = field(default_factory=dict[str, "Json"])
    """The question with its answer and its arguments; the problem, if the trail cannot be read."""


async def audit(
    store: Store, heads: AsyncIterable[Head], *, since: float, by: str | None
) -> AsyncGenerator[AuditEntry, None]:
    """Yield the acts on the sessions with these heads since a time: session by session, each in its order.

    With ``by``, yield only those of this person.
    """
    start = moment(since)
    async for trail in _trails(store, heads):
        for entry in trail:
            if entry.what == "unreadable" or (entry.at >= start and by in (None, entry.by)):
                yield entry


async def _trails(store: Store, heads: AsyncIterable[Head]) -> AsyncGenerator[list[AuditEntry], None]:
    """Yield the trail of each session. Some are read at once, because the way to a server takes longer than a read."""
    some: list[Head] = []

    async def read() -> list[list[AuditEntry]]:
        found = await asyncio.gather(*(_trail(store, each) for each in some), return_exceptions=True)
        trails: list[list[AuditEntry]] = []
        for result in found:
            if isinstance(result, BaseException):
                raise result
            trails.append(result)
        some.clear()
        return trails

    async for head in heads:
        some.append(head)
        if len(some) == AT_ONCE:
            for trail in await read():
                yield trail
    for trail in await read():
        yield trail


async def _trail(store: Store, head: Head) -> list[AuditEntry]:
    """Return the acts on a session, in order. For a deleted session, return only its deletion."""
    try:
        if (stone := tombstone_of(head)) is not None:
            return [_deleted(head, stone)]
        count = progress_of(head).decisions
        ledger = Ledger(store, head.session)
        found = await _decisions(ledger, count)
        if len(found) == count:  # there may be more by now, but these never change
            return found
        return await consistent(store, head.session, _all_decisions)
    except SessionDeleted:
        now = await store.head(head.session)
        return [] if now is None else await _trail(store, now)
    except (StateInvalid, UnknownVersion) as error:
        details: dict[str, Json] = {"problem": str(error)}
        return [AuditEntry(session=head.session, at=moment(head.updated), what="unreadable", details=details)]


async def _all_decisions(ledger: Ledger) -> list[AuditEntry]:
    found = await _decisions(ledger, ledger.progress.decisions)
    if len(found) < ledger.progress.decisions:
        raise ledger.missing(Kind.DECISION, len(found))
    return found


async def _decisions(ledger: Ledger, count: int) -> list[AuditEntry]:
    """Return so many decisions of a session, up to the first one that is missing."""
    found: list[AuditEntry] = []
    for start in range(0, count, PAGE):
        stop = min(start + PAGE, count)
        for row in await ledger.store.rows(ledger.session, Kind.DECISION, start=start, stop=stop):
            if row.n != len(found):
                return found
            name = ledger.name(Kind.DECISION, row.n)
            found.append(_decided(ledger.session, decode_record(DecisionRow, row.data, name)))
    return found


def _decided(session: str, row: DecisionRow) -> AuditEntry:
    details: dict[str, Any] = {name: value for name in FACTS if (value := getattr(row, name))}
    return AuditEntry(
        session=session,
        at=moment(row.at),
        what=row.kind,
        by=row.by or None,
        why=row.why or None,
        turn=row.turn,
        details=details,
    )


def _deleted(head: Head, stone: Tombstone) -> AuditEntry:
    return AuditEntry(
        session=head.session,
        at=moment(head.updated),
        what="delete",
        by=stone.by or None,
        why=stone.why or None,
    )
