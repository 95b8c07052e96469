"""The questions that an open turn asks people, and the answers that it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midturn.errors import StateInvalid
from midturn.record.codec import check, encode, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from midturn.record.codec import Json
    from midturn.record.rows import Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something that a human has to answer before a turn can continue."""

    id: str
    kind: Asked
    question: str
    agent: str
    """The path of the agent, such as ``participants/ann``; empty for a single agent."""
    tool: str | None = None
    arguments: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer that somebody gave to a question."""

    question: str
    kind: Asked
    agent: str
    tool: str | None = None
    arguments: Mapping[str, Json] | None = None
    """The arguments that the question showed."""
    answer: str
    changed: Mapping[str, Json] | None = None
    """The arguments that the answer gave instead."""
    by: str | None = None
    at: float

    def __str__(self) -> str:
        changed = "" if self.changed is None else f", with {encode(self.changed).decode()}"
        return f"{self.question} {self.answer}{changed}"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The open questions of a turn, oldest first. Its own attributes are those of the first question."""

    questions: tuple[Question, ...]

    @property
    def id(self) -> str:
        return self.questions[0].id

    @property
    def kind(self) -> Asked:
        return self.questions[0].kind

    @property
    def question(self) -> str:
        return self.questions[0].question

    @property
    def agent(self) -> str:
        return self.questions[0].agent

    @property
    def tool(self) -> str | None:
        return self.questions[0].tool

    @property
    def arguments(self) -> Mapping[str, Json] | None:
        return self.questions[0].arguments


def read_answer(question: Question, answer: str, arguments: Mapping[str, Json] | None) -> dict[str, Any]:
    """Return an answer in the form that the journal records: the decision, and its text or arguments.

    Raises:
        StateInvalid: the question does not accept this answer.
    """
    if not isinstance(answer, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        raise StateInvalid(f"must be a string, not {type(answer).__name__}", path="answer")
    check(answer, "answer")
    if arguments is not None:
        _check_arguments(question, arguments)
    if question.kind == "human":
        return {"decision": "said", "text": answer}
    decision, _, text = (part.strip() for part in answer.partition(":"))
    given = bool(text)
    match question.kind, decision.lower():
        case "approval", "approve" if not given:
            return {"decision": "approve", "arguments": None if arguments is None else dict(arguments)}
        case "approval", "deny" if arguments is None:
            return {"decision": "deny", "text": text}
        case "approval", "deny":
            raise StateInvalid("can only be changed together with 'approve'", path="arguments")
        case "doubt", ("retry" | "fail") as word if not given:
            return {"decision": word}
        case "doubt", "done" if given:
            return {"decision": "done", "text": text}
        case "approval", _:
            raise StateInvalid(f"is {answer!r}; it can be 'approve', 'deny' or 'deny: <reason>'", path="answer")
        case _:
            raise StateInvalid(f"is {answer!r}; it can be 'retry', 'done: <result>' or 'fail'", path="answer")


def _check_arguments(question: Question, arguments: Mapping[str, Json]) -> None:
    check(arguments, "arguments")
    if not is_object(arguments) or question.kind != "approval":
        raise StateInvalid("can only be changed when a tool's call is approved, with a JSON object", path="arguments")
    known = question.arguments or {}
    if unknown := [name for name in arguments if name not in known]:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise StateInvalid(f"the call has no {', '.join(unknown)}; {has}", path="arguments")


def decided(answer: Mapping[str, Any]) -> str:
    """Return a recorded answer in the words of whoever gave it."""
    text, arguments = answer.get("text"), answer.get("arguments")
    said = f"{answer.get('decision')}: {text}" if text else str(answer.get("decision"))
    return said if arguments is None else f"{said}, with {encode(arguments).decode()}"


FAILED = "It is not known whether this call took effect; a human decided to treat it as failed."
"""The result that a model gets for a call in doubt that a human answered with "fail"."""


def may(call: str) -> str:
    """Return the question that asks for a call's approval."""
    return f"May {call} be called?"


def did(call: str) -> str:
    """Return the question that asks what became of an interrupted call."""
    return f"{call} was interrupted. Did it take effect?"


def denied(reason: str) -> str:
    """Return the result that a model gets for a call that was not approved."""
    return f"This call was not allowed: {reason}" if reason else "This call was not allowed."
