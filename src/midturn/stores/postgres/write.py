"""One write of a session in Postgres: one statement, and a second one only to find out why nothing was written."""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

from midturn.record.codec import encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midturn.record.head import Write
    from midturn.stores.postgres.pool import Connection


MOST_ROWS = 16
"""A write with more rows uses the function: each number of rows needs a prepared statement on each connection."""

HEAD_VALUES = 10
"""Number of values in the statement before those of its rows."""

_NUMBER, _TIMES = struct.Struct("!d"), struct.Struct("!dd")
_BYTES = psycopg.adapters.types["bytea"]


class Datas(tuple[bytes, ...]):
    """Values of type ``bytea[]``."""

    __slots__ = ()


class _DatasDumper(Dumper):
    """Dumper to the server's binary form. By measurement, psycopg's takes as long for a list as for all the rest."""

    format = Format.BINARY
    oid = _BYTES.array_oid

    def dump(self, obj: Datas) -> bytes:
        # Number of dimensions, no nulls, the type of the values, then the length and first index of the only dimension.
        head = struct.pack("!iiIii", 1, 0, _BYTES.oid, len(obj), 1)
        return head + b"".join([part for data in obj for part in (len(data).to_bytes(4), data)])


psycopg.adapters.register_dumper(Datas, _DatasDumper)  # concerns only this class of ours


class Verdict(NamedTuple):
    """The outcome of a write: "written", "repeated", "deleted", "later" or "conflict"."""

    what: str
    created: float
    updated: float


async def apply(connection: Connection, sql: Mapping[str, bytes], write: Write) -> Verdict:
    """Apply a write, if the session's head is the one that the writer saw, and return the outcome."""
    # In a transaction, the caller may have chosen another encoding.
    direct = connection.limited and connection.info.encoding == "utf-8"
    if direct and write.seq and not write.removes and 0 < len(write.rows) <= MOST_ROWS:
        # Most writes. The function also reports why it wrote nothing, but by measurement takes longer.
        name, query = _statement(sql["advance"], len(write.rows))
        if times := await connection.ask(name, query, _in_order(write)):
            return Verdict("written", *_TIMES.unpack(b"".join(times)))
    cursor = await connection.execute(sql["write"], _by_name(write), binary=True)
    [found] = await cursor.fetchall()
    return Verdict(*found)


@lru_cache(maxsize=1024)
def _statement(text: bytes, rows: int) -> tuple[bytes, bytes]:
    """Return the unique name and the text of the statement for so many rows."""
    query = text.replace(_row(0), b", ".join(map(_row, range(rows))))
    return b"midturn_" + blake2b(query, digest_size=8).hexdigest().encode(), query


def _row(number: int) -> bytes:
    first = HEAD_VALUES + 3 * number + 1
    return b"($%d::bigint, $%d::bigint, $%d::bytea)" % (first, first + 1, first + 2)


def _in_order(write: Write) -> list[bytes | None]:
    """Return the values for the statement, in the server's binary form."""
    values = [
        write.epoch.to_bytes(8, signed=True),
        write.status.encode(),
        b"\x01" + encode(dict(write.labels), "labels"),  # jsonb, version 1
        None if write.owner is None else write.owner.encode(),
        write.token.encode(),
        write.data,
        None if write.owner is None else _NUMBER.pack(write.lease),
        write.session.encode(),
        write.seq.to_bytes(8, signed=True),
        None if write.after is None else write.after.encode(),
    ]
    for row in write.rows:
        values += [row.kind.to_bytes(8), row.n.to_bytes(8, signed=True), row.data]
    return values


def _by_name(write: Write) -> dict[str, object]:
    """Return the values for the function."""
    return {
        "session": write.session,
        "seq": write.seq,
        "after": write.after,
        "epoch": write.epoch,
        "status": write.status,
        "labels": encode(dict(write.labels), "labels").decode(),
        "owner": write.owner,
        "lease": write.lease,
        "token": write.token,
        "data": write.data,
        "kinds": _array([row.kind for row in write.rows]),
        "numbers": _array([row.n for row in write.rows]),
        "datas": Datas([row.data for row in write.rows]),
        "gone": _array([removal.kind for removal in write.removes]),
        "starts": _array([removal.start for removal in write.removes]),
        "stops": _array([removal.stop for removal in write.removes]),
    }


def _array(numbers: Sequence[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"
