"""The live agent or team of a session: built, restored, kept from turn to turn, and dropped when in doubt."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, cast
from weakref import ref

from midturn.errors import InvalidArgument, MigrationFailed, Misfit, StateInvalid
from midturn.framework import EventT_co, ResultT_co
from midturn.history.checkpoints import read_bodies, read_checkpoint
from midturn.record.codec import is_object
from midturn.record.packing import Archive, Grown, as_json
from midturn.turns.commit import Stamp
from midturn.versions.blueprint import Blueprint, build, fingerprint_of
from midturn.versions.loading import (
    Fitted,
    OnDrift,
    accept,
    changes_since,
    check_named,
    check_owner,
    check_version,
    explained,
    fit_edited,
    fit_stored,
)
from midturn.versions.migrations import edit, migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence

    from midturn.framework import Framework, Loaded, Runnable
    from midturn.history.checkpoints import Stored
    from midturn.lease.ledger import Ledger
    from midturn.record.codec import Json
    from midturn.record.rows import Progress
    from midturn.redaction import Redaction

_log = logging.getLogger(__name__)

NOTHING: dict[str, Json] = {"state": {}, "beside": {}, "kept": 0}
"""The state of a session before its first checkpoint."""

_SESSIONS: dict[int, tuple[ref[Any], str]] = {}
"""The session that each live instance runs, by the ``id()`` of the instance: agents may be equal, or have no hash."""


@contextmanager
def _naming(session: str) -> Generator[None]:
    """Name the session in the errors that are raised inside."""
    try:
        yield
    except Misfit as error:
        error.session = session
        raise


def _snapshot(tree: Any) -> Any:
    """Return a copy of a captured state that does not change with its live lists."""
    if isinstance(tree, Grown):
        return Grown(list(tree.items), tree.dump)
    return {key: _snapshot(item) for key, item in tree.items()} if is_object(tree) else tree


def _kept(ledger: Ledger) -> tuple[int, int, int]:
    return ledger.lives, ledger.progress.holes, ledger.progress.swept


def _assign(live: Any, session: str) -> str:
    """Assign a live instance to this session, unless another session runs it; return the session that runs it."""
    known, current = _SESSIONS.get(id(live), (None, session))
    if known is not None and known() is live:
        return current
    number = id(live)
    _SESSIONS[number] = ref(live, lambda gone: _SESSIONS.pop(number) if _SESSIONS[number][0] is gone else None), session
    return session


def check_redacts(progress: Progress, redaction: Redaction | None, session: str) -> None:
    """Check that texts can be redacted, if those of the session are.

    Raises:
        InvalidArgument: they cannot.
    """
    if progress.redacted and redaction is None:
        raise InvalidArgument(
            "is missing: the texts of this session are redacted, and would be stored as they are. Use the blueprint "
            "that redacts them; on the command line: --app APP",
            path="redact",
            session=session,
            hint="To store texts as they are from now on, give a Blueprint(..., redact=...) that returns them.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """An instance in the middle of a turn, laid aside."""

    live: Any
    archive: Archive
    checkpoint: int
    drift: Sequence[str]
    touched: Mapping[int, frozenset[str]]
    fingerprint: dict[str, Json] | None
    described: int | None


class Instance(Generic[EventT_co, ResultT_co]):
    """The agent or team that a session runs. ``live`` has the state of checkpoint ``checkpoint``, or is ``None``."""

    def __init__(
        self,
        session: str,
        what: object,
        framework: Framework[EventT_co, ResultT_co],
        on_drift: OnDrift,
        built: MutableMapping[str, Instance[Any, Any]] | None = None,
    ) -> None:
        self.session = session
        self._on_drift: OnDrift = on_drift
        self._built = built
        """The instances that this process has built, by their sessions."""
        self._framework = framework
        self._last: ref[Any] | None = None
        self._given = what if framework.is_live(what) else None
        self._first: Json = None
        """The state that a given live instance had at first; a checkpoint is loaded on top of that state."""
        self._before: Any = None
        """The state of a given live instance before the running turn; a turn that fails goes back to that state."""
        if isinstance(what, Blueprint):
            self.blueprint = what
        elif self._given is not None or what is None:
            self.blueprint = Blueprint("", lambda: cast("Runnable", what))
        else:
            self.blueprint = Blueprint("", what)  # type: ignore[arg-type]  # check() rejects what is not callable
        self.blueprint.check()
        self.redaction = None if self.blueprint.redact is None else self.blueprint.redaction(session)
        self.is_runnable = what is not None
        self.is_built = self._given is None and what is not None
        """True if a factory builds the instance."""
        self.is_given = self._given is not None
        """True if the session was created with a live instance."""
        self.live: Any = None
        self._touched: Mapping[int, frozenset[str]] = {}
        """The agents and tools that migrations have changed in the loaded state, by the version before each."""
        self._owner = ""
        """The name of the blueprint that the session belongs to, for a blueprint without a name."""
        self._fingerprint: dict[str, Json] | None = None
        self._described: int | None = None
        """The number of the body that holds the fingerprint."""
        self._drift: Sequence[str] = ()
        self.checkpoint = 0
        self.archive = Archive()
        self._known = False
        self._kept = (0, 0, 0)
        """Marks of what was read: they change when bodies are removed, and when the id is used again."""

    @property
    def version(self) -> int:
        """Return the version that the next checkpoint gets."""
        return self.blueprint.version

    def given(self) -> Any:
        """Return the live instance that the session was created with.

        Raises:
            InvalidArgument: the session was created without a live instance.
        """
        if self._given is None:
            raise InvalidArgument("saving and loading by hand needs a live agent or team", path="what")
        return self._given

    async def initial(self) -> Any:
        """Return the state of a newly built instance, or the state that a given one had at first."""
        if not self.is_runnable:
            raise InvalidArgument("give the session an agent, a team or a factory to reset it", path="what")
        if self._given is not None:
            if self._first is None:
                self._first = as_json(await self._framework.capture(self._given))
            return self._first
        framework = self._framework.another()
        live = await build(self.blueprint, framework)
        await self._look(live)
        return as_json(await framework.capture(live))

    def forget(self) -> None:
        """Drop the live instance: its run was aborted, or another worker has continued the session."""
        self.live = self._before = None
        self._known = False
        self._drift, self._touched = (), {}

    def lay_aside(self) -> Aside:
        """Return the instance as it is in the middle of a turn, and forget it: the next turn may need another one."""
        aside = Aside(
            live=self.live,
            archive=self.archive,
            checkpoint=self.checkpoint,
            drift=self._drift,
            touched=self._touched,
            fingerprint=self._fingerprint,
            described=self._described,
        )
        self.forget()
        return aside

    def take_back(self, aside: Aside) -> None:
        """Take back an instance in the middle of its turn."""
        self.live, self.archive, self.checkpoint = aside.live, aside.archive, aside.checkpoint
        self._drift, self._touched = aside.drift, aside.touched
        self._fingerprint, self._described = aside.fingerprint, aside.described
        self._known = True

    def doubt(self) -> None:
        """Drop the live instance, unless it was given and has the state from before a turn."""
        if self._given is None or self._before is not None:
            self.forget()

    async def begin(self) -> None:
        """Remember the state of a given live instance before a turn."""
        if self._given is not None:
            self._before = _snapshot(await self._framework.capture(self.live))

    def end(self, checkpoint: int) -> None:
        """Note that the live instance has the state of this checkpoint, which was just written."""
        self.checkpoint, self._before = checkpoint, None
        self._drift, self._touched = (), {}

    def touched(self, version: int) -> frozenset[str] | None:
        """Return the agents and tools that the migrations since a version change; ``None`` if that is unknown."""
        touched = self._touched
        if self.is_built and not self.checkpoint:
            try:
                touched = migrate(NOTHING, self.blueprint.migrations(version), self._framework, self.session).touched
            except MigrationFailed:  # the migration needs a state
                return None
        return frozenset[str]().union(*(names for start, names in touched.items() if start >= version))

    def tools(self) -> frozenset[str] | None:
        """Return the names of all tools; ``None`` if only a server can list them."""
        agents: Any = (self._fingerprint or {}).get("agents", {})
        if any("workbenches" in agent for agent in agents.values()):
            return None
        return frozenset(name for agent in agents.values() for name in agent.get("tools", ()))

    def stamp(self) -> Stamp:
        """Return the stamp of the next checkpoint."""
        if self._described is None and self._fingerprint is not None:
            self._described = self.archive.message(self._fingerprint, "fingerprint")
        return Stamp(
            blueprint=self.blueprint.name or self._owner,
            version=self.version,
            fingerprint=self._described,
            drift=self._drift,
        )

    async def describe(self) -> None:
        """Take the fingerprint of a given instance."""
        if self._given is not None:
            await self._look(self._given)

    async def _look(self, live: Any) -> None:
        self._fingerprint, self._described = await fingerprint_of(live, self._framework), None

    async def go_back(self) -> None:
        """Restore the state of a given live instance from before the turn, with the changes that its owner had made."""
        if self._given is None or self._before is None:
            self.forget()
            return
        before, self._before = as_json(self._before), None
        self.live, known, self._known = None, self._known, False
        await self._framework.renew(self._given)
        await self._restore(self._given, before)
        self.live, self._known = self._given, known

    async def load(self, ledger: Ledger) -> None:
        """Build a live instance with the state of the latest checkpoint, unless there is such an instance already.

        Raises:
            StateInvalid: the state is damaged, or does not fit the agent or team that was built.
            UnknownVersion: a newer version of the blueprint wrote the state.
            MissingMigration: an older version wrote the state, and a migration is missing.
            InvalidArgument: the session belongs to a blueprint, and this is another one, or none.
        """
        if self.live is not None and self._is_current(ledger):
            return
        self.forget()
        check_named(self.blueprint, ledger.progress.blueprint, self.session)
        if ledger.progress.redacted:
            self.check_redacts(ledger)
        stored = await self.read(ledger)
        if self.redaction is not None and stored is not None:
            self.redaction.learn(stored.tree)
        with _naming(ledger.session):
            live = await self._build()
            await self._look(live)
            if stored is not None:
                fitted = await self._fit(live, stored)
                try:
                    loaded = await self._framework.load(live, fitted.plan)
                except StateInvalid as error:
                    raise explained(error, fitted.drift, self.blueprint) from error.__cause__
                await self._accept(fitted, loaded)
                if not fitted.migrated:
                    self.archive.adopt(loaded.captured)
        self.live = live
        if self._built is not None:
            self._built[self.session] = self

    def check_redacts(self, ledger: Ledger) -> None:
        """Check that texts can be redacted, if those of the session are.

        Raises:
            InvalidArgument: they cannot.
        """
        check_redacts(ledger.progress, self.redaction, self.session)

    async def redacted(self, tree: Any) -> Any:
        """Return the state that is stored for a captured one, and load that if texts in it were replaced."""
        found = tree if self.redaction is None else await self._framework.redact(tree, self.redaction)
        if found is not tree:
            found = as_json(found)
            try:
                await self._framework.load(self.live, await self._framework.fit(self.live, found))
            except StateInvalid as error:
                error.add_note("The function redact has replaced a text in this state, which has to stay as it is.")
                raise
        return found

    async def redacted_tree(self, tree: Any) -> Any:
        """Return the state that is stored for one that is not that of the live instance."""
        return tree if self.redaction is None else await self._framework.another().redact(tree, self.redaction)

    async def read(self, ledger: Ledger) -> Stored | None:
        """Read the session's bodies and lists, if needed; return the latest checkpoint if it was read, too."""
        progress = ledger.progress
        if self._is_current(ledger):
            return None
        self._check_owner(ledger)
        archive, found = Archive(), None
        archive.logs = progress.logs
        async with ledger.reading():
            if progress.checkpoint:
                found = await read_checkpoint(ledger, progress.checkpoint, archive, bodies=progress.bodies)
            else:
                archive.learn_bodies(await read_bodies(ledger, progress.bodies), progress.bodies)
        if found is not None:
            self._check_version_of(found)
        self.archive, self.checkpoint, self._known = archive, progress.checkpoint, True
        self._kept = _kept(ledger)
        self._described = None
        return found

    def _is_current(self, ledger: Ledger) -> bool:
        progress = ledger.progress
        known = self.checkpoint, self.archive.stored, self._kept
        return self._known and known == (progress.checkpoint, progress.bodies, _kept(ledger))

    async def load_given(self, ledger: Ledger) -> int:
        """Load the latest state into the given instance; return the checkpoint. On an error, restore the old state."""
        live = self.given()
        if not ledger.progress.checkpoint:
            return 0
        self._check_owner(ledger)
        stored = await ledger.steady(lambda: read_checkpoint(ledger, ledger.progress.checkpoint))
        self._check_version_of(stored)
        with _naming(ledger.session):
            await self._look(live)
            fitted = await self._fit(live, stored)
            before = as_json(await self._framework.capture(live))
            try:
                await self._accept(fitted, await self._framework.load(live, fitted.plan))
            except Exception:  # a policy of a user's own may raise anything
                await self._framework.renew(live)
                await self._restore(live, before)
                raise
        for repair in await self._framework.prepare(live):
            _log.warning("session %r, checkpoint %d: %s", ledger.session, ledger.progress.checkpoint, repair)
        return ledger.progress.checkpoint

    async def _restore(self, live: Any, tree: Json) -> None:
        """Load a state into a live instance."""
        await self._framework.load(live, await self._framework.fit(live, tree))

    async def check_given(self, stored: Stored) -> None:
        """Check that a state fits the given live instance, if there is one.

        Raises:
            StateInvalid: it does not fit.
        """
        if self._given is not None:
            with _naming(self.session):
                await self._framework.another().fit(self._given, stored.tree)

    async def edited(self, stored: Stored, change: Callable[[Any], Any], archive: Archive) -> tuple[Json, Stamp]:
        """Return a state that a user's function has changed, and its stamp. It fits the agents, if there are any.

        Raises:
            StateInvalid: the function returned something that is not a valid state, or does not fit.
            InvalidArgument: the function returned something else, or changed its input.
        """
        blueprint, framework = self.blueprint, self._framework.another()
        with _naming(self.session):
            if self.is_built:
                live = await build(blueprint, framework)
                built = await fingerprint_of(live, framework)
                fitted = await fit_edited(
                    stored, live, built, blueprint, framework, change=change, session=self.session
                )
                stamp = Stamp(
                    blueprint=blueprint.name or stored.row.blueprint,
                    version=blueprint.version,
                    fingerprint=archive.message(built, "fingerprint"),
                    drift=fitted.changes,
                )
                return fitted.tree, stamp
            view = await edit(stored.tree, change, framework)
            if view.is_open:
                raise InvalidArgument("needs a session with a factory, which builds the new agents", path="change")
            await self.check_given(replace(stored, tree=view.tree))
            return view.tree, Stamp.of(stored, archive)

    async def _build(self) -> Any:
        if not self.is_runnable:
            raise InvalidArgument("give the session an agent, a team or a factory to run it", path="what")
        live = await build(self.blueprint, self._framework)
        if not hasattr(live, "run_stream"):
            raise InvalidArgument(
                f"a {type(live).__name__} cannot run turns; give an agent or a team",
                path="factory" if self._given is None else "what",
                session=self.session,
                hint="Save and load it by hand: store.save(), store.load().",
            )
        self._claim(live)
        if self._given is not None:
            if self._first is None:
                self._first = as_json(await self._framework.capture(live))
            else:
                await self._framework.renew(live)
                await self._restore(live, self._first)
        return live

    def _claim(self, live: Any) -> None:
        """Claim a live instance for this session alone: two conversations in one agent would be mixed up.

        Raises:
            InvalidArgument: another session runs the instance, or the factory returned the same instance as before.
        """
        current = _assign(live, self.session)
        if current != self.session:
            raise InvalidArgument(
                f"this agent or team already runs session {current!r}; give a function that builds a new one each time",
                path="what",
                session=self.session,
            )
        if self._given is None and self._last is not None and self._last() is live:
            raise InvalidArgument(
                "returned the same agent or team as before; build a new one each time",
                path="factory",
                session=self.session,
            )
        self._last = ref(live)

    async def _fit(self, live: Any, stored: Stored) -> Fitted:
        """Fit a stored state to a live instance."""
        fitted = await fit_stored(
            stored,
            live,
            self._fingerprint,
            self.blueprint,
            self._framework,
            session=self.session,
            on_drift=self._on_drift,
        )
        self._touched = fitted.touched
        return fitted

    async def compare(self, begun: Json) -> None:
        """Compare the agents with those that began a turn; ``begun`` is their fingerprint.

        Raises:
            Drifted: the policy rejects a difference.
        """
        if begun is not None and not self._drift:  # else the drift was already reported
            built: Json = self._fingerprint
            self._drift = await changes_since(begun, built, self.blueprint, self.session, self._on_drift)

    async def _accept(self, fitted: Fitted, loaded: Loaded) -> None:
        self._drift = await accept(loaded.gained, fitted, self.blueprint, self.session, self._on_drift)

    def check_version(self, stored: int) -> None:
        """Check that the stored version is not newer than the version of the blueprint.

        Raises:
            UnknownVersion: the stored version is newer.
        """
        if self.is_built:
            check_version(stored, self.version, self.session)

    def _check_owner(self, ledger: Ledger) -> None:
        """Check the owner in the head, not in the checkpoint: a first turn has an owner before any checkpoint."""
        check_owner(self.blueprint, ledger.progress.blueprint, self.session)
        self._owner = ledger.progress.blueprint

    def _check_version_of(self, stored: Stored) -> None:
        if not self.is_built:  # without a version of its own, it takes the version of the stored state
            self.blueprint.version = stored.row.version
        self.check_version(stored.row.version)
