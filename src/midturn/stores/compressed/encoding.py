"""The compressed form of a record: the byte 1, the number of a dictionary, and a zstd frame.

The frame has no magic number, because all frames have the same. It has the size of its content and a checksum. A frame
of the dictionary 0 needs no dictionary. A plain record begins with a brace, so both forms can be in one store.
"""

from __future__ import annotations

from functools import cache
from io import BytesIO
from pathlib import Path

from midturn.errors import StateInvalid, UnknownVersion
from midturn.record.codec import MAX_BYTES
from midturn.stores.compressed.library import zstd

MARK = b"\x01"
"""The first byte of a compressed record."""
NEWEST = 1
"""The shipped dictionary with which records are written. Those before it are only read."""
MAX_RECORD = MAX_BYTES + 1024
"""Size limit of a record: a value, and what stands around it in its row."""
LARGE = 128 * 1024
"""Bytes from which on a record is passed through zstd in pieces. A dictionary is of no use to so many."""
LEVEL = 3
"""By measurement, the next levels save less than they cost: level 9 saves 4 % and takes four times as long."""

_MAGIC = b"\x28\xb5\x2f\xfd"
_PREFIX = len(MARK) + 1
_MAX_HEADER = 18
_PIECE = 1024 * 1024
_DICTIONARIES = Path(__file__).parent / "dictionaries"
_WRITING = {
    zstd.CompressionParameter.compression_level: LEVEL,
    zstd.CompressionParameter.checksum_flag: 1,
    zstd.CompressionParameter.content_size_flag: 1,
    zstd.CompressionParameter.dict_id_flag: 0,
}
_READING = {zstd.DecompressionParameter.window_log_max: MAX_RECORD.bit_length()}


class Encoder:
    """Compresses records. It must not be used by two threads at the same time."""

    def __init__(self) -> None:
        self._compress = zstd.ZstdCompressor(options=_WRITING, zstd_dict=dictionary(NEWEST)).compress
        self._prefix = MARK + bytes((NEWEST,))

    def encode(self, data: bytes) -> bytes:
        """Return the compressed form of a short record, or the record itself if that is not longer."""
        found = self._prefix + self._compress(data, zstd.ZstdCompressor.FLUSH_FRAME)[len(_MAGIC) :]
        return found if len(found) < len(data) else data


def encode_large(data: bytes) -> bytes:
    """Return what :meth:`Encoder.encode` does for a long record, with little memory, and in any thread.

    If the first piece does not become shorter, neither will the rest, such as pictures and what is encrypted.
    """
    if len(data) > MAX_RECORD:
        return data
    compressor = zstd.ZstdCompressor(options=_WRITING)
    compressor.set_pledged_input_size(len(data))
    found = BytesIO()
    found.write(MARK + b"\0")
    view = memoryview(data)
    for start in range(0, len(data), _PIECE):
        piece = compressor.compress(view[start : start + _PIECE], compressor.FLUSH_BLOCK)
        found.write(piece if start else piece[len(_MAGIC) :])
        if found.tell() > start + min(_PIECE, len(data) - start):
            return data
    found.write(compressor.flush())
    return found.getvalue() if found.tell() < len(data) else data


def decode(data: bytes, what: str, session: str) -> bytes:
    """Return a record from its compressed form; ``what`` and ``session`` name it in errors.

    Raises:
        StateInvalid: it is damaged, or would be larger than any record.
        UnknownVersion: a newer midturn wrote it, with a dictionary that this one does not have.
    """
    number = data[1] if len(data) > 1 else 0
    if number > NEWEST:
        raise UnknownVersion(
            f"{what} of session {session!r} is compressed with the dictionary {number}, and this midturn has those up "
            f"to {NEWEST}: upgrade midturn",
            session=session,
        )
    try:
        size = zstd.get_frame_info(_MAGIC + data[_PREFIX : _PREFIX + _MAX_HEADER]).decompressed_size
        if size is None or size > MAX_RECORD:
            raise _damaged(f"would be larger than the {MAX_RECORD:,} bytes of any record", what, session)
        decompressor = zstd.ZstdDecompressor(zstd_dict=dictionary(number), options=_READING)
        decompressor.decompress(_MAGIC)
        if len(data) < LARGE and size < LARGE:
            found = decompressor.decompress(data[_PREFIX:], size + 1)
        else:
            found = _in_pieces(decompressor, data, size)
        if len(found) == size and decompressor.eof and not decompressor.unused_data:
            return found
    except zstd.ZstdError as error:
        raise _damaged(f"is damaged: {error}", what, session) from None
    raise _damaged("is damaged: its size is not the one that it names", what, session)


def _in_pieces(decompressor: zstd.ZstdDecompressor, data: bytes, size: int) -> bytes:
    """Return the content of a frame, which needs little more memory than that."""
    found = BytesIO()
    view = memoryview(data)
    for start in range(_PREFIX, len(data), LARGE):
        piece: bytes | memoryview = view[start : start + LARGE]
        while not decompressor.eof and (piece or not decompressor.needs_input):
            found.write(decompressor.decompress(piece, _PIECE))
            piece = b""
            if found.tell() > size:
                return b""
        if decompressor.eof:
            return b"" if start + LARGE < len(data) else found.getvalue()
    return b""


@cache
def dictionary(number: int) -> zstd.ZstdDict | None:
    """Return the shipped dictionary of this number."""
    return zstd.ZstdDict((_DICTIONARIES / f"{number}.dict").read_bytes()) if number else None


def _damaged(problem: str, what: str, session: str) -> StateInvalid:
    message = f"the compressed record {problem}; restore it from a backup"
    return StateInvalid(message, path=f"{what} of {session!r}", session=session)
