"""A store that compresses the records of another, and reads plain ones as well."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from midturn.record.head import Kind, Row
from midturn.stores.compressed.encoding import LARGE, MARK, Encoder, decode, encode_large
from midturn.stores.wrapper import StoreWrapper

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from midturn.record.head import Head, Write
    from midturn.store import Store, Transaction

COMPRESSED = frozenset({Kind.BODY, Kind.CHECKPOINT, Kind.CALL})
"""The kinds of rows that are compressed. The others are few or short, and say who did what: people may look for them in
the database. Heads stay plain as well: each write replaces them."""


class DecompressingStore(StoreWrapper):
    """Reads compressed and plain records, and writes plain ones."""

    async def rows(self, session: str, kind: Kind, *, start: int = 0, stop: int | None = None) -> Sequence[Row]:
        found = await self.inner.rows(session, kind, start=start, stop=stop)
        size = sum([len(row.data) for row in found if row.data[:1] == MARK])
        if size < LARGE:
            return _decoded(found, session) if size else found
        return await asyncio.to_thread(_decoded, found, session)


class CompressedStore(DecompressingStore):
    """Writes bodies, checkpoints and calls compressed where that makes them shorter."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._encode = Encoder().encode

    def write(self, write: Write) -> Coroutine[Any, Any, Head]:
        # Not a coroutine of its own: that would run again whenever the one inside continues.
        return self._write(self.inner.write, write)

    def wrap_transaction(
        self, transaction: AbstractAsyncContextManager[Transaction]
    ) -> AbstractAsyncContextManager[Transaction]:
        return self._transaction(transaction)

    @asynccontextmanager
    async def _transaction(self, transaction: AbstractAsyncContextManager[Transaction]) -> AsyncGenerator[Transaction]:
        async with transaction as inner:
            yield _CompressedTransaction(inner, self._write)

    def _write(self, apply: Callable[[Write], Coroutine[Any, Any, Head]], write: Write) -> Coroutine[Any, Any, Head]:
        rows: list[Row] = []
        changed = False
        for row in write.rows:
            if row.kind in COMPRESSED:
                if len(row.data) >= LARGE:
                    return self._write_large(apply, write)
                data = self._encode(row.data)
                if data is not row.data:
                    row = Row(kind=row.kind, n=row.n, data=data)  # noqa: PLW2901
                    changed = True
            rows.append(row)
        return apply(replace(write, rows=tuple(rows)) if changed else write)

    async def _write_large(self, apply: Callable[[Write], Coroutine[Any, Any, Head]], write: Write) -> Head:
        rows: list[Row] = []
        for row in write.rows:
            data = row.data
            if row.kind in COMPRESSED:
                data = await asyncio.to_thread(encode_large, data) if len(data) >= LARGE else self._encode(data)
            rows.append(replace(row, data=data))
        return await apply(replace(write, rows=tuple(rows)))


class _CompressedTransaction:
    """A transaction that compresses what it writes."""

    def __init__(self, inner: Transaction, write: Callable[..., Coroutine[Any, Any, Head]]) -> None:
        self._inner = inner
        self._write = write

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        return await self._inner.execute(sql, parameters)

    async def write(self, write: Write) -> Head:
        return await self._write(self._inner.write, write)


def _decoded(rows: Sequence[Row], session: str) -> list[Row]:
    return [
        Row(kind=row.kind, n=row.n, data=decode(row.data, f"{row.kind.name.lower()} {row.n}", session))
        if row.data[:1] == MARK
        else row
        for row in rows
    ]
