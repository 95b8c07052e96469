"""``sqlite://``: sessions in one file on a local disk, for all processes of one machine."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from heapq import merge
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from midturn.errors import (
    Conflict,
    HistoryLost,
    OutcomeUnknown,
    SessionDeleted,
    StateInvalid,
    StoreUnavailable,
    UnknownVersion,
)
from midturn.record.codec import decode, encode
from midturn.record.head import MAX_ID, NO_LABELS, Head, Kind, Row, Status, Write, by_change, is_count, read_cursor
from midturn.store import DEADLINE
from midturn.stores.privacy import create_for_sqlite, report_if_shared
from midturn.stores.scripts import named, script
from midturn.stores.sqlite.errors import code, lost, translated, translated_system
from midturn.stores.sqlite.files import SETTLED, OpenFiles
from midturn.stores.thread_job import Job

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from midturn.store import ListOrder, Profile, Transaction

T = TypeVar("T")

APPLICATION_ID = 0x4D696474  # "Midt"
SCHEMA = 1
"""The version of the tables that ``schema.sql`` makes."""
PAGE_SIZE = 8192
"""Bytes in a page. By measurement, the file is a fifth larger than its rows. With pages of 4 KB it is a quarter larger;
pages of 16 KB save little more, and a write takes a tenth longer."""
KNOWN = 1000
"""Number of sessions whose row ids are kept in memory, so that a write need not look them up."""

_LAST_N = 2**63 - 1
STEPS = 10_000  # of SQLite's virtual machine between two checks whether the caller still waits: about a millisecond

_SQL = named("sqlite/queries.sql")
_FIELDS = ("session", "seq", "epoch", "status", "labels", "owner", "expires", "token", "created", "updated", "data")

_log = logging.getLogger(__name__)


class SqliteStore:
    """Sessions in one SQLite file; :meth:`open` makes one. All SQL runs in the store's own thread."""

    profile: Profile = "strict"

    def __init__(self, path: str | Path, deadline: float) -> None:
        # Absolute: the working directory may change, and SQLite gives names like "file:x" and ":memory:" a meaning.
        self._path = Path(path).absolute()
        self._deadline = deadline
        self._pid = os.getpid()
        self._closed = False
        self._connection: sqlite3.Connection | None = None
        self._files: OpenFiles | None = None
        self._job = Job(0.0)
        self._known: dict[str, tuple[int, float]] = {}
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._ended: Future[None] = Future()
        # A daemon: a store that nobody closes must not keep its process from ending.
        self._thread = Thread(target=self._serve, name="midturn-sqlite", daemon=True)
        self._thread.start()

    @classmethod
    async def open(cls, path: str | Path, *, deadline: float = DEADLINE) -> SqliteStore:
        """Open the file, and create it if it does not exist.

        Raises:
            UnknownVersion: a newer midturn wrote the file.
            StoreUnavailable: it belongs to another program, is damaged or read-only, or cannot be reached.
            StoreFull: there is no space to create it.
        """
        store = cls(path, deadline)
        try:
            await store._run(store._start)
        except BaseException as error:
            store._jobs.put(None)
            if isinstance(error, StateInvalid):
                raise StoreUnavailable(str(error)) from None
            raise
        return store

    async def head(self, session: str) -> Head | None:
        def read() -> tuple[Any, ...] | None:
            found: tuple[Any, ...] | None = self._db.execute(_SQL["head"], (session,)).fetchone()
            self._check_files(session)  # what only this process can read is lost already
            return found

        row = await self._read(read, session)
        return None if row is None else _as_head(row)

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
        # Exactly the ids with this prefix are between the prefix and this value.
        last = prefix + "\U0010ffff" * MAX_ID
        values: dict[str, object] = {"after": after, "prefix": prefix, "last": last, "status": status}
        if order == "updated":
            values["updated"], values["after"] = read_cursor(after, reverse=reverse)
        elif reverse and not after:
            values["after"] = last + "\U0010ffff"  # greater than every id
        query = f"heads{'_by_change' if order == 'updated' else ''}{'_reversed' if reverse else ''}"

        def read() -> list[Head]:
            with ExitStack() as stack:
                each = [values]
                if order == "updated" and status is None:
                    stack.enter_context(self._snapshot())  # a session that changes its status is in one of the lists
                    each = [values | {"status": found} for (found,) in self._db.execute(_SQL["statuses"]).fetchall()]
                cursors = [stack.enter_context(closing(self._db.execute(_SQL[query], one))) for one in each]
                lists = [_readable(cursor) for cursor in cursors]
                heads = lists[0] if len(lists) == 1 else merge(*lists, key=by_change, reverse=not reverse)
                # Compared here because SQLite's JSON functions cut a string at its first NUL.
                return list(islice((head for head in heads if labels.items() <= head.labels.items()), limit))

        return await self._read(read)

    async def counts(self) -> Mapping[Status, int]:
        found = await self._read(lambda: self._db.execute(_SQL["counts"]).fetchall())
        return {status: count for status, count in found if status in get_args(Status)}

    async def write(self, write: Write) -> Head:
        labels = encode(dict(write.labels), "labels").decode()
        return await self._run(lambda: self._swap(write, labels), write.session)

    async def rows(self, session: str, kind: Kind, *, start: int = 0, stop: int | None = None) -> Sequence[Row]:
        last = _LAST_N if stop is None else stop - 1

        def read() -> list[Row]:
            if kind is Kind.CALL:
                found = self._db.execute(_SQL["turn_calls"], (session, start, last)).fetchall()
            else:
                found = self._db.execute(_SQL["rows"], (session, int(kind), start, last)).fetchall()
            for n, data in found:
                if not is_count(n) or not isinstance(data, bytes):
                    raise StateInvalid("the row is damaged", path=f"{kind.name.lower()} {n}", session=session)
            return [Row(kind=kind, n=n, data=data) for n, data in found]

        return await self._read(read, session)

    async def delete(self, session: str, *, data: bytes = b"") -> bool:
        return await self._run(lambda: self._bury(session, data), session)

    async def forget(self, session: str) -> bool:
        return await self._run(lambda: self._forget(session), session)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        from midturn.stores.sqlite.transaction import SqliteTransaction

        self._check_usable()
        transaction = SqliteTransaction(self._path, self._deadline, self._files)
        try:
            await transaction.begin()
            yield transaction
        finally:
            self._jobs.put(transaction.ended)  # no other call is answered until the outcome is final
            await transaction.end()

    async def close(self) -> None:
        if os.getpid() != self._pid:
            return
        self._closed = True
        self._jobs.put(None)
        try:
            async with asyncio.timeout(self._deadline):
                await asyncio.shield(asyncio.wrap_future(self._ended))
        except TimeoutError:
            raise self._late() from None
        self._thread.join()

    async def _read(self, query: Callable[[], T], session: str | None = None) -> T:
        """Return the result of a query, which ends early if the caller stops waiting.

        A write cannot end in this way, because its ROLLBACK would end early too.
        """

        def work() -> T:
            db = self._db
            db.set_progress_handler(self._caller_has_gone, STEPS)
            try:
                return query()
            finally:
                db.set_progress_handler(None, 0)

        return await self._run(work, session)

    async def _run(self, work: Callable[[], T], session: str | None = None) -> T:
        """Return the result of ``work`` in the worker thread, which drops it if the caller stops waiting in time."""
        self._check_usable()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        job = Job(time.monotonic() + self._deadline)

        def carry_out() -> None:
            try:
                settle = partial(answer.set_result, self._work(job, work, session))
            except BaseException as error:  # noqa: BLE001 - the caller gets it, whatever it is
                settle = partial(answer.set_exception, error)
            with suppress(RuntimeError):  # the caller's loop is closed
                loop.call_soon_threadsafe(lambda: None if answer.done() else settle())

        def expire() -> None:
            if not answer.done():
                answer.set_exception(self._late(session, unknown=job.drop()))

        self._jobs.put(carry_out)
        timer = loop.call_later(self._deadline, expire)
        try:
            return await answer
        finally:
            timer.cancel()
            job.drop()

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise StoreUnavailable(f"{self._path} was opened by the parent process; open the store again in this one")
        if self._closed:
            raise StoreUnavailable.closed()

    # From here on, everything runs in the worker thread.

    def _serve(self) -> None:
        for job in iter(self._jobs.get, None):
            job()
        self._close()
        self._ended.set_result(None)

    @property
    def _db(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreUnavailable.closed()
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._files = None
        if connection is not None:
            connection.close()

    def _work(self, job: Job, work: Callable[[], T], session: str | None) -> T:
        self._job = job
        pause = 0.001
        while True:
            self._check_caller(session)
            try:
                result = work()
                if job.writing:
                    self._check_files(session)  # what went to a removed file is not acknowledged
            except sqlite3.Error as error:
                match code(error):
                    case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_PROTOCOL:
                        pass
                    case sqlite3.SQLITE_INTERRUPT:
                        raise self._late(session) from None
                    case _:  # Not chained: Python's message quotes stored text that is not UTF-8.
                        raise translated(error, self._path, session, writing=self._job.writing) from None
            except OSError as error:
                raise translated_system(error, self._path, session, writing=job.writing) from error
            else:
                return result
            # Not SQLite's busy timeout: nothing could end it early, and it does not apply to every lock.
            time.sleep(pause)
            pause = min(pause * 2, 0.02)

    def _caller_has_gone(self) -> bool:
        return time.monotonic() >= self._job.until

    def _check_caller(self, session: str | None) -> None:
        if time.monotonic() >= self._job.until:
            raise self._late(session)

    @contextmanager
    def _transaction(self, session: str | None, begin: str = "BEGIN IMMEDIATE") -> Generator[sqlite3.Connection]:
        # IMMEDIATE: a transaction that has read can no longer write once another one has written.
        db = self._db
        self._check_files(session, changing=True)
        try:
            db.execute(begin)
            yield db
            self._job.writing = True
            self._check_caller(session)
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # after a serious error SQLite has rolled back already
                db.execute("ROLLBACK")
            with suppress(sqlite3.Error):
                if self._job.writing:
                    # A commit whose fsync failed is complete in the log and would reappear later: overwrite it there.
                    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            raise

    @contextmanager
    def _snapshot(self) -> Generator[None]:
        """Let all reads of the block see the same state of the file."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):  # after a serious error SQLite has ended it already
                self._db.execute("ROLLBACK")

    def _start(self) -> None:
        self._close()  # the connection of an earlier attempt that found the file locked
        path = self._path
        if sqlite3.sqlite_version_info < (3, 35):
            raise StoreUnavailable(f"SQLite {sqlite3.sqlite_version} is too old; use a Python with 3.35 or newer")
        if not path.parent.is_dir():
            raise StoreUnavailable(f"the directory {path.parent} does not exist; create it first")
        if path.exists() and not path.is_file():
            raise StoreUnavailable(f"{path} is not a file; name one, such as {path / 'midturn.db'}")
        create_for_sqlite(path)
        new = path.stat().st_size == 0
        if not new:
            self._check_ours()
        # No isolation level: with one, Python begins transactions by itself.
        # mode=rw: should the file be gone by now, SQLite would make one that others can read.
        name = f"{path.as_uri()}?mode=rw"
        db = self._connection = sqlite3.connect(name, uri=True, timeout=0, isolation_level=None)
        db.executescript(_SQL["settings"])
        self._make_tables(new=new)
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        (synchronous,) = db.execute("PRAGMA synchronous").fetchone()
        if (mode, synchronous) != ("wal", 2):
            raise StoreUnavailable(f"{path} is not durable here ({mode}, synchronous {synchronous}); use a local disk")
        # Only now: before, it might have been the file of another program. SQLite gives new side files the same mode.
        if not report_if_shared(path):
            for end in ("-wal", "-shm", "-journal"):
                report_if_shared(path.with_name(path.name + end))
        db.execute(_SQL["counts"]).fetchall()  # opens the log, if nothing has opened it yet
        self._files = OpenFiles(path)

    def _check_ours(self) -> None:
        # Not open(): closing that would release the locks that other connections of this process hold on the file.
        try:  # Immutable: neither the file nor anything beside it is touched.
            application = self._application_id("mode=ro&immutable=1")
        except sqlite3.DatabaseError:  # After a crash the log may have part of the data, which immutable ignores.
            application = self._application_id("mode=ro")
        if application != APPLICATION_ID:
            raise self._foreign()

    def _application_id(self, how: str) -> int:
        with closing(sqlite3.connect(f"{self._path.as_uri()}?{how}", uri=True)) as db:
            return int(db.execute("PRAGMA application_id").fetchone()[0])

    def _make_tables(self, *, new: bool) -> None:
        if new:
            self._db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        # A file gets its application id with its first page, so it never looks like a file of another program.
        # auto_vacuum must come before that page, so this is a transaction that has not begun to write.
        with self._transaction(None, "BEGIN" if new else "BEGIN IMMEDIATE") as db:
            if new:
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            (application,) = db.execute("PRAGMA application_id").fetchone()
            (version,) = db.execute("PRAGMA user_version").fetchone()
            (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if application != APPLICATION_ID and (application or tables):
                raise self._foreign()
            if not 0 <= version <= SCHEMA:
                raise UnknownVersion(f"{self._path} has schema {version}, of a newer midturn; upgrade midturn")
            if version < SCHEMA:
                for statement in script("sqlite/schema.sql").split(";\n"):  # executescript() commits first
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {SCHEMA}")
            if new:
                self._give_back_pages()
            db.execute(_SQL["touch"])

    def _swap(self, write: Write, labels: str) -> Head:
        name = write.session
        with self._transaction(name) as db:
            now = time.time()
            found = self._known.get(name) if write.seq else db.execute(_SQL["create"], (name, now)).fetchone()
            head = self._advance(write, labels, now, found)
            if head is None and write.seq:  # The row's id is not known yet, or a backup was restored into the file.
                found = db.execute(_SQL["found"], (name,)).fetchone()
                head = self._advance(write, labels, now, found)
            if head is None or found is None:
                status = db.execute(_SQL["status"], (name,)).fetchone()
                raise (SessionDeleted if status == ("deleted",) else Conflict).of(name)
            for kind, start, stop in write.removes:
                if kind is Kind.CALL:
                    db.execute(_SQL["remove_calls"], (found[0], start, stop))
                else:
                    db.execute(_SQL["remove"], (found[0], int(kind), start, stop))
            for row in write.rows:
                if row.kind is Kind.CALL:
                    db.execute(_SQL["append_calls"], (found[0], row.n, row.data))
                else:
                    db.execute(_SQL["append"], (found[0], int(row.kind), row.n, row.data))
        if len(self._known) >= KNOWN and name not in self._known:
            self._known.clear()
        self._known[name] = found
        return head

    def _advance(self, write: Write, labels: str, now: float, found: tuple[int, float] | None) -> Head | None:
        """Replace the head of a row with the one that a write makes, if the row has the head that the writer saw."""
        if found is None:
            return None
        head = write.head(now=now, created=found[1])
        new = (head.seq, head.epoch, head.status, labels, head.owner, head.expires, head.token, now, head.data)
        seen = (write.session, write.seq, write.after if write.seq else None)
        # RETURNING would take longer.
        return head if self._db.execute(_SQL["swap"], (*new, found[0], *seen)).rowcount else None

    def _bury(self, session: str, data: bytes) -> bool:
        with self._transaction(session) as db:
            found = db.execute(_SQL["bury"], (time.time(), data, session)).fetchall()
            if not found:
                return False
            for clear in ("clear", "clear_calls"):
                db.execute(_SQL[clear], found[0])
            self._give_back_pages()
        # The log keeps the deleted data while another process reads from it; then a later checkpoint removes the data.
        patience = time.monotonic() + min(1.0, self._deadline / 4)
        with suppress(sqlite3.Error):
            while db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] and time.monotonic() < patience:
                time.sleep(0.01)
        return True

    def _forget(self, session: str) -> bool:
        with self._transaction(session) as db:
            if db.execute(_SQL["forget"], (session,)).rowcount:
                return True
            if db.execute(_SQL["status"], (session,)).fetchone():
                raise Conflict.of(session)
            return False

    def _give_back_pages(self) -> None:
        for _ in range(self._db.execute("PRAGMA freelist_count").fetchone()[0]):
            self._db.execute("PRAGMA incremental_vacuum(1)").fetchall()  # without the 1, Python 3.11 does one page only

    def _check_files(self, session: str | None, *, changing: bool = False) -> None:
        """Check that the files are in their places and changed only by SQLite; before a change, that they are whole."""
        files = self._files
        if files is None:
            return
        if not self._are_in_place(files):
            raise files.missing(session, writing=self._job.writing)
        try:
            index = files.read_index()
        except OSError:  # somebody has closed the descriptor, which was not SQLite's
            index = b""
        database = os.stat(files.names[0])  # noqa: PTH116 - Path.stat() takes half as long again
        if database.st_mtime_ns == files.time and not files.overwritten:
            files.index = index
        else:
            files.check_written(database, session)
        if self._job.writing:
            files.sizes = files.sizes[0], os.lseek(files.log, 0, os.SEEK_END)
        elif changing:
            size = database.st_size
            if size < files.sizes[0] or os.lseek(files.log, 0, os.SEEK_END) < files.sizes[1]:
                self._check_whole(files, session, empty=not size)
            files.sizes = size, files.sizes[1]

    def _are_in_place(self, files: OpenFiles) -> bool:
        try:
            folder = os.stat(files.folder)  # noqa: PTH116 - as above
            now = folder.st_dev, folder.st_ino, folder.st_ctime_ns  # the time of the last change of an entry, or later
            if now == files.seen:
                return True
            for name, place in zip(files.names, files.places, strict=True):
                found = os.stat(name)  # noqa: PTH116 - as above
                if (found.st_dev, found.st_ino) != place:
                    return False
        except (FileNotFoundError, NotADirectoryError):
            return False
        files.seen = now if not files.is_link and folder.st_ctime < time.time() - SETTLED else None
        return True

    def _check_whole(self, files: OpenFiles, session: str | None, *, empty: bool) -> None:
        """Check that SQLite itself has shortened a file, as it does after it has written the log into the database.

        Otherwise the next write would hide the loss: the file would have its length again, with zeros in the gap.
        """
        if empty:
            raise lost(files.names[0], "truncated", session)
        while not self._db.in_transaction:  # in a transaction, this was checked when it began
            version = self._db.execute("PRAGMA data_version").fetchone()
            frames = self._frames(session)
            (pages,) = self._db.execute("PRAGMA page_count").fetchone()
            (page_size,) = self._db.execute("PRAGMA page_size").fetchone()
            try:
                files.check_whole(pages=pages, frames=frames, page_size=page_size, session=session)
            except HistoryLost:
                # Unless another process has written or shortened the log meanwhile, these numbers fit together.
                if self._frames(session) == frames and self._db.execute("PRAGMA data_version").fetchone() == version:
                    raise
            else:
                return

    def _frames(self, session: str | None) -> int:
        """Return the number of pages in the log."""
        while True:
            _, frames, _ = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if frames >= 0:
                return int(frames)
            self._check_caller(session)  # another process holds the lock for that
            time.sleep(0.001)

    def _foreign(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self._path} was not made by midturn; choose another file")

    def _late(self, session: str | None = None, *, unknown: bool = False) -> StoreUnavailable:
        slow = f"{self._path} did not respond within {self._deadline:g} s"
        message = f"{slow}: another process has locked it, or the disk is slow"
        return (OutcomeUnknown if unknown else StoreUnavailable)(message, session=session)


def _readable(rows: Iterable[tuple[Any, ...]]) -> Iterator[Head]:
    """Yield the heads of rows, and omit damaged ones with a warning."""
    for row in rows:
        try:
            yield _as_head(row)
        except StateInvalid as error:
            _log.warning("a session is omitted from the list: %s", error)


def _as_head(row: tuple[Any, ...]) -> Head:
    """Return the head of a session from its row."""
    fields = dict(zip(_FIELDS, row, strict=True))
    if isinstance(fields["labels"], str):
        fields["labels"] = decode(fields["labels"].encode(), f"labels of {fields['session']!r}")
    return Head.stored(fields | {"now": time.time()})
