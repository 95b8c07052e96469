"""What is stored: the head of a session, its rows, and the write that changes both at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from midturn.errors import StateInvalid, UnknownVersion
from midturn.record import codec

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 1
"""The version that every record written by this code carries."""

ENCODINGS = {b"\x01": "compressed", b"\x02": "sealed"}
"""How a record is encoded whose first byte is this one. A plain record is a JSON object and begins with a brace."""

MAX_ID = 200

Status: TypeAlias = Literal["idle", "running", "waiting", "failed", "cancelled", "deleted"]
"""What a store keeps. ``running``: a turn is open; the lease tells whether its worker is alive. For what the words mean
to users, see :data:`midturn.history.session_info.SessionStatus`."""

NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Kind(IntEnum):
    """The kinds of rows. The numbers are part of the storage format."""

    BODY = 1
    """Long strings, messages and states, each stored once; ``n`` is the number of the first one in the row."""
    DECISION = 2
    """What somebody answered to a question of a turn; ``n`` counts them."""
    TURN = 3
    """An accepted input; ``n`` is the turn."""
    CHECKPOINT = 4
    """The state and the result after a turn, and what it appended to the growing lists; ``n`` is the turn."""
    FAILURE = 5
    """A turn that ended without a checkpoint; ``n`` counts them."""
    KEY = 6
    """Which turn a caller's key belongs to; ``n`` is derived from the key."""
    CALL = 7
    """One call inside a turn: what was asked and what came back; ``n`` counts the calls of a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One immutable record of a session: JSON bytes under a kind and a number."""

    kind: Kind
    n: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The one mutable record of a session, as it was at ``now`` on the store's clock."""

    session: str
    seq: int
    """Rises by one with every write; a writer names the one it saw, so an old owner can never write."""
    epoch: int
    """Rises by one each time the lease goes to another owner."""
    status: Status
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    owner: str | None = None
    expires: float = 0.0
    """When the owner's lease ends, on the store's clock."""
    token: str
    """Names the write that made this head, so that a writer whose connection broke can tell whether it was its own."""
    created: float
    updated: float
    now: float
    data: bytes
    """What the layers above keep here; opaque to the store."""

    def deleted(self, *, now: float) -> Head:
        """Return what is left of the session after its deletion."""
        return Head(
            session=self.session,
            seq=self.seq + 1,
            epoch=self.epoch + 1,
            status="deleted",
            token="",
            created=self.created,
            updated=now,
            now=now,
            data=b"",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One atomic change: the new head and new rows, or nothing.

    ``seq`` is the session's seq as the writer saw it, 0 for a session that does not exist yet.
    """

    session: str
    seq: int
    after: str | None = None
    """The token of the head that the writer saw. A server that has lost writes may come to the same seq again."""
    epoch: int
    status: Status
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    owner: str | None = None
    lease: float = 0.0
    """For how many seconds from now the owner holds the session; the store's clock counts them."""
    token: str
    data: bytes
    rows: tuple[Row, ...] = ()
    prune: int = 0
    """``CALL`` rows with a lower number are removed by this write, after its own were added; 0 removes nothing."""

    def follows(self, head: Head | None) -> bool:
        """Say whether this is the head that the writer saw."""
        if head is None:
            return self.seq == 0
        return self.seq == head.seq and self.after in (None, head.token)

    def head(self, *, now: float, created: float) -> Head:
        """Return the head that this write makes at ``now``."""
        return Head(
            session=self.session,
            seq=self.seq + 1,
            epoch=self.epoch,
            status=self.status,
            labels=dict(self.labels),
            owner=self.owner,
            expires=now + self.lease if self.owner else 0.0,
            token=self.token,
            created=created,
            updated=now,
            now=now,
            data=self.data,
        )


def by_change(head: Head) -> tuple[float, str]:
    """Return the key by which ``order="updated"`` sorts, the greatest first."""
    return head.updated, head.session


def cursor(head: Head) -> str:
    """Return what ``heads(order="updated", after=...)`` takes to continue behind this head."""
    return f"{head.updated!r} {head.session}"


def read_cursor(after: str) -> tuple[float, str]:
    """Return the change and the id that a cursor names; an empty one comes before all heads.

    Raises:
        StateInvalid: it is no cursor.
    """
    updated, _, session = after.partition(" ")
    try:
        start = (float(updated), session) if after else (math.inf, "")
    except ValueError:
        start = (math.nan, "")
    if after and not math.isfinite(start[0]):
        raise StateInvalid("not what cursor() has returned", path="after")
    return start


def check_id(session: object) -> str:
    """Return the id, if it is one that every store can keep.

    Raises:
        StateInvalid: it is empty, too long, or has characters that not every store can keep.
    """
    where = "session id"
    if not isinstance(session, str):
        message = f"must be a string, not {type(session).__name__}"
        raise StateInvalid(message, path=where)
    if not session:
        message = "must not be empty; choose a name such as 'case-42'"
        raise StateInvalid(message, path=where)
    if len(session) > MAX_ID:
        message = f"{len(session):,} characters; the limit is {MAX_ID}"
        raise StateInvalid(message, path=where)
    if "\0" in session:
        message = f"{session!r} has a NUL character, which not every store can keep"
        raise StateInvalid(message, path=where)
    try:
        session.encode()
    except UnicodeEncodeError:
        message = f"{session!a} has half of a surrogate pair, which is not a character"
        raise StateInvalid(message, path=where) from None
    return session


def check_labels(labels: Mapping[Any, Any]) -> dict[str, str]:
    """Return the labels, if they are strings that every store can keep."""
    for text in (*labels, *labels.values()):
        if not isinstance(text, str) or "\0" in text or len(text) > MAX_ID:
            raise StateInvalid(f"names and values are strings of up to {MAX_ID} characters without NUL", path="labels")
        codec.check(text, "labels")
    return dict(labels)


def versioned(data: bytes, what: str) -> dict[str, Any]:
    """Return the object in JSON bytes, if its version is one that this code reads."""
    if encoding := ENCODINGS.get(data[:1]):
        raise UnknownVersion(f"{what} is {encoding}, and this midturn reads plain records: upgrade midturn")
    raw = codec.decode(data, what)
    if not codec.is_object(raw) or type(raw.get("v")) is not int or raw["v"] < 1:
        raise StateInvalid("not a record of midturn", path=what)
    if raw["v"] > FORMAT:
        raise UnknownVersion(f"{what} has format {raw['v']}, this midturn reads up to {FORMAT}: upgrade midturn")
    return raw
