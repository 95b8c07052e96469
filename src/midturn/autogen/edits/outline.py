"""Take a captured state apart for readers: conversations, whose turn it is, and all other values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from midturn.autogen.edits.teams import kind_of, manager_of
from midturn.autogen.edits.tree import beside_of, join, nodes, words
from midturn.framework import Conversation, Outline, Utterance
from midturn.record.codec import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from midturn.autogen.edits.tree import Node
    from midturn.framework import Place
    from midturn.record.codec import Json

NAMELESS = {"SystemMessage": "system", "FunctionExecutionResultMessage": "tool"}
"""Speakers of the messages that have no ``source``."""


def outline(tree: Any) -> Outline:
    """Return the parts of a state. Every value of the state is in exactly one of the conversations or values."""
    lists = {id(each.messages): each for each in words(tree)}
    values: dict[Place, Json] = {}
    conversations: dict[Place, Conversation] = {}
    for place, value in _leaves(tree, (), frozenset(lists)):
        if (found := lists.get(id(value))) is None:
            values[place] = value
        else:
            conversations[place] = Conversation(
                agent=found.owner.path or found.owner.name or "",
                kind=found.kind,
                messages=tuple(map(_utterance, found.messages)),
            )
    teams = (node for node in nodes(tree) if node.is_team and node.manager is not None)
    return Outline(
        conversations=conversations, speakers={team.path: _speakers(tree, team) for team in teams}, values=values
    )


def _leaves(value: Any, place: Place, lists: frozenset[int]) -> Iterator[tuple[Place, Any]]:
    """Yield the lists of messages, and all other values that are no objects, with their places."""
    if is_object(value) and value:
        for name, inner in value.items():
            yield from _leaves(inner, (*place, name), lists)
    elif place != ("kept",):  # which only counts the parts beside
        yield place, value


def _utterance(message: dict[str, Any]) -> Utterance:
    who, id_ = message.get("source"), message.get("id")
    return Utterance(
        message=message,
        id=id_ if isinstance(id_, str) else None,
        kind=str(message.get("type")),
        who=who if isinstance(who, str) else NAMELESS.get(str(message.get("type")), ""),
        text=_text(message.get("content")),
    )


def _text(content: Any) -> str:
    """Return the content of a message as text of several lines."""
    match content:
        case str():
            return content
        case {"name": str(name), "arguments": arguments}:
            return f"{name}({arguments})"
        case {"name": str(name), "content": result, "call_id": _}:
            return f"{name} returned {_text(result)}"
        case {"data": str(data), **rest} if not rest:
            return f"[image of {len(data):,} characters]"
        case [*parts] if parts:
            return "\n".join(map(_text, parts))
        case _:
            return json.dumps(content, indent=2, ensure_ascii=False)


def _speakers(tree: Any, team: Node) -> tuple[str, ...]:
    """Return who speaks next in a team. Empty if its state does not say it, because a model chooses."""
    manager, order = manager_of(team), team.participants
    match kind_of(team):
        case "RoundRobinGroupChat":
            position = beside_of(tree).get(join(team.parts, "manager"))
            name = position.get("next_speaker") if is_object(position) else None
            index = manager.get("next_speaker_index")
            if isinstance(name, str) and name in order:
                return (name,)
            return (order[index],) if type(index) is int and 0 <= index < len(order) else ()
        case "Swarm":
            thread = manager.get("message_thread")
            handoffs = [
                each.get("target")
                for each in (thread if is_array(thread) else ())
                if is_object(each) and each.get("type") == "HandoffMessage"
            ]
            name = handoffs[-1] if handoffs and handoffs[-1] in order else manager.get("current_speaker")
            return (name,) if isinstance(name, str) else ()
        case "GraphFlow":
            ready = manager.get("ready")
            return tuple(name for name in (ready if is_array(ready) else ()) if isinstance(name, str))
        case _:
            return ()
