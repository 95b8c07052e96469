"""Connections to Postgres: a few that are kept open, and calls on them that end when they must.

Not psycopg's own pool: that connects in the background, so a call that cannot connect only learns that time is up and
not why, and it waits for a server that does not answer longer than a deadline allows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.waiting import wait_async

from leftoff.errors import LeftoffError, StoreFull, StoreUnavailable
from leftoff.stores.server import Slow, Tries, Unreached

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from psycopg.abc import Params, PQGen

T = TypeVar("T")

SIZE = 10
"""How many connections one store has at most."""
MAX_IDLE = 60.0
"""Seconds after which a connection that nobody used is not trusted any more: firewalls forget such ones."""
PASSING = (
    pg.SerializationFailure,
    pg.DeadlockDetected,
    pg.LockNotAvailable,
    pg.QueryCanceled,
    pg.TooManyConnections,
    pg.ReadOnlySqlTransaction,  # a primary that has become a standby
    pg.InvalidSqlStatementName,  # a pooler that we took for a server
    pg.DuplicatePreparedStatement,
)
"""Answers of a server that did nothing, and may do it when asked again."""
ALREADY_THERE = (pg.UniqueViolation, pg.DuplicateSchema, pg.DuplicateTable, pg.DuplicateObject, pg.DuplicateFunction)
"""Answers whose meaning depends on what was asked."""
GOING = (pg.AdminShutdown, pg.CrashShutdown, pg.CannotConnectNow, pg.DatabaseDropped, pg.IdleSessionTimeout)

SOON = ("starting up", "shutting down", "recovery", "not yet accepting", "not accepting", "too many", "slots")
"""What a server says that will let one in a little later."""


class Connection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection that ends at once when its user goes; psycopg's own would first ask the server to stop."""

    async def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:  # noqa: ARG002, ASYNC109 - psycopg's
        try:
            return await wait_async(gen, self.pgconn.socket, interval)
        except asyncio.CancelledError:
            self.pgconn.finish()
            raise


class Pool:
    """Connections to one database."""

    def __init__(self, conninfo: str, place: str) -> None:
        self._conninfo = conninfo
        self._place = place
        self._idle: list[tuple[Connection, float]] = []
        self._slots = asyncio.Semaphore(SIZE)
        self._closed = False
        self.prepares = False
        """Whether the server keeps the plans of statements; behind a pooler, each goes to another connection."""

    async def run(
        self, tries: Tries, query: bytes, values: Params | None = None, *, writes: bool = False
    ) -> list[tuple[Any, ...]]:
        """The rows that one statement gives, as a transaction of its own.

        Raises:
            Unreached: the server is not there, or asks to try again.
        """

        async def work(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(query, values, prepare=self.prepares, binary=True)
            return await cursor.fetchall()

        return await self.use(tries, work, writes=writes)

    async def use(self, tries: Tries, work: Callable[[Connection], Awaitable[T]], *, writes: bool = False) -> T:
        """The result of ``work`` with a connection of its own, which is cut if it takes too long."""
        now = asyncio.get_running_loop().time()
        sent = False
        try:
            # Half of the time that is left: a connection that leads nowhere leaves enough for another one.
            async with asyncio.timeout_at(now + (tries.until - now) / 2), self._slots:
                connection = self._take() or await self._connect()
                try:
                    sent = writes
                    return await work(connection)
                finally:
                    self._give_back(connection)
        except TimeoutError:
            raise Slow("it does not answer in time", sent=sent, absent=not sent) from None
        except ALREADY_THERE:
            raise
        except psycopg.Error as error:
            raise self._translated(error, sent=sent) from None

    def forget(self) -> None:
        """Close the connections that nobody uses; the next calls make new ones."""
        for connection, _ in self._idle:
            connection.pgconn.finish()
        self._idle.clear()

    def close(self) -> None:
        self._closed = True
        self.forget()

    def _take(self) -> Connection | None:
        # The one that was used last: so those that a peak has left behind grow old and are dropped.
        oldest = asyncio.get_running_loop().time() - MAX_IDLE
        while self._idle:
            connection, since = self._idle.pop()
            if not connection.closed and since >= oldest:
                return connection
            connection.pgconn.finish()
        return None

    def _give_back(self, connection: Connection) -> None:
        if connection.broken:  # The server has gone, so the others are of no use either.
            self.forget()
        if self._closed or connection.closed or connection.pgconn.transaction_status:
            connection.pgconn.finish()
        else:
            self._idle.append((connection, asyncio.get_running_loop().time()))

    async def _connect(self) -> Connection:
        try:
            return await Connection.connect(
                self._conninfo,
                autocommit=True,
                prepare_threshold=None,
                client_encoding="UTF8",
                fallback_application_name="leftoff",
            )
        except psycopg.ProgrammingError:
            raise not_a_url() from None
        except psycopg.OperationalError as error:
            # The driver gives no code for what a server says before it lets one in.
            _, fatal, said = _said(error).rpartition("FATAL:")
            passing = any(word in said for word in SOON)
            hint = "; check the user, the password and the database in the URL" if fatal and not passing else ""
            raise Unreached(said.strip() + hint, absent=not passing) from None

    def _translated(self, error: psycopg.Error, *, sent: bool) -> Exception:
        """What a server's answer means."""
        if error.sqlstate is None or isinstance(error, GOING):
            return Unreached(_said(error), sent=sent)
        if isinstance(error, pg.InvalidSqlStatementName | pg.DuplicatePreparedStatement):
            self.prepares = False
        if isinstance(error, pg.ReadOnlySqlTransaction):
            self.forget()
        if isinstance(error, PASSING):
            return Unreached(_said(error))
        said = f"{_said(error)} ({error.sqlstate})"
        for kinds, meaning, text in _MEANINGS:
            if isinstance(error, kinds):
                return meaning(f"{self._place} {text}: {said}")
        return StoreUnavailable(f"{self._place} cannot be used: {said}")


_MEANINGS: tuple[tuple[tuple[type[psycopg.Error], ...], type[LeftoffError], str], ...] = (
    ((pg.DiskFull,), StoreFull, "has no space left; free some and try again"),
    (
        (pg.InsufficientPrivilege,),
        StoreUnavailable,
        "does not let this role do that; the how-to for Postgres has the GRANTs, which its owner can type",
    ),
    (
        (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName),
        StoreUnavailable,
        "has no tables of leftoff; type: leftoff db upgrade",
    ),
)


def not_a_url() -> StoreUnavailable:
    """For a URL that the driver does not understand; what it says of it would quote it."""
    return StoreUnavailable(
        "the URL is not one that Postgres knows; it is postgresql://user:password@host:port/database, with "
        "@ / : ? # % in names and passwords written as %40 %2F %3A %3F %23 %25"
    )


def _said(error: psycopg.Error) -> str:
    """What went wrong, without the statement and the values that an error quotes."""
    return error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__
