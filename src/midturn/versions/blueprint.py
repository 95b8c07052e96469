"""Blueprints: how to build an agent or team, and the migrations from states of its earlier versions."""

from __future__ import annotations

import inspect
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from midturn.errors import InvalidArgument, MissingMigration
from midturn.record import codec
from midturn.redaction import Redaction, check_redact
from midturn.tools import declared
from midturn.versions.drift import variable
from midturn.versions.migrations import Migration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from midturn.framework import Factory, Framework
    from midturn.record.codec import Json
    from midturn.record.rows import Effect
    from midturn.redaction import Redact
    from midturn.tools import Declaration

MigrationT = TypeVar("MigrationT", bound="Callable[[Any], Any]")


class Blueprint:
    """A factory for an agent or a team, with a name, a version, and the migrations that lead to that version.

    The factory takes no arguments, is sync or async, and returns a *fresh* agent or team each time: midturn builds one
    in each process, and another after each turn that failed. ``effects`` declares by name what tools do to the world,
    including tools of MCP servers: ``{"search": "read", "refund": midturn.tool(effect="unsafe", approval=True)}``.
    ``timeout`` is the largest number of seconds that one attempt at a turn may take, unless the session has a
    ``turn_timeout``. ``retain`` is the time for which unchanged sessions are kept: ``midturn prune`` deletes those
    that are older. ``redact`` is a function, sync or async, that gets each text before it is stored, with a
    :class:`~midturn.Where`, and returns the text to store in its place. Agents get what is stored.
    """

    def __init__(
        self,
        name: str,
        factory: Factory,
        *,
        version: int = 1,
        effects: Mapping[str, Effect | Declaration] | None = None,
        timeout: float | None = None,
        retain: timedelta | None = None,
        redact: Redact | None = None,
    ) -> None:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            raise InvalidArgument(f"the name of a blueprint must be a string, not a {type(name).__name__}", path="name")
        if not callable(factory):  # pyright: ignore[reportUnnecessaryComparison] - callers may be untyped
            raise InvalidArgument(f"must be a function that builds an agent, not {factory!r:.100}", path=name or "what")
        if not _is_version(version):
            raise InvalidArgument(f"version {version!r} must be a whole number from 1 on", path=name)
        self.name = name
        self.version = version
        self.effects = declared(effects or {})
        self.timeout = check_timeout(timeout, "timeout")
        self.retain = None if retain is None else check_age(retain, "retain")
        self.redact = None if redact is None else check_redact(redact)
        self._factory = factory
        self._migrations: dict[int, Migration] = {}

    def __repr__(self) -> str:
        return f"Blueprint({self.name!r}, version={self.version})"

    def redaction(self, session: str) -> Redaction | None:
        """Return the redaction of a session; ``None`` if the blueprint redacts nothing."""
        return None if self.redact is None else Redaction(self.redact, session)

    async def build(self) -> Any:
        """Return a fresh agent or team."""
        made = self._factory()
        if inspect.isawaitable(made):
            made = await made
        return made

    def migration(self, start: int, end: int) -> Callable[[MigrationT], MigrationT]:
        """Decorate the function that turns a state of version ``start`` into one of version ``end``.

        The function gets a :class:`~midturn.State` and returns one. It must be pure, because midturn may run it twice
        or only try it: it changes nothing in place, and uses no network, files, other programs, clock or random
        numbers. midturn checks the input and the result of the function, not its other actions.

        Raises:
            InvalidArgument: the versions are not in order, or another migration covers them already.
        """
        at = f"{variable(self.name)}.migration({start!r}, {end!r})"
        if not (_is_version(start) and _is_version(end) and start < end <= self.version):
            raise InvalidArgument(
                f"must lead from a version to a later one, and this blueprint has version {self.version}", path=at
            )

        def add(function: MigrationT) -> MigrationT:
            for other in self._migrations.values():
                if other.start < end and start < other.end:
                    raise InvalidArgument(f"{other} covers the same versions; remove one of the two", path=at)
            if not callable(function):
                raise InvalidArgument(f"must be a function, not a {type(function).__name__}", path=at)
            if inspect.iscoroutinefunction(function):
                raise InvalidArgument("must be an ordinary function, not an async one: remove `async`", path=at)
            self._migrations[start] = Migration(start, end, function)
            return function

        return add

    def check(self) -> None:
        """Check that the migrations lead, one after the other, to this version.

        Raises:
            MissingMigration: there is a gap between two of them, or after the last one.
        """
        if self._migrations:
            self.migrations(min(self._migrations))

    def migrations(self, version: int) -> list[Migration]:
        """Return the migrations that lead from a version to this one.

        Raises:
            MissingMigration: one is missing.
        """
        found: list[Migration] = []
        while version < self.version:
            migration = self._migrations.get(version)
            if migration is None:
                later = min((start for start in self._migrations if start > version), default=self.version)
                raise MissingMigration(
                    f"blueprint {self.name!r} has version {self.version}, and no migration leads from version "
                    f"{version} to {later}; write one, or this one if the states need no change:\n\n"
                    f"@{variable(self.name)}.migration({version}, {later})\n"
                    f"def from_{version}_to_{later}(state):\n"
                    f"    return state"
                )
            found.append(migration)
            version = migration.end
        return found


def check_timeout(seconds: float | None, path: str) -> float | None:
    """Return the timeout of a turn; ``None`` for no timeout.

    Raises:
        InvalidArgument: it is not a positive, finite number.
    """
    if seconds is not None and (type(seconds) not in (int, float) or not 0 < seconds < inf):
        raise InvalidArgument(f"is {seconds!r}; give a number of seconds above 0, or None", path=path)
    return seconds


def check_age(age: object, path: str) -> timedelta:
    """Return an age.

    Raises:
        InvalidArgument: it is not a duration above 0.
    """
    if not isinstance(age, timedelta) or age <= timedelta(0):
        raise InvalidArgument(f"is {age!r}; give a timedelta above 0, such as timedelta(days=90)", path=path)
    return age


def _is_version(value: object) -> bool:
    return type(value) is int and value >= 1


async def build(blueprint: Blueprint, framework: Framework[Any, Any]) -> Any:
    """Return a fresh agent or team of the blueprint.

    Raises:
        InvalidArgument: the factory returned something else.
    """
    live = await blueprint.build()
    if live is None:
        raise InvalidArgument("returned None; is its return statement missing?", path="factory")
    if not framework.is_live(live):
        raise InvalidArgument(f"returned a {type(live).__name__}, not an agent or a team", path="factory")
    return live


async def fingerprint_of(live: Any, framework: Framework[Any, Any]) -> dict[str, Json]:
    """Return the fingerprint of an agent or a team: how it is built.

    Raises:
        StateInvalid: the fingerprint cannot be stored.
    """
    found = await framework.fingerprint(live)
    codec.check(found, "fingerprint")
    return found
