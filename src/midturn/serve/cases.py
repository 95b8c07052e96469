"""The sessions of a store as one principal sees and uses them. Nothing over HTTP reads or acts in another way."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from midturn.errors import InvalidArgument, NotFound, SessionDeleted
from midturn.history.listing import Listing
from midturn.record.head import NO_LABELS, check_id, check_labels
from midturn.serve.principals import SessionName
from midturn.sessions.reader import SessionReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

    from midturn.autogen.adapter import Event, TurnResult
    from midturn.history.session_info import SessionInfo, SessionStatus
    from midturn.serve.principals import Action, Authorize, Principal
    from midturn.sessions.opening import OpenStore
    from midturn.sessions.session import Session
    from midturn.versions.blueprint import Blueprint

    Case: TypeAlias = Session[Event, TurnResult]

WARM = 128
"""Number of sessions whose agents stay in memory for the next turn."""


class Forbidden(Exception):
    """A principal may see a session, and may not do this with it."""

    def __init__(self, name: str, action: Action, session: str) -> None:
        super().__init__(f"{name} may not {action} session {session!r}")


class Service:
    """Things that all principals of a server share: the store, the blueprints, and the agents that are in memory."""

    def __init__(self, store: OpenStore, blueprints: Iterable[Blueprint], authorize: Authorize | None) -> None:
        self.store = store
        self.blueprints = {blueprint.name: blueprint for blueprint in blueprints}
        self.authorize = authorize
        self._warm: OrderedDict[tuple[str, str], Case] = OrderedDict()

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
        if action != "read" and not await self._may(action, SessionName(id=info.id, labels=info.labels)):
            raise Forbidden(self.principal.name, action, session)
        return info

    async def sees(self, info: SessionInfo) -> bool:
        """Return whether the principal may read a session. Of a deleted session nothing is left but its id."""
        labels = self.principal.labels
        if not labels.items() <= info.labels.items():
            return False
        return await self._may("read", SessionName(id=info.id, labels=info.labels))

    async def reader(self, session: str) -> SessionReader:
        """Return a reader of a session. It raises what :meth:`info` raises."""
        await self.info(session)
        return SessionReader(self._store.store, session)

    async def case(self, session: str, action: Action) -> Case:
        """Return an existing session to act on, with its agents if this server runs its blueprint.

        It raises what :meth:`info` raises.

        Raises:
            SessionDeleted: the session was deleted.
        """
        info = await self.info(session, action)
        if info.status == "deleted":
            raise SessionDeleted.of(session)
        blueprint = self.blueprints.get(info.blueprint or "")
        return self._store.session(session) if blueprint is None else self._service.case(session, blueprint)

    async def runnable(
        self, session: str, *, blueprint: str | None = None, labels: Mapping[str, str] = NO_LABELS
    ) -> Case:
        """Return a session that can run a turn. If there is none, its first turn creates it, with these labels.

        Raises:
            NotFound: the principal may not read the session.
            Forbidden: the principal may not run it.
            InvalidArgument: this server does not run the session's blueprint, or a new session needs a name of one.
        """
        mine = {**check_labels(labels), **self.principal.labels}
        try:
            info = await self.info(check_id(session), "run")
        except NotFound:
            if await self._exists(session):
                raise
            if not await self._may("run", SessionName(id=session, labels=mine)):
                raise Forbidden(self.principal.name, "run", session) from None
            return self._store.session(session, self._blueprint(session, blueprint), labels=mine or None)
        named = self._blueprint(session, info.blueprint or blueprint)
        if blueprint is not None and blueprint != named.name:
            raise InvalidArgument(
                f"is {blueprint!r}, and the session belongs to {named.name!r}", path="blueprint", session=session
            )
        return self._service.case(session, named)

    async def sessions(self, listing: Listing) -> AsyncGenerator[SessionInfo, None]:
        """Yield the sessions of a list that the principal may read."""
        async with aclosing(self._filtered(listing).read(self._store.store)) as infos:
            async for info in infos:
                if await self.sees(info):
                    yield info

    async def counts(self) -> dict[SessionStatus, int]:
        """Return the number of sessions with each status, of those that the principal may read."""
        counts = await self._store.counts()
        if self._service.authorize is None and not self.principal.labels:
            return counts
        counts = dict.fromkeys(counts, 0)
        async with aclosing(self.sessions(Listing.of())) as infos:
            async for info in infos:
                counts[info.status] += 1
        return counts

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
