"""Format of a session in Redis; the comment at the top of ``script.lua`` describes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote, unquote

from midturn.errors import StateInvalid, UnknownVersion
from midturn.record.codec import decode, encode, is_object
from midturn.record.head import Head, Kind, Row, Status, is_time

if TYPE_CHECKING:
    from midturn.record.head import Write

FORMAT = b"1"
LAST_N = 2**63 - 1
MICROSECONDS = 1_000_000
DIGITS = 20
"""Most digits of a number of 64 bits."""

_HEAD = re.compile(rb"h1 (\d+) (\d+) (\d+) (\d+) ([a-z]+) =(\S*)\n([^\n]*)\n(.*)", re.DOTALL)
_ROW = re.compile(rb"\d([0-9a-f]{16}):")
_ESCAPES = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})


class Keys:
    """The names of a store's keys. In a cluster, the part in braces determines the slot of a key."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.translate(_ESCAPES)
        index = f"{{{self._prefix}}}:"
        self.ids = f"{index}ids".encode()
        self.begun = f"{index}begun".encode()
        self.changed: dict[Status, bytes] = {status: f"{index}{status}".encode() for status in get_args(Status)}
        """For each status, the ids of its sessions by the time of their last change."""

    def session(self, session: str) -> bytes:
        """Return the only key of a session."""
        return f"{self._prefix}:{{{session.translate(_ESCAPES)}}}".encode()


def microseconds(time: list[bytes]) -> int:
    """Return the reply to TIME as one number."""
    return int(time[0]) * MICROSECONDS + int(time[1])


def score(text: bytes) -> int:
    """Return the time that a list has for a session. Another program may have written one that is no number."""
    return round(min(max(float(text), 0.0), LAST_N))


def quoted(token: str) -> str:
    """Return a token in the form that the head has."""
    return quote(token, safe="")


def rest_of(write: Write) -> bytes:
    """Return the part of the head that the scripts do not read."""
    labels = dict(write.labels)
    return encode({"owner": write.owner, "lease": write.lease, "labels": labels}, "head") + b"\n" + write.data


def as_member(row: Row) -> bytes:
    """Return the stored form of a row."""
    return name_of(row.kind, row.n) + b":" + row.data


def name_of(kind: Kind, n: int) -> bytes:
    """Return the stored prefix of a row; prefixes sort in the order of the numbers."""
    return b"%d%016x" % (kind, n)


def as_rows(members: list[bytes], kind: Kind, session: str) -> list[Row]:
    """Return the rows of one kind from their stored form."""
    rows: list[Row] = []
    for member in members:
        match = _ROW.match(member)
        # A set can have several members for one row: another program has written some of them.
        if match is None or (rows and int(match[1], 16) <= rows[-1].n):
            message = f"a {kind.name.lower()} is damaged, or is stored twice"
            raise StateInvalid(message, path=f"rows of {session!r}", session=session)
        rows.append(Row(kind=kind, n=int(match[1], 16), data=member[match.end() :]))
    return rows


def as_head(members: list[bytes], session: str, time: list[bytes]) -> Head | None:
    """Return the head of a session from its stored form."""
    if not members:
        return None
    [member] = members
    match = _HEAD.fullmatch(member)
    if match is None:
        newer = re.match(rb"h(\d+) ", member)
        if newer is not None and newer[1] != FORMAT:
            raise unknown_version(session)
        raise damaged(session)
    seq, epoch, created, updated, status, token, meta, data = match.groups()
    try:
        more: Any = decode(meta, "head")
    except StateInvalid:
        raise damaged(session) from None
    if not is_object(more) or max(map(len, (seq, epoch, created, updated))) > DIGITS or not token.isascii():
        raise damaged(session)
    owner, lease = more.get("owner"), more.get("lease", 0.0)
    if not is_time(lease):
        raise damaged(session)
    when = int(updated) / MICROSECONDS
    return Head.stored(
        {
            "session": session,
            "seq": int(seq),
            "epoch": int(epoch),
            "status": status.decode(),
            "labels": more.get("labels", {}),
            "owner": owner,
            # The lease is stored and not this sum: a sum of rounded numbers is not the rounded sum.
            "expires": when + lease if owner else 0.0,
            "token": unquote(token.decode()),
            "created": int(created) / MICROSECONDS,
            "updated": when,
            "now": microseconds(time) / MICROSECONDS,
            "data": data,
        }
    )


def damaged(session: str) -> StateInvalid:
    """Return the error for a head that cannot be read."""
    return StateInvalid("the record is damaged", path=f"head of {session!r}", session=session)


def foreign(session: str, key: bytes) -> StateInvalid:
    """Return the error for a key that another program uses."""
    message = f"the key {key.decode()!r} belongs to another program; use another prefix="
    return StateInvalid(message, path=f"session {session!r}", session=session)


def unknown_version(session: str) -> UnknownVersion:
    """Return the error for a head whose format this code cannot read."""
    return UnknownVersion(f"session {session!r} was written by a newer midturn; upgrade midturn", session=session)
