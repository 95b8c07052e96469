"""One Redis server: its connections, and the meaning of its errors."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from redis import exceptions as failures
from redis.asyncio.connection import Connection, parse_url

from midturn.errors import InvalidArgument, MidturnError, StoreFull, StoreUnavailable
from midturn.stores.redis.url import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Address: TypeAlias = tuple[str, int]
Command: TypeAlias = "tuple[str | bytes | float, ...]"
Then: TypeAlias = "Callable[[list[Any]], list[Command]]"

CONNECTIONS = 16
"""Number of connections that a store keeps to one server."""
FRESH = 60.0
"""Seconds for which an idle connection is trusted: firewalls drop idle ones silently, and then a try hangs."""
FAREWELL = 1.0
"""Seconds that closing a connection properly may take."""

PIECE = 256 * 1024
"""Bytes of a request that are sent at once."""

WRONG_TYPE = object()
"""The reply for a key that belongs to another program."""


@dataclass(slots=True)
class Request:
    """One request of a store, over all its attempts."""

    until: float
    """The time at which it gives up, on the event loop's clock."""
    sent: bool = False
    """True if a server may have carried it out, or may still do so."""
    whole: bool = False
    """True if a server does not have the script yet, so its whole text is sent."""
    detours: dict[int, Address] = field(default_factory=dict[int, Address])
    """Slots of a cluster that are moving to another server."""


class Trouble(Exception):
    """An attempt failed; the caller gets ``error`` if no other attempt succeeds."""

    def __init__(
        self,
        error: MidturnError,
        *,
        again: bool = True,
        soon: bool = False,
        stale: bool = False,
        at_once: bool = False,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.again = again
        """True if another attempt may succeed."""
        self.soon = soon or at_once
        """True if the server runs and only needs a moment."""
        self.stale = stale
        """True if another server may have taken over."""
        self.at_once = at_once
        """True if the next attempt takes another way and need not wait."""


class Connector:
    """Maker of connections with the options of a URL, to its own host or to another one."""

    def __init__(self, url: str, patience: float) -> None:
        forced = {"protocol": 2, "decode_responses": False}
        options: dict[str, Any] = {}
        try:
            # No timeout for each command: the store has one for each try, and a second one costs a fifth of the speed.
            options = {"socket_timeout": None, "socket_connect_timeout": patience, **parse_url(url), **forced}
            self._kind: Any = options.pop("connection_class", Connection)
            self.connections = int(options.pop("max_connections", CONNECTIONS))
            options.pop("timeout", None)
            self._kind(**options)
        except TypeError as error:
            unknown = re.findall(r"'(\w+)'", str(error))
            names = ", ".join(name for name in unknown if name in options) or "one"
            raise InvalidArgument(
                f"the URL of the Redis store has an unknown option: {names}; remove it", path="url"
            ) from None
        except (
            ValueError,
            LookupError,
            AttributeError,
            failures.RedisError,
        ):  # not chained: the message may quote a password
            raise InvalidArgument(f"the URL of the Redis store cannot be read; use {FORMS}", path="url") from None
        self._options = options
        self.address: Address = (str(options.get("host", "localhost")), int(options.get("port", 6379)))

    def connection(self, address: Address, **others: Any) -> Any:
        """Return a new connection, which is not connected yet."""
        return self._kind(**self._options | {"host": address[0], "port": address[1]} | others)


class Server:
    """The connections to one server."""

    def __init__(self, connector: Connector, address: Address, *, login: bool = True, **others: Any) -> None:
        self.name = f"{address[0]}:{address[1]}"
        self.checked: object = None
        """The result of checking the server; ``None`` after each trouble."""
        self._connector = connector
        self._address = address
        self._others = others if login else {**others, "username": None, "password": None}
        self._free = asyncio.Semaphore(connector.connections)
        self._idle: list[tuple[float, Any]] = []
        self._closed = False

    async def run(
        self, request: Request, commands: Sequence[Command], *, asking: bool = False, then: Then | None = None
    ) -> list[Any]:
        """Send commands together on one connection, then those that ``then`` returns, and return all replies.

        Raises:
            Trouble: there is no reply, or an error that does not concern a single key.
        """
        before = request.sent
        async with self._free:
            connection: Any = None
            try:
                connection = await self._connection()
                await connection.connect()
                request.sent = True
                replies = await _exchange(connection, commands, asking=asking)
                if then is not None and (more := then(replies)):
                    replies += await _exchange(connection, more)
            except BaseException as error:
                # A reply that arrives late must not be taken for the reply to a later command.
                if connection is not None:
                    await connection.disconnect(nowait=True)
                if isinstance(error, failures.RedisError | OSError):
                    await self.drop()
                    raise trouble(error, self.name) from error
                raise
            if self._closed:
                await connection.disconnect(nowait=True)
            else:
                self._idle.append((time.monotonic(), connection))
        for number, reply in enumerate(replies):
            if isinstance(reply, failures.RedisError):
                if number == 0 and _is_refusal(reply):
                    request.sent = before
                if "WRONGTYPE" not in str(reply):
                    raise trouble(reply, self.name)
                replies[number] = WRONG_TYPE
        return replies

    async def _connection(self) -> Any:
        if self._idle:
            since, connection = self._idle.pop()
            if time.monotonic() - since < FRESH:
                return connection
            await connection.disconnect(nowait=True)
        return self._connector.connection(self._address, **self._others)

    async def drop(self) -> None:
        """Close the idle connections: whatever broke one of them has probably broken them all."""
        self.checked = None
        while self._idle:
            await self._idle.pop()[1].disconnect(nowait=True)

    async def close(self) -> None:
        """Close all connections; one in use is closed after its call."""
        self._closed = True
        ending = [connection.disconnect() for _, connection in self._idle]
        self._idle.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await asyncio.gather(*ending, return_exceptions=True)


async def _exchange(connection: Any, commands: Sequence[Command], *, asking: bool = False) -> list[Any]:
    """Return the reply to each command; a reply may be an error."""
    if asking:
        commands = [part for command in commands for part in (("ASKING",), command)]
    for piece in _pieces(connection.pack_commands(commands)):
        try:
            await connection.send_packed_command(piece)
        except AttributeError as error:  # Python 3.12's asyncio, if the connection was lost while it was idle
            raise failures.ConnectionError("the connection was lost before the request") from error
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(await connection.read_response(disable_decoding=True))
        except (failures.ResponseError, failures.BusyLoadingError) as error:
            if not connection.is_connected:  # redis-py ends the connection to a server that is still loading
                return [error]
            replies.append(error)
    return replies[1::2] if asking else replies


def _pieces(packed: Sequence[bytes]) -> Iterator[Sequence[bytes | memoryview]]:
    """Yield the pieces of a request to send one after the other: asyncio copies what it gets at once, up to twice."""
    if sum(map(len, packed)) <= PIECE:
        yield packed
        return
    for part in packed:
        view = memoryview(part)
        for start in range(0, len(view), PIECE):
            yield [view[start : start + PIECE]]


class Detour(Trouble):
    """A slot of a cluster is being moved, and its key is at the other server already."""

    def __init__(self, error: MidturnError, slot: int, address: Address) -> None:
        super().__init__(error, at_once=True)
        self.slot = slot
        self.address = address


class NoScript(Trouble):
    """The server does not have the script yet."""


class Forbidden(Trouble):
    """The server does not have the command, or does not allow it for this user."""

    def __init__(self, error: MidturnError, *, again: bool = False) -> None:
        super().__init__(error, again=again)


_CLASSES: dict[type, str] = {
    failures.OutOfMemoryError: "OOM",
    failures.ReadOnlyError: "READONLY",
    failures.BusyLoadingError: "LOADING",
    failures.TryAgainError: "TRYAGAIN",
    failures.ClusterDownError: "CLUSTERDOWN",
    failures.MasterDownError: "MASTERDOWN",
    failures.NoPermissionError: "NOPERM",
}
_PASSING: dict[str, tuple[str, dict[str, bool]]] = {
    "READONLY": ("is a replica; name the primary", {"stale": True}),
    "NOREPLICAS": ("has too few replicas (min-replicas-to-write); nothing was written", {}),
    "LOADING": ("is still loading its data; try again in a moment", {"soon": True}),
    "BUSY": ("is busy with a script of another program; try again later", {"soon": True}),
    "TRYAGAIN": ("is moving keys within its cluster; try again in a moment", {"soon": True}),
    "UNBLOCKED": ("has become a replica", {"soon": True, "stale": True}),
    "MASTERDOWN": ("has lost its primary; see INFO replication", {"soon": True, "stale": True}),
    "CLUSTERDOWN": ("says that its cluster is down; see CLUSTER INFO", {"soon": True, "stale": True}),
}
_CODE = re.compile(rf"\b({'|'.join([*_PASSING, 'OOM', 'MISCONF', 'NOPERM'])})\b")


def _is_refusal(error: Exception) -> bool:
    """Return whether the server has certainly done nothing; an unknown error may come from a proxy."""
    known = (failures.MovedError, failures.AskError, failures.NoScriptError, failures.AuthenticationError, *_CLASSES)
    found = _CODE.search(str(error))
    # If a script may not use some of its commands, it has run up to the first of these.
    half = found is not None and found[0] == "NOPERM" and "script" in str(error)
    return (isinstance(error, known) or found is not None) and not half


def trouble(error: Exception, name: str) -> Trouble:
    """Return the trouble that an error of redis-py or of the server means."""
    server = f"the Redis server {name}"
    match error:
        case failures.MovedError():
            moved = StoreUnavailable(f"{server} has handed the session to another server of its cluster")
            return Trouble(moved, at_once=True, stale=True)
        case failures.AskError():
            address = (str(error.host) or name.rpartition(":")[0], error.port)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            moving = StoreUnavailable(f"{server} is handing the session to another server of its cluster")
            return Detour(moving, error.slot_id, address)
        case failures.NoScriptError():
            return NoScript(StoreUnavailable(f"{server} does not keep scripts"), at_once=True)
        case failures.AuthenticationError() | failures.AuthorizationError():
            refused = f"{server} rejects the user name or the password; check them in the URL"
            return Trouble(StoreUnavailable(refused), again=False)
        case failures.ResponseError() | failures.BusyLoadingError():
            return _answered(error, server)
        case _:
            return Trouble(StoreUnavailable(f"{server} {_unreachable(error)}"), stale=True)


def _answered(error: Exception, server: str) -> Trouble:
    # Before Redis 7, an error inside a script is part of a longer text.
    found = _CODE.search(str(error))
    code = _CLASSES.get(type(error)) or (found[0] if found else "")
    if code in _PASSING:
        what, how = _PASSING[code]
        return Trouble(StoreUnavailable(f"{server} {what}"), **how)
    match code:
        case "OOM":
            return Trouble(StoreFull(f"{server} has no memory left; raise maxmemory or delete sessions"), again=False)
        case "MISCONF" if "No space" in str(error):
            return Trouble(StoreFull(f"{server} has no space left on its disk; free some there"), again=False)
        case "MISCONF":
            what = "accepts no writes because it cannot save to its disk; see its log"
            return Trouble(StoreUnavailable(f"{server} {what}"), again=False)
        case "NOPERM":
            # Not the whole message: it may name the user.
            command = re.search(r"'([\w|]+)' command", str(error))
            needed = f"the command {command[1]}" if command else "the keys under the store's prefix"
            advice = "allow it with ACL SETUSER"
            return Forbidden(StoreUnavailable(f"{server} does not allow this user {needed}; {advice}"))
        case _:
            # Not the whole text: Redis quotes the arguments of an unknown command.
            text = str(error).partition(", with args")[0]
            unknown = "unknown command" in text.lower()
            return (Forbidden if unknown else Trouble)(StoreUnavailable(f"{server} answered: {text}"), again=False)


def _unreachable(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, failures.TimeoutError):
        return "did not answer in time; check that it runs and can be reached"
    if isinstance(error, failures.InvalidResponse):
        return "does not speak the Redis protocol; check the port, and use rediss:// for TLS"
    if isinstance(cause, ssl.SSLError):
        reason = getattr(cause, "reason", None) or cause
        return f"does not pass the TLS check: {reason}; check its certificate and ssl_ca_certs="
    if cause is not None and cause.strerror:
        return f"cannot be reached: {cause.strerror}; check the host, the port and that it runs"
    if cause is not None:
        return f"cannot be reached: {cause}; check the host, the port and that it runs"
    return "closed the connection; check that it runs, and use rediss:// for TLS"
