"""The JSON form of what readers return: the same keys on the command line, over HTTP and on the page.

Times are ISO 8601 strings in UTC. A key has one meaning everywhere, and a meaning one key: ``session`` is an id,
``turn`` and ``turns`` are numbers, ``questions`` is a list, ``agent`` is a name, and ``path`` is the place of that
agent in its team.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from midturn.errors import MidturnError, Misfit, ReplayDiverged, SessionBusy, TurnFailed, TurnTimeout

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
FACTS = ("session", "turn", "timeout", "owner", "question", "tool", "arguments", "recorded", "now")
"""Attributes of errors that JSON repeats."""


def session_json(info: SessionInfo) -> dict[str, Any]:
    """Return the status and the facts of a session."""
    fork, found = info.forked_from, _plain(info)
    del found["cursor"]  # a place in a list
    return (
        {"session": found.pop("id")}
        | found
        | {
            "labels": dict(info.labels),
            "forked_from": fork_json(fork),
            "deleted": None if info.deleted is None else _plain(info.deleted),
        }
    )


def fork_json(fork: Fork | None) -> dict[str, Any] | None:
    """Return the checkpoint that a session was forked from."""
    return None if fork is None else _plain(fork)


def lineage_json(lineage: Lineage) -> dict[str, Any]:
    """Return the lineage of a session: its ancestors, and all its descendants in a list, each after its origin."""
    forks, left = list[dict[str, Any]](), list(lineage.forks)[::-1]
    while left:
        relative = left.pop()
        forks.append(_relative_json(relative))
        left += list(relative.forks)[::-1]
    return _relative_json(lineage) | {"ancestors": [_relative_json(each) for each in lineage.ancestors], "forks": forks}


def _relative_json(relative: Relative) -> dict[str, Any]:
    """Return a session of a lineage, without its forks."""
    fork = fork_json(relative.forked_from)
    return {"session": relative.session, "status": relative.status, "forked_from": fork}


def audit_json(entry: AuditEntry) -> dict[str, Any]:
    """Return an act of the audit trail."""
    return _plain(entry) | {"details": dict(entry.details)}


def turn_json(turn: StoredTurn) -> dict[str, Any]:
    """Return a turn, without its calls and its open questions."""
    found = _plain(turn)
    del found["calls"], found["questions"]
    return (
        {"turn": found.pop("number")}
        | found
        | {
            "forked_from": fork_json(turn.forked_from),
            "decisions": [decision_json(decision) for decision in turn.decisions],
            "usage": _plain(turn.usage),
        }
    )


def calls_json(calls: Iterable[Call] | None) -> list[dict[str, Any]] | None:
    """Return calls; ``None`` if they were not recorded."""
    return None if calls is None else [_plain(call) for call in calls]


def questions_json(questions: Iterable[Question]) -> list[dict[str, Any]]:
    """Return questions, each with its possible answers."""
    return [_plain(question) | {"answers": list(ANSWERS[question.kind])} for question in questions]


def decision_json(decision: Decision) -> dict[str, Any]:
    """Return the answer to a question, or a decision about a turn."""
    return _plain(decision)


def diff_json(diff: StateDiff) -> dict[str, Any]:
    """Return the differences between two checkpoints."""
    return {
        "before": _plain(diff.before),
        "after": _plain(diff.after),
        "agents": list(map(_plain, diff.agents)),
        "turns": list(map(_plain, diff.turns)),
        "conversations": [_plain(each) | {"messages": list(map(_plain, each.messages))} for each in diff.conversations],
        "values": list(map(_plain, diff.values)),
    }


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
        case SessionBusy() if error.owner != SessionBusy.A_HUMAN:
            return f"another worker holds session {error.session!r}: {error.owner}"
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
