"""Making a state of an earlier version one of this version, step by step, before anything is loaded."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from midturn.errors import MidturnError, MigrationFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midturn.framework import Framework
    from midturn.record.codec import Json
    from midturn.versions.blueprint import Step


@dataclass(frozen=True, slots=True)
class Migrated:
    """A state after its migrations."""

    tree: Json
    touched: dict[int, frozenset[str]]
    """The agents and tools that each step has changed, by the version it led from."""


def migrate(tree: Json, steps: Sequence[Step], framework: Framework[Any, Any], session: str) -> Migrated:
    """A state after these steps; the one that is given stays as it is.

    Raises:
        MigrationFailed: a step raised, returned something else, or changed its input.
    """
    touched: dict[int, frozenset[str]] = {}
    for step in steps:
        tree, touched[step.start] = _take(step, tree, framework, session)
    return Migrated(tree, touched)


def _take(step: Step, tree: Json, framework: Framework[Any, Any], session: str) -> tuple[Json, frozenset[str]]:
    def failed(what: str) -> MigrationFailed:
        return MigrationFailed(
            f"session {session!r}: {step} {what}. The session is as it was",
            session=session,
            step=(step.start, step.end),
        )

    try:
        view = framework.view(tree)
        before = orjson.dumps(view.tree)
    except Exception as error:  # what was stored by hand may be anything
        raise failed(f"has nothing to work on: {type(error).__name__}: {error}") from error
    try:
        found = step.function(view)
    except (Exception, SystemExit) as error:
        raise failed(f"raised {type(error).__name__}: {error}{_where(error)}") from error
    if type(found) is not type(view):
        hint = " (is its return missing?)" if found is None else ""
        raise failed(f"returned a {type(found).__name__}, not a state{hint}")
    try:
        same = orjson.dumps(view.tree) == before
    except (TypeError, ValueError):  # it is not even JSON any more
        same = False
    if not same:
        raise failed("changed its input in place; state.edit(function) gives a copy to change")
    try:
        found.check()
    except MidturnError as error:
        raise failed(f"returned what is no state: {error}") from error
    return found.tree, found.touched


def _where(error: BaseException) -> str:
    """Where in a user's own code it was raised."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "midturn" not in Path(frame.filename).parts]
    return f", at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
