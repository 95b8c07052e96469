"""Fill a store with thousands of copies of one session, without running their turns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from midturn.record.head import Kind, Write

if TYPE_CHECKING:
    from collections.abc import Iterable

    from midturn.store import Store


async def multiply(store: Store, session: str, ids: Iterable[str]) -> None:
    """Write copies of an idle session under other ids, each in one write. Each copy contains its own id."""
    head = await store.head(session)
    if head is None:
        raise LookupError(session)
    rows = [row for kind in Kind for row in await store.rows(session, kind)]
    for number, id_ in enumerate(ids):
        await store.write(
            Write(
                session=id_,
                seq=0,
                epoch=1,
                status=head.status,
                labels=head.labels,
                token=f"copy-{number}",
                data=head.data,
                rows=tuple(replace(row, data=row.data.replace(session.encode(), id_.encode())) for row in rows),
            )
        )
