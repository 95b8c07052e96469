"""The complete state of an agent or a team: AutoGen's own under "state", and under "beside" what that lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autogen_agentchat.teams import GraphFlow, SelectorGroupChat
from autogen_core import SingleThreadedAgentRuntime

from leftoff import state
from leftoff.autogen import private
from leftoff.autogen.fitting import Read, build_agents
from leftoff.autogen.keeping import kept
from leftoff.autogen.parts import settle, teams
from leftoff.codec import is_object
from leftoff.errors import Drifted, StateInvalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leftoff.autogen.keeping import Kept
    from leftoff.autogen.parts import Part
    from leftoff.codec import Json


@dataclass(frozen=True, slots=True)
class Plan:
    """A state that fits: what each part is to be given, and what must be found afterwards."""

    parts: Sequence[Part]
    steps: list[tuple[Kept, Any]]
    beside: dict[str, Json]
    imported: bool
    """Whether it is AutoGen's own state, with nothing beside it."""


async def capture(parts: Sequence[Part]) -> dict[str, Any]:
    """The state of an agent or team that does not run: of the first part, which is itself, and of those in it.

    Raises:
        StateInvalid: it does run, or has messages that wait to be delivered.
    """
    _check_idle(parts)
    beside: dict[str, Any] = {}
    found: dict[str, Any] = {"state": None, "beside": beside}
    for part in parts:
        for keep in kept(part):
            value = await keep.save()
            if keep.path == "":
                found["state"] = value
            elif value is not None:
                beside[keep.path] = value
    return found | {"kept": len(beside)}  # so that one that gets lost is not taken for one at rest


async def fit(live: Any, tree: Json) -> Plan:
    """Check a captured state against an agent or team, which keeps its own.

    Raises:
        StateInvalid: the state does not fit.
    """
    if not is_object(tree) or set(tree) not in ({"state"}, {"state", "beside", "kept"}):
        raise StateInvalid("is not the state of a session", path="$")
    beside = tree.get("beside", {})
    if not is_object(beside):
        raise StateInvalid("is not an object", path="$.beside")
    if type(kept := tree.get("kept", 0)) is not int or kept != len(beside):
        errors = [
            StateInvalid(f"has {len(beside)} parts", path="$.beside"),
            StateInvalid(f"is {kept!r}", path="$.kept"),
        ]
        raise StateInvalid.together(errors)
    if not isinstance(live, SingleThreadedAgentRuntime):
        return await _fit(live, tree["state"], beside, imported="beside" not in tree)
    new = await build_agents(live, tree["state"], "$.state")
    try:
        return await _fit(live, tree["state"], beside, imported="beside" not in tree)
    except StateInvalid:
        private.forget_agents(live, new)
        raise


async def _fit(live: Any, own: Json, beside: dict[str, Json], *, imported: bool) -> Plan:
    parts = await settle(live)
    _check_idle(parts)
    beside = _as_built(parts, beside)
    steps: list[tuple[Kept, Any]] = []
    errors: list[StateInvalid] = []
    positions = _positions(parts, beside)
    keeps = [keep for part in parts for keep in kept(part, positions)]
    for keep in keeps:
        if keep.path and keep.path not in beside:
            if keep.rests and not imported:
                steps.append((keep, None))
            continue
        try:
            steps.append((keep, await keep.read(beside[keep.path] if keep.path else own, _at(keep))))
        except StateInvalid as error:
            errors.append(error)
    for path in sorted(set(beside) - {keep.path for keep in keeps}):
        if not beside.pop(path):
            continue  # nothing is lost with it
        errors.append(Drifted("is in the state, and what was built has no place for it", path=f"$.beside.{path}"))
    if errors:
        misfit = StateInvalid.together(errors)
        if isinstance(misfit, Drifted):
            misfit.add_note("build the same agents as before, or start another session")
        raise misfit
    return Plan(parts, steps, beside, imported)


async def load(live: Any, plan: Plan) -> dict[str, Any]:
    """Give an agent or team a state that was read for it, and return it as captured again.

    Raises:
        StateInvalid: something refused it, or what is found afterwards is something else.
    """
    expected: dict[str, Any] = {"state": None, "beside": dict(plan.beside)}
    trusted: set[int] = set()
    for keep, value in plan.steps:
        try:
            await keep.load(value)
        except StateInvalid:
            raise
        except Exception as error:  # it may be a user's own
            raise StateInvalid(f"does not fit what was built: {error}", path=_at(keep)) from error
        if isinstance(value, Read):
            trusted |= {id(items) for _, items in value.lists}
            if keep.path:
                expected["beside"][keep.path] = value.expected
            else:
                expected["state"] = value.expected
    parts = await settle(live)
    if plan.imported:
        await _derive(parts)
    captured = await capture(parts)
    found = {"state": captured["state"], "beside": {path: captured["beside"].get(path) for path in plan.beside}}
    if (at := state.difference(expected, state.plain(found, trusted))) is not None:
        raise StateInvalid(
            "the stored state does not come back when it is loaded into what was built; "
            "build the same agents as before, or start another session",
            path=at,
        )
    return captured


def _as_built(parts: Sequence[Part], beside: dict[str, Json]) -> dict[str, Json]:
    """What is beside a state, by the paths that lead first to the parts of what was built."""
    first = {other: part.path for part in parts for other in part.others}
    found: dict[str, Json] = {}
    for path, value in beside.items():
        other = next((other for other in first if f"{path}/".startswith(f"{other}/")), None)
        found[path if other is None else first[other] + path.removeprefix(other)] = value
    return found


def _at(keep: Kept) -> str:
    return f"$.beside.{keep.path}" if keep.path else "$.state"


def _positions(parts: Sequence[Part], beside: dict[str, Json]) -> dict[int, str]:
    """The next speaker of each team, by the team's ``id()``, where it is known by name."""
    found: dict[int, str] = {}
    for part in parts:
        position = beside.get(part.at("manager"))
        if is_object(position) and isinstance(name := position.get("next_speaker"), str):
            found[id(part.live)] = name
    return found


async def _derive(parts: Sequence[Part]) -> None:
    """Work out from AutoGen's own state what it lacks, where that can be done."""
    for team in teams(parts):
        if isinstance(team, SelectorGroupChat):
            await private.fill_selector_context(team)
        elif isinstance(team, GraphFlow):
            private.set_triggered_groups(team, None)


def _check_idle(parts: Sequence[Part]) -> None:
    for team in teams(parts):
        if private.is_running(team):
            raise StateInvalid("is running; wait until its run has ended", path=f"team {team.name!r}")
    live = parts[0].live
    if isinstance(live, SingleThreadedAgentRuntime) and (waiting := live.unprocessed_messages_count):
        raise StateInvalid(
            f"has {waiting} messages that were not delivered yet; stop_when_idle() delivers them", path="runtime"
        )
