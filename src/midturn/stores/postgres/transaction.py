"""Transactions of a Postgres store: statements of the caller and one write, on one connection.

Nothing in a transaction is ever tried again, because midturn does not know what the caller's statements do.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors as pg
from psycopg.pq import TransactionStatus

from midturn.errors import Conflict, InvalidArgument, OutcomeUnknown, SessionDeleted, StoreUnavailable
from midturn.stores.postgres.pool import LOCK_TIMEOUT, is_gone, message_of
from midturn.stores.postgres.private import OneStatement
from midturn.stores.postgres.write import apply
from midturn.stores.retrying import Slow, Unreached

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from midturn.record.head import Head, Write
    from midturn.stores.postgres.pool import Connection, Pool
    from midturn.stores.retrying import Tries

DIVIDING = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "PREPARE"})
"""First words of the statements that the caller of a transaction may not use."""


class PostgresTransaction:
    """One transaction; :meth:`midturn.stores.postgres.store.PostgresStore.transaction` makes it."""

    def __init__(
        self, pool: Pool, address: str, deadline: float, sql: Mapping[str, bytes], doubt: Callable[[Write], None]
    ) -> None:
        self._pool = pool
        self._address = address
        self._deadline = deadline
        self._limit = int(deadline * 1000)
        self._sql = sql
        self._doubt = doubt
        self._stack = AsyncExitStack()
        self._connection: Connection | None = None
        self._over = False
        self._used = False

    async def begin(self, tries: Tries) -> None:
        """Try once to begin the transaction."""
        await self._stack.aclose()  # releases the connection of an earlier try
        now = asyncio.get_running_loop().time()
        # Half of the remaining time: a dead connection must leave enough time for another one.
        until = now + (tries.until - now) / 2
        connection = await self._stack.enter_async_context(self._pool.reserve(until))
        try:
            async with self._asking(connection, until):
                # The server also limits a statement, since it does not always notice that its client is gone.
                limits = f"SET LOCAL statement_timeout = {self._limit}; SET LOCAL lock_timeout TO DEFAULT"
                await connection.execute(f"BEGIN; {limits}; SAVEPOINT midturn".encode())
        except psycopg.Error as error:
            raise self._pool.translated(error) from None
        self._connection = connection

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        connection = self._usable()
        if first_word(sql) in DIVIDING:
            text = "midturn itself begins and ends the transaction; leave out BEGIN, COMMIT and SAVEPOINT"
            raise InvalidArgument(text, path="statement")
        self._over = True  # until the outcome is known
        try:
            async with self._asking(connection):
                if self._used:
                    await connection.execute(b"RELEASE SAVEPOINT midturn; SAVEPOINT midturn")
                self._used = True
                cursor = OneStatement(connection)
                await cursor.execute(sql.encode(), parameters or None, prepare=False)
                found = await cursor.fetchall() if cursor.description else []
        except Unreached as error:
            raise self._lost(error) from None
        except Exception:
            # Otherwise the server would accept no further statement.
            with suppress(Unreached, psycopg.Error):
                async with self._asking(connection):
                    await connection.execute(b"ROLLBACK TO SAVEPOINT midturn")
                self._over = False
            raise
        self._over = False
        return found

    async def write(self, write: Write) -> Head:
        connection = self._usable()
        self._over = True
        try:
            async with self._asking(connection):
                # The write locks the session, so the server must not wait longer for a client that may be gone.
                limits = f"SET LOCAL idle_in_transaction_session_timeout = {self._limit}"
                await connection.execute(f"{limits}; SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'".encode())
                verdict = await apply(connection, self._sql, write)
        except Unreached as error:
            raise self._lost(error, write.session) from None
        except pg.UniqueViolation:
            raise Conflict.of(write.session) from None
        except psycopg.Error as error:
            raise self._final(error, write.session) from None
        if verdict.what != "written":
            raise (SessionDeleted if verdict.what == "deleted" else Conflict).of(write.session)
        await self._commit(connection, write)
        return write.head(now=verdict.updated, created=verdict.created)

    async def _commit(self, connection: Connection, write: Write) -> None:
        try:
            async with self._asking(connection):
                cursor = await connection.execute(b"COMMIT")
        except Unreached as error:
            self._doubt(write)
            message = f"the connection to {self._address} was lost during the commit: {error}"
            raise OutcomeUnknown(message, session=write.session) from None
        except pg.IntegrityError:  # a deferred constraint of the caller
            raise
        except psycopg.Error as error:
            raise self._final(error, write.session) from None
        except asyncio.CancelledError:
            self._doubt(write)
            raise
        if cursor.statusmessage != "COMMIT":
            raise StoreUnavailable(f"{self._address} has rolled the transaction back", session=write.session)

    async def end(self) -> None:
        """Roll the transaction back unless it was committed, and release the connection."""
        self._over = True
        connection, self._connection = self._connection, None
        try:
            status = connection.info.transaction_status if connection else None
            if connection and status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                with suppress(Unreached, psycopg.Error):
                    async with self._asking(connection):
                        await connection.execute(b"ROLLBACK")
        finally:
            await self._stack.aclose()

    @asynccontextmanager
    async def _asking(self, connection: Connection, until: float | None = None) -> AsyncGenerator[None]:
        """Run the block within the deadline; raise Unreached for an error that is not an answer of the server."""
        try:
            async with asyncio.timeout_at(until or asyncio.get_running_loop().time() + self._deadline):
                yield
        except TimeoutError:
            raise Slow("it does not answer in time") from None
        except psycopg.Error as error:
            if connection.closed or is_gone(error):
                raise Unreached(message_of(error)) from None
            raise

    def _usable(self) -> Connection:
        if self._over or self._connection is None:
            raise InvalidArgument("it is over; begin another one", path="transaction")
        return self._connection

    def _final(self, error: psycopg.Error, session: str) -> Exception:
        found = self._pool.translated(error)
        return self._lost(found, session) if isinstance(found, Unreached) else found

    def _lost(self, error: Unreached, session: str | None = None) -> StoreUnavailable:
        return StoreUnavailable(f"{self._address}: {error}; the transaction was rolled back", session=session)


async def fence(pool: Pool, tries: Tries, sql: Mapping[str, bytes], write: Write) -> None:
    """Wait until the outcome of a write is final, after its transaction was interrupted during the commit.

    This applies the same write again, which waits until the first one has ended and released its locks. If the first
    one had no effect, the new one is rolled back, because the caller's statements are missing. If the first one took
    effect, it is now as durable as any write.
    """

    async def work(connection: Connection) -> None:
        async with connection.transaction():
            if (await apply(connection, sql, write)).what == "written":
                raise psycopg.Rollback

    with suppress(pg.UniqueViolation):
        await pool.use(tries, work)


def first_word(sql: str) -> str:
    """Return the first word of a statement in capitals, after the spaces, semicolons and comments before it."""
    while True:
        sql = sql.lstrip(" \t\n\r\f\v;")
        if sql.startswith("--"):
            sql = "".join(re.split(r"[\n\r]", sql, maxsplit=1)[1:])
        elif sql.startswith("/*"):
            sql = sql[_end_of_comment(sql) :]
        else:
            found = re.match(r"[A-Za-z]*", sql)
            return found[0].upper() if found else ""


def _end_of_comment(sql: str) -> int:
    depth = 0
    for mark in re.finditer(r"/\*|\*/", sql):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(sql)
