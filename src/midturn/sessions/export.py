"""``midturn.export``: the conversations of a session, for another library to continue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from midturn.errors import InvalidArgument, NotFound, SessionDeleted
from midturn.framework import Destination
from midturn.history.checkpoints import Checkpoint
from midturn.sessions.reader import check_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midturn.record.codec import Json
    from midturn.sessions.opening import OpenStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The conversations of a checkpoint as plain JSON, in the form of another library."""

    session: str
    checkpoint: int
    to: Destination
    agents: Mapping[str, Json]
    """A document for each agent that keeps a conversation, by the agent's path: what its model saw."""
    threads: Mapping[str, Json]
    """A document for the thread of each team, by the team's path; the outermost team is ``team``."""
    left_out: Sequence[str]
    """A sentence for each thing in the state that the documents have no place for."""

    def json(self) -> dict[str, Json]:
        """Return all of it as one JSON object."""
        return {
            "session": self.session,
            "checkpoint": self.checkpoint,
            "to": self.to,
            "agents": dict(self.agents),
            "threads": dict(self.threads),
            "left_out": list(self.left_out),
        }


async def export(store: OpenStore, session: str, *, to: Destination, at: int | None = None) -> Export:
    """Return the conversations of a session's checkpoint, by default the latest, for another library to continue.

    ``"agent-framework"`` makes what ``AgentSession.from_dict()`` of Microsoft Agent Framework reads, ``"responses"``
    the ``input`` of OpenAI's Responses API, and ``"openai-chat"`` the ``messages`` of its chat completions. Tool calls
    without a result get an error as their result. Nothing is written.

    Raises:
        InvalidArgument: there is no such destination.
        NotFound: there is no such session or checkpoint, or the state has no conversation.
        SessionDeleted: the session is deleted.
    """
    if to not in get_args(Destination):
        raise InvalidArgument(f"is {to!r}; it can be one of {', '.join(get_args(Destination))}", path="to")
    info = await store.info(session)
    if info.status == "deleted":
        raise SessionDeleted.of(session)
    number = info.checkpoint if at is None else check_number(at, "at")
    from midturn.autogen.adapter import AutoGen  # as in store.session(): nothing else needs it

    tree = await Checkpoint(store.store, session, number).tree()
    found = AutoGen().export(tree, to=to, session=session)
    if not found.agents and not found.threads:
        raise NotFound(f"checkpoint {number} of session {session!r} has no conversation", session=session)
    return Export(
        session=session, checkpoint=number, to=to, agents=found.agents, threads=found.threads, left_out=found.left_out
    )
