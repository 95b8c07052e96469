"""Functions of users that turn one state into another: migrations to a later version, and corrections."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from midturn.errors import InvalidArgument, MidturnError, MigrationFailed, StateInvalid
from midturn.record.odd import as_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from midturn.framework import Framework, View
    from midturn.record.codec import Json


@dataclass(frozen=True, slots=True)
class Migration:
    """A function that turns a state of one version into one of a later version."""

    start: int
    end: int
    function: Callable[[Any], Any]

    def __str__(self) -> str:
        return f"the migration from version {self.start} to {self.end} ({getattr(self.function, '__name__', '?')})"


@dataclass(frozen=True, slots=True)
class Migrated:
    """A state after its migrations."""

    tree: Json
    touched: dict[int, frozenset[str]]
    """The agents and tools that each migration changed, by the version that the migration starts from."""


def migrate(tree: Json, migrations: Sequence[Migration], framework: Framework[Any, Any], session: str) -> Migrated:
    """Run migrations on a state and return the new state; the given one does not change.

    Raises:
        MigrationFailed: a migration raised, returned something that is not a state, or changed its input.
    """
    touched: dict[int, frozenset[str]] = {}
    for migration in migrations:
        tree, touched[migration.start] = _run(migration, tree, framework, session)
    return Migrated(tree, touched)


def _run(migration: Migration, tree: Json, framework: Framework[Any, Any], session: str) -> tuple[Json, frozenset[str]]:
    def failed(what: str) -> MigrationFailed:
        return MigrationFailed(
            f"session {session!r}: {migration} {what}. The session is unchanged",
            session=session,
            versions=(migration.start, migration.end),
        )

    try:
        view = framework.view(tree)
        before = as_bytes(view.tree)
    except Exception as error:  # a state that was stored by hand may be anything
        raise failed(f"cannot read the stored state: {type(error).__name__}: {error}") from error
    try:
        found = migration.function(view)
    except (Exception, SystemExit) as error:
        raise failed(f"raised {type(error).__name__}: {error}{_where(error)}") from error
    if wrong := _wrong(view, before, found):
        raise failed(wrong)
    try:
        found.check()
    except MidturnError as error:
        raise failed(f"returned something that is not a valid state: {error}") from error
    return found.tree, found.touched


def _wrong(view: View, before: bytes, found: Any) -> str:
    """Return what a function did wrong that got a view and returned something; an empty text if nothing."""
    if type(found) is not type(view):
        hint = " (is its return statement missing?)" if found is None else ""
        return f"returned a {type(found).__name__}, not a state{hint}"
    try:
        same = as_bytes(view.tree) == before
    except (TypeError, ValueError, StateInvalid):  # no longer JSON
        same = False
    return "" if same else "changed its input in place; use state.edit(function), which changes a copy"


async def edit(tree: Json, change: Callable[[Any], Any], framework: Framework[Any, Any]) -> View:
    """Return the state that a user's function, sync or async, makes of a state. The given one does not change.

    Raises:
        InvalidArgument: the function did not return a state, or changed its input.
        StateInvalid: the function returned something that is not a valid state.
    """
    view = framework.view(tree)
    before = as_bytes(view.tree)
    found = change(view)
    if isawaitable(found):
        found = await found
    if wrong := _wrong(view, before, found):
        raise InvalidArgument(f"{wrong}; nothing was changed", path="change")
    edited: View = found
    edited.check()
    return edited


def _where(error: BaseException) -> str:
    """Return the line of the user's own code that raised an error."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "midturn" not in Path(frame.filename).parts]
    return f", at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
