"""``file://``: sessions in a directory, one file of JSON lines each, for all processes of one POSIX machine."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote
from uuid import uuid4

from midturn.errors import (
    Conflict,
    MidturnError,
    OutcomeUnknown,
    SessionDeleted,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
    UnknownVersion,
)
from midturn.record.codec import decode, encode
from midturn.record.head import FORMAT, NO_LABELS, Head, Kind, Row, Status, Write, by_change
from midturn.store import DEADLINE, fits, follows
from midturn.stores.files.format import SUFFIX, change_line, header_line, kept_lines, last_head, name_of, opened
from midturn.stores.files.row_index import Index
from midturn.stores.privacy import create_directory, report_if_shared
from midturn.stores.thread_job import Job

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from midturn.store import ListOrder, Profile

T = TypeVar("T")

MARKER = "midturn.json"
MAX_INDEXES = 64
"""Number of sessions whose indexes are kept in memory, at 32 bytes a row."""
WASTE = 65_536
"""Unneeded bytes after rows were removed, or half of the file if that is more, beyond which the file is rewritten."""

_CHANGE = os.O_RDWR | os.O_APPEND


class _Busy(Exception):
    """Somebody else has locked the session at the moment."""


class FileStore:
    """Sessions in the files of a directory; :meth:`open` makes one. All file work runs in the store's own threads.

    A list shows a damaged session with the head of its last readable line. Without such a line it omits the session,
    with a warning in the log. So damage to one session hides no other, and whoever uses the damaged one gets an error.
    """

    profile: Profile = "strict"

    def __init__(self, root: str | Path, deadline: float) -> None:
        self._root = Path(root).absolute()
        self._sessions = self._root / "sessions"
        self._deadline = deadline
        self._pid = os.getpid()
        # Not asyncio's threads: an application may keep all of those busy for minutes.
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="midturn-files")
        self._indexes: dict[str, Index] = {}
        self._guard = threading.Lock()

    @classmethod
    async def open(cls, root: str | Path, *, deadline: float = DEADLINE) -> FileStore:
        """Open the directory, and create it if it does not exist.

        Raises:
            UnknownVersion: a newer midturn made it.
            StoreUnavailable: it belongs to another program, or cannot be written or reached.
            StoreFull: there is no space to create it.
        """
        if sys.platform == "win32":
            raise StoreUnavailable("the file store needs the file locks of POSIX; on Windows use sqlite:///midturn.db")
        store = cls(root, deadline)
        try:
            await store._run(store._prepare)
        except BaseException:
            store._pool.shutdown(wait=False)
            raise
        return store

    async def head(self, session: str) -> Head | None:
        def read(job: Job) -> Head | None:
            with self._locked(job, session, os.O_RDONLY) as found:
                return found and found[1].head

        head = await self._run(read, session)
        return head and replace(head, now=time.time())

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
        def read(job: Job) -> list[Head]:
            found: list[Head] = []
            listed = self._by_change if order == "updated" else self._by_id
            for head in listed(job, after, prefix, reverse=reverse):
                if len(found) >= limit:
                    break
                if fits(head, status, labels):
                    found.append(replace(head, now=time.time()))
            return found

        return await self._run(read)

    async def counts(self) -> Mapping[Status, int]:
        return await self._run(lambda job: Counter(head.status for head in self._by_id(job)))

    def _by_id(self, job: Job, after: str = "", prefix: str = "", *, reverse: bool = False) -> Iterator[Head]:
        found = (item for item in self._listed() if item[0].startswith(prefix))
        behind = (item for item in found if not after or (item[0] < after if reverse else item[0] > after))
        for _, path in sorted(behind, reverse=reverse):
            job.check()
            head = last_head(path)
            if head is not None:
                yield head

    def _by_change(self, job: Job, after: str, prefix: str, *, reverse: bool) -> list[Head]:
        # All files are read: nothing else says when a session changed.
        behind = follows(after, order="updated", reverse=reverse)
        found = [head for head in self._by_id(job, prefix=prefix) if behind(head)]
        return sorted(found, key=by_change, reverse=not reverse)

    async def write(self, write: Write) -> Head:
        return await self._run(lambda job: self._write(job, write), write.session)

    async def rows(self, session: str, kind: Kind, *, start: int = 0, stop: int | None = None) -> Sequence[Row]:
        def read(job: Job) -> list[Row]:
            with self._locked(job, session, os.O_RDONLY) as found:
                return [] if found is None else list(found[1].rows(found[0], kind, start, stop))

        return await self._run(read, session)

    async def delete(self, session: str, *, data: bytes = b"") -> bool:
        return await self._run(lambda job: self._delete(job, session, data), session)

    async def forget(self, session: str) -> bool:
        return await self._run(lambda job: self._forget(job, session), session)

    async def close(self) -> None:
        if os.getpid() != self._pid:
            return
        try:
            async with asyncio.timeout(self._deadline):
                await asyncio.to_thread(self._pool.shutdown)
        except TimeoutError:
            raise self._late(None) from None

    async def _run(self, work: Callable[[Job], T], session: str | None = None) -> T:
        """Return the result of ``work`` in a worker thread, which drops it if the caller stops waiting in time."""
        if os.getpid() != self._pid:
            raise StoreUnavailable(f"{self._root} was opened by the parent process; open the store again in this one")
        job = Job(time.monotonic() + self._deadline)
        pause = 0.0005
        try:
            async with asyncio.timeout(self._deadline):
                while True:
                    try:
                        future = self._pool.submit(self._work, work, job, session)
                    except RuntimeError:
                        raise StoreUnavailable.closed() from None
                    try:
                        return await asyncio.wrap_future(future)
                    except _Busy:
                        # Wait here and not in the thread: sessions that stay locked must not occupy all threads.
                        await asyncio.sleep(pause)
                        pause = min(pause * 2, 0.02)
        except TimeoutError:
            raise self._late(session, unknown=job.drop()) from None
        finally:
            job.drop()

    def _work(self, work: Callable[[Job], T], job: Job, session: str | None) -> T:
        try:
            return work(job)
        except OSError as error:
            raise self._translated(error, session, unknown=job.writing) from error

    def _prepare(self, job: Job) -> None:
        root, marker = self._root, self._root / MARKER
        if not root.parent.is_dir():
            raise StoreUnavailable(f"the directory {root.parent} does not exist; create it first")
        with suppress(FileExistsError):
            create_directory(root)
        if not root.is_dir():
            raise StoreUnavailable(f"{root} is not a directory; name one, such as {root.with_name('midturn')}")
        # List the files before checking for the marker: another process that creates the store creates it first.
        others = {path.name for path in root.iterdir() if not path.name.startswith(MARKER)} - {"lost+found"}
        if not marker.exists():
            if others:
                raise StoreUnavailable(f"{root} is not empty and not a store of midturn; choose another directory")
            job.check()
            with suppress(PermissionError):  # a user who cannot read the parent did not create the directory in it
                _sync_directory(root.parent)
            spare = _spare(marker.with_name(f"{MARKER}.{uuid4().hex}"), [encode({"midturn": "files", "v": FORMAT})])
            spare.replace(marker)
        match decode(marker.read_bytes(), str(marker)):
            case {"midturn": "files", "v": int(version)} if version <= FORMAT:
                with suppress(FileExistsError):
                    create_directory(self._sessions)
            case {"midturn": "files", "v": int(version)}:
                raise UnknownVersion(f"{root} has format {version}, of a newer midturn; upgrade midturn to use it")
            case _:
                raise StateInvalid("it does not name the format of the store; restore it", path=str(marker))
        for path in (root, marker, self._sessions):
            report_if_shared(path)
        _sync_directory(root)
        if not os.access(self._sessions, os.R_OK | os.W_OK | os.X_OK):
            raise StoreUnavailable(f"{self._sessions} cannot be written; make it writable for this user")

    @contextmanager
    def _locked(self, job: Job, session: str, flags: int) -> Generator[tuple[int, Index] | None]:
        """Yield the session's file, open and locked, and an index that is up to date; ``None`` if there is no file.

        Readers take the lock too, so they never see a write that may still be undone. Whoever asks for the outcome of
        an interrupted write waits until it is final.
        """
        path = self._sessions / name_of(session)
        if not flags & os.O_CREAT and not path.exists():
            self._sessions.stat()  # raises if the whole store is gone: its sessions must not look as if never written
            yield None
            return
        with ExitStack() as stack:
            try:
                file = stack.enter_context(opened(path, flags))
            except FileNotFoundError:
                self._sessions.stat()  # as above
                raise _Busy from None  # the session was forgotten at this moment
            try:
                _lock(file, path, fcntl.LOCK_SH if flags == os.O_RDONLY else fcntl.LOCK_EX)
                job.check()
                with self._guard:
                    index = self._indexes.pop(session, None)
                    if index is None:
                        report_if_shared(path, os.fstat(file))
                        index = Index(path, session)
                    self._indexes[session] = index
                    if len(self._indexes) > MAX_INDEXES:
                        del self._indexes[next(iter(self._indexes))]
                with index.lock:
                    if index.catch_up(file):
                        self._secure(file, index)
                    yield file, index
            finally:
                # Closing is not enough: a child process forked since then shares the open file and its lock.
                fcntl.flock(file, fcntl.LOCK_UN)

    def _secure(self, file: int, index: Index) -> None:
        """Make the lines of another process durable: it may have died before it did, and we rely on them."""
        try:
            _sync(file)
            if index.changes == 1:  # the file is new, or was replaced
                _sync_directory(self._sessions)
        except OSError:
            _reread(file, index)

    def _write(self, job: Job, write: Write) -> Head:
        with self._locked(job, write.session, _CHANGE if write.seq else _CHANGE | os.O_CREAT) as found:
            if found is None:
                raise Conflict.of(write.session)
            file, index = found
            old = index.head
            if old is not None and old.status == "deleted":
                raise SessionDeleted.of(write.session)
            twice = len({(row.kind, row.n) for row in write.rows}) < len(write.rows)
            if not write.follows(old) or twice or index.refuses(write):
                raise Conflict.of(write.session)
            now = time.time()
            head = write.head(now=now, created=old.created if old else now)
            line = change_line(head, write.rows, write.removes)
            header = header_line(write.session, head.created)
            spare: Path | None = None
            if write.removes and index.dead(write.removes) > max(WASTE, (index.end + len(line)) / 2):
                with suppress(OSError):  # then the line is appended instead, if there is space for it
                    spare = _spare(_beside(index), chain([header], kept_lines(index.left(file, write.removes)), [line]))
            job.check(writing=True)
            if spare:
                self._replace(index, spare)
            else:
                self._append(file, index, [line] if old else [header, line])
                _check_place(file, index)
            return head

    def _replace(self, index: Index, spare: Path) -> None:
        """Replace the session's file with a new one."""
        index.clear()
        spare.replace(index.path)  # a process that waits for the lock of the old file will notice
        _sync_directory(self._sessions)

    def _append(self, file: int, index: Index, lines: Sequence[bytes]) -> None:
        end = index.end if index.head else 0
        try:
            if os.fstat(file).st_size > end:
                os.ftruncate(file, end)  # removes the rest of a write that a crash interrupted
            for line in lines:
                _write_all(file, line)
            _sync(file)
            if end == 0:
                _sync_directory(self._sessions)
        except OSError as error:
            raise self._undone(index, end, error) from error
        if end == 0:
            index.clear()
        index.add(lines)

    def _undone(self, index: Index, end: int, error: OSError) -> MidturnError:
        """Undo a failed write, and return the error to raise."""
        index.clear()
        undone = False
        with suppress(OSError, MidturnError), opened(index.path, _CHANGE) as file:
            os.ftruncate(file, end)
            _sync(file)
            _reread(file, index)
            undone = index.end == end
        return self._translated(error, index.session, unknown=not undone)

    def _delete(self, job: Job, session: str, data: bytes) -> bool:
        with self._locked(job, session, _CHANGE) as found:
            if found is None or (old := found[1].head) is None or old.status == "deleted":
                return False
            left = header_line(session, old.created) + change_line(old.deleted(now=time.time(), data=data))
            spare = _spare(_beside(found[1]), [left])
            job.check(writing=True)
            self._replace(found[1], spare)
            return True

    def _forget(self, job: Job, session: str) -> bool:
        with self._locked(job, session, _CHANGE) as found:
            if found is None or (old := found[1].head) is None:
                return False
            if old.status != "deleted":
                raise Conflict.of(session)
            job.check(writing=True)
            found[1].clear()
            found[1].path.unlink()
            _sync_directory(self._sessions)
            return True

    def _listed(self) -> Iterator[tuple[str, Path]]:
        """Yield the ids and files of all sessions; a long id is read from the file itself."""
        with os.scandir(self._sessions) as entries:
            for entry in entries:
                if not entry.name.endswith(SUFFIX) or not entry.is_file(follow_symlinks=False):
                    continue
                with suppress(UnicodeDecodeError):
                    path = Path(entry.path)
                    head = last_head(path) if "~" in entry.name else None
                    session = head.session if head else unquote(entry.name.removesuffix(SUFFIX), errors="strict")
                    if name_of(session) == entry.name:
                        yield session, path

    def _late(self, session: str | None, *, unknown: bool = False) -> StoreUnavailable:
        slow = f"{self._root} did not respond within {self._deadline:g} s"
        message = f"{slow}: another process has locked it, or the disk is slow"
        return (OutcomeUnknown if unknown else StoreUnavailable)(message, session=session)

    def _translated(self, error: OSError, session: str | None, *, unknown: bool) -> MidturnError:
        where = error.filename or self._root
        if unknown:
            message = f"{where} failed in the middle of a write ({error.strerror}); check the disk, then read it again"
            return OutcomeUnknown(message, session=session)
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return StoreFull(f"no space is left for {where}; free some and try again", session=session)
        message = f"{where} cannot be used ({error.strerror}); check the disk, and that this user may read and write it"
        return StoreUnavailable(message, session=session)


def _beside(index: Index) -> Path:
    return index.path.with_name(f"{index.path.name}.tmp")


def _spare(path: Path, content: Iterable[bytes]) -> Path:
    """Write a complete and durable file, which will replace another, and return its path."""
    try:
        path.unlink(missing_ok=True)  # of a write that was interrupted; not reused, since others may be able to read it
        with opened(path, os.O_WRONLY | os.O_CREAT) as file:
            for piece in content:
                _write_all(file, piece)
            _sync(file)
    except (OSError, MidturnError):
        path.unlink(missing_ok=True)
        raise
    return path


def _lock(file: int, path: Path, how: int) -> None:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file), path.lstat()):
            raise _Busy  # it was replaced between opening and locking
    except (BlockingIOError, FileNotFoundError):
        raise _Busy from None


def _check_place(file: int, index: Index) -> None:
    """Check that a file which was written is the one that others find. What went to a removed file is lost.

    Raises:
        OutcomeUnknown: it was removed or replaced during the write.
    """
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(file), index.path.lstat()):
            return
    index.clear()
    message = f"{index.path} was removed or replaced while it was written; read the session again"
    raise OutcomeUnknown(message, session=index.session)


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync(file: int) -> None:
    os.fsync(file)
    if sys.platform == "darwin":  # there, fsync leaves the data in the disk's cache
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)


def _sync_directory(path: Path) -> None:
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as directory:
        _sync(directory)


def _reread(file: int, index: Index) -> None:
    """Read the index from the disk again: after a failed fsync, data in memory may never get there."""
    if sys.platform != "darwin":
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    index.clear()
    index.catch_up(file)
