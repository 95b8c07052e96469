"""Fill the values that a migrated state leaves open with those of the newly built agent or team."""

from __future__ import annotations

from typing import Any

from midturn.autogen.edits.teams import ALIGNED, manager_of
from midturn.autogen.edits.tree import FRESH, LEFT, is_below, join, nodes
from midturn.autogen.parts.walk import settle
from midturn.autogen.state import snapshot
from midturn.errors import Drifted
from midturn.record.codec import is_array, is_object
from midturn.record.packing import as_json

ABSENT: Any = object()


def is_open(value: Any) -> bool:
    """Return whether a state leaves a value open."""
    if not is_object(value):
        return False
    return value == FRESH or set(value) in ({ALIGNED}, {LEFT}) or any(is_open(item) for item in value.values())


async def fill(live: Any, tree: Any) -> Any:
    """Return a state whose open values are those of a newly built agent or team.

    Raises:
        Drifted: the newly built agent or team has no such value.
    """
    if not is_open(tree):
        return tree
    built = as_json(await snapshot.capture(await settle(live)))
    filled: dict[str, Any] = {**tree, "state": _filled(tree["state"], built["state"], "$.state")}
    if "beside" in tree:
        filled["beside"] = beside = dict[str, Any]()
        for path, value in tree["beside"].items():
            if value == FRESH:
                beside |= {key: item for key, item in built["beside"].items() if is_below(key, path)}
            elif not (is_object(value) and LEFT in value):
                beside[path] = _filled(value, built["beside"].get(path, ABSENT), f"$.beside.{path}")
        _inherit(tree["beside"], built["beside"], beside)
        _trigger(tree, filled)
        filled["kept"] = len(beside)
    return filled


def _inherit(before: dict[str, Any], built: dict[str, Any], beside: dict[str, Any]) -> None:
    """Give the memory of a removed agent to the agent that shared it. Only one of them stores a shared memory."""
    for path, value in before.items():
        if is_object(value) and LEFT in value:
            team, _, own = path.rpartition("participants/")
            end = own.partition("/")[2]
            heirs = [
                other
                for other in built
                if other not in beside and other.startswith(f"{team}participants/") and other.endswith(f"/{end}")
            ]
            if len(heirs) == 1:
                beside[heirs[0]] = value[LEFT]


def _trigger(tree: Any, filled: Any) -> None:
    """Drop the groups that made nodes of a changed graph ready, if the newly built graph has no such groups."""
    built = {node.parts: manager_of(node) for node in nodes(filled) if node.is_team}
    for team in (node for node in nodes(tree) if node.is_team):
        path = join(team.parts, "manager")
        if ALIGNED not in manager_of(team).get("enqueued_any", {}) or path not in filled["beside"]:
            continue
        known, triggered = built[team.parts]["enqueued_any"], filled["beside"].pop(path)["triggered"]
        left = {node: [group for group in found if group in known.get(node, ())] for node, found in triggered.items()}
        if any(left.values()):
            filled["beside"][path] = {"triggered": {node: found for node, found in left.items() if found}}


def _filled(value: Any, built: Any, at: str) -> Any:
    if not is_open(value):
        return value
    if built is ABSENT:
        raise Drifted(
            "is new in the state, but the agent or team that was built does not have it",
            path=at.removesuffix(".agent_state"),
        )
    if value == FRESH:
        return built
    if ALIGNED in value:
        return _aligned(value[ALIGNED], built)
    return {
        key: _filled(item, built.get(key, ABSENT) if is_object(built) else ABSENT, f"{at}.{key}")
        for key, item in value.items()
    }


def _aligned(value: Any, built: Any) -> Any:
    """Return the built value, with the old entries that fit. A countdown never exceeds that of the built graph."""
    if is_object(built):
        return {key: _aligned(value.get(key) if is_object(value) else None, item) for key, item in built.items()}
    if type(value) is not type(built) or is_array(built):
        return built
    return min(value, built) if type(built) is int else value
