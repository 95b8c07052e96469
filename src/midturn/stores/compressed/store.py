"""A store that compresses the records of another, and reads plain ones as well.

The compressed form of a record is the byte 1, the number of a dictionary, and a zstd frame. The frame has no magic
number, because all frames have the same. It has the size of its content and a checksum. A frame of the dictionary 0
needs no dictionary. A plain record begins with a brace, so both forms can be in one store.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zstandard

from midturn.errors import StateInvalid, UnknownVersion
from midturn.record.codec import MAX_BYTES
from midturn.record.head import COMPRESSED as MARK
from midturn.record.head import Kind, Row
from midturn.stores.wrapper import StoreWrapper

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from midturn.record.head import Head, Write
    from midturn.store import Store, Transaction

    Apply = Callable[[Write], Coroutine[Any, Any, Head]]
    Compress = Callable[[bytes], bytes]

KINDS = frozenset({Kind.BODY, Kind.CHECKPOINT, Kind.CALL})
"""The kinds of rows that are compressed. The others are few or short, and say who did what: people may look for them in
the database. Heads stay plain as well: each write replaces them."""
NEWEST = 1
"""The shipped dictionary with which records are written. Those before it are only read."""
LARGE = 128 * 1024
"""Bytes from which on a record goes through zstd in pieces and in a thread. A dictionary is of no use to so many."""
LEVEL = 6
"""By measurement, level 3 leaves 5 % to 8 % more bytes and saves 0.1 ms in a turn, and those above 6 save under 1 %."""
LARGE_LEVEL = 3
"""Level 6 takes three times as long, which is noticed here."""
MAX_RECORD = MAX_BYTES + 1024
"""Size limit of a record: a value, and what stands around it in its row."""

_NEWEST = MARK + bytes((NEWEST,))
_PREFIX = len(_NEWEST)
_PIECE = 1024 * 1024
_FORMAT = zstandard.FORMAT_ZSTD1_MAGICLESS
_DICTIONARIES = Path(__file__).parent / "dictionaries"


class DecompressingStore(StoreWrapper):
    """Reads compressed and plain records, and writes plain ones."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._decoder = Decoder()

    async def rows(self, session: str, kind: Kind, *, start: int = 0, stop: int | None = None) -> Sequence[Row]:
        found = await self.inner.rows(session, kind, start=start, stop=stop)
        size = 0
        for row in found:
            if row.data[:1] == MARK:
                size += len(row.data)
        if size < LARGE:
            return self._decoder.rows(found, session) if size else found
        return await asyncio.to_thread(Decoder().rows, found, session)


class _Compressing:
    """Writes bodies, checkpoints and calls compressed where that makes them shorter."""

    def __init__(self, apply: Apply, compress: Compress) -> None:
        self._apply = apply
        self._compress = compress

    def write(self, write: Write) -> Coroutine[Any, Any, Head]:
        # Not a coroutine of its own, which Python would enter again whenever the one inside continues.
        rows: list[Row] = []
        shorter = large = False
        for row in write.rows:
            rows.append(row)
            if row.kind not in KINDS:
                continue
            if len(row.data) >= LARGE:
                large = True
                continue
            data = _NEWEST + self._compress(row.data)
            if len(data) < len(row.data):
                rows[-1] = Row(kind=row.kind, n=row.n, data=data)
                shorter = True
        if shorter:
            write = replace(write, rows=tuple(rows))
        return self._write_large(write) if large else self._apply(write)

    async def _write_large(self, write: Write) -> Head:
        rows = [
            replace(row, data=await asyncio.to_thread(encode_large, row.data))
            if len(row.data) >= LARGE and row.kind in KINDS
            else row
            for row in write.rows
        ]
        return await self._apply(replace(write, rows=tuple(rows)))


# pyright takes the methods of the contract to return coroutines of one class only.
class CompressedStore(_Compressing, DecompressingStore):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Writes bodies, checkpoints and calls compressed where that makes them shorter, and reads both forms."""

    def __init__(self, inner: Store) -> None:
        DecompressingStore.__init__(self, inner)
        _Compressing.__init__(self, inner.write, _compressor(LEVEL, NEWEST).compress)

    def wrap_transaction(
        self, transaction: AbstractAsyncContextManager[Transaction]
    ) -> AbstractAsyncContextManager[Transaction]:
        return self._transaction(transaction)

    @asynccontextmanager
    async def _transaction(self, transaction: AbstractAsyncContextManager[Transaction]) -> AsyncGenerator[Transaction]:
        async with transaction as inner:
            yield _CompressedTransaction(inner, self._compress)  # pyright: ignore[reportReturnType] - as above


class _CompressedTransaction(_Compressing):
    def __init__(self, inner: Transaction, compress: Compress) -> None:
        super().__init__(inner.write, compress)
        self._inner = inner

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        return await self._inner.execute(sql, parameters)


def encode_large(data: bytes) -> bytes:
    """Return the compressed form of a large record, or the record itself if that is not longer.

    If the first piece does not become shorter, neither will the rest: it is encrypted or compressed already.
    """
    if len(data) > MAX_RECORD:
        return data
    pieces = _compressor(LARGE_LEVEL, 0).compressobj(size=len(data))
    found = BytesIO()
    found.write(MARK + b"\0")
    view = memoryview(data)
    for start in range(0, len(data), _PIECE):
        found.write(pieces.compress(view[start : start + _PIECE]))
        found.write(pieces.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
        if found.tell() > min(start + _PIECE, len(data)):
            return data
    found.write(pieces.flush())
    return found.getvalue() if found.tell() < len(data) else data


class Decoder:
    """Reads compressed records. Two threads must not use the same one at the same time."""

    def __init__(self) -> None:
        self._decompressors: dict[int, zstandard.ZstdDecompressor] = {}

    def rows(self, rows: Sequence[Row], session: str) -> list[Row]:
        """Return the rows of a session with plain records. It raises what :meth:`decode` raises."""
        found: list[Row] = []
        for row in rows:
            found.append(row)
            if row.data[:1] == MARK:
                data = self.decode(row.data, f"{row.kind.name.lower()} {row.n}", session)
                found[-1] = Row(kind=row.kind, n=row.n, data=data)
        return found

    def decode(self, data: bytes, what: str, session: str) -> bytes:
        """Return a record from its compressed form; ``what`` and ``session`` name it in errors.

        Raises:
            StateInvalid: it is damaged, or would be larger than any record.
            UnknownVersion: a newer midturn wrote it, with a dictionary that this one does not have.
        """
        number = data[1] if len(data) > 1 else 0
        if number > NEWEST:
            raise UnknownVersion(
                f"{what} of session {session!r} is compressed with the dictionary {number}, and this midturn has those "
                f"up to {NEWEST}: upgrade midturn",
                session=session,
            )
        decompressor = self._decompressors.get(number)
        if decompressor is None:
            decompressor = zstandard.ZstdDecompressor(dict_data=dictionary(number), format=_FORMAT)
            self._decompressors[number] = decompressor
        frame = memoryview(data)[_PREFIX:]
        try:
            size = zstandard.get_frame_parameters(frame, format=_FORMAT).content_size
            if size > MAX_RECORD:  # also if the frame does not name its size: that is a greater number
                raise _damaged(f"would be larger than the {MAX_RECORD:,} bytes of any record", what, session)
            return decompressor.decompress(frame, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise _damaged(f"is damaged: {error}", what, session) from None


@cache
def dictionary(number: int) -> zstandard.ZstdCompressionDict | None:
    """Return the shipped dictionary of this number, and nothing for 0."""
    return zstandard.ZstdCompressionDict((_DICTIONARIES / f"{number}.dict").read_bytes()) if number else None


def _compressor(level: int, number: int) -> zstandard.ZstdCompressor:
    parameters = zstandard.ZstdCompressionParameters.from_level(  # pyright: ignore[reportUnknownMemberType]
        level, format=_FORMAT, write_content_size=True, write_checksum=True, write_dict_id=False
    )
    return zstandard.ZstdCompressor(compression_params=parameters, dict_data=dictionary(number))


def _damaged(problem: str, what: str, session: str) -> StateInvalid:
    message = f"the compressed record {problem}; restore it from a backup"
    return StateInvalid(message, path=f"{what} of {session!r}", session=session)
