"""Check whether AutoGen's state fits the agent or team that was built, before anything is loaded.

The stored state must have the same form as the state that the newly built agent or team saves.
"""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from autogen_agentchat.teams import GraphFlow, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core import AgentId, SingleThreadedAgentRuntime
from pydantic import ValidationError

from midturn.autogen import private
from midturn.autogen.state.save_state import Shape, capture, shape
from midturn.errors import Drifted, StateInvalid
from midturn.record.bodies import gc_paused
from midturn.record.codec import class_of, difference, is_array, is_object
from midturn.record.packing import Grown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from autogen_agentchat.teams import BaseGroupChat

    from midturn.autogen.state.save_state import GrowingList, Path
    from midturn.record.codec import Json

MANY = 250
"""Number of messages that are checked at a time: more need more memory, fewer take longer."""

OPTIONAL = {"previous_speaker"}
"""Keys whose value is a text in some states and null in others."""


@dataclass(frozen=True, slots=True)
class Read:
    """A state that fits: the state for AutoGen's ``load_state()``, and the growing lists that are set after it."""

    state: Any
    lists: list[tuple[GrowingList, list[Any]]]
    expected: Json
    """The state that a capture must return afterwards, without the growing lists."""
    opaque: set[Path]
    """The paths of the states of users' own objects, which may differ each time that they are saved."""


class Saved:
    """The state that ``save_state()`` returns, of an agent, a team, a context, a runtime, or an object of a user."""

    rests = False
    is_opaque = False

    def __init__(self, path: str, live: Any, positions: Mapping[int, str]) -> None:
        self.path, self._live, self._positions = path, live, positions

    async def save(self) -> Any:
        return await capture(self._live, shape(self._live))

    async def read(self, value: Json, at: str) -> Read:
        known = shape(self._live)
        template = await _template(self._live, known)
        if isinstance(self._live, SingleThreadedAgentRuntime) and is_object(value) and is_object(template):
            value = {**template, **value}  # other agents stay as they are
        errors = [] if template is None else list(_compare(template, value, (), known, at))
        state = without(value, {growing.path for growing in known.growing_lists} if known.pure else set())
        if not errors:
            for team, path in known.teams:
                errors += _positions(team, inside(state, path), _name(at, path), self._positions.get(id(team)))
        lists: list[tuple[GrowingList, list[Any]]] = []
        for growing in known.growing_lists:
            if is_array(found := inside(value, growing.path)):
                read, wrong = _read_items(growing, found, _name(at, growing.path))
                lists.append((growing, read))
                errors += wrong
        if errors:
            raise StateInvalid.together(errors)
        return Read(state, lists if known.pure else [], expected=deepcopy(state), opaque=known.opaque)

    async def load(self, read: Read) -> None:
        await self._live.load_state(read.state)
        for growing, items in read.lists:
            growing.put(items)


async def _template(live: Any, known: Shape) -> Any:
    """Return the state of a new instance; ``None`` if a user's own object cannot save it before its first run."""
    try:
        return await capture(live, known)
    except Exception:
        if known.pure:
            raise
        return None  # load() captures and compares the state later, when the object can save it


async def build_agents(runtime: SingleThreadedAgentRuntime, value: Json, at: str) -> list[AgentId]:
    """Build the agents that a state names, and return the ids of the new ones.

    AutoGen skips unknown agents in silence.

    Raises:
        StateInvalid: a name is not an agent id, or the runtime does not know the agent's type.
    """
    ids: list[AgentId] = []
    types, built = private.agent_types(runtime), private.instantiated(runtime)
    for name in value if is_object(value) else ():
        try:
            id_ = AgentId.from_str(name)
        except ValueError as error:
            raise StateInvalid(f"is not the id of an agent: {error}", path=f"{at}.{name}") from error
        if id_.type not in types:
            raise Drifted(
                "is an agent of a type that is not registered in the runtime; register it before loading "
                "(the agents of a team get new ids each time: save the team itself)",
                path=f"{at}.{name}",
            )
        if name not in built:
            ids.append(id_)
    for id_ in ids:
        await runtime.try_get_underlying_agent_instance(id_)
    return ids


def read_list(growing: GrowingList, value: Json, at: str) -> list[Any]:
    """Load the messages of a list.

    Raises:
        StateInvalid: some of them are not valid.
    """
    if not is_array(value):
        raise StateInvalid("is not a list of messages", path=at)
    read, errors = _read_items(growing, value, at)
    if errors:
        raise StateInvalid.together(errors)
    return read


def _read_items(growing: GrowingList, value: list[Any], at: str) -> tuple[list[Any], list[StateInvalid]]:
    read: list[Any] = []
    with suppress(Exception), gc_paused():  # _read_each() finds the error again
        for start in range(0, len(value), MANY):
            some = value[start : start + MANY]
            loaded, dumped = growing.load_all(some)
            if orjson.dumps(dumped) != orjson.dumps(some):
                break
            read += loaded
        else:
            return read, []
    return _read_each(growing, value, at)


def _read_each(growing: GrowingList, value: list[Any], at: str) -> tuple[list[Any], list[StateInvalid]]:
    """Load the messages of a list one by one, to find which of them are wrong."""
    read: list[Any] = []
    errors: list[StateInvalid] = []
    for index, item in enumerate(value):
        path = f"{at}[{index}]"
        try:
            message = growing.load(item)
            dumped = growing.dump(message)
        except Exception as error:  # noqa: BLE001 - validators and image libraries may raise anything
            errors.append(_explain(growing, item, error, path))
            continue
        read.append(message)
        if not _is_same(dumped, item) and (where := difference(item, dumped, path)) is not None:
            errors.append(_changed(item, where))
    return read, errors


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; false if JSON cannot represent them."""
    try:
        return orjson.dumps(one) == orjson.dumps(other)
    except TypeError:
        return False


def _explain(growing: GrowingList, item: Any, error: Exception, path: str) -> StateInvalid:
    """Explain why a message cannot be read, and which migration would help."""
    name: Any = item.get("type") if is_object(item) else None
    if growing.factory is None or not isinstance(name, str):
        return StateInvalid(f"is not a message: {_first(error)}", path=path)
    known = private.message_types(growing.factory)
    if name not in known:
        structured = [other for other in known if "[" in other]
        others = f"; it knows {', '.join(structured)}" if structured else ""
        return Drifted(
            f"the team does not know the message type {name!r}{others}. "
            f"Give it in custom_message_types, or write a migration that renames {name!r}",
            path=path,
        )
    if isinstance(error, ValidationError):
        wrong = error.errors()[0]
        field = _field(item, wrong["loc"], missing=wrong["type"] == "missing")
        if wrong["type"] == "missing":
            what = f"it needs a migration that adds {field!r} to each {name!r}"
        else:
            what = f"it needs a migration that changes {field!r} in each {name!r} ({wrong['msg']})"
        return Drifted(f"{name!r} has changed since: {what}", path=f"{path}.{field}")
    return StateInvalid(f"is not a {name!r}: {_first(error)}", path=path)


def _field(item: Any, location: Sequence[str | int], *, missing: bool) -> str:
    """Return the path of a validator's error in a message, without the names of the types that the validator tried."""
    path: list[str] = []
    for part in location:
        if is_object(item) and (part in item or (missing and part == location[-1])):
            item = item.get(str(part))
        elif is_array(item) and isinstance(part, int) and part < len(item):
            item = item[part]
        else:
            break
        path.append(str(part))
    return ".".join(path)


def _changed(item: Any, where: str) -> StateInvalid:
    name = item.get("type") if is_object(item) else None
    return Drifted(
        f"changes when it is loaded as a {name!r}; if the type has changed, drop or change it in a migration",
        path=where,
    )


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return error.errors()[0]["msg"]
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _compare(template: Any, value: Any, path: Path, known: Shape, at: str) -> Iterator[StateInvalid]:
    """Yield an error for each difference in form between a state and the state of a new instance."""
    here = _name(at, path)
    if is_object(template) or path in known.opaque:
        if not is_object(value):
            yield StateInvalid("is not an object", path=here)
        elif path not in known.opaque:
            yield from _compare_keys(template, value, path, known, at)
        return
    key, wanted = path[-1] if path else "", list if isinstance(template, Grown) else class_of(template)
    if not isinstance(value, str | None) if key in OPTIONAL else type(value) is not wanted:
        yield StateInvalid(f"is not of the type {wanted.__name__}", path=here)
    elif key == "version" and value != template:
        yield StateInvalid(f"is {value!r}, but the installed AutoGen writes {template!r}", path=here)


def _compare_keys(
    template: dict[str, Any], value: dict[str, Any], path: Path, known: Shape, at: str
) -> Iterator[StateInvalid]:
    if "type" in template and value.get("type", template["type"]) != template["type"]:
        what = f"is a {value['type']!r}, but the object that was built has a {template['type']!r}"
        yield Drifted(what, path=_name(at, (*path, "type")))
        return
    team = any((*where, "agent_states") == path for _, where in known.teams)
    for key in sorted({*template, *value}):
        here = _name(at, (*path, key))
        if key not in value:
            if team:
                yield Drifted("is in the team that was built, but not in the state", path=here)
            else:
                yield StateInvalid("is missing", path=here)
        elif key not in template:
            if team:
                yield Drifted("is in the state, but not in the team that was built", path=here)
            else:
                yield StateInvalid("is not known", path=here)
        else:
            yield from _compare(template[key], value[key], (*path, key), known, at)


def _positions(team: BaseGroupChat, state: Any, at: str, speaker: str | None) -> Iterator[StateInvalid]:
    """Yield an error for each speaker that is not in the team; correct the next speaker's number by the stored name."""
    manager, names = private.manager_name(team), [participant.name for participant in private.participants(team)]
    found, at = state["agent_states"][manager], f"{at}.agent_states.{manager}"
    if isinstance(team, RoundRobinGroupChat):
        if speaker in names:
            found["next_speaker_index"] = names.index(speaker)
        if not 0 <= found["next_speaker_index"] < len(names):
            yield StateInvalid(f"there are {len(names)} participants", path=f"{at}.next_speaker_index")
    elif isinstance(team, SelectorGroupChat) and found["previous_speaker"] not in (None, *names):
        yield Drifted("is not in the team", path=f"{at}.previous_speaker")
    elif isinstance(team, Swarm) and found["current_speaker"] not in names:
        yield Drifted("is not in the team", path=f"{at}.current_speaker")
    elif isinstance(team, GraphFlow):
        for index, node in enumerate(found["ready"]):
            if node not in names:
                yield Drifted("is not a node of the graph", path=f"{at}.ready[{index}]")


def without(value: Any, paths: set[Path], path: Path = ()) -> Any:
    """Return a copy of a state, with empty lists at some paths."""
    if path in paths:
        return []
    if is_object(value):
        return {key: without(item, paths, (*path, key)) for key, item in value.items()}
    return deepcopy(value)


def inside(value: Any, path: Path) -> Any:
    """Return the value at a path in a state; ``None`` if there is no value."""
    for name in path:
        value = value.get(name) if is_object(value) else None
    return value


def _name(at: str, path: Path) -> str:
    return ".".join((at, *path))
