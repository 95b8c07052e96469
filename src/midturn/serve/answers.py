"""Answering all questions of a turn at once, as protocols do that know no single answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midturn.errors import Conflict, InvalidArgument, NotFound
from midturn.questions import read_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from midturn.record.codec import Json
    from midturn.serve.cases import Case, Cases
    from midturn.sessions.reader import SessionReader
    from midturn.sessions.runs import Run

LONGEST = 10
"""Digits of a number that no session reaches."""
AGAIN = ("interrupted", "failed", "cancelled")
"""Statuses of a turn that continues when its delivery is repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An answer to a question."""

    answer: str
    arguments: Mapping[str, Json] | None = None


async def answer_all(cases: Cases, case: Case, turn: int, answers: Mapping[str, Given]) -> Run[Any, Any]:
    """Answer the open questions of a turn, by their ids, and continue the turn. A repeated answer counts once.

    Raises:
        InvalidArgument: a question is left out, or does not allow its answer. Nothing was recorded.
        Conflict: a question was never asked, or somebody has given another answer.
    """
    by, reader = cases.principal.name, await cases.reader(case.id)
    opened = await reader.open_turn()
    asked = {each.id: each for each in opened.questions} if opened is not None and opened.number == turn else {}
    if left_out := [each for id_, each in asked.items() if id_ not in answers]:
        listed = "; ".join(each.question for each in left_out)
        raise InvalidArgument(f"answer all open questions at once, also: {listed}", path="answers", session=case.id)
    for id_, given in answers.items():
        if id_ in asked:
            read_answer(asked[id_], given.answer, given.arguments)
        elif not await _decided(reader, turn, given):
            raise _not_open(case.id, id_)
    desk = await cases.desk(case.id)
    for left, id_ in reversed([*enumerate(reversed(asked))]):
        given = answers[id_]
        try:
            if not left:  # the last answer continues the turn
                return await case.start_answer(given.answer, question=id_, arguments=given.arguments, by=by)
            await desk.answer(given.answer, question=id_, arguments=given.arguments, by=by)
        except Conflict:
            if not await _decided(reader, turn, given):
                raise
    return await followed(case, turn)


async def followed(case: Case, turn: int) -> Run[Any, Any]:
    """Return the run of a turn. A turn that was interrupted or failed continues."""
    run = await case.follow(turn)
    if run.status in AGAIN:
        again = await case.start_resume()
        return run if again is None or again.turn != turn else again
    return run


def is_number(text: str) -> bool:
    """Return whether a part of an id is a number of which a session may have so many."""
    return text.isascii() and text.isdecimal() and len(text) < LONGEST


async def _decided(reader: SessionReader, turn: int, given: Given) -> bool:
    """Return whether somebody gave this answer in a turn. Decisions do not keep the ids of their questions."""
    try:
        decisions = (await reader.turn(turn)).decisions
    except NotFound:
        return False
    return any(each.answer == given.answer and _are_in(given.arguments, each.changed) for each in decisions)


def _are_in(given: Mapping[str, Json] | None, changed: Mapping[str, Json] | None) -> bool:
    """Return whether arguments were recorded, perhaps together with defaults of others."""
    if given is None or changed is None:
        return given is changed
    return all(name in changed and changed[name] == value for name, value in given.items())


def _not_open(session: str, question: str) -> Conflict:
    return Conflict(
        f"session {session!r} waits for no answer to question {question!r}; it may have been answered", session=session
    )
