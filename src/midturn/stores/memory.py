"""``memory://``: sessions in the memory of this process, lost when it ends. For tests and first experiments."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from midturn.errors import Conflict, SessionDeleted, StoreUnavailable
from midturn.record.head import NO_LABELS, Head, Kind, Row, Status, Write
from midturn.store import matching

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midturn.store import ListOrder, Profile


class MemoryStore:
    """Sessions in two dicts."""

    profile: Profile = "volatile"

    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}
        self._rows: dict[str, dict[tuple[Kind, int], Row]] = {}
        self._closed = False

    async def head(self, session: str) -> Head | None:
        self._check_open()
        head = self._heads.get(session)
        return head and replace(head, now=time.time())

    async def heads(
        self,
        *,
        after: str = "",
        limit: int = 100,
        prefix: str = "",
        status: Status | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        order: ListOrder = "id",
        reverse: bool = False,
    ) -> Sequence[Head]:
        self._check_open()
        found = matching(
            self._heads.values(),
            after=after,
            limit=limit,
            prefix=prefix,
            status=status,
            labels=labels,
            order=order,
            reverse=reverse,
        )
        now = time.time()
        return [replace(head, now=now) for head in found]

    async def counts(self) -> Mapping[Status, int]:
        self._check_open()
        return Counter(head.status for head in self._heads.values())

    async def write(self, write: Write) -> Head:
        self._check_open()
        old = self._heads.get(write.session)
        if old is not None and old.status == "deleted":
            raise SessionDeleted.of(write.session)
        if not write.follows(old):
            raise Conflict.of(write.session)
        rows = self._rows.get(write.session, {})
        if write.removes:
            rows = {key: rows[key] for key in write.left(rows)}
        new = {(row.kind, row.n): row for row in write.rows}
        if rows.keys() & new.keys() or len(new) < len(write.rows):
            raise Conflict.of(write.session)
        now = time.time()
        head = write.head(now=now, created=old.created if old else now)
        self._heads[write.session] = head
        rows.update(new)
        self._rows[write.session] = rows
        return head

    async def rows(self, session: str, kind: Kind, *, start: int = 0, stop: int | None = None) -> Sequence[Row]:
        self._check_open()
        rows = self._rows.get(session, {})
        return sorted(
            (row for row in rows.values() if row.kind is kind and start <= row.n and (stop is None or row.n < stop)),
            key=lambda row: row.n,
        )

    async def delete(self, session: str, *, data: bytes = b"") -> bool:
        self._check_open()
        head = self._heads.get(session)
        if head is None or head.status == "deleted":
            return False
        self._rows.pop(session, None)
        self._heads[session] = head.deleted(now=time.time(), data=data)
        return True

    async def forget(self, session: str) -> bool:
        self._check_open()
        head = self._heads.get(session)
        if head is not None and head.status != "deleted":
            raise Conflict.of(session)
        return self._heads.pop(session, None) is not None

    async def close(self) -> None:
        self._heads.clear()
        self._rows.clear()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable.closed()
