"""What a turn asks of people: on the screen, for scripts, and at a prompt."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.text import Text

from midturn.cli.options import command_line
from midturn.cli.output import clean, line, note, say

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from midturn.questions import Question
    from midturn.sessions.reader import SessionReader

ANSWERS = {
    "human": ("TEXT",),
    "approval": ("approve", "deny: REASON"),
    "doubt": ("retry", "done: RESULT", "fail"),
}
"""What can be answered to each kind of question."""


async def open_questions(case: SessionReader) -> tuple[Question, ...]:
    """Return what the open turn of a session waits for, oldest first; nothing if it does not wait."""
    waiting = await case.waiting()
    return waiting.questions if waiting is not None else ()


def questions_json(questions: Iterable[Question]) -> list[dict[str, Any]]:
    """Questions for scripts."""
    return [
        {name: value for name, value in dataclasses.asdict(question).items() if value is not None}
        | {"answers": list(ANSWERS[question.kind])}
        for question in questions
    ]


def print_questions(questions: Sequence[Question]) -> None:
    """All about some questions, and what can be typed for each."""
    for question in questions:
        facts = [f"agent {question.agent}"] if question.agent else []
        facts += [f"tool {question.tool}"] if question.tool else []
        title = Text.assemble((question.id, "bold"), f" {question.kind}")
        say(title.append(line("".join(f", {fact}" for fact in facts)), style="dim"))
        say(_indented(question.question.strip()))
        if question.arguments:
            say(_indented(f"arguments: {json.dumps(question.arguments, ensure_ascii=False)}"))
        say(_indented(f"answer: {', '.join(ANSWERS[question.kind])}"))


def print_ways(session: str, questions: Sequence[Question], *, url: str, app: str | None = None) -> None:
    """Lines to type: how to answer, and how to give the turn up."""
    note(f"answer: {answer_line(session, questions, url=url, app=app)}")
    note(f"give the turn up: {command_line('discard', session, url=url)}")


def answer_line(session: str, questions: Sequence[Question], *, url: str, app: str | None = None) -> str:
    """A line that answers the first question."""
    flags = ["--question", questions[0].id] if len(questions) > 1 else []
    flags += ["--app", app] if app is not None else []
    # Of a call in doubt, what cannot do harm: nothing is called again.
    first = ANSWERS[questions[0].kind][1 if questions[0].kind == "doubt" else 0]
    return command_line("answer", session, first, url=url, flags=flags)


def waits(questions: Sequence[Question]) -> str:
    """What a turn waits for, in a word."""
    return "an answer" if len(questions) == 1 else f"{len(questions)} answers"


def summary(questions: Iterable[Question]) -> str:
    """For what many turns wait, counted."""
    counted = Counter(_subject(question) for question in questions)
    return ", ".join(f"{count} for {subject}" for subject, count in counted.most_common())


def prompt(questions: Sequence[Question]) -> str:
    """What stands before the place where the first one is answered."""
    choices = {"human": "answer", "approval": "approve, deny or deny: REASON", "doubt": "retry, done: RESULT or fail"}
    which = f"{questions[0].id}: " if len(questions) > 1 else ""
    return f"{which}{choices[questions[0].kind]}> "


def _subject(question: Question) -> str:
    match question.kind:
        case "human":
            return "a human's answer"
        case "approval":
            return f"the approval of {line(question.tool or '?', 80)}"
        case "doubt":
            return f"what became of {line(question.tool or '?', 80)}"


def _indented(text: str) -> str:
    return "  " + clean(text).replace("\n", "\n  ")
