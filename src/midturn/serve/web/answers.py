"""Answers of people to questions, as forms send them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from midturn.errors import Conflict, InvalidArgument, SessionBusy
from midturn.serve.answers import is_number
from midturn.serve.paths import SESSION, segment
from midturn.serve.requests import Mine
from midturn.serve.web.forms import Form, changed, refilled, text_of
from midturn.serve.web.rendering import page
from midturn.serve.web.views import turn_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.datastructures import FormData

    from midturn.questions import Decision, Question
    from midturn.serve.cases import Cases

router = APIRouter()


@router.post(f"/s/{SESSION}/answer")
async def answer(session: str, request: Request, cases: Mine, form: Form) -> Response:
    """Answer a question. If this server has the session's agents, it continues the turn."""
    case = await cases.case(session, "answer")
    asked, turn = text_of(form, "question"), text_of(form, "turn")
    opened = await (await cases.reader(session)).open_turn()
    if opened is None or str(opened.number) != turn:
        return await _late(session, request, cases, turn)
    question = next((each for each in opened.questions if each.id == asked), None)
    if question is None:
        return await _late(session, request, cases, turn)
    try:
        words, arguments = _answer(form), None
        if text_of(form, "change"):
            arguments = changed(question, form) or None
        by = cases.principal.name
        if _is_run_here(cases, (await cases.info(session)).blueprint):
            await case.start_answer(words, question=question.id, arguments=arguments, by=by)
        else:
            await case.answer(words, question=question.id, arguments=arguments, by=by)
    except InvalidArgument as error:
        return await _again(request, cases, question, form=form, error=error, session=session)
    except (Conflict, SessionBusy):
        return await _late(session, request, cases, turn)
    root, query = request.scope.get("root_path", ""), f"?answered={len(opened.decisions)}&turn={turn}"
    return RedirectResponse(f"{root}/s/{segment(session)}{query}#turn-{turn}", 303)


def _answer(form: FormData) -> str:
    """Return an answer as the library takes it: a word, or a word and a text."""
    word, text = text_of(form, "answer"), text_of(form, "text").strip()
    if word == "say":
        return text_of(form, "text")
    if word == "done" and not text:
        raise InvalidArgument("say what the call returned, for the agent to use", path="text")
    return f"{word}: {text}" if text and word in ("deny", "done") else word


def _is_run_here(cases: Cases, blueprint: str | None) -> bool:
    return blueprint in cases.blueprints


async def _again(
    request: Request, cases: Cases, question: Question, *, session: str, form: FormData, error: InvalidArgument
) -> Response:
    """Show the question once more, with what was typed and what is wrong with it."""
    info = await cases.info(session)
    opened = await (await cases.reader(session)).open_turn()
    return await page(
        request,
        "again.html",
        status=422,
        info=info,
        question=question,
        number=text_of(form, "turn"),
        view=None if opened is None else turn_view(opened),
        fields={question.id: refilled(question, form, error)},
        problems=list(error.differences),
        answer=text_of(form, "answer"),
        text=text_of(form, "text"),
        runs=_is_run_here(cases, info.blueprint),
    )


async def _late(session: str, request: Request, cases: Cases, turn: str) -> Response:
    """Say who was faster, and what was decided."""
    info = await cases.info(session)
    decisions: Sequence[Decision] = ()
    if is_number(turn) and 0 < int(turn) <= info.turns:
        decisions = (await (await cases.reader(session)).turn(int(turn))).decisions
    return await page(request, "late.html", status=409, info=info, decisions=decisions[::-1], number=turn)
