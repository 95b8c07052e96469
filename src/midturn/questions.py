"""The questions that an open turn asks people, and the answers that it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midturn.errors import InvalidArgument
from midturn.record.codec import check_argument, is_object
from midturn.record.readable import readable, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from midturn.record.codec import Json
    from midturn.record.rows import Asked, Decided

MAX_BY = 200
"""Number of characters in the name of a person who decides."""
MAX_WHY = 2000
"""Number of characters in the reason of a decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something that a human has to answer before a turn can continue."""

    id: str
    kind: Asked
    question: str
    """The question for people to read. It shows every argument of a call, and no invisible characters."""
    agent: str
    """The name of the agent that asks."""
    tool: str | None = None
    arguments: Mapping[str, Json] | None = None
    """All arguments of the call, whole."""
    schema: Mapping[str, Json] | None = None
    """The JSON schema of the arguments, if an answer can change them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer that somebody gave to a question, or a decision about the turn itself.

    Its kind is that of the question. ``discard`` gave the turn up. ``diverged`` let the turn continue although its
    recorded calls do not fit the code. An act on the session itself has the kind of the act, such as ``rewind``, and
    what it is about as its arguments.
    """

    question: str
    kind: Decided
    agent: str
    tool: str | None = None
    arguments: Mapping[str, Json] | None = None
    """The arguments that the question showed."""
    answer: str
    changed: Mapping[str, Json] | None = None
    """The arguments that the answer gave instead."""
    by: str | None = None
    """The person who answered, as given by the caller."""
    why: str | None = None
    """The reason, as given by the caller."""
    at: datetime

    def __str__(self) -> str:
        changed = "" if self.changed is None else f", with {readable(self.changed)}"
        by = "" if self.by is None else f" ({visible(self.by)})"
        why = "" if self.why is None else f": {visible(self.why)}"
        return f"{self.question} {visible(self.answer)}{changed}{by}{why}"


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
        InvalidArgument: the question does not accept this answer.
    """
    if not isinstance(answer, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        raise InvalidArgument(f"must be a string, not {type(answer).__name__}", path="answer")
    check_argument(answer, "answer")
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
            raise InvalidArgument("can only be changed together with 'approve'", path="arguments")
        case "doubt", ("retry" | "fail") as word if not given:
            return {"decision": word}
        case "doubt", "done" if given:
            return {"decision": "done", "text": text}
        case "approval", _:
            raise InvalidArgument(f"is {answer!r}; it can be 'approve', 'deny' or 'deny: <reason>'", path="answer")
        case _:
            raise InvalidArgument(f"is {answer!r}; it can be 'retry', 'done: <result>' or 'fail'", path="answer")


def words_of(question: Question, answer: str) -> tuple[str, str]:
    """Return the part of an answer that decides, such as ``deny: ``, and the text of the person that follows."""
    if question.kind == "human" or not isinstance(answer, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return "", answer
    word, colon, text = answer.partition(":")
    if word.strip().lower() not in ("approve", "deny", "retry", "done", "fail"):
        return "", answer
    return (f"{word.strip()}: ", text.strip()) if colon and text.strip() else (answer, "")


def _check_arguments(question: Question, arguments: Mapping[str, Json]) -> None:
    check_argument(arguments, "arguments")
    if not is_object(arguments) or question.kind != "approval":
        raise InvalidArgument(
            "can only be changed when a tool's call is approved, with a JSON object", path="arguments"
        )
    schema: dict[str, Any] = dict(question.schema or {})
    declared: dict[str, Any] = schema.get("properties") or {}
    known = dict.fromkeys([*(question.arguments or ()), *declared])
    if unknown := [name for name in arguments if name not in known]:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise InvalidArgument(f"the call has no {', '.join(unknown)}; {has}", path="arguments")
    if problems := list(_problems(arguments, schema)):
        raise InvalidArgument.gathered(problems)


def _problems(arguments: Mapping[str, Json], schema: dict[str, Any]) -> Iterator[InvalidArgument]:
    """Yield what is wrong with the arguments that an answer changes, according to the schema of the tool."""
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # its stubs are not its own
    from referencing import Registry

    # A registry of our own: the library's would fetch a reference to another document from the network.
    validator: Any = Draft202012Validator({**schema, "required": []}, registry=Registry())
    try:
        for found in validator.iter_errors(arguments):
            yield InvalidArgument(found.message, path=".".join(["arguments", *map(str, found.absolute_path)]))
    except Exception as error:  # noqa: BLE001 - the schema is that of a server, and may be anything
        yield InvalidArgument(f"cannot be checked, because the tool's schema is not valid: {error}", path="arguments")


def check_by(by: str | None) -> str:
    """Return the name of a person who decides; an empty string if nobody is named.

    Raises:
        InvalidArgument: ``by`` is not a name.
    """
    if by is None:
        return ""
    if not isinstance(by, str) or not 0 < len(by) <= MAX_BY:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"must be a string of 1 to {MAX_BY} characters", path="by")
    check_argument(by, "by")
    return by


def check_why(why: str | None) -> str:
    """Return the reason of a decision; an empty string if no reason is given.

    Raises:
        InvalidArgument: ``why`` is not a text.
    """
    if why is None:
        return ""
    if not isinstance(why, str) or len(why) > MAX_WHY:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"must be a string of up to {MAX_WHY} characters", path="why")
    check_argument(why, "why")
    return why


def decided(answer: Mapping[str, Any]) -> str:
    """Return a recorded answer in the words of whoever gave it."""
    text, arguments = answer.get("text"), answer.get("arguments")
    said = f"{answer.get('decision')}: {text}" if text else str(answer.get("decision"))
    return said if arguments is None else f"{said}, with {readable(arguments)}"


FAILED = "Nobody knows whether this call took effect; a human decided to treat it as failed."
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
