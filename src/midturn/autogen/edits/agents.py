"""Rename, remove, add and reset the agents of a captured state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from midturn.autogen.edits import teams
from midturn.autogen.edits.tree import (
    FRESH,
    LEFT,
    beside_of,
    copied,
    drop_parts,
    find,
    find_team,
    is_below,
    join,
    move_parts,
    nodes,
    quote,
    said,
    words,
)
from midturn.errors import InvalidArgument
from midturn.record.codec import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from midturn.autogen.edits.tree import Node

USER = "user"
"""The source of tasks. An agent may have the same name, so a message from this source may not be the agent's."""

CALLS = ("ToolCallRequestEvent", "ToolCallExecutionEvent", "AssistantMessage", "FunctionExecutionResultMessage")


def handoff(name: str) -> str:
    """Return AutoGen's name for the tool by which an agent hands over to another."""
    return f"transfer_to_{name}".lower()


def rename(tree: Any, old: str, new: object) -> set[str]:
    """Rename an agent or a team everywhere. Return the names of agents and tools that this changes."""
    node = find(tree, old)
    if node.is_team and node.team is None:
        raise InvalidArgument("is a team in a tool; rename_tool renames it", path=f"agent {old!r}")
    name = node.name or old
    if node.name == new:
        return set()
    check_name(node.team or node.parent, new, is_team=node.is_team)
    new = str(new)
    messages = _messages(tree, _scope(tree, node))
    if node.team is not None:
        _rename_member(tree, node.team, name, new)
        move_parts(tree, node.parts, join(node.team.parts, f"participants/{quote(new)}"))
    elif node.parts.endswith(f"tools/{quote(name)}/agent"):
        start = node.parts.removesuffix(f"{quote(name)}/agent")
        move_parts(tree, f"{start}{quote(name)}", f"{start}{quote(new)}")
        for message in said(tree, node.parent):  # an agent in a tool gives the tool its name
            each_call(message, lambda call: call.update(name=new) if call.get("name") == name else None)
    for message in messages:
        _rename_in(message, name, new)
    return {name, new, handoff(name), handoff(new)}


def check_name(parent: Node | None, new: object, *, is_team: bool = False) -> None:
    """Raise ``InvalidArgument`` if a name is invalid or taken."""
    if not isinstance(new, str) or not new or (not is_team and not new.isidentifier()):
        raise InvalidArgument(f"{new!r} cannot be the name of an agent; AutoGen wants an identifier", path="name")
    if parent is not None and parent.is_team and new in parent.members:
        raise InvalidArgument(f"is taken; the team has {', '.join(map(repr, parent.members))}", path=f"agent {new!r}")


def _scope(tree: Any, node: Node) -> Node | None:
    """Return the team in which to rename an agent; ``None`` for everywhere, if no other agent has the same name."""
    same = [other for other in nodes(tree) if other.name == node.name]
    return None if len(same) == 1 or node.name is None else node.team or node


def _rename_member(tree: Any, team: Node, old: str, new: str) -> None:
    members = {new if name == old else name: value for name, value in team.members.items()}
    team.members.clear()
    team.members.update(members)
    teams.rename(tree, team, old, new)


def _messages(tree: Any, scope: Node | None) -> list[dict[str, Any]]:
    """Return all messages inside an agent or team: of threads, of contexts, and of conditions that have stopped."""
    above = "" if scope is None else scope.parts
    found = [message for each in words(tree) if is_below(each.owner.parts, above) for message in each.messages]
    for path, value in beside_of(tree).items():
        stops = value.get("stop_messages") if is_object(value) else None
        if is_array(stops) and is_below(path, above):
            found += [stop for stop in stops if is_object(stop)]
    return found


def _rename_in(message: dict[str, Any], old: str, new: str) -> None:
    for key in ("source", "target"):
        if message.get(key) == old and (key == "target" or old != USER):
            message[key] = new
    content = message.get("content")
    if message.get("type") == "SelectSpeakerEvent" and is_array(content):
        message["content"] = [new if name == old else name for name in content]
    each_call(message, lambda call: call.update(name=handoff(new)) if call.get("name") == handoff(old) else None)
    for shown in message["context"] if is_array(message.get("context")) else ():
        if is_object(shown):
            _rename_in(shown, old, new)


def each_call(message: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> None:
    """Change the calls and results in a message, in place."""
    lists = [message.get("content")] if message.get("type") in CALLS else []
    lists += [message.get("tool_calls"), message.get("results")]
    for items in lists:
        for item in items if is_array(items) else ():
            if is_object(item):
                change(item)
    for shown in message["context"] if is_array(message.get("context")) else ():
        if is_object(shown):
            each_call(shown, change)


def remove(tree: Any, name: str) -> set[str]:
    """Remove an agent or a nested team. Its messages stay."""
    node = find(tree, name, unnamed=False)
    team = node.team
    if team is None:
        what = "is in a tool; drop_tool takes it out" if node.parent is not None else "is all there is in the state"
        raise InvalidArgument(what, path=f"agent {name!r}")
    if len(team.participants) == 1:
        raise InvalidArgument("is the only one in its team", path=f"agent {name!r}")
    order, gone = team.participants, node.name or name
    del team.members[gone]
    beside = beside_of(tree)
    memories = {path: value for path, value in beside.items() if is_below(path, join(node.parts, "memory"))}
    drop_parts(tree, node.parts)
    beside |= {path: {LEFT: value} for path, value in memories.items() if is_array(value) and value}
    teams.remove(tree, team, gone, order)
    return {gone, handoff(gone)}


def add(tree: Any, name: object, after: object, *, informed: bool) -> set[str]:
    """Add a new agent or team to a team. It starts with the state that it is built with."""
    if not isinstance(name, str):
        raise InvalidArgument(f"a {type(name).__name__} is not the name of an agent", path="name")
    where, _, new = name.rpartition("/")
    if after is not None and not isinstance(after, str):
        raise InvalidArgument(f"a {type(after).__name__} is not the name of an agent", path="after")
    before = None if after is None else find(tree, join(where, after) if "/" not in after else after)
    team = before.team if before is not None else find_team(tree, where or None)
    if team is None:
        raise InvalidArgument("is not in a team", path=f"agent {after!r}")
    check_name(team, new, is_team=True)
    order = team.participants
    thread = teams.manager_of(team).get("message_thread", [])
    container = {
        "type": "ChatAgentContainerState",
        "version": "1.0.0",
        "agent_state": copied(FRESH),
        "message_buffer": _heard(thread) if informed else [],
    }
    names = list(order)
    names.insert(len(names) if before is None or before.name is None else names.index(before.name) + 1, new)
    members = dict(team.members)
    manager = team.manager
    team.members.clear()
    team.members.update({each: members.get(each, container) for each in names})
    if manager is not None:
        team.members[manager] = members[manager]
    if "beside" in tree:
        tree["beside"][join(team.parts, f"participants/{quote(new)}")] = copied(FRESH)
    teams.add(tree, team, order)
    return {new}


def reset(tree: Any, name: str, *, informed: bool) -> set[str]:
    """Reset an agent or team to the state that it is built with."""
    node = find(tree, name)
    if node.container is not None:
        team = node.team
        thread: list[Any] = [] if team is None else teams.manager_of(team).get("message_thread", [])
        node.container["agent_state"] = copied(FRESH)
        node.container["message_buffer"] = _heard(thread) if informed else []
    elif node.parent is None:
        tree["state"] = copied(FRESH)
    drop_parts(tree, node.parts)
    if "beside" in tree:
        tree["beside"][node.parts] = copied(FRESH)
    return {node.name or name}


def _heard(thread: list[Any]) -> list[Any]:
    return [copied(message) for message in thread if teams.is_chat(message)]
