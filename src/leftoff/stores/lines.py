"""What stands in the file of a session: a header line, then one line for each write.

    {"crc":"16a0b5c2","v":1,"session":"case-42","created":1763236800.25}
    {"crc":"8d7f03b9","v":1,"seq":1,"epoch":1,"at":1763236800.25,"token":"9f1c","rows":[["TURN",1,14]],
     "data":[{"task":"Hi."}],"head":{"turn":1}}

(The second is one line, too.) ``crc`` is the CRC-32 of the bytes from ``"v"`` to the newline. A line says the whole
head, less what has its default, so that the last line alone tells it. ``rows`` lists kind, number and size in bytes of
each item of ``data``: a row is found without parsing those before it and comes back as the very bytes that were
written. What cannot stand in a line as JSON becomes a string with one character for each byte, marked by a fourth item
``"bytes"`` in ``rows``, or by the key ``bytes`` in the place of ``head``.

Only a line with a newline was written; what follows the last newline is the rest of a write that was cut off.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from array import array
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import orjson

from leftoff.codec import encode
from leftoff.errors import StateInvalid, UnknownVersion
from leftoff.records import FORMAT, Head, Kind, Row, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

MAX_NAME = 128
"""Characters in the name of a file before its suffix; file systems that encrypt names allow 143 in all."""

_SEALED = len('{"crc":"00000000",')
_DATA = b',"data":['  # stands nowhere before the data: quotes inside of strings are escaped, and no label is a list
_DEFAULTS: dict[str, Any] = {"token": "", "status": "idle", "labels": {}, "owner": None, "expires": 0.0}
_TYPES = {"seq": int, "epoch": int, "at": float, "token": str, "labels": dict, "expires": float, "rows": list}
_STATUSES = frozenset(get_args(Status))
_LONGEST_HEADER = 4096
_WINDOW = 8192


class Damaged(Exception):
    """These bytes are not a line that was written here; the text says why."""


class Span(NamedTuple):
    """Where the data of a row is, counted from the start of its line or of its file."""

    kind: Kind
    n: int
    at: int
    size: int
    crc: int
    escaped: bool

    def row(self, data: bytes) -> Row | None:
        """The row, if this is the data that was written."""
        if zlib.crc32(data) != self.crc:
            return None
        return Row(kind=self.kind, n=self.n, data=_unescaped(data) if self.escaped else data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The line of a write, and what it says: a head and the places of new rows."""

    line: bytes
    head: Head
    spans: tuple[Span, ...]


def name_of(session: str) -> str:
    """The name of a session's file, without its suffix, of characters that every file system keeps apart."""
    name = re.sub(rb"^\.|[^a-z0-9._-]", lambda found: b"%%%02X" % found[0][0], session.encode()).decode()
    if len(name) <= MAX_NAME:
        return name
    digest = blake2b(session.encode(), digest_size=16).hexdigest()
    return f"{name[: MAX_NAME - len(digest) - 1]}~{digest}"


def header_line(session: str, created: float) -> bytes:
    """The first line of a session's file."""
    return _sealed([encode({"v": FORMAT, "session": session, "created": created})[1:]])


def read_header(line: bytes) -> tuple[str, float]:
    """The id of the session, and when it was created."""
    match _members(line, len(line) - 2):
        case {"session": str(session), "created": float(created)}:
            return session, created
        case _:
            raise Damaged("it is not the header of a session")


def change(head: Head, rows: Iterable[Row] = ()) -> Change:
    """The line of a write. It is read back, because one that cannot be read must not be written.

    Raises:
        StateInvalid: the head or a row cannot be told exactly.
    """
    members: dict[str, object] = {"v": FORMAT, "seq": head.seq, "epoch": head.epoch, "at": head.updated}
    optional = {name: getattr(head, name) for name in _DEFAULTS} | {"labels": dict(head.labels)}
    members |= {name: value for name, value in optional.items() if value != _DEFAULTS[name]}
    listed: list[list[str | int]] = []
    data: list[bytes] = []
    for row in rows:
        # The contract says that rows are JSON; parsing large ones to be sure would cost more than writing them.
        fits = row.data and b"\n" not in row.data
        text = row.data if fits else _escaped(row.data)
        listed.append([row.kind.name, row.n, len(text), *([] if fits else ["bytes"])])
        data += (b",", text)
    members |= {"rows": listed} if listed else {}
    rest = b"]}"
    if head.data:
        rest = b'],"head":%b}' % head.data if _fits(head.data) else b'],"bytes":%b}' % _escaped(head.data)
    where = f"{head.session} head"
    line = _sealed([encode(members, where)[1:-1], _DATA, *data[1:], rest])
    try:
        return read_change(line, head.session, head.created)
    except Damaged as error:
        raise StateInvalid(f"cannot be stored: {error}", path=where, session=head.session) from None


def read_change(line: bytes, session: str, created: float) -> Change:
    """What the line of a write says."""
    at = line.find(_DATA, _SEALED)
    members = _DEFAULTS | {"rows": []} | _members(line, at)
    # What was damaged by chance fails its checksum; these are for what was made up.
    if not (
        all(isinstance(members.get(name), kind) for name, kind in _TYPES.items())
        and isinstance(members["owner"], str | NoneType)
        and all(isinstance(value, str) for value in members["labels"].values())
        and members["status"] in _STATUSES
    ):
        raise Damaged("it is not the line of a write")
    at += len(_DATA)
    view = memoryview(line)
    spans: list[Span] = []
    for entry in members["rows"]:
        match entry:
            case [str(kind), int(n), int(size), *escaped] if kind in Kind.__members__ and size > 0:
                at += bool(spans)  # the comma
                spans.append(Span(Kind[kind], n, at, size, zlib.crc32(view[at : at + size]), bool(escaped)))
                at += size
            case _:
                raise Damaged("its list of rows is wrong")
    head = Head(
        session=session,
        seq=members["seq"],
        epoch=members["epoch"],
        created=created,
        updated=members["at"],
        now=members["at"],
        data=_head_data(line[at:-1]),
        **{name: members[name] for name in _DEFAULTS},
    )
    return Change(line=line, head=head, spans=tuple(spans))


def latest(file: int) -> Head | None:
    """The head that the last readable line of a session's file tells, reading no more than is needed for it."""
    start = os.pread(file, _LONGEST_HEADER, 0)
    header = start[: start.find(b"\n") + 1]
    if not header:
        return None
    session, created = read_header(header)
    size = os.fstat(file).st_size
    window = _WINDOW
    lines: list[bytes] = []
    while window < 8 * size:
        # A line is complete between two newlines, and the header's is the first.
        begin = max(len(header) - 1, size - window)
        lines = os.pread(file, size - begin, begin).split(b"\n")[1:-1]
        for line in reversed(lines):
            with suppress(Damaged):
                return read_change(line + b"\n", session, created).head
        window *= 8
    if lines:
        raise Damaged("none of its lines can be read")
    return None


class Index:
    """What the file of a session says up to ``end``: the head, and where the rows are."""

    def __init__(self, path: Path, session: str) -> None:
        self.lock = threading.Lock()
        self.path = path
        self.session = session
        self.clear()

    def clear(self) -> None:
        """Know nothing."""
        self.head: Head | None = None
        self.end = 0
        self.lines = 0
        self._created = 0.0
        self._last = (0, b"")
        self._places = {kind: _Places() for kind in Kind}

    def catch_up(self, file: int) -> bool:
        """Read what was written since the last time, or everything if that is no longer there; whether there was any.

        Raises:
            StateInvalid: a line is damaged.
            UnknownVersion: a line was written by a newer leftoff.
        """
        at, start = self._last
        size = os.fstat(file).st_size
        # The file may have been replaced, cut or restored: the last line, known by its checksum, must still be there.
        if size < self.end or os.pread(file, len(start), at) != start:
            self.clear()
        known = self.end
        if size > known:
            with open(file, "rb", buffering=1 << 16, closefd=False) as lines:
                lines.seek(known)
                for line in lines:
                    if line.endswith(b"\n"):
                        self._read(line)
        return self.end > known

    def begin(self, header: bytes) -> None:
        """Take in the first line of the file."""
        session, self._created = read_header(header)
        if session != self.session:
            raise Damaged(f"it is the header of session {session!r}")
        self._pass(header)

    def add(self, new: Change) -> None:
        """Take in the next line of the file."""
        first = self.head is None and (new.head.seq == 1 or new.head.status == "deleted")
        follows = self.head is not None and new.head.seq == self.head.seq + 1 and self.head.status != "deleted"
        if not (first or follows):
            raise Damaged("it does not follow from the line before it")
        if self.holds(new.spans):
            raise Damaged("it repeats a row")
        for span in new.spans:
            self._places[span.kind].add(span, self.end)
        self.head = new.head
        self._pass(new.line)

    def holds(self, rows: Iterable[Row | Span]) -> bool:
        """Whether one of the rows is there already."""
        return any(self._places[row.kind].holds(row.n) for row in rows)

    def spans(self, kind: Kind, start: int, stop: int | None) -> Iterator[Span]:
        """Where in the file the rows with ``start <= n < stop`` are, in order."""
        return self._places[kind].spans(kind, start, stop)

    def _read(self, line: bytes) -> None:
        where = f"{self.path}:{self.lines + 1}"
        try:
            if self.lines:
                self.add(read_change(line, self.session, self._created))
            else:
                self.begin(line)
        except Damaged as error:
            message = (
                f"this line is damaged: {error}; restore the file from a backup, or remove this line and all after it"
                " to go back to what the session was before"
            )
            raise StateInvalid(message, path=where, session=self.session) from None
        except UnknownVersion as error:
            raise UnknownVersion(f"{where}: {error}", session=self.session) from None

    def _pass(self, line: bytes) -> None:
        self._last = (self.end, line[:_SEALED])
        self.end += len(line)
        self.lines += 1


class _Places:
    """Where the rows of one kind are, by number; in arrays, because there are many."""

    def __init__(self) -> None:
        self._n = array("q")
        self._at = array("q")
        self._size = array("q")  # negative for what is escaped
        self._crc = array("I")

    def holds(self, n: int) -> bool:
        index = bisect_left(self._n, n)
        return index < len(self._n) and self._n[index] == n

    def add(self, span: Span, line: int) -> None:
        index = bisect_left(self._n, span.n)
        self._n.insert(index, span.n)
        self._at.insert(index, line + span.at)
        self._size.insert(index, -span.size if span.escaped else span.size)
        self._crc.insert(index, span.crc)

    def spans(self, kind: Kind, start: int, stop: int | None) -> Iterator[Span]:
        first = bisect_left(self._n, start)
        last = len(self._n) if stop is None else bisect_left(self._n, stop)
        for index in range(first, last):
            size = self._size[index]
            yield Span(kind, self._n[index], self._at[index], abs(size), self._crc[index], size < 0)


def _sealed(parts: list[bytes]) -> bytes:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return b"".join((b'{"crc":"%08x",' % crc, *parts, b"\n"))


def _members(line: bytes, stop: int) -> dict[str, Any]:
    """What the line says before ``stop``, if it is as it was written."""
    if line[:_SEALED] != b'{"crc":"%08x",' % zlib.crc32(memoryview(line)[_SEALED:-1]):
        raise Damaged("its checksum is wrong")
    try:
        members: dict[str, Any] = orjson.loads(b"{%b}" % line[_SEALED:stop])
    except orjson.JSONDecodeError as error:
        raise Damaged(f"it is not JSON: {error}") from None
    version = members.get("v")
    if not isinstance(version, int):
        raise Damaged("it says no format version")
    if version > FORMAT:
        raise UnknownVersion(f"in format {version} of a newer leftoff; this one knows {FORMAT}: upgrade it")
    return members


def _head_data(rest: bytes) -> bytes:
    """The data of the head, from what follows the rows."""
    if rest == b"]}":
        return b""
    if rest.startswith(b'],"head":'):
        return rest[len(b'],"head":') : -1]
    if rest.startswith(b'],"bytes":'):
        return _unescaped(rest[len(b'],"bytes":') : -1])
    raise Damaged("its list of rows does not agree with its data")


def _fits(data: bytes) -> bool:
    """Whether any bytes are JSON that can stand in a line."""
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return b"\n" not in data


def _escaped(data: bytes) -> bytes:
    return orjson.dumps(data.decode("latin-1"))


def _unescaped(text: bytes) -> bytes:
    try:
        return str(orjson.loads(text)).encode("latin-1")
    except ValueError:  # of JSON or of the character set
        raise Damaged("its bytes are not told by a string") from None
