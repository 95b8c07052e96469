"""Moving sealed sessions to another key: each gets its data key wrapped anew, in one small write.

Any other write of a session does that, too. So this is for the sessions that nobody uses. A deep rekeying also makes a
new data key and seals all rows again; it is the way for a session that is not sealed yet.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from midturn.errors import Conflict, InvalidArgument, LeaseLost, NotFound, SessionBusy, SessionDeleted, StateInvalid
from midturn.history.listing import Listing
from midturn.lease.ledger import Ledger
from midturn.stores.sealed.store import Sealed, key_id_of, sealed_part
from midturn.turns.acts import Act

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from midturn.lease.ledger import Seen
    from midturn.record.head import Head
    from midturn.store import Store

Stays: TypeAlias = Literal["held", "changed", "plain", "unreadable"]
"""The reason for which a session stays as it is. ``held``: a living worker holds it; its next write wraps its data key.
``changed``: somebody wrote it in the same moment. ``plain``: it is not sealed, and this is no deep rekeying.
``unreadable``: its record was changed, or its key is not at hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRekeyed:
    """A session that stays as it is."""

    session: str
    reason: Stays
    detail: str
    """A sentence that says more."""


Outcome: TypeAlias = Literal["moved", "current"] | NotRekeyed
"""The outcome for a session. ``current``: it had the current key already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RekeyReport:
    """The sessions that :meth:`~midturn.OpenStore.rekey` has moved to the current key, and those that stay."""

    key: str
    """The id of the current key."""
    rekeyed: Sequence[str]
    """The ids of the sessions that were moved; after a dry run, of those that would be."""
    current: int
    """Number of sessions that had the current key already."""
    skipped: Sequence[NotRekeyed]
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCounts:
    """The number of sessions by key."""

    key: str
    """The id of the current key."""
    sessions: Mapping[str, int] = field(default_factory=dict[str, int])
    deleted: Mapping[str, int] = field(default_factory=dict[str, int])
    """The same for the records of deletions. They keep their key."""
    plain: int = 0
    """Number of sessions that are not sealed."""
    unreadable: int = 0


def sealed_store(store: Store) -> Sealed:
    """Return the part of an open store that seals.

    Raises:
        InvalidArgument: the store was opened without keys.
    """
    found = sealed_part(store)
    if found is None:
        raise InvalidArgument("the store was opened without keys: set MIDTURN_KEYS", path="keys")
    return found


async def count_keys(store: Store) -> KeyCounts:
    """Return how many sessions each key seals."""
    sealed = sealed_store(store)
    counts: dict[bool, dict[str, int]] = {False: {}, True: {}}
    plain = unreadable = 0
    async with aclosing(Listing.of().every(sealed.inner)) as heads:
        async for head in heads:
            try:
                key_id = key_id_of(head)
            except StateInvalid:
                unreadable += 1
                continue
            of = counts[head.status == "deleted"]
            plain += not key_id
            if key_id:
                of[key_id] = of.get(key_id, 0) + 1
    return KeyCounts(
        key=await sealed.current_key(),
        sessions=counts[False],
        deleted=counts[True],
        plain=plain,
        unreadable=unreadable,
    )


class Rekeying:
    """One rekeying of some sessions, or of all."""

    def __init__(self, store: Store, *, deep: bool, dry_run: bool, by: str, why: str, seen: Seen) -> None:
        self._store = store
        self._sealed = sealed_store(store)
        self._deep = deep
        self._dry_run = dry_run
        self._by = by
        self._why = why
        self._seen = seen

    async def heads(self, sessions: Sequence[str] | None) -> list[Head]:
        """Return the heads of some sessions, or of all, as the inner store has them.

        Raises:
            NotFound: there is no such session.
            SessionDeleted: the session was deleted.
        """
        if sessions is None:
            async with aclosing(Listing.of().heads(self._sealed.inner, None)) as every:
                return [head async for head in every]
        found: list[Head] = []
        for session in sessions:
            head = await self._sealed.inner.head(session)
            if head is None:
                raise NotFound.of(session)
            if head.status == "deleted":
                raise SessionDeleted.of(session)
            found.append(head)
        return found

    async def run(self, heads: Sequence[Head], current: str, jobs: int) -> AsyncGenerator[tuple[str, Outcome], None]:
        """Rekey sessions, ``jobs`` at a time. Yield each with its outcome."""
        queue = iter(heads)
        waiting: set[asyncio.Task[tuple[str, Outcome]]] = set()
        try:
            while True:
                while len(waiting) < jobs and (head := next(queue, None)) is not None:
                    waiting.add(asyncio.create_task(self._one(head, current)))
                if not waiting:
                    return
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _one(self, head: Head, current: str) -> tuple[str, Outcome]:  # noqa: PLR0911 - one for each end
        session = head.session
        try:
            key_id = key_id_of(head)
            if key_id == current and not self._deep:
                return session, "current"
            if not key_id and not self._deep:
                return session, NotRekeyed(session=session, reason="plain", detail="is not sealed; --deep seals it")
            if not self._dry_run:
                await self._rekey(session, key_id, current)
        except SessionBusy as error:
            return session, NotRekeyed(session=session, reason="held", detail=f"is held by {error.owner}")
        except SessionDeleted:
            return session, "current"  # nothing of it is left
        except (Conflict, LeaseLost):
            return session, NotRekeyed(session=session, reason="changed", detail="was written meanwhile; run again")
        except StateInvalid as error:
            return session, NotRekeyed(session=session, reason="unreadable", detail=str(error))
        return session, "moved"

    async def _rekey(self, session: str, before: str, current: str) -> None:
        ledger = Ledger(self._store, session, seen=self._seen)
        await ledger.refresh()
        if ledger.head is None:
            raise SessionDeleted.of(session)
        if owner := ledger.busy():
            raise SessionBusy(f"worker {owner} holds session {session!r}", session=session, owner=owner)
        question = f"Seal it with key {current}?"
        about = {"from": before or None, "to": current} | ({"deep": True} if self._deep else {})
        act = Act(kind="rekey", question=question, by=self._by, why=self._why, about=about)
        progress = ledger.progress
        await ledger.write(
            status=ledger.head.status,
            progress=replace(progress, decisions=progress.decisions + 1),
            rows=[act.row(progress.decisions, progress.turn)],
            release=not self._deep,
        )
        if self._deep:
            await self._sealed.reseal(session)
