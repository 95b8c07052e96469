"""Format of a session's file: a header line, then one line for each write.

    {"crc":"16a0b5c2","v":1,"session":"case-42","created":1763236800.25}
    {"crc":"8d7f03b9","v":1,"seq":1,"epoch":1,"at":1763236800.25,"token":"9f1c","rows":[["TURN",1,14]],
     "data":[{"task":"Hi."}],"head":{"turn":1}}

(The second is one line, too.) ``crc`` is the CRC-32 of the bytes from ``"v"`` to the newline. Each line has the whole
head, without the fields that have their default, so a reader of the head needs only the last line. ``rows`` lists the
kind, the number and the size in bytes of each item of ``data``. So a reader finds a row without parsing those before
it, and gets exactly the bytes that were written. Bytes that are not JSON in one line, such as those of a compressed
record, become a string in base64. A fourth item ``"bytes"`` in ``rows``, or the key ``bytes`` in place of ``head``,
marks such a string.

``"removes":[["CALL",0,7]]`` in a line removes the ``CALL`` rows from 0 to 6, before the rows of the line are added.
When much of the file is no longer needed, it is rewritten: after the header come lines with ``"kept":true``, which have
the remaining rows and no head, and then the line of the write, which may have any ``seq``.

Only a line with a newline counts. Bytes after the last newline belong to a write that was interrupted.
"""

from __future__ import annotations

import logging
import os
import re
import zlib
from binascii import a2b_base64, b2a_base64
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from midturn.errors import MidturnError, StateInvalid, UnknownVersion
from midturn.record.codec import encode, is_array
from midturn.record.head import ENCODINGS, FORMAT, Head, Kind, Removal, Row, is_count, is_time
from midturn.stores.privacy import create

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path

SUFFIX = ".jsonl"
MAX_NAME = 128
"""Largest number of characters in a file's name before its suffix; file systems that encrypt names allow 143 in all."""
CHECKSUM = len('{"crc":"00000000",')
"""Number of bytes at the beginning of a line that contain its checksum."""

_DATA = b',"data":['  # occurs nowhere before the data: quotes inside strings are escaped, and no label is a list
_DEFAULTS: dict[str, Any] = {"token": "", "status": "idle", "labels": {}, "owner": None, "expires": 0.0}
_KINDS = {kind.name: kind for kind in Kind}
_WINDOW = 8192  # bytes, more than the longest header
_BATCH = 1_000_000  # bytes of rows in a line, about

_log = logging.getLogger(__name__)


class Damaged(MidturnError):
    """These bytes are not a line that midturn wrote; the text says why."""


def name_of(session: str) -> str:
    """Return the name of a session's file, in characters that every file system distinguishes."""
    name = re.sub(rb"^\.|[^a-z0-9._-]", lambda found: b"%%%02X" % found[0][0], session.encode()).decode()
    if len(name) > MAX_NAME:
        digest = blake2b(session.encode(), digest_size=16).hexdigest()
        name = f"{name[: MAX_NAME - len(digest) - 1]}~{digest}"
    return name + SUFFIX


def header_line(session: str, created: float) -> bytes:
    """Return the first line of a session's file."""
    return _with_checksum([encode({"v": FORMAT, "session": session, "created": created})[1:]])


def read_header(line: bytes) -> tuple[str, float]:
    """Return the id of the session, and the time of its creation."""
    match _members(line, len(line) - 2):
        case {"session": str(session), "created": float(created)} if is_time(created):
            return session, created
        case _:
            raise Damaged("it is not the header of a session")


def change_line(head: Head, rows: Iterable[Row] = (), removes: Iterable[Removal] = ()) -> bytes:
    """Return the line of a write that makes a head, removes rows and adds others.

    Raises:
        StateInvalid: the line could not be read back, so it must not be written.
    """
    members: dict[str, object] = {"v": FORMAT, "seq": head.seq, "epoch": head.epoch, "at": head.updated}
    optional = {name: getattr(head, name) for name in _DEFAULTS} | {"labels": dict(head.labels)}
    members |= {name: value for name, value in optional.items() if value != _DEFAULTS[name]}
    if listed := [[removal.kind.name, removal.start, removal.stop] for removal in removes]:
        members["removes"] = listed
    rest = b"]}"
    if head.data:
        rest = b'],"head":%b}' % head.data if _fits(head.data) else b'],"bytes":%b}' % _escaped(head.data)
    where = f"{head.session} head"
    line = _line(members, rows, rest, where)
    with suppress(Damaged):
        if read_change(line).head(head.session, head.created) == head:
            return line
    raise StateInvalid("has values that cannot be stored exactly", path=where, session=head.session)


def kept_lines(rows: Iterable[Row]) -> Iterator[bytes]:
    """Yield lines with rows of an earlier file and no head; at least one, which marks the file as rewritten."""
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
        fits = row.data and row.data[:1] not in ENCODINGS and b"\n" not in row.data
        text = row.data if fits else _escaped(row.data)
        listed.append([row.kind.name, row.n, len(text), *([] if fits else ["bytes"])])
        data += (b",", text)
    members |= {"rows": listed} if listed else {}
    return _with_checksum([encode(members, where)[1:-1], _DATA, *data[1:], rest])


class Extent(NamedTuple):
    """Position of a row's data, counted from the start of its line or of its file."""

    kind: Kind
    n: int
    at: int
    size: int
    crc: int
    escaped: bool


class Change(NamedTuple):
    """Content of the line of a write."""

    members: dict[str, Any]
    extents: list[Extent]
    rest: bytes
    """The bytes after the rows."""

    def removes(self) -> list[Removal]:
        """Return the ranges of rows that the write removes."""
        found: list[Removal] = []
        for item in listed if is_array(listed := self.members.get("removes", [])) else [None]:
            match item:
                case [str(kind), start, stop] if kind in _KINDS and is_count(start) and is_count(stop):
                    found.append(Removal(_KINDS[kind], start, stop))
                case _:
                    raise Damaged("it does not say which rows it removes")
        return found

    def head(self, session: str, created: float) -> Head:
        """Return the head that the write made."""
        told = _DEFAULTS | self.members
        values = {name: told.get(name) for name in (*_DEFAULTS, "seq", "epoch")}
        values |= {"session": session, "created": created, "data": _head_data(self.rest)}
        try:  # Accidental damage fails the checksum; this check is for forged lines.
            return Head.stored(values | {"updated": told.get("at"), "now": told.get("at")})
        except StateInvalid as error:
            raise Damaged(f"it does not have a valid head: {error}") from None


def read_change(line: bytes) -> Change:
    """Return the content of the line of a write."""
    at = line.find(_DATA, CHECKSUM)
    members = _members(line, at)
    at += len(_DATA)
    view = memoryview(line)
    extents: list[Extent] = []
    for row in listed if is_array(listed := members.get("rows", [])) else [None]:
        match row:
            case [str(kind), n, size, *escaped] if kind in _KINDS and is_count(n) and is_count(size):
                at += bool(extents)  # the comma
                crc = zlib.crc32(view[at : at + size])
                extents.append(Extent(_KINDS[kind], n, at, size, crc, bool(escaped)))
                at += size
            case _:
                raise Damaged("its list of rows is wrong")
    return Change(members, extents, line[at:-1])


@contextmanager
def opened(path: Path, flags: int) -> Generator[int]:
    """Open a file with flags of :func:`os.open`; it follows a symbolic link only to a directory.

    With ``O_CREAT``, a new file can be read and written only by its owner.
    """
    file = -1
    if flags & os.O_CREAT:
        flags &= ~os.O_CREAT
        with suppress(FileExistsError):
            file = create(path, flags)
    if file < 0:
        file = os.open(path, flags if flags & os.O_DIRECTORY else flags | os.O_NOFOLLOW)
    try:
        yield file
    finally:
        os.close(file)


def last_head(path: Path) -> Head | None:
    """Return the head from the last readable line of a file, or ``None``; read no more than needed.

    This is for lists, so it does not take the session's lock: one locked session must not delay the whole list.
    """
    try:
        with opened(path, os.O_RDONLY) as file:
            return _latest(file, path.name)
    except FileNotFoundError:
        return None
    except (Damaged, UnknownVersion) as error:
        _log.warning("%s is omitted from the list of sessions: %s", path, error)
        return None


def _latest(file: int, name: str) -> Head | None:
    start = os.pread(file, _WINDOW, 0)
    header = start[: start.find(b"\n") + 1]
    if not header and len(start) < _WINDOW:
        return None
    session, created = read_header(header)
    if name_of(session) != name:
        raise Damaged(f"it is the file of session {session!r}")
    first = len(header) - 1
    size = begin = os.fstat(file).st_size
    window = _WINDOW
    lines: list[bytes] = []
    while begin > first:
        # A complete line is between two newlines; the first newline is the header's.
        begin = max(first, size - window)
        lines = os.pread(file, size - begin, begin).split(b"\n")[1:-1]
        for line in reversed(lines):
            with suppress(Damaged):
                return read_change(line + b"\n").head(session, created)
        window *= 8
    if lines:
        raise Damaged("none of its lines can be read")
    return None


def _with_checksum(parts: list[bytes]) -> bytes:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return b"".join((b'{"crc":"%08x",' % crc, *parts, b"\n"))


def _members(line: bytes, stop: int) -> dict[str, Any]:
    """Return the members of a line before ``stop``, if the line is undamaged."""
    if line[:CHECKSUM] != b'{"crc":"%08x",' % zlib.crc32(memoryview(line)[CHECKSUM:-1]):
        raise Damaged("its checksum is wrong")
    try:
        members: dict[str, Any] = orjson.loads(b"{%b}" % line[CHECKSUM:stop])
    except orjson.JSONDecodeError as error:
        raise Damaged(f"it is not JSON: {error}") from None
    version = members.get("v")
    if not isinstance(version, int):
        raise Damaged("it has no format version")
    if version > FORMAT:
        raise UnknownVersion(f"written in format {version} by a newer midturn; this one reads {FORMAT}: upgrade it")
    return members


def _head_data(rest: bytes) -> bytes:
    """Return the data of the head, from the bytes after the rows."""
    if rest == b"]}":
        return b""
    if rest.startswith(b'],"head":'):
        return rest[len(b'],"head":') : -1]
    if rest.startswith(b'],"bytes":'):
        return unescaped(rest[len(b'],"bytes":') : -1])
    raise Damaged("its list of rows does not agree with its data")


def _fits(data: bytes) -> bool:
    """Return whether bytes are JSON without a newline, so that they can be part of a line."""
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return b"\n" not in data


def _escaped(data: bytes) -> bytes:
    return b'"%b"' % b2a_base64(data, newline=False)


def unescaped(text: bytes) -> bytes:
    """Return the bytes that a string stands for."""
    try:
        return a2b_base64(_string(orjson.loads(text)), strict_mode=True)
    except ValueError:  # of JSON or of base64
        raise Damaged("its bytes are not in the form of a string") from None


def _string(value: object) -> str:
    if type(value) is not str:
        raise ValueError
    return value
