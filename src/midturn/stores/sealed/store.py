"""A store around a store: everything is sealed on its way in, and checked and opened on its way out.

Each session has a random data key. Its head holds the data key, wrapped by one of the keys. A record that was not
sealed for its place is :class:`~midturn.Tampered`. A list has also the heads that cannot be opened, with their readable
fields, and their ``problem`` says why.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from midturn.errors import Conflict, SessionDeleted, StoreFull, StoreUnavailable, Tampered, WrongKey
from midturn.record.head import NO_LABELS, Kind, Removal, Write
from midturn.store import DEADLINE
from midturn.stores.sealed.envelope import (
    CLOCKS,
    PLAIN,
    Inside,
    Times,
    Unsealable,
    WrappedKey,
    is_sealed,
    open_head,
    open_row,
    row_facts,
    seal_head,
    seal_row,
    seal_tombstone,
    wrapped_keys,
)
from midturn.stores.sealed.keys import KEY_BYTES, cipher
from midturn.stores.sealed.manifest import COUNTED, Manifest
from midturn.stores.secrets import unchained
from midturn.stores.wrapper import StoreWrapper, wrap

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from midturn.record.head import Head, Row, Status
    from midturn.store import ListOrder, Store, Transaction
    from midturn.stores.sealed.keys import KeyService
    from midturn.stores.sealed.manifest import KeyRows

    Apply = Callable[[Write], Awaitable[Head]]

MOST_KEYS = 10_000
"""Number of data keys that a store remembers, so that it need not ask the key service again."""
MOST_SESSIONS = 1_000
"""Number of sessions whose manifest a store remembers."""
AT_ONCE = 10
"""Number of questions to the key service at the same time."""
CURRENT_FOR = 3600.0
"""Seconds after which a store asks again which key is the current one."""
BRIEFLY = 3.0
"""Seconds for which a write waits for the key service if it can do without."""
ASK_AGAIN = 60.0
"""Seconds after which such a write asks again a key service that has failed."""
TRIES = 5
"""Number of times that a session is read that changes between two reads."""
CHUNK, MOST_ROWS = 4_000_000, 200
"""Limits on the bytes and the number of the rows that one write seals again."""

Name = TypeVar("Name")
Value = TypeVar("Value")


@dataclass(slots=True, kw_only=True)
class _Session:
    """A session whose head was opened, or that the next write begins."""

    head: Head | None
    """The head with plain data; ``None`` for a new session."""
    keys: tuple[WrappedKey, ...]
    """The data keys; the last one seals new rows."""
    ciphers: Mapping[int, AESGCM]
    manifest: Manifest
    key_rows: KeyRows | None = None
    """The ``KEY`` rows, once they were read and compared with the manifest."""

    @property
    def generation(self) -> int:
        """Return the generation of the data key that seals new rows."""
        return self.keys[-1].generation

    @property
    def seq(self) -> int:
        """Return the seq of the head; 0 for a new session."""
        return self.head.seq if self.head is not None else 0

    @property
    def is_deleted(self) -> bool:
        """Return whether nothing but the record of its deletion is left of the session."""
        return self.head is not None and self.head.status == "deleted"

    def is_at(self, head: Head | None) -> bool:
        """Return whether the session still has the head that was opened."""
        return _place_of(head) == _place_of(self.head)


class Sealed(StoreWrapper):
    """A store in which only the holder of the keys can read a record, or change one unnoticed.

    With ``allow_plain``, it also has the sessions that are not sealed, until :meth:`reseal` seals them.
    """

    def __init__(self, inner: Store, *, keys: KeyService, allow_plain: bool = False) -> None:
        super().__init__(inner)
        self._service = keys
        self._allow_plain = allow_plain
        self._current = ("", 0.0)
        """The id of the service's current key, and until when it counts as that."""
        self._ask_after = 0.0
        """The time from which on a write that can do without the key service asks it again."""
        self._data_keys: OrderedDict[tuple[WrappedKey, str], bytes] = OrderedDict()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._ahead = 0.0
        """Seconds by which the store's clock is ahead of this machine's, as far as that is known."""

    @property
    def sealed(self) -> bool:
        return True

    async def head(self, session: str) -> Head | None:
        known = self._sessions.get(session)
        found = await self._meet(session)
        if found is None or (known is not None and known.seq <= found.seq):
            return None if found is None else found.head
        if later := await self._later_seq(session, found):
            found = await self._meet(session)
            if found is not None and found.seq < later and not found.is_deleted:
                self._sessions.pop(session, None)
                raise _tampered(session, "the head is older than its rows")
        return None if found is None else found.head

    async def heads(
        self,
        *,
        after: str = "",
        limit: int = 100,
        prefix: str = "",
        status: Status | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        order: ListOrder = "id",
        reverse: bool = False,
    ) -> Sequence[Head]:
        raws = await self.inner.heads(
            after=after, limit=limit, prefix=prefix, status=status, labels=labels, order=order, reverse=reverse
        )
        found = await _all(self._open(raw, remember=False) for raw in raws)
        heads = [each.head if isinstance(each, _Session) else each for each in found]
        return [head for head in heads if head is not None]

    async def rows(self, session: str, kind: Kind, *, start: int = 0, stop: int | None = None) -> Sequence[Row]:
        found = self._sessions.get(session) or await self._meet(session)
        sealed: Sequence[Row] | None = None
        for again in range(TRIES):
            if found is None or found.head is None or found.is_deleted:
                return []
            try:
                sealed = sealed or await self._read(found, session, kind, start, stop)
                return [_open_row(found, session, row) for row in sealed]
            except Unsealable as problem:
                latest = await self._meet(session)  # others may have written the session since its head was read
                if latest is not None and latest.is_at(found.head):
                    raise _tampered(session, f"{kind.name.lower()} {problem}") from None
                found = latest
                # The head is later than the rows now. That is enough, unless one of them was replaced meanwhile.
                sealed = None if again or kind is Kind.KEY else sealed
        raise _restless(session)

    async def write(self, write: Write) -> Head:
        return await self._write(write, self.inner.write)

    async def delete(self, session: str, *, data: bytes = b"") -> bool:
        raw = await self.inner.head(session)
        self._look_at_clock(raw)
        if raw is not None and raw.status != "deleted":
            key, aead = await self._new_key(session, 1)
            times = Times(at=self._time(), created=raw.created, lease=0.0)
            data = seal_tombstone(aead, key, session, Inside(data=data, times=times))
        self._sessions.pop(session, None)
        return await self.inner.delete(session, data=data)

    def wrap_transaction(
        self, transaction: AbstractAsyncContextManager[Transaction]
    ) -> AbstractAsyncContextManager[Transaction]:
        @asynccontextmanager
        async def sealing() -> AsyncGenerator[Transaction]:
            async with transaction as inner:
                yield _SealingTransaction(inner, self._write)

        return sealing()

    def around(self, store: Store) -> Sealed:
        """Return another store, sealed with the same keys."""
        return wrap(Sealed, store, keys=self._service, allow_plain=self._allow_plain)

    async def current_key(self) -> str:
        """Return the id of the key that wraps new data keys."""
        await self._wrap(secrets.token_bytes(KEY_BYTES), "", 1)
        return self._current[0]

    async def reseal(self, session: str) -> None:
        """Make a new data key, seal all rows of a session again with it, and release the session.

        The caller holds the session's lease. The next call continues an interrupted one.

        Raises:
            Conflict: somebody else has written the session.
        """
        found = await self._meet(session)
        if found is None or found.head is None:
            return
        if found.generation == PLAIN:
            found.manifest = await self._manifest_of_plain(session, found)
        if len(found.keys) == 1:
            key, aead = await self._new_key(session, found.generation % 255 + 1)
            found = replace(found, keys=(*found.keys, key), ciphers={**found.ciphers, key.generation: aead})
            found = await self._seal_again(found, [])
        chunk: list[Row] = []
        for kind in Kind:
            for row in await self._read(found, session, kind, 0, None):
                if row_facts(row.data)[0] == found.generation:
                    continue  # an earlier call was interrupted after this row
                chunk.append(_open_row(found, session, row))
                if len(chunk) == MOST_ROWS or sum(len(each.data) for each in chunk) > CHUNK:
                    found = await self._seal_again(found, chunk)
                    chunk = []
        found = await self._seal_again(found, chunk)
        await self._seal_again(replace(found, keys=found.keys[-1:]), [], release=True)

    async def close(self) -> None:
        self._sessions.clear()
        self._data_keys.clear()
        await super().close()

    async def _open(self, raw: Head | None, *, remember: bool = True) -> _Session | Head | None:
        """Open a head; return the head itself, with its problem, if that is not possible."""
        if raw is None:
            return None
        session, known = raw.session, self._sessions.get(raw.session)
        self._look_at_clock(raw)
        try:
            found = await self._opened(raw)
        except (Tampered, WrongKey) as problem:
            self._sessions.pop(session, None)
            return replace(raw, problem=problem)
        if known is not None and known.manifest.same_keys(found.manifest):
            found.key_rows = known.key_rows
        if remember and raw.status != "deleted":
            self._remember(session, found)
        return found

    async def _opened(self, raw: Head) -> _Session:
        session = raw.session
        if not is_sealed(raw.data):
            if not self._allow_plain:
                raise _tampered(session, "it is not sealed", hint=f"If it is older than the keys: {_SEAL} {session}")
            return _Session(head=raw, keys=(WrappedKey(PLAIN, "", b""),), ciphers={}, manifest=Manifest())
        try:
            keys = tuple(wrapped_keys(raw.data))
            ciphers = {key.generation: cipher(await self._unwrap(key, session)) for key in keys if key.generation}
            inside = open_head(ciphers[keys[-1].generation], raw)
        except Unsealable as problem:
            raise _tampered(session, f"head: {problem}") from None
        if len(ciphers) < len(keys) and not self._allow_plain:
            raise _tampered(session, "only a part of it is sealed", hint=f"To seal the rest: {_SEAL} {session}")
        return _Session(head=replace(raw, data=inside.data), keys=keys, ciphers=ciphers, manifest=inside.manifest)

    async def _meet(self, session: str) -> _Session | None:
        """Read and open the head of a session, and return the session; ``None`` if there is none."""
        found = await self._open(await self.inner.head(session))
        if isinstance(found, _Session) or found is None:
            return found
        raise found.problem or _restless(session)

    async def _later_seq(self, session: str, found: _Session) -> int:
        """Return the seq of the latest row that the head does not know; 0 if there is none.

        Either somebody has put an older head back, or the session was written since the head was read.
        """
        if found.generation == PLAIN or found.is_deleted:
            return 0
        reads = (self.inner.rows(session, kind, start=found.manifest.next(kind)) for kind in COUNTED)
        return max((row_facts(row.data)[1] for rows in await _all(reads) for row in rows), default=0)

    async def _read(self, found: _Session, session: str, kind: Kind, start: int, stop: int | None) -> Sequence[Row]:
        """Return rows that are still sealed. None of the kind ``KEY`` is missing."""
        if kind is not Kind.KEY or found.generation == PLAIN:
            return await self.inner.rows(session, kind, start=start, stop=stop)
        is_first = found.key_rows is None
        rows = await self.inner.rows(session, kind, start=0 if is_first else start, stop=None if is_first else stop)
        seqs = {row.n: row_facts(row.data)[1] for row in rows}
        old = {n: seq for n, seq in seqs.items() if found.head is None or seq <= found.head.seq}
        if is_first:  # another reader may have filled `key_rows` meanwhile
            if not found.manifest.are_all(old):
                raise Unsealable("rows: one was removed or replaced")
            found.key_rows = old
            return [row for row in rows if start <= row.n and (stop is None or row.n < stop)]
        if old != _within(found.key_rows or {}, start, stop):
            raise Unsealable("rows: one was removed or replaced")
        return rows

    async def _write(self, write: Write, to: Apply) -> Head:
        """Seal a write, and apply it with ``to``."""
        found = self._sessions.get(write.session)
        if found is None or not write.follows(found.head):
            found = await self._meet(write.session)
        if found is not None and found.is_deleted:
            raise SessionDeleted.of(write.session)
        if not write.follows(found.head if found is not None else None):
            raise Conflict.of(write.session)
        if found is None:
            key, aead = await self._new_key(write.session, 1)
            found = _Session(head=None, keys=(key,), ciphers={1: aead}, manifest=Manifest(), key_rows={})
        if found.generation == PLAIN:
            head = await to(write)
            self._remember(write.session, replace(found, head=head))
            return head
        if any(removal.kind is Kind.KEY for removal in write.removes) and found.key_rows is None:
            await self._read(found, write.session, Kind.KEY, 0, None)
        manifest, key_rows = found.manifest.after(write, found.key_rows)
        found = replace(found, manifest=manifest, key_rows=key_rows, keys=await self._rewrapped(found, write.session))
        return await self._apply(found, write, to)

    async def _apply(self, found: _Session, write: Write, to: Apply) -> Head:
        """Apply a write to a session, whose manifest and keys are those after the write."""
        session, aead = write.session, found.ciphers[found.generation]
        created = found.head.created if found.head is not None else None
        times = Times(at=self._time(), created=created, lease=write.lease if write.owner is not None else 0.0)
        data = seal_head(aead, found.keys, write, Inside(data=write.data, times=times, manifest=found.manifest))
        rows = tuple(seal_row(aead, found.generation, session, write.seq + 1, row) for row in write.rows)
        try:
            raw = await to(replace(write, data=data, rows=rows))
        except BaseException:
            self._sessions.pop(session, None)
            raise
        self._look_at_clock(raw)
        found = replace(found, head=replace(raw, data=write.data))
        self._remember(session, found)
        if abs(raw.updated - times.at) > CLOCKS:
            # A clock was set, or this process stood still meanwhile. Readers would take the time for a forged one.
            try:
                return await self._apply(found, _same_again(found), self.inner.write)
            except (Conflict, StoreFull, StoreUnavailable):
                self._remember(session, found)  # the write itself took effect, and the next one puts the time right
        return replace(raw, data=write.data)

    async def _seal_again(self, found: _Session, rows: Sequence[Row], *, release: bool = False) -> _Session:
        """Replace rows by the same rows, sealed with the last data key, and return the session after that."""
        write = _same_again(found, release=release)
        removes = tuple(Removal(row.kind, row.n, row.n + 1) for row in rows)
        write = replace(write, rows=tuple(rows), removes=removes)
        manifest, key_rows = found.manifest.resealed(write, found.key_rows)
        await self._apply(replace(found, manifest=manifest, key_rows=key_rows), write, self.inner.write)
        return self._sessions[write.session]

    async def _manifest_of_plain(self, session: str, found: _Session) -> Manifest:
        """Return the manifest of a session that is not sealed yet."""
        manifest = found.manifest
        for kind in (*COUNTED, Kind.KEY):
            rows = await self.inner.rows(session, kind)
            manifest = manifest.with_plain(kind, [row.n for row in rows])
        return manifest

    def _remember(self, session: str, found: _Session) -> None:
        _keep(self._sessions, session, found, MOST_SESSIONS)

    def _look_at_clock(self, head: Head | None) -> None:
        if head is not None:
            self._ahead = head.now - time.time()

    def _time(self) -> float:
        """Return the time on the store's clock, as far as that is known."""
        return time.time() + self._ahead

    async def _new_key(self, session: str, generation: int) -> tuple[WrappedKey, AESGCM]:
        """Make a data key; return it wrapped, and its cipher."""
        data_key = secrets.token_bytes(KEY_BYTES)
        return await self._wrap(data_key, session, generation), cipher(data_key)

    async def _rewrapped(self, found: _Session, session: str) -> tuple[WrappedKey, ...]:
        """Return the data keys of a session, those of an older key wrapped with the current one."""
        current, until = self._current
        now = time.monotonic()
        if now < self._ask_after or (now < until and all(key.key_id in ("", current) for key in found.keys)):
            return found.keys
        try:
            async with asyncio.timeout(BRIEFLY):
                new = [
                    await self._wrap(await self._unwrap(key, session), session, key.generation)
                    if key.generation
                    else key
                    for key in found.keys
                ]
        except (StoreUnavailable, TimeoutError, WrongKey):
            self._ask_after = time.monotonic() + ASK_AGAIN
            return found.keys  # the session can be written without; another write will wrap them
        return tuple(old if old.key_id == each.key_id else each for old, each in zip(found.keys, new, strict=True))

    async def _wrap(self, data_key: bytes, session: str, generation: int) -> WrappedKey:
        with unchained():
            try:
                key_id, wrapped = await self._asked(lambda: self._service.wrap(data_key, session))
            except LookupError as error:  # only unwrap() may raise it
                raise _failed(error) from None
        self._current = key_id, time.monotonic() + CURRENT_FOR
        key = WrappedKey(generation, key_id, wrapped)
        _keep(self._data_keys, (key, session), data_key, MOST_KEYS)
        return key

    async def _unwrap(self, key: WrappedKey, session: str) -> bytes:
        data_key = self._data_keys.get((key, session))
        if data_key is None:
            with unchained():
                try:
                    data_key = await self._asked(lambda: self._service.unwrap(key.key_id, key.wrapped, session))
                except LookupError as error:
                    why = str(error.args[0]) if error.args else "the key service does not know it"
                    raise _wrong_key(session, key.key_id, why) from None
            if not isinstance(data_key, bytes) or len(data_key) != KEY_BYTES:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise _wrong_key(session, key.key_id, "the key service returned no data key")
            _keep(self._data_keys, (key, session), data_key, MOST_KEYS)
        return data_key

    async def _asked(self, question: Callable[[], Awaitable[Value]]) -> Value:
        """Return the answer of the key service."""
        try:
            async with asyncio.timeout(DEADLINE), self._gate:
                return await question()
        except (LookupError, StoreUnavailable):
            raise
        except TimeoutError:
            raise StoreUnavailable(f"the key service has not answered within {DEADLINE:g} s") from None
        except Exception as error:  # noqa: BLE001 - a service of the caller may raise anything
            raise _failed(error) from None


class _SealingTransaction:
    """A transaction whose write is sealed."""

    def __init__(self, inner: Transaction, write: Callable[[Write, Apply], Awaitable[Head]]) -> None:
        self._inner = inner
        self._write = write

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        return await self._inner.execute(sql, parameters)

    async def write(self, write: Write) -> Head:
        return await self._write(write, self._inner.write)


def sealed_part(store: Store) -> Sealed | None:
    """Return the sealed store among wrappers; ``None`` if the store is not sealed."""
    while not isinstance(store, Sealed):
        inner = getattr(store, "inner", None)
        if inner is None:
            return None
        store = inner
    return store


def key_id_of(head: Head) -> str:
    """Return the id of the key that a session needs, given its head in the inner store.

    The id is an empty text if the session is not sealed, or if only some of its rows are.

    Raises:
        Tampered: the head is damaged.
    """
    if not is_sealed(head.data):
        return ""
    try:
        # There are two data keys only while the session is sealed again; the first one is on its way out.
        return wrapped_keys(head.data)[0].key_id
    except Unsealable as problem:
        raise _tampered(head.session, f"head: {problem}") from None


_SEAL = "midturn rekey --deep"


def _open_row(found: _Session, session: str, row: Row) -> Row:
    where = f"{row.n}: "
    generations = {key.generation for key in found.keys}
    if not is_sealed(row.data):
        if PLAIN in generations:
            return row
        raise Unsealable(f"{where}it is not sealed")
    generation, seq = row_facts(row.data)
    if generation not in generations or found.head is None or seq > found.head.seq:
        raise Unsealable(f"{where}it was changed, or belongs to another place")
    replaced = found.manifest.seq_of(row.kind, row.n)
    if replaced is not None and seq != replaced:
        raise Unsealable(f"{where}it is an older one")
    try:
        return open_row(found.ciphers[generation], session, row)
    except Unsealable as problem:
        raise Unsealable(f"{where}{problem}") from None


async def _all(questions: Iterable[Awaitable[Value]]) -> list[Value]:
    """Return the answers to questions that are asked at once. None of them is left running after an error."""
    answers = await asyncio.gather(*questions, return_exceptions=True)
    found: list[Value] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        found.append(answer)
    return found


def _within(rows: KeyRows, start: int, stop: int | None) -> KeyRows:
    if stop == start + 1:  # the usual case, and there may be thousands of them
        return {start: rows[start]} if start in rows else {}
    return {n: seq for n, seq in rows.items() if start <= n and (stop is None or n < stop)}


def _same_again(found: _Session, *, release: bool = False) -> Write:
    """Return a write that changes nothing in a session, and renews its lease or releases it."""
    head = found.head
    assert head is not None  # noqa: S101 - for the type checker: only what was written is written again
    owner = None if release else head.owner
    return Write(
        session=head.session,
        seq=head.seq,
        after=head.token,
        epoch=head.epoch,
        status=head.status,
        labels=head.labels,
        owner=owner,
        lease=0.0 if owner is None else head.expires - head.updated,
        token=secrets.token_hex(6),
        data=head.data,
    )


def _place_of(head: Head | None) -> tuple[int, str, float] | None:
    return None if head is None else (head.seq, head.token, head.created)


def _keep(cache: OrderedDict[Name, Value], name: Name, value: Value, most: int) -> None:
    cache[name] = value
    cache.move_to_end(name)
    while len(cache) > most:
        cache.popitem(last=False)


def _tampered(session: str, what: str, hint: str = "") -> Tampered:
    return Tampered(what, path=f"session {session!r}", session=session, hint=hint)


def _wrong_key(session: str, key_id: str, why: str) -> WrongKey:
    return WrongKey(f"is sealed with key {key_id!r}, and {why}", path=f"session {session!r}", session=session)


def _failed(error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"the key service failed: {type(error).__name__}")


def _restless(session: str) -> Conflict:
    return Conflict(f"session {session!r} keeps changing; read it again", session=session)
