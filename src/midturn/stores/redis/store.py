"""``redis://``: sessions in Redis or Valkey, for the processes of many machines."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from contextlib import suppress
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from midturn.errors import Conflict, MidturnError, SessionDeleted, StateInvalid, StoreUnavailable, UnknownVersion
from midturn.record.head import NO_LABELS, Head, Kind, Row, Status, Write, by_change, read_cursor
from midturn.store import DEADLINE, fits, follows
from midturn.stores.privacy import report_without_tls
from midturn.stores.redis import format as records
from midturn.stores.redis.routing import Servers
from midturn.stores.redis.server import PIECE, WRONG_TYPE, NoScript, Request, Trouble
from midturn.stores.redis.url import parse
from midturn.stores.retrying import MovedOn, ServerStore, Slow, Tries, Unreached
from midturn.stores.scripts import named
from midturn.stores.secrets import unchained

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from midturn.store import ListOrder, Profile
    from midturn.stores.redis.server import Command
    from midturn.stores.redis.url import Target

T = TypeVar("T")

_log = logging.getLogger(__name__)

BATCH = 500
"""Largest number of sessions that a list reads at once."""
REMEMBERED = 10_000
"""Number of ids that a store remembers to be in the index."""
ABANDONED = 3_600
"""Seconds after which an id without a session leaves the index; far longer than any write takes."""
AT_ONCE = 5
"""Number of times that a try goes to another server before it waits."""
LEAVE = 1.0
"""Seconds that closing gives to running calls."""

_PARTS = named("redis/script.lua")
_LUA = {name: _PARTS["common"] + text for name, text in _PARTS.items() if name != "common"}
_SHA = {name: sha1(text.encode(), usedforsecurity=False).hexdigest() for name, text in _LUA.items()}


class RedisStore(ServerStore):
    """Sessions in Redis; :meth:`open` makes one."""

    profile: Profile = "bounded-loss"

    def __init__(self, target: Target, deadline: float) -> None:
        # A try gives up on a hanging server early enough to find the one that has taken over.
        self._patience = deadline / 3
        self._servers = Servers(target, self._patience)
        if not target.urls[0].startswith("rediss:"):
            report_without_tls(self._servers.hosts, "write rediss instead of redis in the URL")
        kinds = {"server": "server", "cluster": "cluster", "sentinel": f"service {target.service!r} of the Sentinels"}
        super().__init__(f"the Redis {kinds[target.layout]} {self._servers.name}", deadline)
        self._target = target
        self._keys = records.Keys(target.prefix)
        self._index_keys = [self._keys.ids, self._keys.begun]
        self._changed_keys = [*self._keys.changed.values()]
        # In a cluster, a session and these keys are in different slots, and no script can write both.
        self._apart = target.layout == "cluster"
        self._indexed: dict[str, None] = {}
        self._timers: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._ready = False

    @classmethod
    async def open(cls, url: str, *, deadline: float = DEADLINE) -> RedisStore:
        """Connect to the servers that a URL names, and check their durability.

        Raises:
            StoreUnavailable: the URL is wrong, or the servers cannot be reached, reject the user, or may lose more
                than the URL allows.
        """
        with unchained():
            store = cls(parse(url), deadline)
        await store._open(store._start)
        store._ready = True
        return store

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
        if order == "updated":
            return await self._heads_by_change(after, limit, prefix, status, labels, reverse=reverse)
        low = b"[" + prefix.encode()
        high = b"(" + prefix.encode() + b"\xff" if prefix else b"+"  # a byte that no UTF-8 has
        if after and (after.startswith(prefix) or (after < prefix) == reverse):
            low, high = (low, b"(" + after.encode()) if reverse else (b"(" + after.encode(), high)
        found: list[Head] = []

        async def pages(tries: Tries) -> None:
            nonlocal low, high
            more, size = True, min(BATCH, max(20, limit))
            while more and len(found) < limit:
                ids = await self._page(low, high, size, tries, reverse=reverse)
                more = len(ids) == size
                heads = await self._readable(ids, tries)
                if self._apart:
                    await self._list([_listing(head) for head in heads], tries)
                found.extend(head for head in heads if fits(head, status, labels))
                size = min(BATCH, 2 * size)  # few of those that were read have matched
                if ids:
                    low, high = (low, b"(" + ids[-1]) if reverse else (b"(" + ids[-1], high)

        await self._try(pages)
        return found[:limit]

    async def _heads_by_change(
        self, after: str, limit: int, prefix: str, status: Status | None, labels: Mapping[str, str], *, reverse: bool
    ) -> Sequence[Head]:
        statuses: list[Status] = [status] if status else [one for one in self._keys.changed if one != "deleted"]
        behind = follows(after, order="updated", reverse=reverse)
        time, session = read_cursor(after, reverse=reverse)
        found: list[Head] = []
        last = (round(time * records.MICROSECONDS) if after else time, session.encode())

        async def pages(tries: Tries) -> None:
            nonlocal last
            more = True
            # For ids without the prefix, nothing but the id is read.
            size = BATCH if prefix else min(BATCH, max(20, limit))
            while more and len(found) < limit:
                listed = await self._changes(statuses, last, size, tries, reverse=reverse)
                more = len(listed) == size
                ids = {id_: updated for updated, id_ in listed if id_.startswith(prefix.encode())}
                heads = await self._readable([*ids], tries)
                late = {one[0]: one for one in map(_listing, heads) if one[2] != ids[one[0]]}
                if late:
                    await self._list([*late.values()], tries)
                # A session that has changed since it was listed belongs to an earlier page, or in reverse to a later
                # one, which finds it where it is listed now.
                found.extend(
                    head
                    for head in heads
                    if behind(head) and fits(head, status, labels) and not (reverse and head.session.encode() in late)
                )
                last = listed[-1] if listed else last
                size = min(BATCH, 2 * size)  # few of those that were read have matched

        await self._try(pages)
        return sorted(found, key=by_change, reverse=not reverse)[:limit]

    async def counts(self) -> Mapping[Status, int]:
        async def count(tries: Tries) -> dict[Status, int]:
            statuses, ttl = self._keys.changed, self._target.ttl
            [time] = await self._read(self._keys.ids, [("TIME",)], tries)
            # Older sessions may have expired, so each of them is read.
            old = records.microseconds(time) - ttl * 1_000 if ttl else 0
            recent = await self._in_sets(statuses, ("ZCOUNT", old, "+inf"), tries)
            found = Counter[Status](dict(zip(statuses, recent, strict=True)))
            for ids in await self._in_sets(statuses, ("ZRANGEBYSCORE", 0, f"({old}"), tries) if ttl else ():
                for start in range(0, len(ids), BATCH):
                    found.update(head.status for head in await self._readable(ids[start : start + BATCH], tries))
            return {status: number for status, number in found.items() if number}

        return await self._try(count)

    async def rows(self, session: str, kind: Kind, *, start: int = 0, stop: int | None = None) -> Sequence[Row]:
        if start > records.LAST_N or (stop is not None and stop <= start):
            return []
        low = b"[" + records.name_of(kind, start)
        high = b"(%d" % (kind + 1) if stop is None or stop > records.LAST_N else b"(" + records.name_of(kind, stop)
        key = self._keys.session(session)
        # One command, even if it is long: between two commands, a deletion could leave half of the rows.
        [members] = await self._try(lambda tries: self._read(key, [("ZRANGEBYLEX", key, low, high)], tries), session)
        if members is WRONG_TYPE:
            raise records.foreign(session, key)
        if max(map(len, members), default=0) > PIECE:
            await asyncio.sleep(0)  # the driver has copied it, and it is copied once more: others come in between
        return records.as_rows(members, kind, session)

    async def close(self) -> None:
        if os.getpid() != self._pid or asyncio.get_running_loop() is not self._loop:
            return
        self._closed = True
        await self._ended()
        for timer in self._timers:
            if not timer.expired():
                timer.reschedule(self._loop.time())
        await self._ended()
        await self._servers.close()

    async def _ended(self) -> None:
        """Wait a short time for running calls to end."""
        if self._timers:
            self._idle.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LEAVE, self._deadline / 4)):
                    await self._idle.wait()

    # The requests to the servers

    async def _start(self, tries: Tries) -> None:
        checked = await self._reach(Request(tries.until), tries, self._servers.check_all)
        profiles: tuple[Profile, ...] = ("volatile", "bounded-loss", "strict")
        found = {one.profile for one in checked}
        self.profile = next(profile for profile in profiles if profile in found)
        for one in checked:
            if one.risk:
                self._warn(one.risk)

    async def _head(self, session: str, tries: Tries) -> Head | None:
        key = self._keys.session(session)
        members, time = await self._read(key, [_head_of(key), ("TIME",)], tries)
        if members is WRONG_TYPE:
            raise records.foreign(session, key)
        return records.as_head(members, session, time)

    async def _write(self, write: Write, tries: Tries) -> Head:
        # The index is in another slot of a cluster, so another script writes it, and first: no list misses a session.
        again, index = tries.sent, write.seq == 0 or write.session not in self._indexed
        if index and not again:
            await self._index(write.session, tries)
        id_ = write.session.encode()
        after = "" if write.after is None or not write.seq else f"={records.quoted(write.after)}"
        token = records.quoted(write.token)
        fixed = (id_, write.seq, write.seq + 1, after, token, write.epoch, write.status, records.rest_of(write))
        rows = map(records.as_member, write.rows)
        # A session must not expire while somebody holds it.
        ttl = self._target.ttl and self._target.ttl + (int(write.lease * 1000) if write.owner else 0)
        gone = [records.name_of(kind, n) for kind, *ends in write.removes for n in ends]
        arguments = (*fixed, int(again), ttl or "", self._target.replicas, len(gone), *gone, *rows)
        answer, *values = await self._script("write", self._keys_of(write.session), arguments, tries)
        if answer == b"conflict":
            raise (MovedOn if again and int(values[0]) > write.seq + 1 else Conflict).of(write.session)
        self._check_answer(answer, write.session, *values)
        if self._apart:
            await self._list([(id_, write.status, int(values[1]))], tries)
        if index and again:  # only now that the outcome is known: a full server rejects this
            await self._index(write.session, Tries(tries.until))
        created, updated = (int(value) / records.MICROSECONDS for value in values)
        return write.head(now=updated, created=created)

    async def _delete(self, session: str, by: str, data: bytes, tries: Tries) -> bool:
        arguments = (session.encode(), by, self._target.replicas, data)
        answer, *values = await self._script("delete", self._keys_of(session), arguments, tries)
        if answer == b"nothing":
            return False
        if answer != b"gone":
            self._check_answer(answer, session, *values)
        if self._apart:
            await self._list([(session.encode(), "deleted", int(values[0]))], tries)
        return bool(answer != b"gone")

    async def _forget(self, session: str, tries: Tries) -> bool:
        id_ = session.encode()
        answer, *values = await self._script("forget", self._keys_of(session), (id_, self._target.replicas), tries)
        if answer == b"nothing":
            return tries.sent
        if answer == b"kept":
            raise Conflict.of(session)
        self._check_answer(answer, session, *values)
        if self._apart:
            await self._list([(id_, "", int(values[0]) + 1)], tries)
        return True

    def _keys_of(self, session: str) -> list[bytes]:
        """Return the keys that a script writes when it changes the session."""
        return [self._keys.session(session), *([] if self._apart else self._changed_keys)]

    def _check_answer(self, answer: bytes, session: str, *values: bytes) -> None:
        match answer:
            case b"written":
                return
            case b"deleted":
                raise SessionDeleted.of(session)
            case b"newer":
                raise records.unknown_version(session)
            case b"foreign":
                raise records.foreign(session, self._keys.session(session))
            case b"taken":
                raise records.foreign(session, values[0])
            case _:
                raise records.damaged(session)

    async def _index(self, session: str, tries: Tries) -> None:
        arguments = (session.encode(), self._target.replicas)
        [answer, *_] = await self._script("index", self._index_keys, arguments, Tries(tries.until))
        if answer != b"written":
            raise records.foreign(session, self._keys.ids)
        self._indexed[session] = None
        if len(self._indexed) > REMEMBERED:
            del self._indexed[next(iter(self._indexed))]

    async def _list(self, changes: Sequence[tuple[bytes, Status | Literal[""], int]], tries: Tries) -> None:
        """Record the status and the time of the last change of sessions, for lists; without a status, list it no more.

        An error is ignored: the next write of the session does it again, or the next list that finds the session.
        """
        arguments = tuple(value for change in changes for value in change)
        with suppress(MidturnError, Unreached):
            await self._script("list", self._changed_keys, arguments, Tries(tries.until))

    async def _changes(
        self, statuses: Sequence[Status], last: tuple[float, bytes], size: int, tries: Tries, *, reverse: bool
    ) -> list[tuple[int, bytes]]:
        """Return up to ``size`` times and ids that come after the ``last``: the latest first, or in ``reverse``."""
        count = size
        span = ("ZRANGEBYSCORE", last[0], "+inf") if reverse else ("ZREVRANGEBYSCORE", last[0], 0)
        while True:
            count *= 2  # the reply includes sessions that changed at the same moment as the last
            command = (*span, "WITHSCORES", "LIMIT", 0, count)
            found: list[tuple[int, bytes]] = []
            missed = False
            for reply in await self._in_sets(statuses, command, tries):
                pairs = zip(map(records.score, reply[1::2]), reply[::2], strict=True)
                behind = [pair for pair in pairs if (pair > last if reverse else pair < last)]
                missed |= len(behind) < size and len(reply) == 2 * count
                found += behind
            if not missed:
                return sorted(found, reverse=not reverse)[:size]

    async def _in_sets(self, statuses: Iterable[Status], command: Command, tries: Tries) -> list[Any]:
        """Return the replies to a command on the set of ids of each status; the command comes without its key."""
        keys = [self._keys.changed[status] for status in statuses]
        replies = await self._read(self._keys.ids, [(command[0], key, *command[1:]) for key in keys], tries)
        for key, reply in zip(keys, replies, strict=True):
            if reply is WRONG_TYPE:
                raise records.foreign("", key)
        return replies

    async def _page(self, low: bytes, high: bytes, size: int, tries: Tries, *, reverse: bool) -> list[bytes]:
        ids = self._keys.ids
        span = ("ZREVRANGEBYLEX", ids, high, low) if reverse else ("ZRANGEBYLEX", ids, low, high)
        [found] = await self._read(ids, [(*span, "LIMIT", 0, size)], tries)
        if found is WRONG_TYPE:
            raise records.foreign("", ids)
        page: list[bytes] = found
        return page

    async def _readable(self, ids: list[bytes], tries: Tries) -> list[Head]:
        """Return the heads of ids that have one, and remove ids without a head from the index after some time."""
        sessions: list[str] = []
        for id_ in ids:
            try:
                sessions.append(id_.decode())
            except UnicodeDecodeError:
                _log.warning("an id of another program is omitted from the list: %r", id_)
        keys = [self._keys.session(session) for session in sessions]
        request = Request(tries.until)
        commands = {key: _head_of(key) for key in keys}
        replies = await self._reach(request, tries, lambda: self._servers.run_each(request, commands, ("TIME",)))
        heads: list[Head] = []
        gone: list[bytes] = []
        for session, key in zip(sessions, keys, strict=True):
            members, time = replies[key]
            try:
                if members is WRONG_TYPE:
                    raise records.foreign(session, key)
                head = records.as_head(members, session, time)
            except (StateInvalid, UnknownVersion) as error:
                _log.warning("a session is omitted from the list: %s", error)
                continue
            if head is None:
                gone.append(session.encode())
            else:
                heads.append(head)
        if gone:
            with suppress(MidturnError, Unreached):  # a user or a server that cannot write now; a later list does it
                await self._script(
                    "unindex", [*self._index_keys, *self._changed_keys], (ABANDONED, *gone), Tries(tries.until)
                )
        return heads

    # The way to the servers

    async def _read(self, key: bytes, commands: list[Command], tries: Tries) -> list[Any]:
        """Return the replies of the primary that has the key."""
        request = Request(tries.until)
        return await self._reach(request, tries, lambda: self._servers.read(request, key, commands))

    async def _script(self, name: str, keys: list[bytes], arguments: tuple[Any, ...], tries: Tries) -> list[Any]:
        """Return the answer of a script, once its change is as durable as the store promises."""
        request = Request(tries.until, tries.sent)

        async def work() -> list[Any]:
            script = ("EVAL", _LUA[name]) if request.whole else ("EVALSHA", _SHA[name])
            answer = await self._servers.write(request, keys[0], (*script, len(keys), *keys, *arguments))
            if answer is WRONG_TYPE:
                return [b"foreign"]
            if answer[0] == b"replicas":
                request.sent = tries.sent
                wanted = f"{int(answer[1])} of {self._target.replicas} replicas"
                raise Trouble(StoreUnavailable(f"{self.address} has {wanted}; nothing was written"))
            found: list[Any] = answer
            return found

        return await self._reach(request, tries, work, writes=True)

    async def _reach(
        self, request: Request, tries: Tries, work: Callable[[], Awaitable[T]], *, writes: bool = False
    ) -> T:
        """Return the result of one try, which may go from server to server."""
        try:
            async with asyncio.timeout_at(min(tries.until, self._loop.time() + self._patience)) as timer:
                self._timers.add(timer)
                try:
                    return await self._follow(request, work)
                finally:
                    self._timers.discard(timer)
                    if not self._timers:
                        self._idle.set()
        except TimeoutError:
            await self._servers.doubt()
            tries.sent |= request.sent and writes
            if self._closed:
                raise StoreUnavailable.closed() from None
            raise Slow(
                "no answer in time; check that it runs and can be reached, and use rediss:// for TLS", absent=True
            ) from None
        except Trouble as trouble:
            # Also before a final error: a request that was sent may have taken effect.
            tries.sent |= request.sent and writes
            if not trouble.again or not (self._ready or trouble.soon or self._servers.sure):
                raise trouble.error from trouble.__cause__
            raise Unreached(str(trouble).removeprefix(f"{self.address} ")) from trouble

    async def _follow(self, request: Request, work: Callable[[], Awaitable[T]]) -> T:
        for left in reversed(range(AT_ONCE)):
            try:
                return await work()
            except Trouble as trouble:
                if trouble.stale:
                    self._servers.forget()
                    self._indexed.clear()  # another server may have lost it
                if isinstance(trouble, NoScript):
                    request.whole = True
                if not trouble.at_once or not left:
                    raise
        raise AssertionError("the last round ends the loop")


def _listing(head: Head) -> tuple[bytes, Status, int]:
    return head.session.encode(), head.status, round(head.updated * records.MICROSECONDS)


def _head_of(key: bytes) -> Command:
    return ("ZRANGEBYLEX", key, b"[h", b"(i", "LIMIT", 0, 1)
