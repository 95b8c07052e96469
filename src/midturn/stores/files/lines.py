"""What stands in the file of a session: a header line, then one line for each write.

    {"crc":"16a0b5c2","v":1,"session":"case-42","created":1763236800.25}
    {"crc":"8d7f03b9","v":1,"seq":1,"epoch":1,"at":1763236800.25,"token":"9f1c","rows":[["TURN",1,14]],
     "data":[{"task":"Hi."}],"head":{"turn":1}}

(The second is one line, too.) ``crc`` is the CRC-32 of the bytes from ``"v"`` to the newline. A line says the whole
head, less what has its default, so that the last line alone tells it. ``rows`` lists kind, number and size in bytes of
each item of ``data``: a row is found without parsing those before it and comes back as the very bytes that were
written. What cannot stand in a line as JSON becomes a string with one character for each byte, marked by a fourth item
``"bytes"`` in ``rows``, or by the key ``bytes`` in the place of ``head``.

``"prune":7`` in a line says that the ``CALL`` rows below 7 are gone, those of the line itself as well. When much of the
file is of no use any more, it is written anew: after the header come lines with ``"kept":true``, which have the rows
that are left and no head, and then the line of the write, which may have any ``seq``.

Only a line with a newline was written; what follows the last newline is the rest of a write that was cut off.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from contextlib import contextmanager, suppress
from hashlib import blake2b
from operator import index
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import orjson

from midturn.errors import MidturnError, StateInvalid, UnknownVersion
from midturn.record.codec import encode
from midturn.record.head import FORMAT, Head, Kind, Row, Status
from midturn.stores.files.offsets import Places, Span

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path

SUFFIX = ".jsonl"
MAX_NAME = 128
"""Characters in the name of a file before its suffix; file systems that encrypt names allow 143 in all."""

_SEALED = len('{"crc":"00000000",')
_DATA = b',"data":['  # stands nowhere before the data: quotes inside of strings are escaped, and no label is a list
_DEFAULTS: dict[str, Any] = {"token": "", "status": "idle", "labels": {}, "owner": None, "expires": 0.0}
_TYPES = {"seq": int, "epoch": int, "at": float, "token": str, "labels": dict, "expires": float}
_KINDS = {kind.name: kind for kind in Kind}
_STATUSES = frozenset(get_args(Status))
_BATCH = 1_000_000  # bytes of rows in a line, about


class Damaged(MidturnError):
    """These bytes are not a line that was written here; the text says why."""


def name_of(session: str) -> str:
    """The name of a session's file, of characters that every file system keeps apart."""
    name = re.sub(rb"^\.|[^a-z0-9._-]", lambda found: b"%%%02X" % found[0][0], session.encode()).decode()
    if len(name) > MAX_NAME:
        digest = blake2b(session.encode(), digest_size=16).hexdigest()
        name = f"{name[: MAX_NAME - len(digest) - 1]}~{digest}"
    return name + SUFFIX


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


def change_line(head: Head, rows: Iterable[Row] = (), prune: int = 0) -> bytes:
    """The line of the write that makes a head, adds rows and removes calls.

    Raises:
        StateInvalid: it could not be read again, so it must not be written.
    """
    members: dict[str, object] = {"v": FORMAT, "seq": head.seq, "epoch": head.epoch, "at": head.updated}
    optional = {name: getattr(head, name) for name in _DEFAULTS} | {"labels": dict(head.labels)}
    members |= {name: value for name, value in optional.items() if value != _DEFAULTS[name]}
    members |= {"prune": prune} if prune else {}
    rest = b"]}"
    if head.data:
        rest = b'],"head":%b}' % head.data if _fits(head.data) else b'],"bytes":%b}' % _escaped(head.data)
    where = f"{head.session} head"
    line = _line(members, rows, rest, where)
    with suppress(Damaged):
        if read_change(line).head(head.session, head.created) == head:
            return line
    raise StateInvalid("cannot be stored so that it comes back exactly", path=where, session=head.session)


def kept_lines(rows: Iterable[Row]) -> Iterator[bytes]:
    """Lines of rows that were written before, without a head; at least one, which says that the file is a new one."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        if size > _BATCH:
            yield _line({"v": FORMAT, "kept": True}, batch, b"]}", "rows")
            batch, size = [], 0
        batch.append(row)
        size += len(row.data)
    yield _line({"v": FORMAT, "kept": True}, batch, b"]}", "rows")


def _line(members: dict[str, object], rows: Iterable[Row], rest: bytes, where: str) -> bytes:
    listed: list[list[str | int]] = []
    data: list[bytes] = []
    for row in rows:
        # The contract says that rows are JSON; parsing large ones to be sure would cost more than writing them.
        fits = row.data and b"\n" not in row.data
        text = row.data if fits else _escaped(row.data)
        listed.append([row.kind.name, row.n, len(text), *([] if fits else ["bytes"])])
        data += (b",", text)
    members |= {"rows": listed} if listed else {}
    return _sealed([encode(members, where)[1:-1], _DATA, *data[1:], rest])


class Change(NamedTuple):
    """What the line of a write says."""

    members: dict[str, Any]
    spans: list[Span]
    rest: bytes
    """What follows the rows."""

    def prune(self) -> int:
        """The number below which there are no calls any more."""
        prune = self.members.get("prune", 0)
        if not isinstance(prune, int):
            raise Damaged("it does not tell which calls are gone")
        return prune

    def head(self, session: str, created: float) -> Head:
        """The head that the write made."""
        told = _DEFAULTS | self.members
        # What was damaged by chance fails its checksum; this is for what was made up.
        if not (
            all(isinstance(told.get(name), kind) for name, kind in _TYPES.items())
            and isinstance(told["owner"], str | NoneType)
            and all(isinstance(value, str) for value in told["labels"].values())
            and told["status"] in _STATUSES
        ):
            raise Damaged("it does not tell a head")
        return Head(
            session=session,
            seq=told["seq"],
            epoch=told["epoch"],
            created=created,
            updated=told["at"],
            now=told["at"],
            data=_head_data(self.rest),
            **{name: told[name] for name in _DEFAULTS},
        )


def read_change(line: bytes) -> Change:
    """What the line of a write says."""
    at = line.find(_DATA, _SEALED)
    members = _members(line, at)
    at += len(_DATA)
    view = memoryview(line)
    spans: list[Span] = []
    try:
        for kind, n, size, *escaped in members.get("rows", ()):
            at += bool(spans)  # the comma
            spans.append(Span(_KINDS[kind], index(n), at, size, zlib.crc32(view[at : at + size]), bool(escaped)))
            at += size
    except (KeyError, TypeError, ValueError):
        raise Damaged("its list of rows is wrong") from None
    return Change(members, spans, line[at:-1])


@contextmanager
def opened(path: Path, flags: int) -> Generator[int]:
    """A file, open by the flags of :func:`os.open`; never one that a link leads to, but for directories."""
    file = os.open(path, flags if flags & os.O_DIRECTORY else flags | os.O_NOFOLLOW, 0o660)
    try:
        yield file
    finally:
        os.close(file)


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
        self.changes = 0
        """How many of the lines are writes."""
        self.live = 0
        """How many bytes the rows have."""
        self._created = 0.0
        self._seq = 0
        self._mark = (0, b"")
        self._places = {kind: Places() for kind in Kind}

    def catch_up(self, file: int) -> bool:
        """Read what was written since the last time, or everything if that is no longer there; whether there was any.

        Raises:
            StateInvalid: a line is damaged.
            UnknownVersion: a line was written by a newer midturn.
        """
        at, mark = self._mark
        size = os.fstat(file).st_size
        # The file may have been replaced, cut or restored: the last line, known by its checksum, must still be there.
        if size < self.end or os.pread(file, len(mark), at) != mark:
            self.clear()
        known = self.end
        if size > known:
            try:
                with open(file, "rb", buffering=1 << 16, closefd=False) as lines:
                    lines.seek(known)
                    self.add(line for line in lines if line.endswith(b"\n"))
            except (Damaged, UnknownVersion, OSError) as error:
                where, changes = f"{self.path}:{self.lines}", self.changes
                self.clear()
                if isinstance(error, OSError):
                    raise
                if isinstance(error, UnknownVersion):
                    raise UnknownVersion(f"{where}: {error}", session=self.session) from None
                message = f"this line is damaged: {error}; restore the file from a backup"
                if changes:
                    message += ", or remove this line and all after it to go back to what the session was before"
                raise StateInvalid(message, path=where, session=self.session) from None
        return self.end > known

    def add(self, lines: Iterable[bytes]) -> None:
        """Take in the next lines of the file."""
        newest: Change | None = None
        for line in lines:
            self.lines += 1
            if self.lines > 1:
                newest = read_change(line)
                self._follow(newest)
            else:
                session, self._created = read_header(line)
                if session != self.session:
                    raise Damaged(f"it is the header of session {session!r}")
            self._mark = (self.end, line[:_SEALED])
            self.end += len(line)
        if newest:
            self.head = newest.head(self.session, self._created)

    def holds(self, rows: Iterable[Row]) -> bool:
        """Whether one of the rows is there already."""
        return any(self._places[row.kind].holds(row.n) for row in rows)

    def dead(self, prune: int) -> int:
        """How many bytes of the file are neither rows nor anything that they need, once calls are pruned."""
        return self.end - self.live + self._places[Kind.CALL].size(prune)

    def left(self, file: int, prune: int) -> Iterator[Row]:
        """All rows but the calls that are pruned."""
        for kind in Kind:
            yield from self.rows(file, kind, prune if kind is Kind.CALL else 0, None)

    def rows(self, file: int, kind: Kind, start: int, stop: int | None) -> Iterator[Row]:
        """The rows with ``start <= n < stop``, in order."""
        for span in self._places[kind].spans(kind, start, stop):
            data = os.pread(file, span.size, span.at)
            if zlib.crc32(data) != span.crc:
                self.clear()
                self.catch_up(file)  # tells the line that was damaged since it was first read
                raise StateInvalid("changed while it was read; try again", path=str(self.path), session=self.session)
            yield Row(kind=kind, n=span.n, data=_unescaped(data) if span.escaped else data)

    def _follow(self, new: Change) -> None:
        if "kept" in new.members:
            if self.changes:
                raise Damaged("it keeps the rows of lines that are there")
        else:
            seq, last = new.members.get("seq"), new.members.get("status") == "deleted"
            anew = not self.changes and (last or self.lines > 2)  # noqa: PLR2004 - a deletion, or after lines of rows
            if not isinstance(seq, int) or (seq != self._seq + 1 and not anew):
                raise Damaged("it does not follow from the line before it")
            # Nothing follows a deletion.
            self._seq = -1 if last else seq
            self.changes += 1
        for span in new.spans:
            if self._places[span.kind].holds(span.n):
                raise Damaged(f"it repeats {span.kind.name} {span.n}")
            self._places[span.kind].add(span, self.end)
            self.live += span.size
        if prune := new.prune():
            self.live -= self._places[Kind.CALL].size(prune)
            self._places[Kind.CALL].drop(prune)


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
        raise UnknownVersion(f"written in format {version} by a newer midturn; this one knows {FORMAT}: upgrade it")
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
