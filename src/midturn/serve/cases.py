"""The sessions of a store as one principal sees and uses them. Nothing over HTTP reads or acts in another way."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, OrderedDict
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from midturn.errors import Conflict, InvalidArgument, NotFound, SessionDeleted, StateInvalid, UnknownVersion
from midturn.history.audit import audit
from midturn.history.lineage import lineage
from midturn.history.listing import Listing, listed
from midturn.lease.ledger import Ledger
from midturn.record.head import NO_LABELS, check_id, check_labels
from midturn.serve.principals import SessionName
from midturn.sessions.export import export
from midturn.sessions.reader import SessionReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable, Mapping

    from midturn.autogen.adapter import Event, TurnResult
    from midturn.framework import Destination
    from midturn.history.audit import AuditEntry
    from midturn.history.diff import StateDiff
    from midturn.history.lineage import Lineage
    from midturn.history.session_info import SessionInfo, SessionStatus
    from midturn.history.turns import StoredTurn
    from midturn.record.head import Head
    from midturn.serve.principals import Action, Authorize, Principal
    from midturn.sessions.opening import OpenStore
    from midturn.sessions.session import Session
    from midturn.versions.blueprint import Blueprint

    Case: TypeAlias = Session[Event, TurnResult]

WARM = 128
"""Number of sessions whose agents stay in memory for the next turn."""
STREAMS, STREAMS_EACH = 1000, 100
"""Number of streams that can be open at the same time: of a server, and of one principal."""


class Forbidden(Exception):
    """A principal may see a session, and may not do this with it."""

    def __init__(self, name: str, action: Action, session: str) -> None:
        super().__init__(f"{name} may not {action} session {session!r}")


class TooManyStreams(Exception):
    """So many streams are open that no more can be opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A session that waits for people."""

    info: SessionInfo
    turn: StoredTurn | None
    """Its open turn with the questions; ``None`` if it cannot be read."""
    problem: str | None = None
    """The reason why it cannot be read. A damaged session must not hide the others."""


class Service:
    """Things that all principals of a server share: the store, the blueprints, and the agents that are in memory."""

    def __init__(self, store: OpenStore, blueprints: Iterable[Blueprint], authorize: Authorize | None) -> None:
        self.store = store
        self.blueprints = {blueprint.name: blueprint for blueprint in blueprints}
        self.authorize = authorize
        self.stopping = asyncio.Event()
        """Set when the server stops: streams end then, and clients continue them elsewhere."""
        self._warm: OrderedDict[tuple[str, str], Case] = OrderedDict()
        self._streams: Counter[str] = Counter()

    @contextmanager
    def streaming(self, name: str) -> Generator[None]:
        """Count a stream of a principal as open.

        Raises:
            TooManyStreams: as many are open as can be.
        """
        if self._streams[name] >= STREAMS_EACH or self._streams.total() >= STREAMS:
            raise TooManyStreams("too many streams are open; close one, or poll")
        self._streams[name] += 1
        try:
            yield
        finally:
            self._streams[name] -= 1
            if not self._streams[name]:
                del self._streams[name]

    def case(self, session: str, blueprint: Blueprint) -> Case:
        """Return the session with its blueprint: the same object as long as it is in memory."""
        key = session, blueprint.name
        found = self._warm.pop(key, None) or self.store.session(session, blueprint)
        self._warm[key] = found
        while len(self._warm) > WARM:
            self._warm.popitem(last=False)
        return found


class Cases:
    """The sessions that one principal may see and use. A session that it may not read does not exist for it."""

    def __init__(self, service: Service, principal: Principal) -> None:
        self._service = service
        self._store = service.store
        self.principal = principal

    @property
    def blueprints(self) -> Mapping[str, Blueprint]:
        """Return the blueprints that this server runs, by name."""
        return self._service.blueprints

    async def info(self, session: str, action: Action = "read") -> SessionInfo:
        """Return the status and the facts of a session with which the principal may do something.

        Raises:
            NotFound: there is no such session, or the principal may not read it.
            Forbidden: the principal may read it, and not do this.
        """
        info = await self._store.info(session)
        if not await self.sees(info):
            raise NotFound.of(session)
        if action != "read":
            await self._demand(action, SessionName(id=info.id, labels=info.labels))
        return info

    async def sees(self, info: SessionInfo) -> bool:
        """Return whether the principal may read a session. Of a deleted session nothing is left but its id."""
        labels = self.principal.labels
        if not labels.items() <= info.labels.items():
            return False
        return await self._may("read", SessionName(id=info.id, labels=info.labels))

    async def reader(self, session: str) -> SessionReader:
        """Return a reader of a session. It raises what :meth:`info` raises."""
        return (await self.look(session))[1]

    async def look(self, session: str) -> tuple[SessionInfo, SessionReader]:
        """Return the facts of a session, and a reader of it. It raises what :meth:`info` raises."""
        info = await self.info(session)
        return info, self.reader_of(info)

    def reader_of(self, info: SessionInfo) -> SessionReader:
        """Return a reader of a session that the principal has seen: in a list of its own, or one by one."""
        return SessionReader(self._store.store, info.id)

    async def case(self, session: str, action: Action) -> Case:
        """Return an existing session to act on, with its agents if this server runs its blueprint.

        It raises what :meth:`info` raises.

        Raises:
            SessionDeleted: the session was deleted.
        """
        info = await self._existing(session, action)
        blueprint = self.blueprints.get(info.blueprint or "")
        return self._store.session(session) if blueprint is None else self._service.case(session, blueprint)

    async def desk(self, session: str) -> Case:
        """Return a session that takes answers and runs nothing. It raises what :meth:`info` raises."""
        await self.info(session, "answer")
        return self._store.session(session)

    async def runnable(
        self, session: str, *, blueprint: str | None = None, labels: Mapping[str, str] = NO_LABELS
    ) -> Case:
        """Return a session that can run a turn. If there is none, its first turn creates it, with these labels.

        Raises:
            NotFound: the principal may not read the session.
            Forbidden: the principal may not run it.
            InvalidArgument: this server does not run the session's blueprint, or a new session needs a name of one.
        """
        mine = self._labels(labels)
        try:
            info = await self.info(check_id(session), "run")
        except NotFound:
            if not await self._exists(session):
                served = self._blueprint(session, blueprint)
                await self._demand("run", SessionName(id=session, labels=mine))
                if mine or not self.sees_all:
                    await self._create(session, mine)
                return self._service.case(session, served)
            info = await self.info(session, "run")  # another server may have begun it in this moment
        named = self._blueprint(session, info.blueprint or blueprint)
        if blueprint is not None and blueprint != named.name:
            raise InvalidArgument(
                f"is {blueprint!r}, and the session belongs to {named.name!r}", path="blueprint", session=session
            )
        return self._service.case(session, named)

    def runs(self, info: SessionInfo) -> bool:
        """Return whether this server runs the turns of a session."""
        return info.blueprint in self.blueprints

    async def sessions(self, listing: Listing) -> AsyncGenerator[SessionInfo, None]:
        """Yield the sessions of a list that the principal may read."""
        left, filtered = listing.limit, self._filtered(listing)
        if self._service.authorize is not None:  # which of them it allows is known one by one
            filtered = replace(filtered, limit=None)
        async with aclosing(filtered.read(self._store.store)) as infos:
            async for info in infos:
                if await self.sees(info):
                    yield info
                    left = None if left is None else left - 1
                if left == 0:
                    return

    async def counts(self) -> dict[SessionStatus, int]:
        """Return the number of sessions with each status, of those that the principal may read."""
        counts = await self._store.counts()
        if self.sees_all:
            return counts
        counts = dict.fromkeys(counts, 0)
        async with aclosing(self.sessions(Listing.of())) as infos:
            async for info in infos:
                counts[info.status] += 1
        return counts

    async def waiting(self, listing: Listing) -> AsyncGenerator[Waiting, None]:
        """Yield the sessions of a list whose open turn asks people something."""
        left, waiting = listing.limit, replace(listing, status=frozenset({"waiting"}), limit=None)
        async with aclosing(self.sessions(waiting)) as infos:
            async for info in infos:
                if left == 0:
                    return
                turn, problem = None, info.problem
                try:
                    turn = None if problem else await self.reader_of(info).open_turn()
                except (NotFound, SessionDeleted):
                    continue
                except (StateInvalid, UnknownVersion) as error:
                    problem = str(error).partition("\n")[0]
                if problem or (turn is not None and turn.questions):  # else somebody has just answered
                    yield Waiting(info=info, turn=turn, problem=problem)
                    left = None if left is None else left - 1

    async def lineage(self, session: str) -> Lineage:
        """Return the lineage of a session: the part of it that the principal may see. It raises as :meth:`info`."""
        await self.info(session)
        async with aclosing(self._heads(Listing.of())) as heads:
            found = await lineage(self._store.store, session, heads)
        if self.sees_all:
            return found
        return replace(found, ancestors=[each for each in found.ancestors if each.status != "deleted"])

    async def audit(
        self, session: str | None = None, *, listing: Listing, by: str | None = None
    ) -> AsyncGenerator[AuditEntry, None]:
        """Yield what people did to a session, or else to those of a list. It raises as :meth:`info`."""
        if session is not None:
            await self.info(session)
        heads = self._heads(replace(listing, order="updated")) if session is None else self._head(session, listing)
        async with aclosing(heads), aclosing(audit(self._store.store, heads, since=listing.since, by=by)) as entries:
            async for entry in entries:
                yield entry

    async def diff(self, before: tuple[str, int], after: tuple[str, int]) -> StateDiff:
        """Return the differences between two checkpoints, each a session and a number. It raises as :meth:`info`."""
        one, other = [(await self.reader(session)).at(number) for session, number in (before, after)]
        return await self._store.session(one.session).diff(one, other)

    async def export(self, session: str, *, to: Destination, at: int | None = None) -> dict[str, Any]:
        """Return the conversations of a session for another library. It raises as :meth:`case`."""
        await self.info(session, "export")
        return (await export(self._store, session, to=to, at=at)).json()

    async def fork(
        self,
        session: str,
        new: str,
        *,
        at: int | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        why: str | None = None,
    ) -> SessionInfo:
        """Begin a session with a checkpoint of another; it belongs to the principal. It raises as :meth:`case`."""
        case, mine = await self.case(session, "fork"), self._labels(labels)
        await self._demand("run", SessionName(id=check_id(new), labels=mine))
        await case.fork(new, at=at, labels=mine or None, by=self.principal.name, why=why)
        return await self.info(new)

    async def label(self, session: str, labels: Mapping[str, str | None], *, seq: int | None = None) -> SessionInfo:
        """Set labels of a session; ``None`` removes one. It raises as :meth:`case`.

        Raises:
            Forbidden: with the new labels, the principal could not see the session or not label it.
            Conflict: the session has changed since ``seq``.
        """
        info = (await self._existing(session, "label")).labels
        changed = {name: value for name, value in {**info, **labels}.items() if value is not None}
        if not self.principal.labels.items() <= changed.items():
            raise Forbidden(self.principal.name, "label", session)
        await self._demand("label", SessionName(id=session, labels=changed))
        await self._store.label(session, labels, seq=seq)
        return await self._store.info(session)

    async def delete(self, session: str, *, why: str | None = None, seq: int | None = None) -> None:
        """Delete a session for good. It raises as :meth:`case`.

        Raises:
            Conflict: the session has changed since ``seq``.
        """
        await self._existing(session, "delete")
        await self._store.delete(session, by=self.principal.name, why=why, seq=seq)

    @property
    def sees_all(self) -> bool:
        """Return whether nothing limits what the principal may see."""
        return self._service.authorize is None and not self.principal.labels

    @property
    def stopping(self) -> asyncio.Event:
        """Return the event that is set when the server stops."""
        return self._service.stopping

    @contextmanager
    def streaming(self) -> Generator[None]:
        """Count a stream of the principal as open. It raises as :meth:`Service.streaming`."""
        with self._service.streaming(self.principal.name):
            yield

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels that a new session of the principal gets."""
        return {**check_labels(labels), **self.principal.labels}

    async def _create(self, session: str, labels: Mapping[str, str]) -> None:
        """Create a session with these labels, before anybody else can: the turn that follows must not meet another's.

        Raises:
            NotFound: somebody else has just created it.
        """
        ledger = Ledger(self._store.store, session, labels=labels)
        with suppress(Conflict):
            await ledger.refresh()
            if ledger.head is None:
                await ledger.write(status="idle", progress=ledger.progress, release=True)
        await self.info(session, "run")

    async def _heads(self, listing: Listing) -> AsyncGenerator[Head, None]:
        """Yield the heads of all sessions that the principal may read, also of deleted ones if it may read all."""
        async with aclosing(self._filtered(listing).every(self._store.store)) as heads:
            async for head in heads:
                if await self.sees(listed(head)):
                    yield head

    async def _head(self, session: str, listing: Listing) -> AsyncGenerator[Head, None]:
        head = await self._store.store.head(session)
        if head is not None and listing.labels.items() <= head.labels.items() and await self.sees(listed(head)):
            yield head

    def _filtered(self, listing: Listing) -> Listing:
        """Return a list with the labels of the principal: the store leaves out what others have."""
        wanted, mine = listing.labels, self.principal.labels
        if any(wanted.get(name, value) != value for name, value in mine.items()):
            return replace(listing, status=frozenset())  # a session has one value for a label
        return replace(listing, labels={**wanted, **mine})

    def _blueprint(self, session: str, name: str | None) -> Blueprint:
        served = self.blueprints
        if name is None and len(served) == 1:
            return next(iter(served.values()))
        if name is not None and name in served:
            return served[name]
        has = f"this server runs {', '.join(served)}" if served else "this server runs no agents"
        what = "name one for a new session" if name is None else f"there is no {name!r}"
        raise InvalidArgument(f"{what}; {has}", path="blueprint", session=session)

    async def _existing(self, session: str, action: Action) -> SessionInfo:
        info = await self.info(session, action)
        if info.status == "deleted":
            raise SessionDeleted.of(session)
        return info

    async def _demand(self, action: Action, session: SessionName) -> None:
        if not await self._may(action, session):
            raise Forbidden(self.principal.name, action, session.id)

    async def _exists(self, session: str) -> bool:
        try:
            await self._store.info(session)
        except NotFound:
            return False
        return True

    async def _may(self, action: Action, session: SessionName) -> bool:
        if self._service.authorize is None:
            return True
        found: Any = self._service.authorize(self.principal, action, session)
        return bool(await found if inspect.isawaitable(found) else found)
