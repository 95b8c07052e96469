"""Loading a stored state: its version is checked, it is migrated, compared with what was built, and fitted to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from midturn.errors import Drifted, MigrationFailed, MissingMigration, StateInvalid, UnknownVersion
from midturn.versions.drift import MORE, Drift, compare, migration_code, more
from midturn.versions.migrations import migrate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midturn.framework import Framework
    from midturn.history.checkpoints import Stored
    from midturn.record.codec import Json
    from midturn.versions.blueprint import Blueprint
    from midturn.versions.migrations import Migration

Policy: TypeAlias = Literal["warn", "raise", "ignore"]
OnDrift: TypeAlias = Policy | Callable[[Drift], Any]
"""What to do when agents are built otherwise than those that a checkpoint is of: warn, refuse, go on, or ask this."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A stored state that can be loaded."""

    plan: Any
    """The framework's, by which to load it."""
    tree: Json
    migrated: bool
    drift: Drift
    touched: Mapping[int, frozenset[str]]
    """The agents and tools that migrations have changed in it, by the versions that they led from."""
    changes: Sequence[str]
    """What has changed since it was stored, in words."""


def check_policy(policy: object) -> None:
    """See that this is something to do about drift.

    Raises:
        StateInvalid: it is not.
    """
    if not callable(policy) and policy not in get_args(Policy):
        raise StateInvalid(f"is {policy!r}; it can be 'warn', 'raise', 'ignore' or a function", path="on_drift")


def check_owner(blueprint: Blueprint, stored: str, session: str) -> None:
    """See that a session is run by the blueprint that began it.

    Raises:
        StateInvalid: it is another one's.
    """
    if stored and blueprint.name and stored != blueprint.name:
        raise StateInvalid(
            f"session {session!r} belongs to the blueprint {stored!r}; run it with that one, or choose another id",
            path=f"blueprint {blueprint.name!r}",
            session=session,
        )


def check_version(stored: int, mine: int, session: str) -> None:
    """See that what is stored is not of a later version than what is built.

    Raises:
        UnknownVersion: it is.
    """
    if stored > mine:
        raise UnknownVersion(
            f"session {session!r} was written by version {stored} of the blueprint, and this worker has version "
            f"{mine}: deploy version {stored} here, and leave the session to the others until then",
            session=session,
        )


async def fit_stored(
    stored: Stored,
    live: Any,
    built: Json,
    blueprint: Blueprint,
    framework: Framework[Any, Any],
    *,
    session: str,
    on_drift: OnDrift,
) -> Fitted:
    """Migrate a stored state to the blueprint's version and fit it to ``live``, whose fingerprint is ``built``.

    Raises:
        UnknownVersion: a newer version of the blueprint wrote it.
        MissingMigration: no migration leads from its version to the blueprint's.
        MigrationFailed: one failed, or led to a state that does not fit.
        Drifted: it fits other agents than these, or the policy refuses what has changed.
        StateInvalid: it is no state.
    """
    check_owner(blueprint, stored.row.blueprint, session)
    check_version(stored.row.version, blueprint.version, session)
    migrations = _migrations(blueprint, stored.row.version, session)
    done = migrate(stored.tree, migrations, framework, session)
    drift = Drift(())
    if stored.fingerprint is not None:
        drift = compare(stored.fingerprint, built, mentions=lambda tool: framework.mentions(stored.tree, tool))
    if migrations:
        tree, plan = await _fit_migrated(done.tree, migrations, live, framework, session)
    else:
        tree, plan = stored.tree, await _fit(stored, live, drift, blueprint, framework)
        await _follow(on_drift, drift, blueprint, session)
    changes = [f"migrated from version {migrations[0].start} to {migrations[-1].end}"] if migrations else []
    changes += [change.text for change in drift.changes]
    return Fitted(plan=plan, tree=tree, migrated=bool(migrations), drift=drift, touched=done.touched, changes=changes)


def _migrations(blueprint: Blueprint, version: int, session: str) -> list[Migration]:
    try:
        return blueprint.migrations(version)
    except MissingMigration as error:
        text = f"session {session!r} was written by version {version}: {error}"
        raise MissingMigration(text, session=session) from None


async def _fit_migrated(
    tree: Json, migrations: Sequence[Migration], live: Any, framework: Framework[Any, Any], session: str
) -> tuple[Json, Any]:
    start, end = migrations[0].start, migrations[-1].end
    try:
        tree = await framework.fill(live, tree)
        return tree, await framework.fit(live, tree)
    except Exception as error:  # what agents of a user's own raise is without limit
        raise MigrationFailed(
            f"session {session!r}: after its migration from version {start} to {end} the state does not fit what was "
            f"built; the session is as it was.\n{error}",
            session=session,
            versions=(start, end),
        ) from error


async def _fit(stored: Stored, live: Any, drift: Drift, blueprint: Blueprint, framework: Framework[Any, Any]) -> Any:
    try:
        plan = await framework.fit(live, stored.tree)
    except StateInvalid as error:
        raise explained(error, drift, blueprint) from error.__cause__
    if drift.breaking:
        raise _refused(drift, blueprint)
    return plan


async def _follow(policy: OnDrift, drift: Drift, blueprint: Blueprint, session: str) -> None:
    """Do what the policy says about differences that do no harm."""
    if policy == "ignore" or all(change.what == "version" for change in drift.changes):
        return
    if policy == "raise":
        raise _refused(drift, blueprint)
    if policy == "warn":
        _log.warning("session %r: its agents are not built as before:\n%s", session, drift)
    elif callable(policy) and isawaitable(answer := policy(drift)):
        await answer


async def accept(
    gained: Sequence[str], fitted: Fitted, blueprint: Blueprint, session: str, policy: OnDrift
) -> list[str]:
    """Do what the policy says about users' own objects that have more than was stored; return all changes in words.

    It may be a field that is new in them, or one that the state has lost. A migration says that it is meant.

    Raises:
        Drifted: the policy refuses it.
    """
    drift = Drift(tuple(more(path) for path in gained))
    if not fitted.migrated:
        if policy == "raise" and gained:
            raise explained(StateInvalid.together([Drifted(MORE, path=path) for path in gained]), drift, blueprint)
        await _follow(policy, drift, blueprint, session)
    return [*fitted.changes, *drift.texts]


async def changes_since(begun: Json, built: Json, blueprint: Blueprint, session: str, policy: OnDrift) -> Sequence[str]:
    """Do what the policy says about changes since a session's first turn was begun; return them in words.

    Raises:
        Drifted: the policy refuses it.
    """
    drift = compare(begun, built, mentions=lambda _: 0)  # there is no state yet
    if drift:
        await _follow(policy, drift, blueprint, session)
    return [change.text for change in drift.changes]


def explained(error: StateInvalid, drift: Drift, blueprint: Blueprint) -> StateInvalid:
    """Return an error about a state that does not fit, with what has changed, if that is why, and the code to write."""
    drift = drift.failing()
    if not drift.breaking and not isinstance(error, Drifted):
        return error
    found = Drifted.of(error)
    found.drift = drift
    if drift:
        found.add_note(_advice(drift, blueprint))
    return found


def _refused(drift: Drift, blueprint: Blueprint) -> Drifted:
    error = Drifted(f"is not built as before:\n{drift}", path=f"blueprint {blueprint.name!r}")
    error.drift = drift
    error.add_note(_advice(drift, blueprint))
    return error


def _advice(drift: Drift, blueprint: Blueprint) -> str:
    code = migration_code(drift, name=blueprint.name, version=blueprint.version)
    return f"To go on with what is stored, raise the version and say what becomes of it:\n\n{code}"
