"""The state of an agent or a team, as migrations see it. Each verb returns a new state and does not change the old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from midturn.autogen.edits import agents, call_pairs, messages, teams, tools
from midturn.autogen.edits.defaults import is_open
from midturn.autogen.edits.tree import copied, find, names, nodes, recount, words
from midturn.errors import StateInvalid
from midturn.record import codec
from midturn.record.codec import is_object

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable
    from re import Pattern

    from midturn.autogen.edits.tools import Fate
    from midturn.record.codec import Json


class State:
    """The whole state of a session: AutoGen's own, and what is kept beside it. It never changes.

    Give an agent by its name. If several have the same name, give the path, as ``agents`` lists it.
    """

    def __init__(self, tree: Any, *, before: State | None = None, touched: Iterable[str] = ()) -> None:
        """Wrap a tree. A verb passes the state ``before`` it, and the names that it ``touched``."""
        _check_form(tree)
        self._tree = copied(tree) if before is None else tree
        self._touched: frozenset[str] = (frozenset() if before is None else before.touched) | frozenset(touched)
        self._broken: Counter[str] = call_pairs.count_broken(tree) if before is None else before.broken

    def __repr__(self) -> str:
        return f"State({', '.join(self.agents) or 'an agent'})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._tree == other.tree

    __hash__ = None  # type: ignore[assignment] # as for dicts, which it stands for

    @property
    def tree(self) -> Any:
        """Return the state as JSON. Do not change it."""
        return self._tree

    @property
    def agents(self) -> list[str]:
        """Return the names of all agents and nested teams; for those inside others, the paths: ``inner/ann``."""
        return names(self._tree)

    @property
    def touched(self) -> frozenset[str]:
        """Return the agents and tools that were renamed, removed, added, altered or dropped."""
        return self._touched

    @property
    def is_open(self) -> bool:
        """Return whether a value is left open, which only a newly built agent or team has."""
        return is_open(self._tree)

    @property
    def broken(self) -> Counter[str]:
        """Return how often each call lacked a result, or a result its call, in the original tree."""
        return self._broken.copy()

    def messages(self, agent: str | None = None) -> list[dict[str, Any]]:
        """Return copies of the messages that an agent's model sees, or of a team's thread.

        Without a name, return those of the whole, which is an agent or a team.
        """
        node = nodes(self._tree)[0] if agent is None else find(self._tree, agent)
        kind = "thread" if node.is_team else "context"
        for each in words(self._tree):
            if each.kind == kind and each.owner.at == node.at:
                return [copied(message) for message in each.messages]
        return []

    def rename_agent(self, old: str, new: str) -> State:
        """Rename an agent or a nested team everywhere."""
        return self._changed(lambda tree: agents.rename(tree, old, new))

    def remove_agent(self, name: str) -> State:
        """Remove an agent or a nested team from its team. Its messages stay, and its turn goes to another."""
        return self._changed(lambda tree: agents.remove(tree, name))

    def add_agent(self, name: str, after: str | None = None, *, informed: bool = True) -> State:
        """Add a new agent to a team (``inner/zed`` for a nested team). It starts with the state that it is built with.

        It comes last, or ``after`` another. If ``informed``, it receives the messages so far; else it knows nothing.
        """
        return self._changed(lambda tree: agents.add(tree, name, after, informed=informed))

    def reset_agent(self, name: str, *, informed: bool = True) -> State:
        """Reset an agent to the state that it is built with, as if it were new. Its class may have changed."""
        return self._changed(lambda tree: agents.reset(tree, name, informed=informed))

    def change_team(self, kind: str, team: str | None = None) -> State:
        """Change the kind of the team, or of a nested one: ``SelectorGroupChat``.

        The messages stay. If the new kind has turns, it stays the same participant's turn. A ``GraphFlow`` starts from
        the beginning, and a ``MagenticOneGroupChat`` starts with a new plan.
        """

        def change(tree: Any) -> set[str]:
            found = teams.change_kind(tree, kind, team)
            return set(found.participants) | ({found.name} if found.name else set())

        return self._changed(change)

    def rename_tool(self, old: str, new: str, agent: str | None = None) -> State:
        """Rename a tool, also in its old calls. If an agent is given, rename only the tool of this agent."""
        return self._changed(lambda tree: tools.rename(tree, old, new, agent))

    def drop_tool(self, name: str, calls: Fate = "text", agent: str | None = None) -> State:
        """Remove a tool. Its old calls become a text that describes call and result, or are removed, too."""
        return self._changed(lambda tree: tools.drop(tree, name, calls, agent))

    def alter_tool(
        self, name: str, arguments: Callable[[dict[str, Any]], dict[str, Any] | None], agent: str | None = None
    ) -> State:
        """Change the arguments of a tool's old calls. The function gets a dict, and changes it or returns another."""
        return self._changed(lambda tree: tools.alter(tree, name, arguments, agent))

    def rename_message_type(self, old: str, new: str) -> State:
        """Rename a message type. ``Order`` also stands for ``StructuredMessage[Order]``."""
        return self._changed(lambda tree: messages.rename_type(tree, old, new))

    def add_field(self, type: str, field: str, default: Json) -> State:  # noqa: A002 - as messages call it
        """Add a field to messages of a type that lack it. In structured messages the field is added to the content."""
        return self._changed(lambda tree: messages.add_field(tree, type, field, default))

    def map_messages(
        self, change: Callable[[dict[str, Any]], dict[str, Any] | None], agent: str | None = None
    ) -> State:
        """Change each message by a function. It gets a copy and returns a message, or ``None`` to drop it.

        These are the messages that models see, those of threads, and those that participants have not received yet. If
        an agent or a team is given, only its messages change.

        Raises:
            StateInvalid: a call lost its result, or a result its call.
        """
        return self._edited(self._changed(lambda tree: messages.map_each(tree, change, agent)))

    def correct(self, said: str, instead: str) -> State:
        """Correct what was said: replace a text in all messages and memories, and in the arguments of calls.

        Raises:
            InvalidArgument: nobody said that.
        """
        return self._changed(lambda tree: messages.correct(tree, said, instead))

    def drop_message(self, said: str, agent: str | None = None) -> State:
        """Drop the messages that contain a text. A call goes with its result, and a result with its call.

        These are the messages that models see, those of threads, and those that participants have not received yet. If
        an agent or a team is given, only its messages are dropped.

        Raises:
            InvalidArgument: no message contains the text.
        """
        return self._changed(lambda tree: messages.drop(tree, said, agent))

    def redact(self, pattern: str | Pattern[str], replacement: str = "[redacted]") -> State:
        """Replace matches of a regular expression in all messages and memories, and in the arguments of calls."""
        return self._changed(lambda tree: messages.redact(tree, pattern, replacement))

    def truncate(self, *, last: int, agent: str | None = None) -> State:
        """Keep the last messages of contexts and threads; more, if a call would lose its result.

        System messages stay, and so do messages that a participant has not received yet.
        """
        return self._changed(lambda tree: messages.truncate(tree, last, agent))

    def seed_memory(self, agent: str, *texts: str, memory: str | None = None) -> State:
        """Add texts to the ``ListMemory`` of an agent. If the agent has several, ``memory`` is the name of one."""
        return self._changed(lambda tree: messages.seed(tree, agent, texts, memory))

    def edit(self, change: Callable[[Any], Any]) -> State:
        """Change the tree by a function of your own. It gets a copy, and changes it or returns another."""
        tree = copied(self._tree)
        returned = change(tree)
        tree = tree if returned is None else copied(returned)
        recount(tree)
        edited = State(tree, before=self)
        edited.check()
        return self._edited(edited)

    def check(self) -> None:
        """Check that the tree has the right form, and that no call lost its result and no result its call.

        Raises:
            StateInvalid: it does not; ``path`` names the value.
        """
        _check_form(self._tree)
        codec.check(self._tree)
        call_pairs.check(self._tree, self._broken)

    def _edited(self, after: State) -> State:
        """Return the state that a user's own function made. The names that were added or removed count as touched."""
        return State(after.tree, before=self, touched=tools.named(self._tree) ^ tools.named(after.tree))

    def _changed(self, change: Callable[[Any], set[str] | None]) -> State:
        tree = copied(self._tree)
        touched = change(tree) or ()
        recount(tree)
        return State(tree, before=self, touched=touched)


def _check_form(tree: Any) -> None:
    if not is_object(tree) or set(tree) not in ({"state"}, {"state", "beside", "kept"}):
        raise StateInvalid("is not the state of a session", path="$")
    if "beside" not in tree:
        return
    if not is_object(tree["beside"]):
        raise StateInvalid("is not an object", path="$.beside")
    if type(tree["kept"]) is not int or tree["kept"] != len(tree["beside"]):
        raise StateInvalid(f"is {tree['kept']!r}, and there are {len(tree['beside'])} parts beside", path="$.kept")
