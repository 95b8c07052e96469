"""Change the teams of a captured state: their kind, and whose turn it is when participants change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from midturn.autogen.edits.tree import FRESH, beside_of, copied, drop_parts, find_team, join, quote
from midturn.errors import InvalidArgument, StateInvalid
from midturn.record import digests
from midturn.record.codec import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from midturn.autogen.edits.tree import Node

ALIGNED = "midturn.autogen.edits.aligned"
"""The key of an object that stands for the values of the newly built graph. Old values that fit replace them."""

MANAGERS = {
    "RoundRobinGroupChat": ("RoundRobinGroupChatManager", "RoundRobinManagerState", "next_speaker_index"),
    "SelectorGroupChat": ("SelectorGroupChatManager", "SelectorManagerState", "previous_speaker"),
    "Swarm": ("SwarmGroupChatManager", "SwarmManagerState", "current_speaker"),
    "MagenticOneGroupChat": ("MagenticOneOrchestrator", "MagenticOneOrchestratorState", "n_rounds"),
    "GraphFlow": ("GraphManager", None, "remaining"),
}
"""For each kind of team: the name of its manager in the state, its type, and a field that only it has."""

GRAPH = ("remaining", "enqueued_any", "ready")


def manager_of(team: Node) -> dict[str, Any]:
    """Return the state of a team's manager; empty if there is none."""
    found = team.members.get(team.manager or "")
    return found if is_object(found) else {}


def kind_of(team: Node) -> str | None:
    """Return the kind of a team; ``None`` for a user's own class."""
    manager = manager_of(team)
    return next((kind for kind, (_, _, field) in MANAGERS.items() if field in manager), None)


def rename(tree: Any, team: Node, old: str, new: str) -> None:
    """Rename a participant in everything that says whose turn it is."""
    manager, beside = manager_of(team), beside_of(tree)
    for key in ("previous_speaker", "current_speaker"):
        if manager.get(key) == old:
            manager[key] = new
    if is_array(ready := manager.get("ready")):
        manager["ready"] = [new if node == old else node for node in ready]
    for key in ("remaining", "enqueued_any"):
        if is_object(table := manager.get(key)):
            manager[key] = {ALIGNED: _named(table[ALIGNED], old, new)} if ALIGNED in table else _named(table, old, new)
    position = beside.get(join(team.parts, "manager"))
    if is_object(position):
        if position.get("next_speaker") == old:
            position["next_speaker"] = new
        if is_object(triggered := position.get("triggered")):
            position["triggered"] = _named(triggered, old, new)
    _rename_edges(beside, team, old, new)


def _named(table: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return a table of a graph's nodes with one renamed. A group without a name has the name of its node."""
    named: dict[str, Any] = {}
    for node, groups in table.items():
        if node == old and is_object(groups):
            groups = {new if group == old else group: value for group, value in groups.items()}  # noqa: PLW2901 - the same, renamed
        elif node == old and is_array(groups):
            groups = [new if group == old else group for group in groups]  # noqa: PLW2901 - the same, renamed
        named[new if node == old else node] = groups
    return named


def _rename_edges(beside: dict[str, Any], team: Node, old: str, new: str) -> None:
    """Rename a node in the paths of edge conditions, which contain the names of both nodes."""
    start, renamed = join(team.parts, "graph/"), dict[str, Any]()
    for path, value in beside.items():
        edge, slash, rest = path.removeprefix(start).partition("/")
        ends, mark, number = edge.partition(quote("#"))
        if path.startswith(start) and ">" in ends:
            source, _, target = ends.partition(">")
            ends = ">".join(quote(new) if name == quote(old) else name for name in (source, target))
            path = f"{start}{ends}{mark}{number}{slash}{rest}"  # noqa: PLW2901 - the same, renamed
        renamed[path] = value
    beside.clear()
    beside.update(renamed)


def remove(tree: Any, team: Node, name: str, before: list[str]) -> None:
    """Pass the turn of a removed participant to the next one. ``before`` is the order with the removed one."""
    manager, beside, now = manager_of(team), beside_of(tree), team.participants
    after = [*before[before.index(name) + 1 :], *before[: before.index(name)]]
    if "next_speaker_index" in manager:
        speaker = _next_of(tree, team, before)
        _set_next(tree, team, after[0] if speaker == name else speaker)
    if manager.get("previous_speaker") == name:
        manager["previous_speaker"] = None
    if "current_speaker" in manager:
        if manager["current_speaker"] == name:
            manager["current_speaker"] = last_speaker(manager["message_thread"], now) or now[0]
        mend_handoff(team, (name,))
    if is_array(ready := manager.get("ready")):
        resting = _rests(tree, team)
        manager["ready"] = [node for node in ready if node != name]
        position = beside.get(join(team.parts, "manager"))
        if is_object(position) and is_object(triggered := position.get("triggered")):
            triggered.pop(name, None)
            if not triggered:
                del beside[join(team.parts, "manager")]
        _realign(tree, team, resting=resting or not manager["ready"])
        start = join(team.parts, "graph/")
        for path in [path for path in beside if path.startswith(start)]:
            ends = path.removeprefix(start).partition("/")[0].partition(quote("#"))[0]
            if quote(name) in ends.split(">"):
                del beside[path]


def add(tree: Any, team: Node, before: list[str]) -> None:
    """Keep whose turn it is when participants are added. ``before`` is the order without the new ones."""
    manager = manager_of(team)
    if "next_speaker_index" in manager:
        _set_next(tree, team, _next_of(tree, team, before))
    if "ready" in manager:
        _realign(tree, team, resting=_rests(tree, team))


def _rests(tree: Any, team: Node) -> bool:
    """Return whether a graph is at its beginning: no other node has made a node ready."""
    manager = manager_of(team)
    if manager["ready"] == FRESH:
        return True
    position = beside_of(tree).get(join(team.parts, "manager"))
    triggered: dict[str, Any] = position.get("triggered", {}) if is_object(position) else {}
    if "beside" in tree:
        return not any(triggered.get(node) for node in manager["ready"])
    remaining, enqueued = (manager[key].get(ALIGNED, manager[key]) for key in ("remaining", "enqueued_any"))
    return not any(
        any(count <= 0 for count in remaining.get(node, {}).values()) or any(enqueued.get(node, {}).values())
        for node in manager["ready"]
    )


def _realign(tree: Any, team: Node, *, resting: bool) -> None:
    """Take the counts of a graph from the graph that will be built. A graph at its beginning starts from it again."""
    manager = manager_of(team)
    if resting:
        beside_of(tree).pop(join(team.parts, "manager"), None)
        manager.update({key: copied(FRESH) for key in GRAPH})
        return
    for key in ("remaining", "enqueued_any"):
        if ALIGNED not in manager[key]:
            manager[key] = {ALIGNED: manager[key]}


def _next_of(tree: Any, team: Node, order: list[str]) -> str:
    """Return the next speaker of a team whose members speak in turn."""
    position = beside_of(tree).get(join(team.parts, "manager"))
    name = position.get("next_speaker") if is_object(position) else None
    index = manager_of(team).get("next_speaker_index")
    if isinstance(name, str) and name in order:
        return name
    return order[index] if type(index) is int and 0 <= index < len(order) else order[0]


def _set_next(tree: Any, team: Node, name: str) -> None:
    manager_of(team)["next_speaker_index"] = team.participants.index(name)
    if "beside" in tree:
        beside_of(tree)[join(team.parts, "manager")] = {"next_speaker": name}


def last_speaker(thread: Iterable[Mapping[str, Any]], among: list[str]) -> str | None:
    """Return the participant who spoke last."""
    return next((message["source"] for message in reversed(list(thread)) if message.get("source") in among), None)


def mend_handoff(team: Node, gone: tuple[str, ...]) -> None:
    """Redirect the last handoff of a swarm if its source or target was removed.

    The new target is the one who handed over, else the last speaker, else the first participant.
    """
    manager, there = manager_of(team), team.participants
    thread = manager["message_thread"]
    last = next((message for message in reversed(thread) if message.get("type") == "HandoffMessage"), None)
    if last is None or last["target"] in there or not {last["target"], last["source"]} & set(gone):
        return
    target = last["source"] if last["source"] in there else last_speaker(thread, there) or there[0]
    everywhere = [thread, *(team.members[name].get("message_buffer", []) for name in there)]
    for message in (message for messages in everywhere for message in messages):
        if message.get("type") == "HandoffMessage" and message.get("id") == last.get("id"):
            message["target"] = target
    manager["current_speaker"] = target


def change_kind(tree: Any, kind: object, name: str | None) -> Node:
    """Change the kind of a team. The messages stay. If the new kind has turns, it stays the same participant's turn."""
    if not isinstance(kind, str) or kind not in MANAGERS:
        raise InvalidArgument(f"is {kind!r}; it can be {', '.join(MANAGERS)}", path="kind")
    team = find_team(tree, name)
    if team.manager is None or not team.participants:
        raise StateInvalid("has no known manager, or no participants", path=team.at)
    if kind_of(team) == kind:
        return team
    old, order = manager_of(team), team.participants
    manager, type_, _ = MANAGERS[kind]
    if manager in order:
        raise InvalidArgument(f"a participant is named {manager!r}, like the manager of a {kind}", path=team.at)
    speaker, at = _whose_turn(tree, team), join(team.parts, "manager")
    for path in (at, f"{at}/model_context", join(team.parts, "model_context")):
        beside_of(tree).pop(path, None)
    drop_parts(tree, join(team.parts, "graph"))
    new: dict[str, Any] = {"message_thread": old["message_thread"], "current_turn": 0}
    if type_ is not None:
        new |= {"type": type_, "version": "1.0.0"}
    del team.members[team.manager]
    team.members[manager] = new
    _begin(tree, team, kind, speaker)
    return team


def _begin(tree: Any, team: Node, kind: str, speaker: str | None) -> None:
    """Give a manager of another kind the fields that it needs besides the thread."""
    new, order = manager_of(team), team.participants
    thread: list[Any] = new["message_thread"]
    last = last_speaker(thread, order)
    if kind == "RoundRobinGroupChat":
        _set_next(tree, team, speaker or order[0])
    elif kind == "SelectorGroupChat":
        new["previous_speaker"] = last
        if "beside" in tree:
            tree["beside"][join(team.parts, "manager/model_context")] = {"messages": _shown(thread)}
    elif kind == "Swarm":
        new["current_speaker"] = speaker or last or order[0]
        mend_handoff(team, tuple(each["target"] for each in thread if each.get("type") == "HandoffMessage"))
    elif kind == "MagenticOneGroupChat":
        said = [each for each in thread if is_chat(each) and _text(each)]
        asked = [each for each in said if each.get("source") == "user"]
        task = _text(asked[-1]) if asked else _text(said[0]) if said else ""
        new |= {"task": task, "facts": "", "plan": "", "n_rounds": 0, "n_stalls": 0}
    else:
        new |= {key: copied(FRESH) for key in GRAPH}


def _whose_turn(tree: Any, team: Node) -> str | None:
    """Return who would speak next, if the state contains it."""
    manager, order = manager_of(team), team.participants
    kind = kind_of(team)
    if kind == "RoundRobinGroupChat":
        return _next_of(tree, team, order)
    if kind == "SelectorGroupChat" and manager["previous_speaker"] in order:
        return order[(order.index(manager["previous_speaker"]) + 1) % len(order)]
    if kind == "Swarm":
        handoffs = [each for each in manager["message_thread"] if each.get("type") == "HandoffMessage"]
        name = handoffs[-1]["target"] if handoffs and handoffs[-1]["target"] in order else manager["current_speaker"]
        return name if name in order else None
    if kind == "GraphFlow" and is_array(manager["ready"]):
        return next((node for node in manager["ready"] if node in order), None)
    return None


def is_chat(message: Mapping[str, Any]) -> bool:
    """Return whether a message is for the others, not an event inside an agent."""
    return not str(message.get("type")).endswith("Event")


def _shown(thread: list[Any]) -> list[Any]:
    """Return what the model of a selector sees of a thread. AutoGen builds the same when it loads a state."""
    shown: list[Any] = []
    for message in filter(is_chat, thread):
        if message.get("type") == "HandoffMessage":
            shown += copied(message.get("context", []))
        content = message.get("content")
        text = digests.shown(content) if is_object(content) else copied(content)
        shown.append({"content": text, "source": message.get("source"), "type": "UserMessage"})
    return shown


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""
