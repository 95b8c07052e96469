"""Connections to Postgres: a few that stay open, and calls on them that keep their deadline.

midturn does not use psycopg's own pool. That pool connects in the background, so a call that cannot connect gets a
timeout and not the reason, and it waits longer for a server that does not answer than a deadline allows.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format
from psycopg.rows import tuple_row
from psycopg.waiting import wait_async

from midturn.errors import InvalidArgument, MidturnError, StoreFull, StoreUnavailable
from midturn.stores.postgres.private import PreparingConnection
from midturn.stores.retrying import Slow, Tries, Unreached

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from psycopg.abc import Params, PQGen
    from psycopg.pq.abc import PGconn, PGresult
    from psycopg.rows import AsyncRowFactory

    from midturn.stores.secrets import Secret

T = TypeVar("T")

SIZE = 10
"""Largest number of connections of one store."""
RESERVED = SIZE // 2
"""Largest number of connections for transactions, so that some remain for all other calls."""
MAX_IDLE = 60.0
"""Seconds for which an idle connection is trusted: firewalls silently drop idle ones."""
PREPARED_AFTER = 5
"""Number of times that a connection sends a statement before it prepares it, as in psycopg: most are sent only once."""
LOCK_TIMEOUT = "5s"
"""Longest time that the server waits for a lock: a caller that gave up must not leave a waiting connection behind."""
PASSING = (
    pg.SerializationFailure,
    pg.DeadlockDetected,
    pg.LockNotAvailable,
    pg.QueryCanceled,
    pg.TooManyConnections,
    pg.ReadOnlySqlTransaction,  # a primary that has become a standby
)
"""Errors of a server that did nothing; another try may succeed."""
ALREADY_THERE = (pg.UniqueViolation, pg.DuplicateSchema, pg.DuplicateTable, pg.DuplicateObject, pg.DuplicateFunction)
"""Errors whose meaning depends on the request."""
UNPREPARED = (pg.InvalidSqlStatementName, pg.DuplicatePreparedStatement)
"""Errors behind a pooler: the statement was prepared on another of the pooler's connections."""
GONE = (pg.AdminShutdown, pg.CrashShutdown, pg.CannotConnectNow, pg.StatementCompletionUnknown)
"""Errors of a server that shuts down, and of a pooler that has lost its server; SQL codes of class 08 mean the same."""

SOON = (
    "starting up",
    "shutting down",
    "recovery",
    "not accepting",
    "not yet accepting",
    "too many",
    "slots",
    "no more connections",
)
"""Words in the message of a server that will accept connections a little later."""


class Connection(PreparingConnection):
    """A connection on which a cancelled call ends at once; psycopg's own asks the server to cancel, and waits."""

    limited = False
    """True if the server limits waiting for locks; behind a pooler the limit would also affect other clients."""

    def __init__(self, pgconn: PGconn, row_factory: AsyncRowFactory[tuple[Any, ...]] = tuple_row) -> None:
        super().__init__(pgconn, row_factory)
        self._asked: dict[bytes, int] = {}

    async def ask(self, name: bytes, query: bytes, values: Sequence[bytes | None]) -> list[bytes] | None:
        """Run one statement and return its row, if it has one; all values are in the server's binary form.

        By measurement, a write with psycopg's cursor takes a fifth longer. The name belongs to this text alone, so a
        hidden pooler that prepared it for another client has prepared the same statement.
        """
        times = self._asked.get(name, 0)
        if times == PREPARED_AFTER:
            self.pgconn.send_prepare(name, query)
            await self._answer()
        self._asked[name] = times + 1
        formats = [Format.BINARY] * len(values)
        if times < PREPARED_AFTER:
            self.pgconn.send_query_params(query, values, None, formats, Format.BINARY)
        else:
            self.pgconn.send_query_prepared(name, values, formats, Format.BINARY)
        found = await self._answer()
        return [cast("bytes", found.get_value(0, n)) for n in range(found.nfields)] if found.ntuples else None

    async def _answer(self) -> PGresult:
        found: PGresult
        *_, found = await self.wait(execute(self.pgconn))  # an error of the commit comes after the row
        if found.status == ExecStatus.FATAL_ERROR:
            raise pg.error_from_result(found)
        return found

    def forget_prepared(self) -> None:
        self._asked.clear()  # psycopg drops our statements together with its own

    async def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:  # noqa: ARG002, ASYNC109 - psycopg's
        return await wait_async(gen, self.pgconn.socket, interval)


class Pool:
    """Connections to one database."""

    def __init__(self, conninfo: Secret, address: str, deadline: float) -> None:
        self._conninfo = conninfo
        self._address = address
        self._idle: list[tuple[Connection, float]] = []
        self._slots = asyncio.Semaphore(SIZE)
        self._reserved = asyncio.Semaphore(RESERVED)
        self._closed = False
        self._prepares = True
        self._options: dict[str, Any] = {}
        given = conninfo_to_dict(conninfo.reveal())
        hosts = str(given.get("host") or "").count(",") + 1
        if hosts > 1 and "connect_timeout" not in given:
            # Otherwise a host that does not answer would use up the time of the others.
            self._options["connect_timeout"] = max(2, int(deadline / 2 / hosts))

    async def run(
        self,
        tries: Tries,
        query: bytes,
        values: Params | None = None,
        *,
        writes: bool = False,
        prepare: bool | None = None,
    ) -> list[tuple[Any, ...]]:
        """Run one statement as a transaction of its own, and return its rows.

        psycopg prepares a statement that is often used. Without ``prepare``, the server makes a plan for the values.

        Raises:
            Unreached: the server cannot be reached, or asks for another try.
        """

        async def work(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(query, values, prepare=prepare, binary=True)
            return await cursor.fetchall()

        return await self.use(tries, work, writes=writes)

    async def use(self, tries: Tries, work: Callable[[Connection], Awaitable[T]], *, writes: bool = False) -> T:
        """Return the result of ``work`` on a connection of its own, which is closed if the work takes too long."""
        now = asyncio.get_running_loop().time()
        connection: Connection | None = None
        lost = False
        try:
            # Half of the remaining time: a dead connection must leave enough time for another one.
            async with asyncio.timeout_at(now + (tries.until - now) / 2), self._slots:
                if self._closed:
                    raise StoreUnavailable.closed()
                connection = self._take() or await self._connect()
                try:
                    return await work(connection)
                finally:
                    lost = connection.closed
                    self._give_back(connection)
        except TimeoutError:
            self.forget()
            sent = writes and connection is not None
            raise Slow("it does not answer in time", sent=sent, absent=not sent) from None
        except ALREADY_THERE:
            raise
        except psycopg.Error as error:
            if lost or is_gone(error):
                raise Unreached(message_of(error), sent=writes) from None
            raise self.translated(error) from None

    @asynccontextmanager
    async def reserve(self, until: float) -> AsyncGenerator[Connection]:
        """Reserve a connection for longer use; it is closed if the block leaves a transaction open.

        Raises:
            Unreached: no connection is free until then.
        """
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(until):
                    await stack.enter_async_context(self._reserved)
                    await stack.enter_async_context(self._slots)
                    if self._closed:
                        raise StoreUnavailable.closed()
                    connection = self._take() or await self._connect()
                    stack.callback(self._give_back, connection)
            except TimeoutError:
                raise Slow("it does not answer in time, or other transactions use all connections") from None
            yield connection

    def forget(self) -> None:
        """Close the idle connections; the next calls make new ones."""
        for connection, _ in self._idle:
            connection.pgconn.finish()
        self._idle.clear()

    def close(self) -> None:
        self._closed = True
        self.forget()

    def _take(self) -> Connection | None:
        # The one that was used last, so that the extra connections of a peak grow old and are dropped.
        oldest = asyncio.get_running_loop().time() - MAX_IDLE
        while self._idle:
            connection, since = self._idle.pop()
            if not connection.closed and since >= oldest:
                return connection
            connection.pgconn.finish()
        return None

    def _give_back(self, connection: Connection) -> None:
        if connection.broken:  # The server is gone, so the other connections are useless too.
            self.forget()
        if self._closed or connection.closed or connection.pgconn.transaction_status:
            connection.pgconn.finish()
        else:
            self._idle.append((connection, asyncio.get_running_loop().time()))

    async def _connect(self) -> Connection:
        try:
            connection = await Connection.connect(
                self._conninfo.reveal(),
                autocommit=True,
                client_encoding="UTF8",
                fallback_application_name="midturn",
                **self._options,
            )
            try:
                if not self._prepares or await _is_pooled(connection):
                    connection.prepare_threshold = None
                else:
                    await connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'".encode())
                    connection.limited = True
            except BaseException:
                connection.pgconn.finish()
                raise
            return connection
        except (psycopg.ProgrammingError, UnicodeError):
            raise not_a_url() from None
        except psycopg.OperationalError as error:
            # The driver has no error code for messages that a server sends before it accepts the connection.
            _, fatal, said = message_of(error).rpartition("FATAL:")
            passing = any(word in said for word in SOON)
            hint = "; check the user, the password and the database in the URL" if fatal and not passing else ""
            said = said.replace("Is the server running on that host", "; is the server running on that host")
            raise Unreached(said.strip() + hint, absent=not passing) from None

    def translated(self, error: psycopg.Error) -> Exception:
        """Return the error to raise for an error of the server."""
        if isinstance(error, pg.ReadOnlySqlTransaction):
            self.forget()
        if isinstance(error, UNPREPARED):
            self._prepares = False
            self.forget()
        if isinstance(error, PASSING + UNPREPARED):
            return Unreached(message_of(error))
        said = f"{message_of(error)} ({error.sqlstate})"
        for kinds, meaning, text in _MEANINGS:
            if isinstance(error, kinds):
                return meaning(f"{self._address} {text}: {said}")
        return StoreUnavailable(f"{self._address} cannot be used: {said}")


_MEANINGS: tuple[tuple[tuple[type[psycopg.Error], ...], type[MidturnError], str], ...] = (
    ((pg.DiskFull,), StoreFull, "has no space left; free some and try again"),
    (
        (pg.InsufficientPrivilege,),
        StoreUnavailable,
        (
            "does not allow this role to do that; let the owner of the schema run midturn db upgrade and grant rights: "
            "docs/how-to/postgres.md"
        ),
    ),
    (
        (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName),
        StoreUnavailable,
        "has no tables of midturn; type: midturn db upgrade --store URL",
    ),
)


async def _is_pooled(connection: Connection) -> bool:
    """Return whether a pooler is between: it reports a process id that the server does not have.

    A statement that is prepared behind a pooler may be unknown to the server's connection that it uses next.
    """
    cursor = await connection.execute("SELECT pg_catalog.pg_backend_pid()")
    return await cursor.fetchone() != (connection.pgconn.backend_pid,)


def is_gone(error: psycopg.Error) -> bool:
    """Return whether an error means that the server is gone, and is not its answer to the request."""
    return isinstance(error, GONE) or (error.sqlstate or "").startswith("08")


def not_a_url() -> InvalidArgument:
    """Return the error for a URL that the driver cannot read; the driver's own message would quote the URL."""
    return InvalidArgument(
        "the URL of the Postgres store is wrong; write postgresql://user:password@host:port/database, with "
        "@ / : ? # % in names and passwords written as %40 %2F %3A %3F %23 %25",
        path="url",
    )


def message_of(error: psycopg.Error) -> str:
    """Return the message of an error, without the statement and the values that the error quotes."""
    return error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__
