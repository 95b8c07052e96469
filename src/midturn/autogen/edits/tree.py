"""Find agents, teams and lists of messages in the JSON of a captured state, without building anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from midturn.errors import InvalidArgument, StateInvalid
from midturn.record.codec import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from midturn.record.codec import Json

FRESH: dict[str, Json] = {"midturn.autogen.edits": "fresh"}
"""Stands for the value of the newly built agent or team."""

LEFT = "midturn.autogen.edits.left"
"""The key of an object with the memory of a removed agent: another agent may have shared it."""

Kind: TypeAlias = Literal["context", "thread", "buffer"]
"""The messages that a model sees, those of a team, and those that a participant has not received yet."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """An agent or a team in a state. Its dicts are parts of the tree, not copies."""

    path: str
    """The names that lead to it: ``inner/ann``. Empty for the whole."""
    name: str | None
    """``None`` if the state does not contain it."""
    at: str
    state: Any
    parts: str
    """The path of its parts beside AutoGen's state: ``participants/inner/participants/ann``."""
    parent: Node | None = None
    container: dict[str, Any] | None = None
    """Its entry in the team: its state, and the messages that it has not received yet."""

    @property
    def is_team(self) -> bool:
        """Return whether it has participants of its own."""
        return is_object(self.state) and is_object(self.state.get("agent_states"))

    @property
    def team(self) -> Node | None:
        """Return the team that it participates in."""
        return self.parent if self.container is not None else None

    @property
    def members(self) -> dict[str, Any]:
        """Return the entries of a team's manager and participants, by name."""
        found: dict[str, Any] = self.state["agent_states"]
        return found

    @property
    def manager(self) -> str | None:
        """Return the name of a team's manager."""
        return next(
            (name for name, value in self.members.items() if is_object(value) and "message_thread" in value), None
        )

    @property
    def participants(self) -> list[str]:
        """Return the names of a team's participants, in order."""
        return [name for name in self.members if name != self.manager]

    def is_within(self, other: Node) -> bool:
        """Return whether it is the other node or inside it."""
        return self is other or (self.parent is not None and self.parent.is_within(other))


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """A list of messages in a state."""

    kind: Kind
    at: str
    owner: Node
    """The agent of a context or buffer, or the team of a thread."""
    messages: list[Any]
    beside: dict[str, Any]

    @property
    def recalled(self) -> list[Any]:
        """Return the memories in a thread that AutoGen's JSON loses, by the index of the message."""
        found = self.beside.get(join(self.owner.parts, "manager/message_thread")) if self.kind == "thread" else None
        return found if is_array(found) else []

    def put(self, messages: list[tuple[int | None, Any]]) -> None:
        """Replace the messages. Each new one comes with its old index, if it had one."""
        self.messages[:] = [message for _, message in messages]
        path = join(self.owner.parts, "manager/message_thread")
        if self.kind == "thread" and path in self.beside:
            moved_to = {before: now for now, (before, _) in enumerate(messages) if before is not None}
            moved = [item | {"index": moved_to[item["index"]]} for item in self.recalled if item["index"] in moved_to]
            if moved:
                self.beside[path] = moved
            else:
                del self.beside[path]


def copied(value: Any) -> Any:
    """Copy JSON."""
    if is_object(value):
        return {key: copied(item) for key, item in value.items()}
    if is_array(value):
        return [copied(item) for item in value]
    return value


def beside_of(tree: Any) -> dict[str, Any]:
    """Return what is kept beside AutoGen's own state."""
    found = tree.get("beside")
    return found if is_object(found) else {}


def recount(tree: Any) -> None:
    """Correct the number of parts beside the state."""
    if is_object(tree) and is_object(tree.get("beside")):
        tree["kept"] = len(tree["beside"])


def quote(name: str) -> str:
    """Escape a name for the path of a part."""
    return name.replace("%", "%25").replace("/", "%2F").replace("#", "%23")


def unquote(name: str) -> str:
    """Return the name that was escaped for the path of a part."""
    return name.replace("%23", "#").replace("%2F", "/").replace("%25", "%")


def join(path: str, name: str) -> str:
    """Return the path of a name inside a path."""
    return f"{path}/{name}" if path and name else path or name


def is_below(path: str, above: str) -> bool:
    """Return whether a part is the other part or inside it."""
    return not above or path == above or path.startswith(f"{above}/")


def move_parts(tree: Any, old: str, new: str) -> None:
    """Move parts to another path."""
    beside = beside_of(tree)
    moved = {new + path.removeprefix(old) if is_below(path, old) else path: value for path, value in beside.items()}
    if len(moved) != len(beside):
        raise StateInvalid("is there already", path=f"$.beside.{new}")
    beside.clear()
    beside.update(moved)


def drop_parts(tree: Any, path: str) -> None:
    """Remove the parts under a path."""
    beside = beside_of(tree)
    for key in [key for key in beside if is_below(key, path)]:
        del beside[key]


def nodes(tree: Any) -> list[Node]:
    """Return the agent or team of a state, and all those inside, a parent before its children."""
    root = Node("", None, "$.state", tree["state"], "")
    if not root.is_team:
        root = Node("", speaker(tree["state"]), "$.state", tree["state"], "")
    found = [root, *_inside(root)]
    for path, value in sorted(beside_of(tree).items(), key=lambda item: len(item[0])):
        if _is_state(value) and not any(node.parts == path for node in found):
            parent = max((node for node in found if is_below(path, node.parts)), key=lambda node: len(node.parts))
            name = speaker(value) or _part_name(path.removeprefix(parent.parts))
            node = Node(join(parent.path, name), name, f"$.beside.{path}", value, path, parent)
            found += [node, *_inside(node)]
    return found


def _inside(node: Node) -> Iterator[Node]:
    if node.is_team:
        for name in node.participants:
            container = node.members[name]
            if is_object(container):
                child = Node(
                    join(node.path, name),
                    name,
                    f"{node.at}.agent_states.{name}.agent_state",
                    container.get("agent_state"),
                    join(node.parts, f"participants/{quote(name)}"),
                    node,
                    container,
                )
                yield child
                yield from _inside(child)
    elif is_object(node.state) and is_object(inner := node.state.get("inner_team_state")):
        team = Node(node.path, None, f"{node.at}.inner_team_state", inner, join(node.parts, "team"), node)
        yield team
        yield from _inside(team)


def _is_state(value: Any) -> bool:
    """Return whether a part is the state of an agent or a team that AutoGen's own state lacks."""
    if not is_object(value):
        return False
    return "llm_context" in value or "agent_states" in value or "inner_team_state" in value or value == FRESH


def _part_name(path: str) -> str:
    """Return a name for a part without one: the name of its tool, or of its attribute."""
    names = path.strip("/").split("/")
    return unquote(names[-2] if len(names) > 2 and names[-3] == "tools" else names[-1])  # noqa: PLR2004 - tools/NAME/agent


def speaker(state: Any) -> str | None:
    """Return the name of an agent: the source of the last answer in its context."""
    context = state.get("llm_context") if is_object(state) else None
    messages = context.get("messages") if is_object(context) else None
    for message in reversed(messages if is_array(messages) else []):
        if is_object(message) and message.get("type") == "AssistantMessage" and isinstance(message.get("source"), str):
            return str(message["source"])
    return None


def words(tree: Any) -> list[Words]:
    """Return all lists of messages."""
    beside, all_nodes = beside_of(tree), nodes(tree)
    lists = [(node, *found) for node in all_nodes for found in _lists_of(node)]
    for path, value in beside.items():
        parent = max((node for node in all_nodes if is_below(path, node.parts)), key=lambda node: len(node.parts))
        if path.rpartition("/")[2] == "chat_history":
            lists.append((parent, "context", f"$.beside.{path}", value))
        elif is_object(value) and not _is_state(value) and _is_context(value.get("messages")):
            lists.append((parent, "context", f"$.beside.{path}.messages", value["messages"]))
    return [
        Words(kind, at, owner, messages, beside)
        for owner, kind, at, messages in lists
        if is_array(messages) and all(is_object(message) for message in messages)
    ]


def _lists_of(node: Node) -> Iterator[tuple[Kind, str, Any]]:
    """Yield the lists of messages in AutoGen's state of an agent or a team."""
    if node.is_team:
        if node.manager is not None:
            at = f"{node.at}.agent_states.{node.manager}.message_thread"
            yield "thread", at, node.members[node.manager]["message_thread"]
    elif is_object(node.state) and is_object(context := node.state.get("llm_context", node.state)):
        at = node.at if context is node.state else f"{node.at}.llm_context"  # the whole may be a context alone
        yield "context", f"{at}.messages", context.get("messages")
    if node.container is not None:
        yield "buffer", node.at.removesuffix(".agent_state") + ".message_buffer", node.container.get("message_buffer")


def _is_context(messages: Any) -> bool:
    types = ("SystemMessage", "UserMessage", "AssistantMessage", "FunctionExecutionResultMessage")
    return is_array(messages) and all(is_object(item) and item.get("type") in types for item in messages)


def said(tree: Any, node: Node | None) -> list[dict[str, Any]]:
    """Return the messages that can contain calls of an agent: those its model sees, and those it sent."""
    found: list[dict[str, Any]] = []
    same = [] if node is None else [other for other in nodes(tree) if other.name == node.name]
    for each in words(tree):
        if node is None or (each.kind == "context" and each.owner.parts == node.parts):
            found += each.messages
        elif each.kind != "context" and (len(same) == 1 or (node.team and is_below(each.owner.parts, node.team.parts))):
            found += [message for message in each.messages if message.get("source") == node.name]
    return found


def names(tree: Any) -> list[str]:
    """Return the paths of all agents and teams. An agent that is the whole state is listed by its name."""
    return list(dict.fromkeys(node.path or node.name for node in nodes(tree) if node.name is not None))


def find(tree: Any, name: object, *, unnamed: bool = True) -> Node:
    """Return an agent or team by its name, or by its path if others have that name.

    If ``unnamed``, any unknown name stands for an agent that is the whole state and whose name the state lacks.

    Raises:
        InvalidArgument: no agent or team has this name, or more than one has it.
    """
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a {type(name).__name__} is not the name of an agent", path="agent")
    there = [node for node in nodes(tree) if node.name is not None]
    exact = [node for node in there if name == (node.path or node.name)]
    found = exact or [node for node in there if f"/{node.path}".endswith(f"/{name}")]
    if not found:  # the state does not contain the name of the outermost team either
        found = [node for node in there if "/" in name and node.path == name.partition("/")[2]]
    if len(found) > 1:
        paths = ", ".join(repr(node.path) for node in found)
        raise InvalidArgument(f"is the name of several; give one of {paths}", path=f"agent {name!r}")
    root = nodes(tree)[0]
    if not found and unnamed and root.name is None and not root.is_team and "/" not in name and not _is_runtime(root):
        return root
    if not found:
        known = ", ".join(map(repr, names(tree))) or "none that has a name"
        raise InvalidArgument(f"is not in the state, which has {known}", path=f"agent {name!r}")
    return found[0]


def _is_runtime(node: Node) -> bool:
    """Return whether it is a runtime. Its agents have ids, not names, and ``edit`` can change them."""
    return is_object(node.state) and bool(node.state) and all("/" in key for key in node.state)


def find_team(tree: Any, name: str | None) -> Node:
    """Return the whole team, or a nested team by its name or by the name of its agent or tool."""
    node = nodes(tree)[0] if name is None else find(tree, name, unnamed=False)
    team = next((other for other in nodes(tree) if other.path == node.path and other.is_team), None)
    if team is None:
        known = ", ".join(repr(other.path) for other in nodes(tree) if other.is_team and other.path)
        what = "is not a team" + (f"; the teams are {known}" if known else "")
        raise InvalidArgument(what, path="$.state" if name is None else f"team {name!r}")
    return team
