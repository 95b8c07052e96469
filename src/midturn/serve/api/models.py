"""The bodies of requests and pages of answers, with examples for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from midturn.history.json_view import AuditJson, QuestionJson, SessionJson, TurnJson

SESSION_EXAMPLE = {
    "session": "case-42",
    "status": "idle",
    "owner": None,
    "seq": 3,
    "turns": 1,
    "first_turn": 1,
    "checkpoint": 1,
    "labels": {"team": "claims"},
    "blueprint": "support",
    "version": 1,
    "forked_from": None,
    "deleted": None,
    "created": "2026-03-02T09:30:00.000+00:00",
    "updated": "2026-03-02T09:30:04.000+00:00",
    "problem": None,
}
QUESTION_EXAMPLE = {
    "id": "q1",
    "kind": "approval",
    "question": 'May refund(order="A17") be called?',
    "agent": "clerk",
    "tool": "refund",
    "arguments": {"order": "A17"},
    "schema": None,
    "answers": ["approve", "deny: REASON"],
}
TURN_EXAMPLE = {
    "turn": 1,
    "session": "case-42",
    "status": "waiting",
    "origin": "run",
    "task": [{"type": "TextMessage", "source": "user", "content": "Refund order A17."}],
    "messages": [],
    "key": "mail-8812",
    "repairs": [],
    "notes": [],
    "decisions": [],
    "attempts": 1,
    "drift": [],
    "forked_from": None,
    "restores": None,
    "left_behind_by": None,
    "version": 1,
    "error": None,
    "stop_reason": None,
    "usage": {"prompt_tokens": 0, "completion_tokens": 0},
    "started": "2026-03-02T09:30:00.000+00:00",
    "ended": None,
}
_ASKING: dict[str, Any] = {
    "session": "case-42",
    "turn": 1,
    "questions": [QUESTION_EXAMPLE],
    "labels": {},
    "updated": "2026-03-02T09:30:04.000+00:00",
    "problem": None,
}

Id = Annotated[str, Path(description="The id of a session, as one segment: `a/b` is `a%2Fb`.", examples=["case-42"])]
Turn = Annotated[int, Path(description="The number of a turn.", examples=[1])]
Why = Annotated[str | None, Field(default=None, max_length=2000, description="The reason; the history keeps it.")]
Labels = Annotated[dict[str, str], Field(default_factory=dict, examples=[{"team": "claims"}])]
DIVERGED = '"continue" ignores that the recorded calls do not fit the code.'


class Body(BaseModel):
    """A body of a request. A key that is not known is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NewTurn(Body):
    """A task for a session. The first turn of a session creates it."""

    task: str = Field(examples=["Where is my order A17?"])
    blueprint: str | None = Field(default=None, description="For a new session, if the server runs several.")
    labels: Labels


class Words(Body):
    """The words of a user: the answer to a question, or a task."""

    text: str = Field(examples=["Yes, please."])
    blueprint: str | None = None
    labels: Labels


class Answer(Body):
    """An answer to a question of the open turn."""

    answer: str = Field(examples=["approve", "deny: too expensive", "done: it was sent"])
    question: str | None = Field(default=None, description="The id of the question; needed if several are open.")
    arguments: dict[str, Any] | None = Field(default=None, description='Other arguments, with "approve".')
    diverged: Literal["raise", "continue"] = Field(default="raise", description=DIVERGED)


class Resume(Body):
    """The way to continue a turn."""

    diverged: Literal["raise", "continue"] = Field(default="raise", description=DIVERGED)


class NewFork(Body):
    """A session that begins with a checkpoint of another."""

    session: str = Field(description="The id of the new session.", examples=["case-42-b"])
    checkpoint: int | None = Field(default=None, description="By default the latest one.")
    labels: Labels
    why: Why


class Rewind(Body):
    """The older checkpoint to go back to."""

    checkpoint: int = Field(examples=[1])
    why: Why
    discard: bool = Field(default=False, description="Give an open turn up.")


class Change(Body):
    """Labels to set; `null` removes one."""

    labels: dict[str, str | None] = Field(examples=[{"team": "claims", "new": None}])


class SessionPage(BaseModel):
    """A page of sessions. `next` is the `after` of the next page."""

    sessions: list[SessionJson]
    next: str | None


class TurnPage(BaseModel):
    """A page of turns, the oldest first. `before` is that of the page before this one."""

    session: str
    turns: list[TurnJson]
    before: int | None


class Open(BaseModel):
    """The open questions of a session."""

    session: str
    turn: int | None
    questions: list[QuestionJson]


class Asking(Open):
    """A session that asks people something."""

    labels: dict[str, str]
    updated: str
    problem: str | None = Field(description="Why its questions cannot be read, if they cannot.")


class Inbox(BaseModel):
    """A page of sessions that ask people something. `next` is the `after` of the next page."""

    waiting: list[Asking]
    next: str | None


class Trail(BaseModel):
    """The acts of people."""

    acts: list[AuditJson]


class OfTurn(BaseModel):
    """A turn, or none if there was none."""

    session: str
    turn: int | None


class Started(BaseModel):
    """A turn that runs on the server."""

    session: str
    turn: int
    status: str


class Cancelled(BaseModel):
    """The outcome of cancelling a turn."""

    session: str
    turn: int
    cancelled: bool


class CheckpointState(BaseModel):
    """A checkpoint: AutoGen's own state, and what AutoGen leaves out."""

    session: str
    checkpoint: int
    version: int
    state: Any
    beside: dict[str, Any]


def ok(model: Any, about: str = "", *, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Return what the OpenAPI document says about an answer."""
    return {status: {"model": model, "description": about or "Done."}}


UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "Nothing has changed since `If-None-Match`."}}

EXAMPLES: dict[str, Any] = {
    "SessionJson": SESSION_EXAMPLE,
    "QuestionJson": QUESTION_EXAMPLE,
    "TurnJson": TURN_EXAMPLE,
    "WholeTurnJson": {**TURN_EXAMPLE, "calls": [], "questions": [QUESTION_EXAMPLE]},
    "SessionPage": {"sessions": [SESSION_EXAMPLE], "next": None},
    "TurnPage": {"session": "case-42", "turns": [TURN_EXAMPLE], "before": None},
    "Open": {"session": "case-42", "turn": 1, "questions": [QUESTION_EXAMPLE]},
    "Inbox": {"waiting": [_ASKING], "next": None},
    "Started": {"session": "case-42", "turn": 1, "status": "running"},
    "OfTurn": {"session": "case-42", "turn": None},
    "Cancelled": {"session": "case-42", "turn": 1, "cancelled": True},
}
"""Examples by the name of their schema. FastAPI would leave out what is null in them."""
