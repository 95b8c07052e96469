"""Many sessions from one: what thousands of cases in a store are like, without running a turn for each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from midturn.record.head import Kind, Write

if TYPE_CHECKING:
    from collections.abc import Iterable

    from midturn.store import Store


async def multiply(store: Store, session: str, ids: Iterable[str]) -> None:
    """Write copies of a session that rests under other ids, each in one write; where it names itself, so do they."""
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
