"""Loading a stored state: check its version, migrate it, compare it with the built agents, and fit it to them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from midturn.errors import Drifted, InvalidArgument, MigrationFailed, MissingMigration, StateInvalid, UnknownVersion
from midturn.versions.drift import MORE, Drift, compare, migration_code, more
from midturn.versions.migrations import edit, migrate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midturn.framework import Framework
    from midturn.history.checkpoints import Stored
    from midturn.record.codec import Json
    from midturn.versions.blueprint import Blueprint
    from midturn.versions.migrations import Migration

Policy: TypeAlias = Literal["warn", "raise", "ignore"]
OnDrift: TypeAlias = Policy | Callable[[Drift], Any]
"""Policy for agents that are built differently from those of the checkpoint: warn, raise, ignore, or call this."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A stored state that can be loaded."""

    plan: Any
    """The framework's plan for loading the state."""
    tree: Json
    migrated: bool
    drift: Drift
    touched: Mapping[int, frozenset[str]]
    """The agents and tools that migrations changed in the state, by the version that each migration starts from."""
    changes: Sequence[str]
    """The changes since the state was stored, as text."""


def check_policy(policy: object) -> None:
    """Check that this is a policy for drift.

    Raises:
        InvalidArgument: it is not.
    """
    if not callable(policy) and policy not in get_args(Policy):
        raise InvalidArgument(f"is {policy!r}; it can be 'warn', 'raise', 'ignore' or a function", path="on_drift")


def check_owner(blueprint: Blueprint, stored: str, session: str) -> None:
    """Check that a session belongs to this blueprint, or to none.

    A session without a blueprint belongs to the first one that runs it: whoever runs it has named the session. What
    runs many sessions without naming them has to skip it.

    Raises:
        InvalidArgument: another blueprint began the session.
    """
    if stored and blueprint.name and stored != blueprint.name:
        raise InvalidArgument(
            f"session {session!r} belongs to the blueprint {stored!r}; run it with that one, or choose another id",
            path=f"blueprint {blueprint.name!r}",
            session=session,
        )


def check_named(blueprint: Blueprint, stored: str, session: str) -> None:
    """Check that no agents without a blueprint run a session that has one, which declares effects and approvals.

    Raises:
        InvalidArgument: the session belongs to a blueprint, and this one has no name.
    """
    if stored and not blueprint.name:
        raise InvalidArgument(
            f"belongs to the blueprint {stored!r}, which may declare effects and approvals; run it with that one, or "
            "choose another id",
            path=f"session {session!r}",
            session=session,
        )


def check_version(stored: int, mine: int, session: str) -> None:
    """Check that the stored version is not later than the version of this blueprint.

    Raises:
        UnknownVersion: it is.
    """
    if stored > mine:
        raise UnknownVersion(
            f"session {session!r} was written by version {stored} of the blueprint, and this worker has version "
            f"{mine}: deploy version {stored} here; until then, other workers can run the session",
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
        UnknownVersion: a newer version of the blueprint wrote the state.
        MissingMigration: no migration leads from the state's version to the blueprint's.
        MigrationFailed: a migration failed, or led to a state that does not fit.
        Drifted: the state belongs to other agents, or the policy rejects the changes.
        StateInvalid: this is not a valid state.
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
        tree, plan = stored.tree, await _fit(stored.tree, live, drift, blueprint, framework)
        await _follow(on_drift, drift, blueprint, session)
    changes = [f"migrated from version {migrations[0].start} to {migrations[-1].end}"] if migrations else []
    changes += [change.text for change in drift.changes]
    return Fitted(plan=plan, tree=tree, migrated=bool(migrations), drift=drift, touched=done.touched, changes=changes)


async def fit_edited(
    stored: Stored,
    live: Any,
    built: Json,
    blueprint: Blueprint,
    framework: Framework[Any, Any],
    *,
    change: Callable[[Any], Any],
    session: str,
) -> Fitted:
    """Migrate a stored state, let a user's function change it, and fit the result to ``live``, which is newly built.

    Raises:
        Everything that :func:`fit_stored` raises.
        InvalidArgument: the function did not return a state, or changed its input.
    """
    check_owner(blueprint, stored.row.blueprint, session)
    check_version(stored.row.version, blueprint.version, session)
    migrations = _migrations(blueprint, stored.row.version, session)
    done = migrate(stored.tree, migrations, framework, session)
    tree = await framework.fill(live, (await edit(done.tree, change, framework)).tree)
    drift = Drift(())
    if stored.fingerprint is not None and not migrations:
        drift = compare(stored.fingerprint, built, mentions=lambda tool: framework.mentions(tree, tool))
    plan = await _fit(tree, live, drift, blueprint, framework)
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
    except Exception as error:  # a user's own agents may raise anything
        raise MigrationFailed(
            f"session {session!r}: after its migration from version {start} to {end} the state does not fit the "
            f"agents that were built; the session is unchanged.\n{error}",
            session=session,
            versions=(start, end),
        ) from error


async def _fit(tree: Json, live: Any, drift: Drift, blueprint: Blueprint, framework: Framework[Any, Any]) -> Any:
    try:
        plan = await framework.fit(live, tree)
    except StateInvalid as error:
        raise explained(error, drift, blueprint) from error.__cause__
    if drift.breaking:
        raise _refused(drift, blueprint)
    return plan


async def _follow(policy: OnDrift, drift: Drift, blueprint: Blueprint, session: str) -> None:
    """Apply the policy to changes that are not breaking."""
    if policy == "ignore" or all(change.what == "version" for change in drift.changes):
        return
    if policy == "raise":
        raise _refused(drift, blueprint)
    if policy == "warn":
        _log.warning("session %r: its agents have changed:\n%s", session, drift)
    elif callable(policy) and isawaitable(answer := policy(drift)):
        await answer


async def accept(
    gained: Sequence[str], fitted: Fitted, blueprint: Blueprint, session: str, policy: OnDrift
) -> list[str]:
    """Apply the policy to fields of users' own objects that the state does not have; return all changes as text.

    Such a field may be new in the code, or lost from the state. After a migration, midturn takes it for new.

    Raises:
        Drifted: the policy rejects the fields.
    """
    drift = Drift(tuple(more(path) for path in gained))
    if not fitted.migrated:
        if policy == "raise" and gained:
            raise explained(StateInvalid.together([Drifted(MORE, path=path) for path in gained]), drift, blueprint)
        await _follow(policy, drift, blueprint, session)
    return [*fitted.changes, *drift.texts]


async def changes_since(begun: Json, built: Json, blueprint: Blueprint, session: str, policy: OnDrift) -> Sequence[str]:
    """Apply the policy to changes since a session's first turn was begun; return the changes as text.

    Raises:
        Drifted: the policy rejects the changes.
    """
    drift = compare(begun, built, mentions=lambda _: 0)  # there is no state yet
    if drift:
        await _follow(policy, drift, blueprint, session)
    return [change.text for change in drift.changes]


def explained(error: StateInvalid, drift: Drift, blueprint: Blueprint) -> StateInvalid:
    """Return the error for a state that does not fit, with the changes that explain it and the code to write."""
    drift = drift.failing()
    if not drift.breaking and not isinstance(error, Drifted):
        return error
    found = Drifted.of(error)
    found.drift = drift
    if drift:
        found.add_note(_advice(drift, blueprint))
    return found


def _refused(drift: Drift, blueprint: Blueprint) -> Drifted:
    error = Drifted(f"has changed:\n{drift}", path=f"blueprint {blueprint.name!r}")
    error.drift = drift
    error.add_note(_advice(drift, blueprint))
    return error


def _advice(drift: Drift, blueprint: Blueprint) -> str:
    code = migration_code(drift, name=blueprint.name, version=blueprint.version)
    return f"To continue with the stored state, raise the version and add this migration:\n\n{code}"
