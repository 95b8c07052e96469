"""Walk through an agent or a team, and find every part of it that can have state, each with a path of names.

The walk looks through attributes. So it also finds the parts that AutoGen's own ``save_state()`` leaves out, in
AutoGen's classes and in a user's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent
from autogen_agentchat.teams import BaseGroupChat
from autogen_core import SingleThreadedAgentRuntime

from midturn.autogen import private
from midturn.autogen.parts.children import join, parts_of
from midturn.autogen.parts.kinds import is_pure, traits
from midturn.autogen.parts.proxy import ProxyType, real_of
from midturn.record.codec import class_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

ALL = "*"
"""A name that stands for all attributes."""


@dataclass(frozen=True, slots=True)
class Part:
    """An object that can have state. The path of the agent or team itself is empty."""

    path: str
    live: Any
    covered: bool = False
    """True if the state that AutoGen saves of the parent includes the state of this part."""
    others: list[str] = field(default_factory=list[str])
    """The other paths that lead to this part: two agents may share a memory."""

    def at(self, name: str) -> str:
        """Return the path of a name inside the part."""
        return join(self.path, name)


def walk(live: Any, *, without: Collection[int] = ()) -> list[Part]:
    """Return an agent or team and all parts in it, each once, a parent before its children.

    An object whose ``id()`` is in ``without`` is omitted, with all parts in it.
    """
    found: dict[int, Part] = {}

    def visit(part: Part) -> None:
        if class_of(class_of(part.live)) is ProxyType:  # during a run
            part = replace(part, live=real_of(part.live))
        if id(part.live) in without:
            return
        if known := found.get(id(part.live)):
            known.others.append(part.path)
            return
        found[id(part.live)] = part
        for attribute, name, child in parts_of(part.live):
            visit(Part(join(part.path, name), child, covered=_covers(part.live, attribute)))

    visit(Part("", live))
    return list(found.values())


def teams(parts: Sequence[Part]) -> list[BaseGroupChat]:
    """Return the teams among parts."""
    return [part.live for part in parts if traits(class_of(part.live)).is_team]


async def settle(live: Any) -> list[Part]:
    """Have AutoGen build the managers and containers of all teams, and return all parts.

    This also registers the structured answers of all agents in each team. Otherwise, users would have to list them in
    ``custom_message_types``.
    """
    parts = walk(live)
    found = teams(parts)
    if any(private.manager(team) is None for team in found):
        for team in found:
            await private.initialize(team)
        parts = walk(live)
        found = teams(parts)
    if found:
        answers = [private.structured_type(part.live) for part in parts if isinstance(part.live, AssistantAgent)]
        for factory in map(private.message_factory, found):
            for answer in answers:
                if answer is not None and not factory.is_registered(answer):
                    factory.register(answer)
    return parts


def _covers(owner: Any, attribute: str) -> bool:
    """Return whether the state that AutoGen saves of the owner includes the state of the part in this attribute."""
    covered = _covered(class_of(owner))
    return covered == ALL or (covered == attribute and is_pure(owner))


@lru_cache(maxsize=1024)
def _covered(cls: Any) -> str | None:  # cached by class, since the check is slow
    """Return the attribute whose state AutoGen saves with objects of this class; ``ALL`` for all, or ``None``."""
    covering: tuple[tuple[type, str], ...] = (
        (SingleThreadedAgentRuntime, ALL),
        (BaseGroupChat, private.TEAM_PARTICIPANTS),
        (SocietyOfMindAgent, private.SOCIETY_TEAM),
        (AssistantAgent, private.AGENT_CONTEXT),
    )
    return next((name for kind, name in covering if issubclass(cls, kind)), None)
