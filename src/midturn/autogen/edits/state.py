"""Show migrations the state of an agent or a team: each verb returns a new state, and leaves this one alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from midturn.autogen.edits import agents, call_pairs, messages, teams, tools
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

    An agent is given by its name; one of several with the same name by the path to it, as ``agents`` lists it.
    """

    def __init__(self, tree: Any, *, before: State | None = None, touched: Iterable[str] = ()) -> None:
        """The view of a tree; ``before`` is the state that a verb has made it of, ``touched`` what it touched."""
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
        """The state as JSON; not to be changed."""
        return self._tree

    @property
    def agents(self) -> list[str]:
        """The names of all agents and nested teams; of those inside others, the paths: ``inner/ann``."""
        return names(self._tree)

    @property
    def touched(self) -> frozenset[str]:
        """The agents and tools that were renamed, removed, added, altered or dropped."""
        return self._touched

    @property
    def broken(self) -> Counter[str]:
        """How often each call had no result, or a result no call, in the tree that this was made of first."""
        return self._broken.copy()

    def messages(self, agent: str | None = None) -> list[dict[str, Any]]:
        """Copies of the messages that an agent's model is shown, or of what was said in a team.

        Without a name: of the whole, which is an agent or a team.
        """
        node = nodes(self._tree)[0] if agent is None else find(self._tree, agent)
        kind = "thread" if node.is_team else "context"
        for each in words(self._tree):
            if each.kind == kind and each.owner.at == node.at:
                return [copied(message) for message in each.messages]
        return []

    def rename_agent(self, old: str, new: str) -> State:
        """Give an agent or a nested team another name, wherever it stands."""
        return self._changed(lambda tree: agents.rename(tree, old, new))

    def remove_agent(self, name: str) -> State:
        """Take an agent or a nested team out of its team. What it said stays said; its turn goes to another."""
        return self._changed(lambda tree: agents.remove(tree, name))

    def add_agent(self, name: str, after: str | None = None, *, informed: bool = True) -> State:
        """Have a new agent in a team (``inner/zed`` for one inside), with the state that it is built with.

        It comes last, or ``after`` another. ``informed``: what was said so far is news to it; else it knows nothing.
        """
        return self._changed(lambda tree: agents.add(tree, name, after, informed=informed))

    def reset_agent(self, name: str, *, informed: bool = True) -> State:
        """Let an agent begin with the state that it is built with, as if it was new: its class may have changed."""
        return self._changed(lambda tree: agents.reset(tree, name, informed=informed))

    def change_team(self, kind: str, team: str | None = None) -> State:
        """Make the team, or one inside, one of another kind: ``SelectorGroupChat``.

        What was said stays, and whose turn it is where that means something. A ``GraphFlow`` begins anew, and so does
        the plan of a ``MagenticOneGroupChat``.
        """

        def change(tree: Any) -> set[str]:
            found = teams.change_kind(tree, kind, team)
            return set(found.participants) | ({found.name} if found.name else set())

        return self._changed(change)

    def rename_tool(self, old: str, new: str, agent: str | None = None) -> State:
        """Give a tool another name, also in its old calls; only that of one agent, if it is given."""
        return self._changed(lambda tree: tools.rename(tree, old, new, agent))

    def drop_tool(self, name: str, calls: Fate = "text", agent: str | None = None) -> State:
        """Take a tool out. Its old calls become a text that says what was called and answered, or are removed, too."""
        return self._changed(lambda tree: tools.drop(tree, name, calls, agent))

    def alter_tool(
        self, name: str, arguments: Callable[[dict[str, Any]], dict[str, Any] | None], agent: str | None = None
    ) -> State:
        """Change the arguments of a tool's old calls: the function gets each as a dict, and changes or returns it."""
        return self._changed(lambda tree: tools.alter(tree, name, arguments, agent))

    def rename_message_type(self, old: str, new: str) -> State:
        """Give messages of a type another; ``Order`` also stands for ``StructuredMessage[Order]``."""
        return self._changed(lambda tree: messages.rename_type(tree, old, new))

    def add_field(self, type: str, field: str, default: Json) -> State:  # noqa: A002 - as messages call it
        """Give messages of a type a field where they do not have it; structured ones in their contents."""
        return self._changed(lambda tree: messages.add_field(tree, type, field, default))

    def map_messages(
        self, change: Callable[[dict[str, Any]], dict[str, Any] | None], agent: str | None = None
    ) -> State:
        """Change each message by a function, which gets a copy and returns a message, or ``None`` to drop it.

        These are the messages that models are shown, those of threads, and those that participants have not heard yet;
        of one agent or team, if it is given.

        Raises:
            StateInvalid: a call has lost its result, or a result its call.
        """
        return self._edited(self._changed(lambda tree: messages.map_each(tree, change, agent)))

    def redact(self, pattern: str | Pattern[str], replacement: str = "[redacted]") -> State:
        """Replace what matches a regular expression in all messages and memories, and in the arguments of calls."""
        return self._changed(lambda tree: messages.redact(tree, pattern, replacement))

    def truncate(self, *, last: int, agent: str | None = None) -> State:
        """Keep the last messages of what models are shown and of what was said; more, if a call would lose its result.

        System messages stay, and so does what a participant has not heard yet.
        """
        return self._changed(lambda tree: messages.truncate(tree, last, agent))

    def seed_memory(self, agent: str, *texts: str, memory: str | None = None) -> State:
        """Add texts to the ``ListMemory`` of an agent; ``memory`` is its name, if there are several."""
        return self._changed(lambda tree: messages.seed(tree, agent, texts, memory))

    def edit(self, change: Callable[[Any], Any]) -> State:
        """Change the tree by a function of your own: it gets a copy, and changes it or returns another."""
        tree = copied(self._tree)
        returned = change(tree)
        tree = tree if returned is None else copied(returned)
        recount(tree)
        edited = State(tree, before=self)
        edited.check()
        return self._edited(edited)

    def check(self) -> None:
        """See that the tree has the right form, and that no call has lost its result, nor a result its call.

        Raises:
            StateInvalid: with the path of the value.
        """
        _check_form(self._tree)
        codec.check(self._tree)
        call_pairs.check(self._tree, self._broken)

    def _edited(self, after: State) -> State:
        """What a function of a user's own made, with the names that are not there in both."""
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
