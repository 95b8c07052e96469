"""Capture the complete state of an agent or a team, check it, and load it.

A captured state has three keys. "state" is the result of AutoGen's own ``save_state()``. "beside" has the state that is
missing there, by the paths of the parts. "kept" is the number of entries in "beside", to notice a lost entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from autogen_agentchat.state import BaseState
from autogen_agentchat.teams import GraphFlow, SelectorGroupChat
from autogen_core import SingleThreadedAgentRuntime

from midturn.autogen import private
from midturn.autogen.parts.kinds import loads_and_saves
from midturn.autogen.parts.walk import settle, teams
from midturn.autogen.state import older_versions
from midturn.autogen.state.kept import kept
from midturn.autogen.state.save_state import shape
from midturn.autogen.state.validation import Read, build_agents, inside, without
from midturn.errors import Drifted, StateInvalid
from midturn.framework import Loaded
from midturn.record import codec
from midturn.record.codec import class_of, is_array, is_object
from midturn.record.packing import as_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from midturn.autogen.parts.walk import Part
    from midturn.autogen.state.kept import Kept
    from midturn.record.codec import Json


Own: TypeAlias = "tuple[Json, Json, str]"
"""The state that a user's own object was given, the state that it has now, and the path of the state."""

ABSENT: Any = object()

NOTHING = BaseState().model_dump()
"""The state that AutoGen saves of an agent without a state of its own."""


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """A stored value that fits, and the part to load it into."""

    part: Part
    keep: Kept
    stored: Json
    read: Any


@dataclass(frozen=True, slots=True)
class Plan:
    """A state that fits an agent or team, and the steps to load it."""

    parts: Sequence[Part]
    loads: Sequence[PlannedLoad]
    imported: bool
    """True if the state was imported, and has only AutoGen's own part."""


async def capture(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the complete state of an idle agent or team. The first part is the agent or team itself.

    Raises:
        StateInvalid: a team is running, or a runtime has messages that were not delivered yet.
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
    return found | {"kept": len(beside)}  # so that a lost entry does not count as a part at rest


async def fit(live: Any, tree: Json) -> Plan:
    """Check whether a captured state fits an agent or team, and change nothing.

    Raises:
        StateInvalid: the state does not fit.
    """
    if not is_object(tree) or set(tree) not in ({"state"}, {"state", "beside", "kept"}):
        raise StateInvalid("is not the state of a session", path="$")
    beside = tree.get("beside", {})
    if not is_object(beside):
        raise StateInvalid("is not an object", path="$.beside")
    if "" in beside:
        raise StateInvalid("is an empty path, which no part has", path="$.beside.")
    if type(count := tree.get("kept", 0)) is not int or count != len(beside):
        has, says = f"has {len(beside)} parts", f"is {count!r}"
        raise StateInvalid.together([StateInvalid(has, path="$.beside"), StateInvalid(says, path="$.kept")])
    imported = "beside" not in tree
    if not isinstance(live, SingleThreadedAgentRuntime):
        return await _fit(await settle(live), tree["state"], beside, imported=imported)
    new = await build_agents(live, tree["state"], "$.state")
    try:
        return await _fit(await settle(live), tree["state"], beside, imported=imported)
    except StateInvalid:
        private.forget_agents(live, new)
        raise


async def _fit(parts: Sequence[Part], own: Json, beside: dict[str, Json], *, imported: bool) -> Plan:
    _check_idle(parts)
    if imported:
        own = _modernized(parts[0].live, own)
    stored: dict[str, Json] = {"": own, **_as_built(parts, beside)}
    positions = _positions(parts, stored)
    loads: list[PlannedLoad] = []
    errors: list[StateInvalid] = []
    lacking = False
    for part in parts:
        for keep in kept(part, positions):
            if keep.path in stored:
                value = stored.pop(keep.path)
                try:
                    loads.append(PlannedLoad(part, keep, value, await keep.read(value, _at(keep.path))))
                except StateInvalid as error:
                    errors.append(error)
            elif not keep.rests:
                lacking = True
            elif not imported:
                loads.append(PlannedLoad(part, keep, None, None))
    given = {planned.keep.path for planned in loads}
    # An empty value may be dropped, unless it may belong to a part whose value is missing.
    errors += [
        Drifted("is in the state, but the agent or team that was built has no such part", path=_at(path))
        for path, value in stored.items()
        if (value or lacking) and not _is_kept_by_its_parent(path, parts, given)
    ]
    if errors:
        misfit = StateInvalid.together(errors)
        again = "correct it and import it again: midturn import FILE SESSION --force"
        others = "build the same agents as before, migrate the state, or start another session"
        misfit.add_note(again if imported else others)
        raise misfit
    return Plan(parts, loads, imported)


def _modernized(live: Any, own: Json) -> Json:
    """Convert AutoGen's own state, which any of its versions may have written, to today's form."""
    known = shape(live)
    graphs = {
        path: (private.manager_name(team), private.graph_beginning(team))
        for team, path in known.teams
        if isinstance(team, GraphFlow)
    }
    return older_versions.modernize(
        own, [growing.path for growing in known.growing_lists if growing.factory is not None], graphs
    )


async def load(live: Any, plan: Plan) -> Loaded:
    """Load the state of a plan into an agent or team, then capture it again and compare.

    Raises:
        StateInvalid: a part rejected its state, or the state that was captured afterwards is different.
    """
    done: list[PlannedLoad] = []
    parts = plan.parts
    there = {id(part.live) for part in parts}
    for planned in plan.loads:
        if id(planned.part.live) not in there:
            continue  # the part that contains it has replaced it
        try:
            await planned.keep.load(planned.read)
        except StateInvalid:
            raise
        except Exception as error:  # a user's object may raise anything
            what = f"does not fit the object that was built: {type(error).__name__}: {error}"
            raise StateInvalid(what, path=_at(planned.keep.path)) from error
        if planned.keep.is_opaque or (isinstance(planned.read, Read) and planned.read.opaque):
            parts = await settle(live)  # a user's own code may have replaced parts
            there = {id(part.live) for part in parts}
        done.append(planned)
    if plan.imported:
        await _derive(parts)
    captured = await capture(parts)
    gained: list[str] = []
    for planned in done:
        found = captured["beside"].get(planned.keep.path) if planned.keep.path else captured["state"]
        own = list(_own(planned, found))
        if (at := _unlike(planned, found, own)) is not None:
            raise StateInvalid(
                "the stored state changes when it is loaded into the object that was built; "
                "build the same agents as before, or start another session",
                path=at,
            )
        gained += [more for given, now, at in own if (more := _lacking(now, given, at)) is not None]
    if plan.imported:
        captured = as_json(captured)  # its lists may differ from those that were read
    return Loaded(captured=captured, gained=gained)


def _unlike(planned: PlannedLoad, found: Any, own: Sequence[Own]) -> str | None:
    """Return the path where a part differs from the loaded state; ``None`` if no difference was found."""
    for each in own:
        if (lost := _lacking(*each)) is not None:
            return lost
    at, read = _at(planned.keep.path), planned.read
    if not isinstance(read, Read):
        return None if planned.keep.is_opaque else codec.difference(planned.stored, as_json(found), at)
    found = as_json(found, {id(items) for _, items in read.lists})
    return codec.difference(without(read.expected, read.opaque), without(found, read.opaque), at)


def _own(planned: PlannedLoad, found: Any) -> Iterator[Own]:
    """Yield the states of users' own objects in a part."""
    at, read = _at(planned.keep.path), planned.read
    if not isinstance(read, Read):
        if planned.keep.is_opaque:
            yield planned.stored, as_json(found), at
        return
    for path in sorted(read.opaque):
        if (given := inside(read.expected, path)) != NOTHING:  # the class has got the two methods since
            yield given, as_json(inside(found, path)), ".".join((at, *path))


def _lacking(one: Json, other: Json, at: str) -> str | None:
    """Return the path of the first value in one state that has no value of its kind in the other.

    States of users' own objects need not be equal: the order of a set may differ, and a clock runs on.
    """
    if is_object(one) and is_object(other):
        pairs = [(f"{at}.{key}", value, other.get(key, ABSENT)) for key, value in one.items()]
    elif is_array(one) and is_array(other) and len(one) == len(other):
        pairs = [(f"{at}[{i}]", *both) for i, both in enumerate(zip(one, other, strict=True))]
    else:
        return None if class_of(one) is class_of(other) and not is_array(one) else at
    return next((found for path, a, b in pairs if (found := _lacking(a, b, path)) is not None), None)


def _is_kept_by_its_parent(path: str, parts: Sequence[Part], given: set[str]) -> bool:
    """Return whether a missing part is inside an object that loads its own state, and may then create the part."""
    return any(
        f"{path}/".startswith(f"{part.path}/" if part.path else "")
        and loads_and_saves(class_of(part.live))
        and (part.covered or part.path in given)
        for part in parts
    )


def _as_built(parts: Sequence[Part], beside: dict[str, Json]) -> dict[str, Json]:
    """Return the entries of "beside", each by the first path of its part in the built agent or team."""
    first = {other: part.path for part in parts for other in part.others}
    found: dict[str, Json] = {}
    for path, value in beside.items():
        other = next((other for other in first if f"{path}/".startswith(f"{other}/")), None)
        found[path if other is None else first[other] + path.removeprefix(other)] = value
    return found


def _at(path: str) -> str:
    return f"$.beside.{path}" if path else "$.state"


def _positions(parts: Sequence[Part], beside: dict[str, Json]) -> dict[int, str]:
    """Return the stored name of the next speaker of each team, by the ``id()`` of the team."""
    found: dict[int, str] = {}
    for part in parts:
        position = beside.get(part.at("manager"))
        if is_object(position) and isinstance(name := position.get("next_speaker"), str):
            found[id(part.live)] = name
    return found


async def _derive(parts: Sequence[Part]) -> None:
    """Compute what is missing in AutoGen's own state, if it follows from the rest of the state."""
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
