"""The stored records: the head of a session, its rows, and the write that changes both at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeGuard, cast, get_args

from midturn.errors import InvalidArgument, StateInvalid, UnknownVersion, WrongKey
from midturn.record import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FORMAT = 1
"""The version that every record written by this code carries."""

COMPRESSED, SEALED = b"\x01", b"\x02"
ENCODINGS = (COMPRESSED, SEALED)
"""First bytes of records in other encodings. A plain record is a JSON object, so it begins with a brace."""

MAX_ID = 200
NUMBERS = 2**62
"""Numbers in records are below this, so that a store can look for one, and for the one after it."""
LAST_TIME = 250_000_000_000.0
"""The latest time that a record can have: after it, Python cannot say which day it is."""

Status: TypeAlias = Literal["idle", "running", "waiting", "failed", "cancelled", "deleted"]
"""Status as a store keeps it. ``running``: a turn is open; the lease shows whether its worker is alive. For the status
that users see, read :data:`midturn.history.session_info.SessionStatus`."""

NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Kind(IntEnum):
    """The kinds of rows. The numbers are part of the storage format."""

    BODY = 1
    """Long strings, messages and states, each stored once; ``n`` is the number of the first one in the row."""
    DECISION = 2
    """The answer that somebody gave to a question of a turn; ``n`` counts the answers."""
    TURN = 3
    """An accepted input; ``n`` is the turn."""
    CHECKPOINT = 4
    """The state and the result after a turn, and what it appended to the growing lists; ``n`` is the turn."""
    FAILURE = 5
    """A turn that ended without a checkpoint; ``n`` counts the failures."""
    KEY = 6
    """The turn that a caller's key belongs to; ``n`` is derived from the key."""
    CALL = 7
    """One call inside a turn, with its request and its result; ``n`` counts the calls of a session."""


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
    """Rises by one with every write. A writer names the seq that it saw, so a former owner can never write."""
    epoch: int
    """Rises by one each time the lease goes to another owner."""
    status: Status
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    owner: str | None = None
    expires: float = 0.0
    """The time at which the owner's lease ends, on the store's clock."""
    token: str
    """The name of the write that made this head. A writer whose connection broke recognises its own write by it."""
    created: float
    updated: float
    now: float
    data: bytes
    """Data of the layers above the store, which the store does not read."""
    problem: StateInvalid | None = None
    """The reason why a sealed head could not be opened. Its data is then of no use, and nobody can write it."""

    def is_followed_by(self, other: Head | None) -> bool:
        """Return whether a store that had this head can have ``other`` now, without having lost a write."""
        if self.status == "deleted" and (other is None or other.created >= self.updated):
            return True  # forgotten since, and perhaps begun anew
        if other is None or other.created != self.created:
            return False
        return other.seq > self.seq or (other.seq == self.seq and other.token == self.token)

    @classmethod
    def stored(cls, values: Mapping[str, Any]) -> Head:
        """Return a head from the values that a store has read; anybody may have changed them.

        Raises:
            StateInvalid: a value is missing, or a head cannot have it.
        """
        wrong = [name for name, is_right in _HEAD_FIELDS.items() if not is_right(values.get(name))]
        if wrong:
            session = str(values.get("session"))
            message = f"the record is damaged ({', '.join(wrong)}); restore it from a backup"
            raise StateInvalid(message, path=f"head of {session!r}", session=session)
        return cls(**values)

    def deleted(self, *, now: float, data: bytes = b"") -> Head:
        """Return the head that remains after the session was deleted, with the data that the deletion gave."""
        return Head(
            session=self.session,
            seq=self.seq + 1,
            epoch=self.epoch + 1,
            status="deleted",
            token="",
            created=self.created,
            updated=now,
            now=now,
            data=data,
        )


def is_count(value: object) -> TypeGuard[int]:
    """Return whether a stored value is a whole number that is not negative, as a store keeps it."""
    return type(value) is int and 0 <= value < 2**63


def is_number(value: object) -> TypeGuard[int]:
    """Return whether a value in a record is the number of something."""
    return type(value) is int and 0 <= value < NUMBERS


def is_time(value: object) -> TypeGuard[float]:
    """Return whether a stored value is a time in seconds since 1970, or a number of seconds."""
    return type(value) in (int, float) and 0 <= cast("float", value) <= LAST_TIME


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_labels(value: object) -> bool:
    return codec.is_object(value) and all(map(_is_text, value.values()))


_STATUSES = get_args(Status)
_HEAD_FIELDS: dict[str, Callable[[Any], bool]] = {
    "session": _is_text,
    "seq": is_count,
    "epoch": is_count,
    "status": lambda value: value in _STATUSES,
    "labels": _is_labels,
    "owner": lambda value: value is None or type(value) is str,
    "expires": is_time,
    "token": _is_text,
    "created": is_time,
    "updated": is_time,
    "now": is_time,
    "data": lambda value: type(value) is bytes,
}


class Removal(NamedTuple):
    """A range of rows that a write removes: those of one kind with ``start <= n < stop``."""

    kind: Kind
    start: int
    stop: int

    def has(self, kind: Kind, n: int) -> bool:
        """Return whether a row is in the range."""
        return kind is self.kind and self.start <= n < self.stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One atomic change: the new head and new rows, or nothing.

    ``seq`` is the session's seq as the writer saw it, 0 for a session that does not exist yet.

    Raises:
        InvalidArgument: it would remove decisions without adding others of the same numbers. They are the audit trail,
            which only a deletion of the session ends.
    """

    session: str
    seq: int
    after: str | None = None
    """The token of the head that the writer saw: a server that has lost writes may reach the same seq again."""
    epoch: int
    status: Status
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    owner: str | None = None
    lease: float = 0.0
    """Seconds from now, on the store's clock, for which the owner holds the session."""
    token: str
    data: bytes
    rows: tuple[Row, ...] = ()
    removes: tuple[Removal, ...] = ()
    """Rows that the write removes before it adds its own, so that it can also replace a row."""

    def __post_init__(self) -> None:
        if self.removes and not all(map(self._keeps_decisions, self.removes)):
            raise InvalidArgument("has decisions, which are never removed", path="removes", session=self.session)

    def _keeps_decisions(self, removal: Removal) -> bool:
        added = {row.n for row in self.rows if row.kind is Kind.DECISION}
        return removal.kind is not Kind.DECISION or all(n in added for n in range(removal.start, removal.stop))

    def follows(self, head: Head | None) -> bool:
        """Return whether ``head`` is the one that the writer saw."""
        if head is None:
            return self.seq == 0
        return self.seq == head.seq and self.after in (None, head.token)

    def left(self, rows: Iterable[tuple[Kind, int]]) -> list[tuple[Kind, int]]:
        """Return those of a session's rows, by kind and number, that the write does not remove."""
        return [row for row in rows if not any(removal.has(*row) for removal in self.removes)]

    def head(self, *, now: float, created: float) -> Head:
        """Return the head that this write creates at ``now``."""
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
    """Return the sort key of ``order="updated"``, which lists the greatest first."""
    return head.updated, head.session


def cursor(head: Head) -> str:
    """Return the value of ``after`` with which ``heads(order="updated")`` continues after this head."""
    return f"{head.updated!r} {head.session}"


def read_cursor(after: str, *, reverse: bool = False) -> tuple[float, str]:
    """Return the time of change and the id that a cursor names; an empty cursor comes before all heads.

    With ``reverse``, the list has the oldest change first, and so an empty cursor is the lowest.

    Raises:
        InvalidArgument: this is not a cursor.
    """
    updated, _, session = after.partition(" ")
    try:
        start = (float(updated), session) if after else (-math.inf if reverse else math.inf, "")
    except ValueError:
        start = (math.nan, "")
    if after and not math.isfinite(start[0]):
        raise InvalidArgument("is not a value that cursor() returned", path="after")
    return start


def check_id(session: object) -> str:
    """Return the id of a session, if every store can keep it.

    Raises:
        InvalidArgument: the id is empty, too long, or has characters that some stores cannot keep.
    """
    where = "session id"
    if not isinstance(session, str):
        message = f"must be a string, not {type(session).__name__}"
        raise InvalidArgument(message, path=where)
    if not session:
        message = "must not be empty; choose a name such as 'case-42'"
        raise InvalidArgument(message, path=where)
    if len(session) > MAX_ID:
        message = f"{len(session):,} characters; the limit is {MAX_ID}"
        raise InvalidArgument(message, path=where)
    if "\0" in session:
        message = f"{session!r} has a NUL character, which some stores cannot keep"
        raise InvalidArgument(message, path=where)
    try:
        session.encode()
    except UnicodeEncodeError:
        message = f"{session!a} has half of a surrogate pair, which is not a character"
        raise InvalidArgument(message, path=where) from None
    return session


def check_labels(labels: Mapping[Any, Any]) -> dict[str, str]:
    """Return the labels, if all names and values are strings that every store can keep."""
    if not isinstance(labels, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        raise InvalidArgument(f"must be a mapping of names to values, not {type(labels).__name__}", path="labels")
    for text in (*labels, *labels.values()):
        if not isinstance(text, str) or "\0" in text or len(text) > MAX_ID:
            message = f"names and values must be strings of up to {MAX_ID} characters without NUL"
            raise InvalidArgument(message, path="labels")
        codec.check_argument(text, "labels")
    return dict(labels)


def versioned(data: bytes, what: str) -> dict[str, Any]:
    """Return the object in a record's bytes, if this code can read its version."""
    if data[:1] == SEALED:
        raise WrongKey("is sealed, and the store was opened without keys: set MIDTURN_KEYS", path=what)
    if data[:1] == COMPRESSED:
        raise UnknownVersion(f"{what} is compressed: open the store by its URL, and upgrade midturn if that fails")
    raw = codec.decode(data, what)
    if not codec.is_object(raw) or type(raw.get("v")) is not int or raw["v"] < 1:
        raise StateInvalid("not a record of midturn", path=what)
    if raw["v"] > FORMAT:
        raise UnknownVersion(f"{what} has format {raw['v']}, this midturn reads up to {FORMAT}: upgrade midturn")
    return raw
