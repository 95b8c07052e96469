"""Routes for people: the open questions of all sessions, and who did what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from midturn.history.json_view import AuditJson, audit_json, questions_json, time_json
from midturn.history.listing import Listing
from midturn.serve.api.models import UNCHANGED, Inbox, Trail, ok
from midturn.serve.api.sessions import After, Label, Limit, Prefix, Since, labels_of
from midturn.serve.replies import IfNoneMatch, reply
from midturn.serve.requests import Mine

router = APIRouter(tags=["people"])


@router.get("/questions", response_model=None, responses={**ok(Inbox), **UNCHANGED})
async def list_questions(
    cases: Mine,
    *,
    label: Label = [],  # noqa: B006 - FastAPI copies it
    prefix: Prefix = "",
    after: After = "",
    limit: Limit = 50,
    if_none_match: IfNoneMatch = "",
) -> Response:
    """List the open questions of all sessions: what has waited for the longest time comes first."""
    listing = Listing.of(
        labels=labels_of(label), prefix=prefix, order="updated", reverse=True, after=after, limit=limit
    )
    found = [each async for each in cases.waiting(listing)]
    waiting = [
        {
            "session": each.info.id,
            "turn": each.info.turns,
            "questions": questions_json(each.turn.questions if each.turn is not None else ()),
            "labels": dict(each.info.labels),
            "updated": time_json(each.info.updated),
            "problem": each.problem,
        }
        for each in found
    ]
    more = found[-1].info.cursor if len(found) == limit else None
    return reply({"waiting": waiting, "next": more}, if_none_match=if_none_match)


@router.get("/audit", response_model=None, responses={**ok(Trail), **UNCHANGED})
async def get_audit(
    cases: Mine,
    *,
    session: Annotated[str | None, Query(description="Only this session.")] = None,
    label: Label = [],  # noqa: B006 - FastAPI copies it
    since: Since = None,
    by: Annotated[str | None, Query(description="Only what this person did.", max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    if_none_match: IfNoneMatch = "",
) -> Response:
    """List who did what: the session that changed last comes first, and the acts on one session in their order."""
    acts: list[AuditJson] = []
    async for entry in cases.audit(session, listing=Listing.of(labels=labels_of(label), since=since), by=by):
        acts.append(audit_json(entry))
        if len(acts) == limit:
            break
    return reply({"acts": acts}, if_none_match=if_none_match)
