"""Acts of people on a session. Each has a page that describes it and asks."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from midturn.errors import InvalidArgument
from midturn.framework import Destination
from midturn.record.odd import stored
from midturn.serve.paths import SESSION, segment
from midturn.serve.principals import Action
from midturn.serve.problems import Problem
from midturn.serve.requests import Mine
from midturn.serve.web.forms import Form, text_of
from midturn.serve.web.rendering import page
from midturn.serve.web.views import bubble_of

if TYPE_CHECKING:
    from starlette.datastructures import FormData

    from midturn.history.session_info import SessionInfo
    from midturn.serve.cases import Cases

router = APIRouter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An act on a session, in the words of its page."""

    name: str
    action: Action
    title: str
    about: str
    button: str
    done: str = ""
    """The words on the page of the session afterwards."""
    danger: bool = False
    why: bool = False
    at: Literal["checkpoint", "turn"] | None = None
    """The act is about a checkpoint or a turn."""
    agents: bool = False
    """It needs the session's agents."""
    open: bool = False
    """It is about an open turn."""


ACTS = {
    each.name: each
    for each in (
        Act(
            name="resume",
            action="run",
            title="Resume the turn",
            about="A worker of this server continues the open turn from its record. Completed calls are not made "
            "again.",
            button="Resume",
            done="A worker of this server continues the turn.",
            agents=True,
            open=True,
        ),
        Act(
            name="fork",
            action="fork",
            title="Fork",
            about="A new session begins with the state of a checkpoint. This one does not change.",
            button="Fork",
            why=True,
            at="checkpoint",
        ),
        Act(
            name="rewind",
            action="rewind",
            title="Rewind",
            about="A new checkpoint gets the state of an older one. The turns between stay in the history, marked as "
            "left behind. What their tools did stays done.",
            button="Rewind",
            done="The session was rewound.",
            why=True,
            at="checkpoint",
        ),
        Act(
            name="replay",
            action="run",
            title="Replay a turn",
            about="Today's code runs a finished turn again from its record, without any call, and the page shows what "
            "differs. Nothing is written.",
            button="Replay",
            at="turn",
            agents=True,
        ),
        Act(
            name="label",
            action="label",
            title="Labels",
            about="Write one label on each line, as name=value. A line that you remove removes its label.",
            button="Set the labels",
            done="The labels were set.",
        ),
        Act(
            name="export",
            action="export",
            title="Export",
            about="The conversations of a checkpoint, as JSON for another library to continue. Nothing is written.",
            button="Export",
            at="checkpoint",
        ),
        Act(
            name="discard",
            action="discard",
            title="Give the turn up",
            about="The turn ends without a result, and the state is as it was before. What its tools did stays done.",
            button="Give it up",
            done="The turn was given up.",
            danger=True,
            open=True,
        ),
        Act(
            name="delete",
            action="delete",
            title="Delete the session",
            about="The session is deleted for good, on all pages and in the store. Only its id is left, with your name "
            "and the reason.",
            button="Delete it for good",
            danger=True,
            why=True,
        ),
    )
}
OPEN = ("interrupted", "failed", "cancelled", "waiting")
"""Statuses of sessions with an open turn that nobody runs."""


def acts_for(info: SessionInfo, *, runs: bool) -> list[Act]:
    """Return the acts that a session in this status allows."""
    if info.status in ("deleted", "running"):
        return [] if info.status == "deleted" else [ACTS["fork"], ACTS["export"]]
    return [
        act
        for act in ACTS.values()
        if (runs or not act.agents)
        and (not act.open or info.status in OPEN)
        and (act.name != "resume" or info.status != "waiting")
        and (act.at is None or info.checkpoint)
    ]


@router.get(f"/s/{SESSION}/do/{{name}}")
async def ask(session: str, name: str, request: Request, cases: Mine, at: int | None = None) -> Response:
    """Say what an act does, and ask."""
    act = _act(name)
    info = await cases.info(session, act.action)
    return await _asked(request, cases, info, act, at=at)


@router.post(f"/s/{SESSION}/do/{{name}}")
async def do(session: str, name: str, request: Request, cases: Mine, form: Form) -> Response:
    """Do it."""
    act = _act(name)
    info = await cases.info(session, act.action)
    given = text_of(form, "at").strip()
    if given and not given.isdecimal():
        return await _asked(request, cases, info, act, error=f"{given!r} is not the number of a {act.at}")
    at = int(given) if given else None
    try:
        return await _do(act, session, request=request, cases=cases, form=form, at=at)
    except InvalidArgument as error:
        problem = ": ".join(error.differences[0])
        return await _asked(request, cases, info, act, at=at, error=problem, text=text_of(form, "labels"))


async def _do(act: Act, session: str, *, request: Request, cases: Cases, form: FormData, at: int | None) -> Response:
    why, by = text_of(form, "why") or None, cases.principal.name
    match act.name:
        case "fork":
            new = await cases.fork(session, text_of(form, "new"), at=at, why=why)
            return _to(request, new.id, "")
        case "rewind":
            case = await cases.case(session, "rewind")
            await case.rewind(_needed(at, "checkpoint"), by=by, why=why, discard=bool(text_of(form, "discard")))
        case "replay":
            return await _replayed(request, cases, session, _needed(at, "turn"))
        case "resume":
            case = await cases.case(session, "run")
            await case.start_resume(diverged="continue" if text_of(form, "diverged") else "raise", by=by)
        case "discard":
            await (await cases.case(session, "discard")).discard(by=by)
        case "label":
            await cases.label(session, _labels(form, (await cases.info(session)).labels))
        case "export":
            return await _exported(cases, session, text_of(form, "to"), at)
        case _:
            await cases.delete(session, why=why)
    return _to(request, session, act.name if act.done else "")


async def _asked(
    request: Request,
    cases: Cases,
    info: SessionInfo,
    act: Act,
    *,
    at: int | None = None,
    error: str = "",
    text: str = "",
) -> Response:
    number = info.checkpoint if act.at == "checkpoint" else info.turns
    return await page(
        request,
        "act.html",
        status=422 if error else 200,
        info=info,
        act=act,
        at=number if at is None else at,
        new=f"{info.id}-{secrets.token_hex(2)}",
        labels=text or "\n".join(f"{name}={value}" for name, value in info.labels.items()),
        error=error,
        destinations=get_args(Destination),
        runs=info.blueprint in cases.blueprints,
        has_open_turn=info.status in OPEN,
    )


async def _replayed(request: Request, cases: Cases, session: str, turn: int) -> Response:
    case = await cases.case(session, "run")
    found = await case.replay(turn)
    bubbles = [bubble_of(message.dump()) for message in found.messages]
    return await page(
        request, "replay.html", info=await cases.info(session), replay=found, same=found.same, bubbles=bubbles
    )


async def _exported(cases: Cases, session: str, to: str, at: int | None) -> Response:
    destination: Any = to
    found = await cases.export(session, to=destination, at=at)
    name = "".join(each if each.isascii() and (each.isalnum() or each in "-_") else "-" for each in session)[:80]
    return Response(
        json.dumps(stored(found, "$"), indent=2),
        media_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}-{to}.json"', "Cache-Control": "no-store"},
    )


def _act(name: str) -> Act:
    if name not in ACTS:
        raise Problem(404, "NotFound", "there is no such act")
    return ACTS[name]


def _needed(at: int | None, what: str) -> int:
    if at is None:
        raise InvalidArgument("is needed", path=what)
    return at


def _labels(form: FormData, before: Any) -> dict[str, str | None]:
    """Return the labels to set, and ``None`` for those to remove."""
    found: dict[str, str | None] = dict.fromkeys(before)
    for line in text_of(form, "labels").split("\n"):
        name, sign, value = line.strip().partition("=")
        if line.strip() and (not sign or not name.strip()):
            raise InvalidArgument(f"{line.strip()!r} is not name=value", path="labels")
        if name.strip():
            found[name.strip()] = value.strip()
    return found


def _to(request: Request, session: str, did: str) -> RedirectResponse:
    query = f"?did={did}" if did else ""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/s/{segment(session)}{query}", 303)
