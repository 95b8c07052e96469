"""Acts of people on a session. Each has a page that describes it and asks."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from midturn.errors import Conflict, InvalidArgument, MidturnError, SessionBusy, SessionDeleted, TurnFailed
from midturn.framework import Destination
from midturn.history.json_view import sentence
from midturn.record.odd import stored
from midturn.serve.answers import is_number
from midturn.serve.paths import SESSION, segment
from midturn.serve.principals import Action
from midturn.serve.problems import Problem, status_of
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
    """It is about an open turn that nobody runs."""
    running: bool = False
    """A session that runs allows it."""
    seen: bool = False
    """It changes the session only if that is as the person has seen it."""


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
            running=True,
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
            seen=True,
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
            seen=True,
        ),
        Act(
            name="export",
            action="export",
            title="Export",
            about="The conversations of a checkpoint, as JSON for another library to continue. Nothing is written.",
            button="Export",
            at="checkpoint",
            running=True,
        ),
        Act(
            name="cancel",
            action="run",
            title="Cancel the turn",
            about="The turn stops, and the state is as it was before. What its tools did stays done. Then it can be "
            "tried again or given up. Only the process that runs the turn can cancel it.",
            button="Cancel the turn",
            done="The turn was cancelled.",
            danger=True,
            agents=True,
            running=True,
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
            seen=True,
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
            seen=True,
        ),
    )
}
OPEN = ("interrupted", "failed", "cancelled", "waiting")
"""Statuses of sessions with an open turn that nobody runs."""


def acts_for(info: SessionInfo, *, runs: bool) -> list[Act]:
    """Return the acts that a session in this status allows."""
    if info.status == "deleted":
        return []
    is_running = info.status == "running"
    return [
        act
        for act in ACTS.values()
        if (act.running if is_running else act.name != "cancel")
        and (runs or not act.agents)
        and (not act.open or info.status in OPEN)
        and (act.name != "resume" or info.status != "waiting")
        and (act.at is None or info.checkpoint)
    ]


@router.get(f"/s/{SESSION}/do/{{name}}")
async def ask(session: str, name: str, request: Request, cases: Mine, at: int | None = None) -> Response:
    """Say what an act does, and ask."""
    act = _act(name)
    if request.state.read_only:
        raise Problem(403, "ReadOnly", "this server only reads")
    return await _asked(request, cases, session, act, at=at)


@router.post(f"/s/{SESSION}/do/{{name}}")
async def do(session: str, name: str, request: Request, cases: Mine, form: Form) -> Response:
    """Do it."""
    act = _act(name)
    await cases.info(session, act.action)
    try:
        return await _do(act, session, request=request, cases=cases, form=form)
    except (InvalidArgument, Conflict, SessionBusy, TurnFailed) as error:
        return await _asked(request, cases, session, act, error=error, form=form)


async def _do(act: Act, session: str, *, request: Request, cases: Cases, form: FormData) -> Response:
    why, by = text_of(form, "why") or None, cases.principal.name
    at, seq = (_number(form, name) for name in ("at", "seq"))
    did = True
    match act.name:
        case "fork":
            new = await cases.fork(session, text_of(form, "new"), at=at, why=why)
            return _to(request, new.id, "")
        case "rewind":
            case = await cases.case(session, "rewind")
            given_up = bool(text_of(form, "discard"))
            await case.rewind(_needed(at, "checkpoint"), by=by, why=why, discard=given_up, seq=seq)
        case "replay":
            return await _replayed(request, cases, session, _needed(at, "turn"))
        case "resume":
            case = await cases.case(session, "run")
            run = await case.start_resume(diverged="continue" if text_of(form, "diverged") else "raise", by=by)
            did = run is not None
        case "cancel":
            did = await (await (await cases.case(session, "run")).follow()).cancel()
        case "discard":
            did = await (await cases.case(session, "discard")).discard(by=by, seq=seq)
        case "label":
            await cases.label(session, _labels(form, (await cases.info(session)).labels), seq=seq)
        case "export":
            return await _exported(cases, session, text_of(form, "to"), at)
        case _:
            await cases.delete(session, why=why, seq=seq)
    return _to(request, session, act.name if did and act.done else "")


async def _asked(
    request: Request,
    cases: Cases,
    session: str,
    act: Act,
    *,
    at: int | None = None,
    error: MidturnError | None = None,
    form: FormData | None = None,
) -> Response:
    """Return the page that asks, after an ``error`` with what somebody has typed."""
    info = await cases.info(session, act.action)
    if info.status == "deleted":
        raise SessionDeleted.of(session)
    number = info.turns if act.at == "turn" else info.checkpoint
    if act.name == "rewind":
        number = max(number - 1, info.first_turn)
    typed = {} if form is None else {name: text_of(form, name) for name in form}
    return await page(
        request,
        "act.html",
        status=200 if error is None else status_of(error) if isinstance(error, InvalidArgument) else 409,
        info=info,
        act=act,
        typed={
            "at": number if at is None else at,
            "new": f"{info.id}-{secrets.token_hex(2)}",
            "labels": "\n".join(f"{name}={value}" for name, value in info.labels.items()),
            "why": "",
            **typed,
        },
        error="" if error is None else _problem(error, info, typed.get("seq", "")),
        destinations=get_args(Destination),
        runs=info.blueprint in cases.blueprints,
        has_open_turn=info.status in OPEN,
    )


def _problem(error: MidturnError, info: SessionInfo, seq: str) -> str:
    """Return what is wrong, as the first part of a sentence."""
    if isinstance(error, Conflict) and is_number(seq) and int(seq) != info.seq:
        return "The session has changed since this page asked. Look at it first"
    if isinstance(error, InvalidArgument):
        return ": ".join(error.differences[0])
    return sentence(error)


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


def _number(form: FormData, name: str) -> int | None:
    """Return a field that is a number; ``None`` if it is empty."""
    given = text_of(form, name).strip()
    if given and not is_number(given):
        raise InvalidArgument(f"{given[:40]!r} is not a number", path=name)
    return int(given) if given else None


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
