"""Transactions of a SQLite store: statements of the caller and one write, on a connection of their own.

While a transaction is open, all other writers wait, in this process and in all others.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from midturn.errors import InvalidArgument, StoreUnavailable
from midturn.record.codec import encode
from midturn.stores.scripts import named
from midturn.stores.sqlite.store import STEPS, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path

    from midturn.record.head import Head, Write
    from midturn.stores.sqlite.files import OpenFiles

TABLES = frozenset({"sessions", "rows", "turn_calls"})
"""The tables of midturn."""

_SETTINGS = named("sqlite/queries.sql")["settings"]
_DIVIDES = frozenset({sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT})
_WRITES = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_DROP_TABLE})


class SqliteTransaction:
    """One transaction; :meth:`midturn.stores.sqlite.store.SqliteStore.transaction` makes it."""

    def __init__(self, path: Path, deadline: float, files: OpenFiles | None) -> None:
        self._own = _Own(path, deadline, files)
        self._over = False

    async def begin(self) -> None:
        """Wait for the lock that allows writing."""
        await self._own.begin()

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        self._check()
        self._over = True  # until the outcome is known
        try:
            found = await self._own.execute(sql, parameters)
        except InvalidArgument:
            self._over = False
            raise
        self._over = False
        if isinstance(found, Exception):
            raise found
        return found

    async def write(self, write: Write) -> Head:
        self._check()
        self._over = True
        found = await self._own.finish(write)
        if isinstance(found, Exception):
            raise found
        return found

    async def end(self) -> None:
        """Roll the transaction back, unless it was committed."""
        self._over = True
        with suppress(StoreUnavailable):
            await self._own.close()

    def ended(self) -> None:
        """Wait, in a thread, until the transaction is over."""
        self._own.ended()

    def _check(self) -> None:
        if self._over:
            raise InvalidArgument("it is over; begin another one", path="transaction")


class _Own(SqliteStore):
    """A second connection to the file of a store, in a thread of its own.

    Driver errors that the caller caused are returned, because those that are raised become errors of midturn.
    """

    def __init__(self, path: Path, deadline: float, files: OpenFiles | None) -> None:
        super().__init__(path, deadline)
        self._files = files
        self._refused = ""

    async def begin(self) -> None:
        await self._run(self._begin)

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[Any] | Exception:
        return await self._run(lambda: self._execute(sql, parameters))

    async def finish(self, write: Write) -> Head | Exception:
        labels = encode(dict(write.labels), "labels").decode()
        return await self._run(lambda: self._finish(write, labels), write.session)

    def ended(self) -> None:
        self._ended.result()

    # From here on, everything runs in the worker thread.

    def _begin(self) -> None:
        self._check_files(None)  # a connection must not open other files than the store has
        if self._connection is None:
            name = f"{self._path.as_uri()}?mode=rw"
            self._connection = sqlite3.connect(name, uri=True, timeout=0, isolation_level=None)
            self._connection.executescript(_SETTINGS)
            self._connection.execute("PRAGMA foreign_keys = ON")
        self._check_files(None, changing=True)
        self._db.execute("BEGIN IMMEDIATE")

    def _execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[Any] | Exception:
        db = self._db
        self._refused = "" if db.in_transaction else "the database has rolled the transaction back"
        if self._refused:
            raise InvalidArgument(self._refused, path="transaction")
        db.set_authorizer(self._authorize)
        db.set_progress_handler(self._caller_has_gone, STEPS)
        try:
            return db.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            if self._caller_has_gone():
                raise self._late() from None
            if self._refused:
                raise InvalidArgument(self._refused, path="statement") from None
            return error
        finally:
            db.set_progress_handler(None, 0)  # the handler would also stop a ROLLBACK
            db.set_authorizer(None)

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, _: str | None
    ) -> int:
        if action in _DIVIDES:
            self._refused = "midturn itself begins and ends the transaction; leave out BEGIN, COMMIT and SAVEPOINT"
        elif database == "main" and action in _WRITES and first in TABLES:
            self._refused = f"the table {first} is midturn's own; choose another name for yours"
        elif action == sqlite3.SQLITE_ALTER_TABLE and first == "main" and second in TABLES:
            self._refused = f"the table {second} is midturn's own; choose another name for yours"
        return sqlite3.SQLITE_DENY if self._refused else sqlite3.SQLITE_OK

    def _finish(self, write: Write, labels: str) -> Head | Exception:
        try:
            return self._swap(write, labels)
        except sqlite3.IntegrityError as error:
            # midturn's tables have no foreign keys, so this is a deferred one of the caller.
            if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
                return error
            raise

    @contextmanager
    def _transaction(self, session: str | None, begin: str = "SELECT 1") -> Generator[sqlite3.Connection]:
        if not self._db.in_transaction:  # also after a failed try: the write must not happen without the statements
            raise StoreUnavailable("the database has rolled the transaction back; nothing was written", session=session)
        with super()._transaction(session, begin) as db:
            yield db
