"""The questions of a turn: on the screen, for scripts, and at a prompt."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.text import Text

from midturn.cli.options import command_line
from midturn.cli.output import clean, line, note, say
from midturn.history.json_view import ANSWERS
from midturn.record.readable import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from midturn.questions import Question
    from midturn.sessions.reader import SessionReader


async def open_questions(case: SessionReader) -> tuple[Question, ...]:
    """Return the questions of the open turn, oldest first; none if the turn does not wait."""
    waiting = await case.waiting()
    return waiting.questions if waiting is not None else ()


def print_questions(questions: Sequence[Question], *, err: bool = False) -> None:
    """Print questions with all their details, and the possible answers to each, on stdout or on stderr."""
    for question in questions:
        facts = [f"agent {question.agent}"] if question.agent else []
        facts += [f"tool {question.tool}"] if question.tool else []
        title = Text.assemble((question.id, "bold"), f" {question.kind}")
        say(title.append(line("".join(f", {fact}" for fact in facts)), style="dim"), err=err)
        say(_indented(question.question.strip()), err=err)
        if question.arguments:
            # The model that calls the tool may have made up names; a line end in one would look like another argument.
            named = {
                name if name.isidentifier() else readable(name): value for name, value in question.arguments.items()
            }
            say(_indented("\n".join(f"{name}: {readable(value)}" for name, value in named.items())), err=err)
        say(_indented(f"answer: {', '.join(ANSWERS[question.kind])}"), err=err)


def print_ways(session: str, questions: Sequence[Question], *, url: str, app: str | None = None) -> None:
    """Print the commands that answer a question or give the turn up."""
    note(f"answer: {answer_line(session, questions, url=url, app=app)}")
    note(f"give the turn up: {command_line('discard', session, url=url)}")


def answer_line(session: str, questions: Sequence[Question], *, url: str, app: str | None = None) -> str:
    """Return a command that answers the first question."""
    flags = ["--question", questions[0].id] if len(questions) > 1 else []
    flags += ["--app", app] if app is not None else []
    # For a call in doubt, "done" comes first: it does not call the tool again.
    first = ANSWERS[questions[0].kind][1 if questions[0].kind == "doubt" else 0]
    return command_line("answer", session, first, url=url, flags=flags)


def waits(questions: Sequence[Question]) -> str:
    """Return what a turn waits for, in a few words."""
    return "an answer" if len(questions) == 1 else f"{len(questions)} answers"


def summary(questions: Iterable[Question]) -> str:
    """Return what many turns wait for, with counts."""
    counted = Counter(_subject(question) for question in questions)
    return ", ".join(f"{count} for {subject}" for subject, count in counted.most_common())


def prompt(questions: Sequence[Question]) -> str:
    """Return the prompt at which the first question is answered."""
    choices = {"human": "answer", "approval": "approve, deny or deny: REASON", "doubt": "retry, done: RESULT or fail"}
    which = f"{questions[0].id}: " if len(questions) > 1 else ""
    return f"{which}{choices[questions[0].kind]}> "


def _subject(question: Question) -> str:
    match question.kind:
        case "human":
            return "a human's answer"
        case "approval":
            return f"approval of {line(question.tool or '?', 80)}"
        case "doubt":
            return f"the outcome of {line(question.tool or '?', 80)}"


def _indented(text: str) -> str:
    return "  " + clean(text).replace("\n", "\n  ")
