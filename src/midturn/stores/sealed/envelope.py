"""Sealed records: AES-256-GCM with a random nonce, and the place of the record as associated data.

A row is ``02``, the generation of its data key (1 byte), the seq of its write (8), the nonce (12) and the ciphertext.
Its place is the session, the kind, the number, the generation and the seq.

The data of a head is ``02 01``, the length of a header (4), the header, the nonce (12) and the ciphertext. The header
is JSON that everybody can read: the wrapped data keys. The place is the header and all fields of the head but its
times. The times are inside, with the :class:`Manifest`.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import orjson

from midturn.record.head import SEALED, Head
from midturn.stores.sealed.keys import NONCE_BYTES
from midturn.stores.sealed.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from midturn.record.head import Row, Write

PLAIN = 0
"""The generation of rows that are not sealed yet."""
CLOCKS = 600.0
"""Seconds by which the time of a head may differ from the writer's: a store has a clock of its own."""
_VERSION = b"\x01"
_ROW = 10
"""Length of the part of a sealed row before the nonce."""
_HEAD = 6
"""Length of the part of a sealed head before the header."""
_FLOATS = 0.01
"""Seconds that the arithmetic of a store may lose."""


class Unsealable(Exception):
    """These bytes are not what midturn sealed for this place; the text says why."""


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key as the head has it."""

    generation: int
    key_id: str
    wrapped: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The times of a head, as its writer knows them."""

    at: float
    """The time of the write on the store's clock, as the writer estimates it."""
    created: float | None
    """The time of the first write; ``None`` if this is the first one."""
    lease: float

    def problem(self, head: Head) -> str | None:
        """Return what is wrong with the times of a head; ``None`` if they are right."""
        expires = head.updated + self.lease if head.owner is not None else 0.0
        if abs(head.expires - expires) > _FLOATS:
            return "the end of its lease was changed"
        if abs(head.created - (head.updated if self.created is None else self.created)) > _FLOATS:
            return "the time of its creation was changed"
        if abs(head.updated - self.at) > CLOCKS:
            was, now = (datetime.fromtimestamp(each, UTC).isoformat(" ", "seconds") for each in (self.at, head.updated))
            return f"the time of its last change was changed; it was {was}, and the record has {now}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """The sealed part of a head."""

    data: bytes
    times: Times
    manifest: Manifest = field(default_factory=Manifest)


def is_sealed(data: bytes) -> bool:
    """Return whether the bytes of a record are sealed."""
    return data[:1] == SEALED


def seal_row(cipher: AESGCM, generation: int, session: str, seq: int, row: Row) -> Row:
    """Return a row whose data only the holder of the data key can read."""
    start = SEALED + bytes([generation]) + seq.to_bytes(8)
    nonce = secrets.token_bytes(NONCE_BYTES)
    sealed = cipher.encrypt(nonce, row.data, _row_place(start, session, row))
    return replace(row, data=start + nonce + sealed)


def row_facts(data: bytes) -> tuple[int, int]:
    """Return the generation and the seq that a row names; a row that is not sealed has none of them."""
    return (data[1], int.from_bytes(data[2:_ROW])) if is_sealed(data) and len(data) > _ROW else (PLAIN, 0)


def open_row(cipher: AESGCM, session: str, row: Row) -> Row:
    """Return a row as it was before it was sealed for this place."""
    nonce, sealed = row.data[_ROW : _ROW + NONCE_BYTES], row.data[_ROW + NONCE_BYTES :]
    return replace(row, data=_opened(cipher, nonce, sealed, _row_place(row.data[:_ROW], session, row)))


def _row_place(start: bytes, session: str, row: Row) -> bytes:
    return b"midturn row" + start + bytes([row.kind]) + row.n.to_bytes(8) + session.encode()


def seal_head(cipher: AESGCM, keys: Sequence[WrappedKey], write: Write, inside: Inside) -> bytes:
    """Return the data of the head that a write makes."""
    return _sealed(cipher, keys, _head_place(write.head(now=0.0, created=0.0)), inside)


def seal_tombstone(cipher: AESGCM, key: WrappedKey, session: str, inside: Inside) -> bytes:
    """Return the data of the head that is left of a deleted session."""
    gone = Head(
        session=session, seq=0, epoch=0, status="deleted", token="", created=0.0, updated=0.0, now=0.0, data=b""
    )
    return _sealed(cipher, [key], _head_place(gone), inside)


def _sealed(cipher: AESGCM, keys: Sequence[WrappedKey], place: bytes, inside: Inside) -> bytes:
    header = orjson.dumps(
        {"keys": [[key.generation, key.key_id, base64.b64encode(key.wrapped).decode()] for key in keys]}
    )
    start = SEALED + _VERSION + len(header).to_bytes(4) + header
    times = inside.times
    meta = orjson.dumps(inside.manifest.plain() | {"at": times.at, "created": times.created, "lease": times.lease})
    nonce = secrets.token_bytes(NONCE_BYTES)
    return start + nonce + cipher.encrypt(nonce, len(meta).to_bytes(4) + meta + inside.data, start + place)


def wrapped_keys(data: bytes) -> list[WrappedKey]:
    """Return the wrapped data keys that a sealed head names. The last one is that of new rows.

    Nobody has checked yet that they belong to the head: :func:`open_head` does.
    """
    if data[1:2] != _VERSION:
        raise Unsealable(f"it has version {data[1:2].hex() or 'none'} of the sealed format; upgrade midturn")
    try:
        header = orjson.loads(_header(data))
        found = [
            WrappedKey(generation, key_id, base64.b64decode(wrapped, validate=True))
            for generation, key_id, wrapped in header["keys"]
            if type(generation) is int and type(key_id) is str
        ]
    except (ValueError, TypeError, KeyError):
        found = []
    if not found or found[-1].generation == PLAIN:
        raise Unsealable("its header was changed")
    return found


def open_head(cipher: AESGCM, head: Head) -> Inside:
    """Return what was sealed for this head, if nobody has changed any of its fields."""
    at = _HEAD + len(_header(head.data))
    nonce, sealed = head.data[at : at + NONCE_BYTES], head.data[at + NONCE_BYTES :]
    plain = _opened(cipher, nonce, sealed, head.data[:at] + _head_place(head))
    end = 4 + int.from_bytes(plain[:4])
    meta = orjson.loads(plain[4:end])
    times = Times(at=meta["at"], created=meta["created"], lease=meta["lease"])
    if problem := times.problem(head):
        raise Unsealable(problem)
    return Inside(data=plain[end:], times=times, manifest=Manifest.of(meta))


def _header(data: bytes) -> bytes:
    return data[_HEAD : _HEAD + int.from_bytes(data[2:_HEAD])]


def _head_place(head: Head) -> bytes:
    # The store gives the head of a deleted session its seq and epoch, which the one who deletes does not know.
    numbers = [] if head.status == "deleted" else [head.seq, head.epoch]
    fields = [head.session, numbers, head.status, sorted(head.labels.items()), head.owner, head.token]
    try:
        return b"midturn head" + orjson.dumps(fields)
    except TypeError:  # half of a surrogate pair, which no writer has accepted
        raise Unsealable("it was changed") from None


def _opened(cipher: AESGCM, nonce: bytes, sealed: bytes, place: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(nonce, sealed, place)
    except (InvalidTag, ValueError):  # ValueError: a nonce or a text that is too short
        raise Unsealable("it was changed, or belongs to another place") from None
