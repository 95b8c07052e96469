"""The JSON form of what readers return: the same keys on the command line, over HTTP and on the page.

Times are ISO 8601 strings in UTC. A key has one meaning everywhere, and a meaning one key: ``session`` is an id,
``turn`` and ``turns`` are numbers, ``questions`` is a list, ``agent`` is a name, and ``path`` is the place of that
agent in its team.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from midturn.errors import MidturnError, Misfit, ReplayDiverged, TurnFailed, TurnTimeout
from midturn.history.audit import Audited
from midturn.history.diff import ChangeKind
from midturn.history.session_info import SessionStatus
from midturn.history.turns import TurnStatus
from midturn.record.rows import Asked, Decided, Effect, Origin, What

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:  # pydantic, which describes these types to HTTP clients, cannot read those of Python 3.11
    from typing_extensions import TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from midturn.history.audit import AuditEntry
    from midturn.history.calls import Call
    from midturn.history.diff import StateDiff
    from midturn.history.lineage import Lineage, Relative
    from midturn.history.session_info import Fork, SessionInfo
    from midturn.history.turns import StoredTurn
    from midturn.questions import Decision, Question

ANSWERS = {
    "human": ("TEXT",),
    "approval": ("approve", "deny: REASON"),
    "doubt": ("retry", "done: RESULT", "fail"),
}
"""The possible answers to each kind of question."""
FACTS = ("session", "turn", "timeout", "owner", "key", "question", "tool", "arguments", "recorded", "now")
"""Attributes of errors that JSON repeats."""


class ForkJson(TypedDict):
    """The checkpoint of another session that a session was forked from."""

    session: str
    checkpoint: int


class DeletionJson(TypedDict):
    """The deletion of a session."""

    by: str | None
    why: str | None
    at: str


class SessionJson(TypedDict):
    """The status and the facts of a session."""

    session: str
    status: SessionStatus
    owner: str | None
    seq: int
    turns: int
    first_turn: int
    checkpoint: int
    labels: dict[str, str]
    blueprint: str | None
    version: int
    forked_from: ForkJson | None
    deleted: DeletionJson | None
    created: str
    updated: str
    problem: str | None


class RelativeJson(TypedDict):
    """A session in the lineage of another."""

    session: str
    status: SessionStatus
    forked_from: ForkJson | None


class LineageJson(RelativeJson):
    """The lineage of a session: its ancestors, and all its descendants in a list, each after its origin."""

    ancestors: list[RelativeJson]
    forks: list[RelativeJson]


class AuditJson(TypedDict):
    """An act of the audit trail."""

    session: str
    at: str
    what: Audited
    by: str | None
    why: str | None
    turn: int | None
    details: dict[str, Any]


class DecisionJson(TypedDict):
    """The answer to a question, or a decision about a turn."""

    question: str
    kind: Decided
    agent: str
    tool: str | None
    arguments: dict[str, Any] | None
    answer: str
    changed: dict[str, Any] | None
    by: str | None
    why: str | None
    at: str


class UsageJson(TypedDict):
    """The tokens that models used."""

    prompt_tokens: int
    completion_tokens: int


class TurnJson(TypedDict):
    """A turn, without its calls and its open questions."""

    turn: int
    session: str
    status: TurnStatus
    origin: Origin
    task: list[Any] | None
    messages: list[Any]
    key: str | None
    repairs: list[str]
    notes: list[str]
    decisions: list[DecisionJson]
    attempts: int
    drift: list[str]
    forked_from: ForkJson | None
    restores: int | None
    left_behind_by: int | None
    version: int
    error: str | None
    stop_reason: str | None
    usage: UsageJson
    started: str
    ended: str | None


class CallJson(TypedDict):
    """A completed call of a turn."""

    agent: str
    path: str
    kind: What
    name: str | None
    arguments: str
    effect: Effect
    result: Any
    at: str
    attempt: int


class QuestionJson(TypedDict):
    """An open question, with its possible answers."""

    id: str
    kind: Asked
    question: str
    agent: str
    tool: str | None
    arguments: dict[str, Any] | None
    schema: dict[str, Any] | None
    answers: list[str]


class WholeTurnJson(TurnJson):
    """A turn with its calls, if they were recorded, and its open questions."""

    calls: list[CallJson] | None
    questions: list[QuestionJson]


class CheckpointNameJson(TypedDict):
    """The number of a checkpoint, and its session."""

    session: str
    checkpoint: int


class AgentChangeJson(TypedDict):
    """Something that is configured differently."""

    path: str
    agent: str
    what: str
    text: str
    before: Any
    after: Any
    lines: list[str]


class TurnChangeJson(TypedDict):
    """A team in which it is somebody else's turn."""

    team: str
    before: list[str]
    after: list[str]


class MessageChangeJson(TypedDict):
    """A message that was added, removed or changed."""

    change: ChangeKind
    who: str
    before_at: int | None
    after_at: int | None
    before: Any
    after: Any
    text: list[str]


class ConversationChangeJson(TypedDict):
    """The changes in one list of messages."""

    change: ChangeKind
    agent: str
    kind: str
    messages: list[MessageChangeJson]


class ValueChangeJson(TypedDict):
    """Another value that was added, removed or changed."""

    change: ChangeKind
    path: str
    before: Any
    after: Any
    text: list[str]


class DiffJson(TypedDict):
    """The differences between two checkpoints."""

    before: CheckpointNameJson
    after: CheckpointNameJson
    agents: list[AgentChangeJson]
    turns: list[TurnChangeJson]
    conversations: list[ConversationChangeJson]
    values: list[ValueChangeJson]


class ReplayJson(TypedDict):
    """The outcome of running a turn again."""

    session: str
    turn: int
    same: bool
    differences: list[str]
    notes: list[str]
    messages: list[Any]


def session_json(info: SessionInfo) -> SessionJson:
    """Return the status and the facts of a session."""
    fork, found = info.forked_from, _plain(info)
    del found["cursor"]  # a place in a list
    about = {
        "labels": dict(info.labels),
        "forked_from": fork_json(fork),
        "deleted": None if info.deleted is None else _plain(info.deleted),
    }
    return cast("SessionJson", {"session": found.pop("id")} | found | about)


def fork_json(fork: Fork | None) -> ForkJson | None:
    """Return the checkpoint that a session was forked from."""
    return None if fork is None else {"session": fork.session, "checkpoint": fork.checkpoint}


def lineage_json(lineage: Lineage) -> LineageJson:
    """Return the lineage of a session: its ancestors, and all its descendants in a list, each after its origin."""
    forks, left = list[RelativeJson](), list(lineage.forks)[::-1]
    while left:
        relative = left.pop()
        forks.append(_relative_json(relative))
        left += list(relative.forks)[::-1]
    ancestors = [_relative_json(each) for each in lineage.ancestors]
    return {**_relative_json(lineage), "ancestors": ancestors, "forks": forks}


def _relative_json(relative: Relative) -> RelativeJson:
    """Return a session of a lineage, without its forks."""
    fork = fork_json(relative.forked_from)
    return {"session": relative.session, "status": relative.status, "forked_from": fork}


def audit_json(entry: AuditEntry) -> AuditJson:
    """Return an act of the audit trail."""
    return cast("AuditJson", _plain(entry) | {"details": dict(entry.details)})


def turn_json(turn: StoredTurn) -> TurnJson:
    """Return a turn, without its calls and its open questions."""
    found = _plain(turn)
    del found["calls"], found["questions"]
    about = {
        "forked_from": fork_json(turn.forked_from),
        "decisions": [decision_json(decision) for decision in turn.decisions],
        "usage": _plain(turn.usage),
    }
    return cast("TurnJson", {"turn": found.pop("number")} | found | about)


def whole_turn_json(turn: StoredTurn) -> WholeTurnJson:
    """Return a turn with its calls and its open questions."""
    return {**turn_json(turn), "calls": calls_json(turn.calls), "questions": questions_json(turn.questions)}


def replay_json(
    session: str, turn: int, *, differences: Iterable[str], notes: Iterable[str], messages: Iterable[Any]
) -> ReplayJson:
    """Return what became of running a turn again."""
    found = list(differences)
    return {
        "session": session,
        "turn": turn,
        "same": not found,
        "differences": found,
        "notes": list(notes),
        "messages": [message.dump() for message in messages],
    }


def calls_json(calls: Iterable[Call] | None) -> list[CallJson] | None:
    """Return calls; ``None`` if they were not recorded."""
    return None if calls is None else [cast("CallJson", _plain(call)) for call in calls]


def questions_json(questions: Iterable[Question]) -> list[QuestionJson]:
    """Return questions, each with its possible answers."""
    return [
        cast("QuestionJson", _plain(question) | {"answers": list(ANSWERS[question.kind])}) for question in questions
    ]


def decision_json(decision: Decision) -> DecisionJson:
    """Return the answer to a question, or a decision about a turn."""
    return cast("DecisionJson", _plain(decision))


def diff_json(diff: StateDiff) -> DiffJson:
    """Return the differences between two checkpoints."""
    found = {
        "before": _plain(diff.before),
        "after": _plain(diff.after),
        "agents": list(map(_plain, diff.agents)),
        "turns": list(map(_plain, diff.turns)),
        "conversations": [_plain(each) | {"messages": list(map(_plain, each.messages))} for each in diff.conversations],
        "values": list(map(_plain, diff.values)),
    }
    return cast("DiffJson", found)


def error_json(error: MidturnError) -> dict[str, Any]:
    """Return an error without its hint, which names Python methods."""
    found: dict[str, Any] = {"type": type(error).__name__, "message": sentence(error)}
    found |= {name: value for name in FACTS if (value := getattr(error, name, None))}
    if isinstance(error, Misfit):
        found["differences"] = [{"path": path, "message": message} for path, message in error.differences]
    return found


def sentence(error: MidturnError) -> str:
    """Return what happened, without the hint."""
    text = str(error).removesuffix(f"\n{error.hint}")
    match error:
        case TurnFailed() | TurnTimeout() | ReplayDiverged():
            return text.partition("\n")[0]  # more lines may be a traceback of the agent's
        case Misfit():
            return ": ".join(error.differences[0])
        case _:
            return text


def time_json(at: datetime) -> str:
    """Return a time as text."""
    return at.isoformat(timespec="milliseconds")


def _plain(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, with times as text."""
    found = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: time_json(value) if isinstance(value, datetime) else value for name, value in found.items()}
