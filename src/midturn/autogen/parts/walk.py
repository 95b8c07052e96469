"""What an agent or a team is made of: everything in it that can hold state, each by a path of names.

Components are found by looking through the attributes of what holds them, so one that AutoGen's own ``save_state()``
passes over is found like any other, in AutoGen's classes and in a user's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent
from autogen_agentchat.teams import BaseGroupChat
from autogen_core import SingleThreadedAgentRuntime

from midturn.autogen import private
from midturn.autogen.parts.attributes import join, parts_of
from midturn.autogen.parts.kinds import class_of, is_pure, is_team

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

ALL = "*"
"""Stands for all attributes."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that can hold state; the path of the agent or team itself is empty."""

    path: str
    live: Any
    covered: bool = False
    """Whether AutoGen's state of what holds it has its state."""
    others: list[str] = field(default_factory=list[str])
    """The other paths that lead to it: two agents may share a memory."""

    def at(self, name: str) -> str:
        """The path of something inside."""
        return join(self.path, name)


def walk(live: Any, *, without: Collection[int] = ()) -> list[Part]:
    """An agent or team and all that is in it, each once, what holds before what is held.

    Nothing is looked at whose ``id()`` is in ``without``.
    """
    found: dict[int, Part] = {}

    def visit(part: Part) -> None:
        if id(part.live) in without:
            return
        if known := found.get(id(part.live)):
            known.others.append(part.path)
            return
        found[id(part.live)] = part
        for attribute, name, child in parts_of(part.live):
            visit(Part(part.at(name), child, covered=_covers(part.live, attribute)))

    visit(Part("", live))
    return list(found.values())


def teams(parts: Sequence[Part]) -> list[BaseGroupChat]:
    """The teams among parts."""
    return [part.live for part in parts if is_team(part.live)]


async def settle(live: Any) -> list[Part]:
    """All parts, after AutoGen has built the managers and containers of teams, which it does when they are first used.

    Each team knows the structured answers of all agents then; AutoGen wants them in ``custom_message_types``.
    """
    parts = walk(live)
    if any(private.manager(team) is None for team in teams(parts)):
        for team in teams(parts):
            await private.initialize(team)
        parts = walk(live)
    if found := teams(parts):
        answers = [private.structured_type(part.live) for part in parts if isinstance(part.live, AssistantAgent)]
        for factory in map(private.message_factory, found):
            for answer in answers:
                if answer is not None and not factory.is_registered(answer):
                    factory.register(answer)
    return parts


def _covers(owner: Any, attribute: str) -> bool:
    """Whether the state that AutoGen saves of the owner has the state of what this attribute holds."""
    covered = _covered(cast("Any", class_of(owner)))
    return covered == ALL or (covered == attribute and is_pure(owner))


@lru_cache(maxsize=1024)
def _covered(cls: Any) -> str | None:  # by class: it takes long to ask whether one is of AutoGen's
    """The attribute of such objects whose state is in what AutoGen saves of them; ``ALL`` of them, or none."""
    covering: tuple[tuple[type, str], ...] = (
        (SingleThreadedAgentRuntime, ALL),
        (BaseGroupChat, private.TEAM_PARTICIPANTS),
        (SocietyOfMindAgent, private.SOCIETY_TEAM),
        (AssistantAgent, private.AGENT_CONTEXT),
    )
    return next((name for kind, name in covering if issubclass(cls, kind)), None)
