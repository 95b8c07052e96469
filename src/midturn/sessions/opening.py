"""``midturn.open``: from a URL or a store to sessions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from midturn.errors import Conflict, InvalidArgument, NotFound, StoreUnavailable
from midturn.history.audit import audit
from midturn.history.lineage import lineage
from midturn.history.listing import Listing
from midturn.history.session_info import SessionStatus, info_of
from midturn.lease.ledger import Ledger, check_lease, holder, notice_deletion
from midturn.maintenance.pruning import PruneReport, Rule, Skipped, choose, open_archive, prune
from midturn.maintenance.rekeying import (
    KeyCounts,
    NotRekeyed,
    Outcome,
    Rekeying,
    RekeyReport,
    count_keys,
    sealed_store,
)
from midturn.questions import check_by, check_why
from midturn.record.head import NO_LABELS, check_id, check_labels
from midturn.sessions.runs import DRAIN, Runs, check_drain
from midturn.sessions.session import Session
from midturn.stopping import stop_of
from midturn.stores.registry import (
    check_store,
    compressed,
    open_backend,
    open_store,
    split_compress,
    split_lease,
    with_options,
)
from midturn.stores.sealed.keys import Keys, check_keys
from midturn.stores.sealed.store import sealed_part
from midturn.stores.secrets import Secret, scheme_of
from midturn.stores.wrapper import wrap
from midturn.turns.acts import bury
from midturn.turns.session_options import JOURNALS, Options

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Generator, Sequence
    from datetime import datetime, timedelta
    from pathlib import Path
    from types import TracebackType

    from midturn.autogen.adapter import AutoGen, Event, TurnResult
    from midturn.framework import Factory, Runnable
    from midturn.history.audit import AuditEntry
    from midturn.history.lineage import Lineage
    from midturn.history.session_info import SessionInfo
    from midturn.lease.ledger import Seen
    from midturn.record.head import Head
    from midturn.store import ListOrder, Store
    from midturn.stores.sealed.keys import KeyService
    from midturn.turns.session_options import Busy, Durability
    from midturn.versions.blueprint import Blueprint
    from midturn.versions.loading import OnDrift

DEFAULT_URL = "sqlite:///midturn.db"
MAX_BY_HAND = 64
"""Number of sessions that are cached between saves by hand."""
MAX_SEEN = 4_000
"""Number of sessions whose last head a worker remembers."""


def open(
    url: str | None = None,
    *,
    store: Store | None = None,
    lease: float | None = None,
    drain: float = DRAIN,
    keys: KeyService | Literal[False] | None = None,
    allow_plain: bool = False,
    **options: str | int | bool,
) -> OpenStore:
    """Open the store at a URL, or a store of your own. Use it with ``async with``, which closes the store at its end.

    In a notebook or a start-up hook, use ``store = await midturn.open(...)``, and ``await store.aclose()`` at the end.

    Without a URL: ``$MIDTURN_URL``, else ``sqlite:///midturn.db``. A path without a scheme is a SQLite file.
    ``sqlite:///x.db`` and ``file://./x`` are relative, ``sqlite:////x.db`` and ``file:///x`` are absolute.
    Instead of a URL, pass as ``store`` an object that keeps the contract in :mod:`midturn.store`.
    Give the options of a server's store in the URL or by name: ``open("redis://...", strict=True)`` is the same as
    ``open("redis://...?strict=true")``.
    ``compress`` is an option of every store: ``"zstd"`` or ``"none"``, the form of new records. Both forms are read.
    ``lease`` is an option of every store: the number of seconds for which a worker holds a session without a sign of
    life, from 3 to 3600, or 30 without the option.
    ``drain`` is the number of seconds for which closing the store waits for the turns that :meth:`Session.start` began.
    Then it interrupts them: ``resume()`` continues them in any process.
    ``keys`` seals everything that is stored, so that nobody can read or change it without them. By default, the keys
    are those of ``$MIDTURN_KEYS`` or ``$MIDTURN_KEYS_FILE``, if one of these is set. Sessions that are not sealed are
    refused then, unless ``allow_plain`` is set. ``keys=False`` opens a store that is not sealed, whatever is set.

    Raises:
        InvalidArgument: the URL or a key is wrong; ``store`` came with a URL or with options, or does not keep the
            contract; the lease is too short or too long.
    """
    drain = check_drain(drain)
    found_keys = Keys.in_env() if keys is None else None if keys is False else check_keys(keys)
    door = Door(keys=found_keys, allow_plain=allow_plain)
    if store is not None:
        if url is not None:
            raise InvalidArgument("give a URL or a store, not both", path="store")
        if options:
            names = ", ".join(options)
            raise InvalidArgument(f"a store of your own takes no option {names}; set it on the store", path="store")
        checked = check_store(store)
        return OpenStore(checked, lease=None if lease is None else check_lease(lease), drain=drain, door=door)
    if not isinstance(url, str | None):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        raise InvalidArgument(f"must be a string, not {type(url).__name__}", path="url")
    if url is None:
        url = os.environ.get("MIDTURN_URL") or DEFAULT_URL
    url, given = split_lease(with_options(url, options) if options else url)
    wanted = given if lease is None else lease
    found = None if wanted is None else check_lease(wanted)
    return OpenStore(Secret(url), lease=found, drain=drain, door=door)


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """The wrappers that records pass on their way into a store and out of it."""

    keys: KeyService | None = None
    allow_plain: bool = False

    async def open(self, url: str) -> Store:
        """Open the store behind a URL, with this door before it."""
        if self.keys is None:
            return await open_store(url)
        # Compressed before it is sealed, and only if somebody asks for it: the size tells something about the content.
        return compressed(self.before(await open_backend(url)), split_compress(url)[1] or "none")

    def before(self, store: Store) -> Store:
        """Return the store with this door before it."""
        if self.keys is None:
            return store
        from midturn.stores.sealed.store import Sealed  # with the package that seals, which not everybody has

        return wrap(Sealed, store, keys=self.keys, allow_plain=self.allow_plain)


class OpenStore:
    """An open store, with its sessions by id."""

    def __init__(
        self, opens: Secret | Store, *, lease: float | None = None, drain: float = DRAIN, door: Door | None = None
    ) -> None:
        self._opens = opens
        self._door = door or Door()
        self._lease = lease
        self._store: Store | None = None
        self._by_hand: dict[str, tuple[Any, Session[Event, TurnResult]]] = {}
        self._drain = drain
        self._runs = Runs(drain)
        self._seen: Seen = {}

    def __repr__(self) -> str:
        if not isinstance(self._opens, Secret):
            return f"midturn.open(store={type(self._opens).__name__})"
        return f"midturn.open({scheme_of(self._opens.reveal())!r})"  # no more of it: a URL may carry a password

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if self._store is None:  # else it was awaited before
            opens = self._opens
            door = self._door
            self._store = await door.open(opens.reveal()) if isinstance(opens, Secret) else door.before(opens)
            self._runs = Runs(self._drain)
            self._seen = {}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the store, as the end of ``async with`` does. Closing it again does nothing."""
        try:
            await self._runs.close()
        finally:
            store, self._store = self._store, None
            self._by_hand.clear()
            if store is not None:
                await store.close()

    @property
    def store(self) -> Store:
        """Return the store itself, as :mod:`midturn.store` describes it."""
        if self._store is None:
            raise StoreUnavailable.closed()
        return self._store

    def session(
        self,
        session: str,
        what: Runnable | Blueprint | Factory | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        on_drift: OnDrift = "warn",
        busy: Busy = "wait",
        timeout: float = 30.0,
        turn_timeout: float | None = None,
        durability: Durability = "call",
        journals: int = JOURNALS,
        reuse: bool = False,
    ) -> Session[Event, TurnResult]:
        """Return the session with this id. If there is none, the first turn creates it.

        ``what`` is a factory that builds an agent or a team, a :class:`~midturn.Blueprint`, or a live agent or team.
        Without ``what``, you can do everything but run and reset the session.
        ``on_drift`` says what to do when the agents differ from those that made the latest checkpoint: ``"warn"``,
        ``"raise"``, ``"ignore"``, or a function that gets the :class:`~midturn.Drift`.
        ``busy`` says what to do while another worker holds the session: wait up to ``timeout`` seconds, or raise.
        ``turn_timeout`` is the largest number of seconds that one attempt at a turn may take; without it, the timeout
        of the blueprint counts. A turn that takes longer is stopped with :class:`~midturn.TurnTimeout`, and
        ``resume()`` continues it.
        ``durability="call"`` records every call inside a turn, so that an interrupted turn continues without
        repeating any call. With ``"turn"``, an interrupted turn runs again as a whole, so only tools that are
        ``read`` or ``idempotent`` can run. The calls of at least the last ``journals`` turns are kept.
        ``reuse=True`` begins a new session if the one with this id was deleted; a later deletion counts again.
        """
        options = Options(
            labels=labels,
            on_drift=on_drift,
            busy=busy,
            timeout=timeout,
            turn_timeout=turn_timeout,
            durability=durability,
            journals=journals,
            reuse=reuse,
        )
        framework = self._framework()
        while len(self._seen) > MAX_SEEN:
            self._seen.pop(next(iter(self._seen)))
        return Session(
            self.store,
            check_id(session),
            what,
            framework,
            options,
            lease=self._lease,
            runs=self._runs,
            seen=self._seen,
        )

    async def save(self, session: str, live: Any) -> int:
        """Store the state of an agent or a team as the next checkpoint of a session; return the checkpoint's number."""
        return await self._saver(session, live).save()

    async def load(self, session: str, live: Any) -> int:
        """Load the state of a session's latest checkpoint into an agent or a team; return the checkpoint's number.

        A session without a checkpoint returns 0 and loads nothing.

        Raises:
            StateInvalid: the state does not fit; the agent or team is unchanged.
        """
        return await self._saver(session, live).load()

    def _framework(self) -> AutoGen:
        """Return the framework of a new session. AutoGen is imported only then."""
        from midturn.autogen.adapter import AutoGen

        return AutoGen()

    def _saver(self, session: str, live: Any) -> Session[Event, TurnResult]:
        """Return a session for saving by hand. The same instance gets the same session, which knows what is stored."""
        known, case = self._by_hand.pop(session, (None, None))
        if known is not live or case is None:
            if not self._framework().is_live(live):
                raise InvalidArgument(
                    "saving and loading by hand needs a live agent or team, or something else with async save_state() "
                    f"and load_state(state), not a {type(live).__name__}",
                    path="what",
                    session=session,
                )
            case = self.session(session, live)
        self._by_hand[session] = (live, case)
        while len(self._by_hand) > MAX_BY_HAND:
            self._by_hand.pop(next(iter(self._by_hand)))
        return case

    async def info(self, session: str) -> SessionInfo:
        """Return the status and the facts of a session; a deleted session has the status ``deleted``.

        Raises:
            NotFound: there is no such session.
            StateInvalid: the record of the session is damaged or half copied.
            UnknownVersion: a newer midturn wrote the record.
        """
        head = await self.store.head(check_id(session))
        if head is None:
            raise NotFound.of(session)
        return info_of(head)

    async def sessions(
        self,
        *,
        status: SessionStatus | Collection[SessionStatus] | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        prefix: str = "",
        order: ListOrder = "id",
        reverse: bool = False,
        since: datetime | timedelta | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> AsyncGenerator[SessionInfo, None]:
        """Yield the sessions that match; deleted sessions only if ``status`` asks for them.

        The sessions come in the order of their ids. With ``order="updated"``, the session that changed last comes
        first; a session that changes during the listing may then be missed or listed twice. ``reverse`` turns the order
        round: the session that changed last then comes last, and a change during the listing hides none.

        ``since`` leaves out sessions that have not changed since a time, or within a ``timedelta`` until now. ``limit``
        is the largest number of sessions. To continue such a page later, in any process, pass the ``cursor`` of its
        last session as ``after``, and the same filters and order.

        Raises:
            InvalidArgument: an argument is not valid: there is no such status or order, a time has no time zone, or
                ``after`` is not a cursor.
        """
        found = Listing.of(
            status=status,
            labels=labels,
            prefix=prefix,
            order=order,
            reverse=reverse,
            since=since,
            after=after,
            limit=limit,
        )
        async with aclosing(found.read(self.store)) as infos:
            async for info in infos:
                yield info

    async def counts(self) -> dict[SessionStatus, int]:
        """Return the number of sessions with each status, also of deleted sessions."""
        stored = await self.store.counts()
        counts: dict[SessionStatus, int] = {word: stored.get(word, 0) for word in get_args(SessionStatus)}
        if counts["running"]:  # only the lease shows whether the worker is alive
            # The oldest change first: a session that changes meanwhile comes again, and is not missed.
            oldest = Listing.of(order="updated", reverse=True)
            alive = {head.session: holder(head) is not None async for head in oldest.heads(self.store, "running")}
            counts["interrupted"] = list(alive.values()).count(False)
            counts["running"] = len(alive) - counts["interrupted"]
        return counts

    async def label(self, session: str, labels: Mapping[str, str | None], *, seq: int | None = None) -> None:
        """Set labels of a session without running a turn. The value ``None`` removes a label. Other labels stay.

        ``seq`` is that of the :class:`~midturn.SessionInfo` that the decision is based on.

        Raises:
            NotFound: there is no such session.
            SessionBusy: a living worker holds the session.
            Conflict: another worker wrote the session in the same moment, or it has changed since ``seq``.
        """
        if not isinstance(labels, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            raise InvalidArgument(f"must be a mapping of names to values, not {type(labels).__name__}", path="labels")
        gone = {name for name, value in labels.items() if value is None}
        given = check_labels({name: value for name, value in labels.items() if value is not None})
        before = (await self.info(session)).labels
        merged = check_labels({name: value for name, value in {**before, **given}.items() if name not in gone})
        ledger = Ledger(self.store, session, labels=merged, lease=self._lease, seen=self._seen)
        await ledger.refresh()
        await ledger.wait(0.0, stop_of(None))
        if ledger.head is None:
            raise NotFound.of(session)
        if ledger.head.labels != before or seq not in (None, ledger.seq):
            raise Conflict.of(session)
        await ledger.write(status=ledger.head.status, progress=ledger.progress, release=True)

    async def delete(
        self, session: str, *, by: str | None = None, why: str | None = None, seq: int | None = None
    ) -> bool:
        """Delete a session for good; return whether it existed. Its id stays deleted, and late writes fail.

        ``by`` names the person who deletes it. Only the name, the reason and the time stay on record. ``seq`` is that
        of the :class:`~midturn.SessionInfo` that the decision is based on.

        Raises:
            Conflict: the session has changed since ``seq``.
        """
        found = await bury(self.store, check_id(session), by=check_by(by), why=check_why(why), seq=seq)
        await notice_deletion(self.store, session, self._seen)
        return found

    async def forget(self, session: str) -> bool:
        """Remove the record of a deletion, so that the id can be used again; return whether there was one.

        Another worker that used the session before its deletion and has not noticed the deletion gets
        :class:`~midturn.HistoryLost` when it uses the id again.

        Raises:
            Conflict: the session is not deleted.
        """
        await notice_deletion(self.store, check_id(session), self._seen)
        try:
            return await self.store.forget(session)
        except Conflict:
            raise Conflict(f"session {session!r} is not deleted; delete it first", session=session) from None

    async def prune(
        self,
        *,
        older_than: timedelta | None = None,
        status: SessionStatus | Collection[SessionStatus] | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        prefix: str = "",
        keep_last: int | None = None,
        blueprint: Blueprint | None = None,
        archive: str | Path | None = None,
        dry_run: bool = False,
        by: str | None = None,
        on_session: Callable[[str, Skipped | None], None] | None = None,
    ) -> PruneReport:
        """Delete the sessions that match all conditions, and report which; there must be a condition.

        ``older_than`` is the time since the last change. ``keep_last`` keeps so many of those that match, the latest
        changed ones. With a ``blueprint``, only its sessions match, and its ``retain`` counts unless there is an
        ``older_than``. A session that a living worker holds stays, and so does one that changes during the pruning, or
        that has an open turn unless ``status`` asks for it.

        ``archive`` is a directory: each session is first copied there, into a ``file://`` store, and compared with
        its copy. ``dry_run=True`` deletes nothing, and reports what would be deleted. ``by`` is the name of who
        decides, which stays with the id. ``on_session`` is called after each session. An interrupted call has deleted
        some of the sessions; the next one continues.

        Raises:
            InvalidArgument: there is no condition, one is not valid, or the archive is the store itself.
            StoreFull: the archive has no space; what is not in it was not deleted.
        """
        if blueprint is not None and not blueprint.name:
            raise InvalidArgument("has no name, by which its sessions could be found", path="blueprint")
        listing = Listing.of(status=status, labels=labels, prefix=prefix)
        rule = Rule(
            older_than=blueprint.retain if older_than is None and blueprint is not None else older_than,
            status=listing.status or frozenset(),
            labels=listing.labels,
            prefix=listing.prefix,
            keep_last=keep_last,
            blueprint=blueprint.name if blueprint is not None else "",
        )
        by = check_by(by)
        chosen = await choose(self.store, rule)
        if dry_run:
            gone = [each.head.session for each in chosen if each.skipped is None]
            return PruneReport(deleted=gone, skipped=[each.skipped for each in chosen if each.skipped], dry_run=True)
        deleted: list[str] = []
        skipped: list[Skipped] = []
        async with AsyncExitStack() as stack:
            copies = None
            if archive is not None:
                copies = await stack.enter_async_context(open_archive(archive))
                if (sealed := sealed_part(self.store)) is not None:  # also if it was opened by a scheme of the user's
                    copies = sealed.around(copies)
            pruning = prune(self.store, chosen, copies, by=by, why=f"prune: {rule}")
            async for session, why in await stack.enter_async_context(aclosing(pruning)):
                if why is None:
                    deleted.append(session)
                    await notice_deletion(self.store, session, self._seen)
                else:
                    skipped.append(why)
                if on_session is not None:
                    on_session(session, why)
        return PruneReport(deleted=deleted, skipped=skipped, dry_run=False)

    async def rekey(
        self,
        sessions: Sequence[str] | None = None,
        *,
        deep: bool = False,
        dry_run: bool = False,
        jobs: int = 4,
        by: str | None = None,
        why: str | None = None,
        on_session: Callable[[str, Outcome], None] | None = None,
    ) -> RekeyReport:
        """Move sessions to the current key, by default all of them, and report which; afterwards, drop the old key.

        Each session takes one small write. One that a living worker holds stays, because its next turn moves it. So a
        second call finds little to do. ``deep`` also makes a new data key for each session, and seals its whole history
        again; only this seals sessions that are not sealed yet. ``jobs`` is the number of sessions at a time.
        ``on_session`` is called after each session. An interrupted call has
        moved some of the sessions; the next one continues.

        Raises:
            InvalidArgument: the store was opened without keys.
            NotFound: there is no such session.
        """
        if type(jobs) is not int or jobs < 1:
            raise InvalidArgument(f"must be a number from 1, not {jobs!r}", path="jobs")
        ids = None if sessions is None else [check_id(session) for session in sessions]
        rekeying = Rekeying(
            self.store, deep=deep, dry_run=dry_run, by=check_by(by), why=check_why(why), seen=self._seen
        )
        current = await sealed_store(self.store).current_key()
        rekeyed: list[str] = []
        skipped: list[NotRekeyed] = []
        unchanged = 0
        async with aclosing(rekeying.run(await rekeying.heads(ids), current, jobs)) as results:
            async for session, result in results:
                if isinstance(result, NotRekeyed):
                    skipped.append(result)
                else:
                    rekeyed += [session] if result == "moved" else []
                    unchanged += result == "current"
                if on_session is not None:
                    on_session(session, result)
        return RekeyReport(key=current, rekeyed=rekeyed, current=unchanged, skipped=skipped, dry_run=dry_run)

    async def key_counts(self) -> KeyCounts:
        """Return the number of sessions by key. This reads the heads of all sessions.

        Raises:
            InvalidArgument: the store was opened without keys.
        """
        return await count_keys(self.store)

    async def lineage(self, session: str) -> Lineage:
        """Return the sessions that a session was forked from, and those that were forked from it, as a tree.

        This reads the heads of all sessions of the store, because nothing else knows the forks of a session. For the
        origin alone, read ``forked_from`` of :meth:`info`.

        Raises:
            NotFound: there is no such session.
        """
        async with aclosing(Listing.of().every(self.store)) as heads:
            return await lineage(self.store, check_id(session), heads)

    async def audit(
        self,
        session: str | None = None,
        *,
        since: datetime | timedelta | None = None,
        by: str | None = None,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> AsyncGenerator[AuditEntry, None]:
        """Yield what people did: answers, discards, rewinds, edits, resets, forks, migrations and deletions.

        Those of one session come in their order. Without a session, the session that changed last comes first, and a
        session that changes meanwhile may be missed or come twice. Of a deleted session only the deletion is left,
        and it has no labels.

        Raises:
            InvalidArgument: an argument is not valid.
            NotFound: there is no such session.
        """
        check_by(by)
        listing = Listing.of(labels=labels, order="updated", since=since)
        heads = listing.every(self.store) if session is None else self._one(session, listing)
        async with aclosing(heads), aclosing(audit(self.store, heads, since=listing.since, by=by)) as entries:
            async for entry in entries:
                yield entry

    async def _one(self, session: str, listing: Listing) -> AsyncGenerator[Head, None]:
        """Yield the head of a session, if it has the labels of a list."""
        head = await self.store.head(check_id(session))
        if head is None:
            raise NotFound.of(session)
        if listing.labels.items() <= head.labels.items():
            yield head
