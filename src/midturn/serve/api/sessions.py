"""Routes to sessions: lists of them, one of them, and what people do with one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import AwareDatetime
from starlette.responses import Response

from midturn.errors import InvalidArgument, TurnFailed
from midturn.history.json_view import (
    DiffJson,
    LineageJson,
    SessionJson,
    diff_json,
    lineage_json,
    sentence,
    session_json,
)
from midturn.history.listing import Listing
from midturn.history.session_info import SessionStatus
from midturn.serve.api.models import (
    UNCHANGED,
    Change,
    CheckpointState,
    Id,
    NewFork,
    Rewind,
    SessionPage,
    ok,
)
from midturn.serve.paths import SESSION, segment
from midturn.serve.problems import Problem
from midturn.serve.replies import IfMatch, IfNoneMatch, as_seen, reply, tag_of, unchanged
from midturn.serve.requests import Mine, Root
from midturn.store import ListOrder

router = APIRouter(tags=["sessions"])

PAGE, MOST = 50, 200
"""Number of sessions in a page: by default, and at most."""

Label = Annotated[
    list[str], Query(description="Only sessions with this label: `NAME=VALUE`.", examples=[["team=claims"]])
]
Prefix = Annotated[str, Query(description="Only sessions whose id begins with this.")]
Since = Annotated[AwareDatetime | None, Query(description="Only what has changed since this time.")]
After = Annotated[str, Query(description="The `next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=MOST)]


def labels_of(words: list[str]) -> dict[str, str]:
    """Return the labels that ``NAME=VALUE`` words give.

    Raises:
        InvalidArgument: a word does not.
    """
    for word in words:
        if not word.partition("=")[0] or "=" not in word:
            raise InvalidArgument(f"{word!r} is not NAME=VALUE", path="label")
    return {name: value for name, _, value in (word.partition("=") for word in words)}


@router.get("/sessions", response_model=None, responses={**ok(SessionPage), **UNCHANGED})
async def list_sessions(
    cases: Mine,
    *,
    status: Annotated[list[SessionStatus] | None, Query(description="Only sessions with this status.")] = None,
    label: Label = [],  # noqa: B006 - FastAPI copies it
    prefix: Prefix = "",
    order: ListOrder = "updated",
    reverse: bool = False,
    since: Since = None,
    after: After = "",
    limit: Limit = PAGE,
    if_none_match: IfNoneMatch = "",
) -> Response:
    """List sessions, page by page: by default those that changed last come first, and deleted ones are left out."""
    listing = Listing.of(
        status=status,
        labels=labels_of(label),
        prefix=prefix,
        order=order,
        reverse=reverse,
        since=since,
        after=after,
        limit=limit,
    )
    found = [info async for info in cases.sessions(listing)]
    more = found[-1].cursor if len(found) == limit else None
    page = {"sessions": [session_json(info) for info in found], "next": more}
    return reply(page, if_none_match=if_none_match)


@router.get("/counts", response_model=None, responses={**ok(dict[SessionStatus, int]), **UNCHANGED})
async def count_sessions(cases: Mine, if_none_match: IfNoneMatch = "") -> Response:
    """Return the number of sessions with each status."""
    return reply(await cases.counts(), if_none_match=if_none_match)


@router.get(f"/sessions/{SESSION}", response_model=None, responses={**ok(SessionJson), **UNCHANGED})
async def get_session(session: Id, cases: Mine, if_none_match: IfNoneMatch = "") -> Response:
    """Return the status and the facts of a session."""
    info = await cases.info(session)
    return reply(session_json(info), tag=tag_of(info), if_none_match=if_none_match)


@router.patch(f"/sessions/{SESSION}", response_model=None, responses=ok(SessionJson))
async def label_session(session: Id, change: Change, cases: Mine, if_match: IfMatch = "") -> Response:
    """Set and remove labels of a session. Other labels stay."""
    async with as_seen(cases, session, if_match) as seq:
        info = await cases.label(session, change.labels, seq=seq)
    return reply(session_json(info), tag=tag_of(info))


@router.delete(f"/sessions/{SESSION}", status_code=204, response_model=None)
async def delete_session(
    session: Id,
    cases: Mine,
    *,
    why: Annotated[str | None, Query(max_length=2000, description="The reason; it stays with the id.")] = None,
    if_match: IfMatch = "",
) -> Response:
    """Delete a session for good. Who deleted it, when and why is all that is left."""
    async with as_seen(cases, session, if_match) as seq:
        await cases.delete(session, why=why, seq=seq)
    return Response(status_code=204)


@router.post(f"/sessions/{SESSION}/fork", response_model=None, status_code=201, responses=ok(SessionJson, status=201))
async def fork_session(session: Id, new: NewFork, cases: Mine, root: Root) -> Response:
    """Begin a session with a checkpoint of this one, which does not change."""
    info = await cases.fork(session, new.session, at=new.checkpoint, labels=new.labels, why=new.why)
    where = {"Location": f"{root}/api/sessions/{segment(info.id)}"}
    return reply(session_json(info), 201, tag=tag_of(info), headers=where)


@router.post(f"/sessions/{SESSION}/rewind", response_model=None, responses=ok(SessionJson))
async def rewind_session(session: Id, to: Rewind, cases: Mine, if_match: IfMatch = "") -> Response:
    """Go back to an older checkpoint: a new one gets its state. Nothing is removed from the history."""
    case = await cases.case(session, "rewind")
    try:
        async with as_seen(cases, session, if_match) as seq:
            await case.rewind(to.checkpoint, by=cases.principal.name, why=to.why, discard=to.discard, seq=seq)
    except TurnFailed as error:
        raise Problem(409, "TurnOpen", sentence(error)) from None
    info = await cases.info(session)
    return reply(session_json(info), tag=tag_of(info))


@router.get(f"/sessions/{SESSION}/lineage", response_model=None, responses={**ok(LineageJson), **UNCHANGED})
async def get_lineage(session: Id, cases: Mine, if_none_match: IfNoneMatch = "") -> Response:
    """Return the sessions that a session was forked from, and those that were forked from it."""
    return reply(lineage_json(await cases.lineage(session)), if_none_match=if_none_match)


@router.get(
    f"/sessions/{SESSION}/checkpoints/{{checkpoint}}",
    response_model=None,
    responses={**ok(CheckpointState), **UNCHANGED},
)
async def get_checkpoint(session: Id, checkpoint: int, cases: Mine, if_none_match: IfNoneMatch = "") -> Response:
    """Return the state after a turn: AutoGen's own, and what AutoGen leaves out."""
    info, reader = await cases.look(session)
    if (same := unchanged(if_none_match, tag_of(info))) is not None:
        return same
    stored = await reader.at(checkpoint).read()
    found = {
        "session": session,
        "checkpoint": checkpoint,
        "version": stored.row.version,
        "state": stored.tree["state"],
        "beside": stored.tree.get("beside", {}),
    }
    return reply(found, tag=tag_of(info))


@router.get(f"/sessions/{SESSION}/diff", response_model=None, responses={**ok(DiffJson), **UNCHANGED})
async def diff_checkpoints(
    session: Id,
    cases: Mine,
    *,
    before: int,
    after: int,
    other: Annotated[str | None, Query(description="The session of the checkpoint `after`, if it is another.")] = None,
    if_none_match: IfNoneMatch = "",
) -> Response:
    """Return what differs between two checkpoints, of this session or of this one and another."""
    found = await cases.diff((session, before), (session if other is None else other, after))
    return reply(diff_json(found), if_none_match=if_none_match)


@router.get(f"/sessions/{SESSION}/export", response_model=None, responses={**ok(Any), **UNCHANGED})
async def export_session(
    session: Id,
    cases: Mine,
    *,
    to: Literal["autogen", "agent-framework", "responses", "openai-chat"] = "autogen",
    checkpoint: int | None = None,
    if_none_match: IfNoneMatch = "",
) -> Response:
    """Return the state as AutoGen's `load_state()` reads it, or the conversations for another library."""
    info = await cases.info(session, "export")
    tag = tag_of(info)
    if (same := unchanged(if_none_match, tag)) is not None:
        return same
    if to != "autogen":
        return reply(await cases.export(session, to=to, at=checkpoint), tag=tag)
    reader = await cases.reader(session)
    return reply(await reader.at(info.checkpoint if checkpoint is None else checkpoint).state(), tag=tag)
