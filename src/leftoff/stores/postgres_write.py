"""One write of a session in Postgres: the new head and new rows are one statement, and it is one round trip."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leftoff.codec import encode
from leftoff.stores.postgres_pool import Datas

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leftoff.records import Write
    from leftoff.stores.postgres_pool import Connection


class Outcome(NamedTuple):
    """What became of a write: "written", "repeated", "deleted", "later" or "conflict"."""

    what: str
    created: float
    updated: float


async def apply(connection: Connection, sql: Mapping[str, bytes], write: Write) -> Outcome:
    """Write, if the session's head is the one that the writer saw."""
    values = _values(write)
    if connection.limited and write.seq and not write.prune:
        # Most writes: by measurement this takes a sixth less time than the function, which says why it wrote nothing.
        cursor = await connection.execute(sql["advance"], values, binary=True)
        if found := await cursor.fetchone():
            return Outcome(*found)
    cursor = await connection.execute(sql["write"], values, binary=True)
    [found] = await cursor.fetchall()
    return Outcome(*found)


def _values(write: Write) -> dict[str, object]:
    return {
        "session": write.session,
        "seq": write.seq,
        "after": write.after,
        "epoch": write.epoch,
        "status": write.status,
        "labels": encode(dict(write.labels), "labels").decode() if write.labels else "{}",
        "owner": write.owner,
        "lease": write.lease,
        "token": write.token,
        "data": write.data,
        "kinds": _array([row.kind for row in write.rows]),
        "numbers": _array([row.n for row in write.rows]),
        "datas": Datas([row.data for row in write.rows]),
        "prune": write.prune,
    }


def _array(numbers: Sequence[int]) -> str:
    return f"{{{','.join(map(int.__repr__, numbers))}}}"
