"""Responses: JSON with an ETag, by which clients poll for free and act on what they have seen."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Header
from starlette.responses import Response

from midturn.errors import Conflict
from midturn.record.odd import stored
from midturn.serve.problems import Problem

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from midturn.history.session_info import SessionInfo
    from midturn.serve.cases import Cases

IfNoneMatch = Annotated[str, Header(description="The `ETag` of the last answer: if nothing has changed, 304.")]
IfMatch = Annotated[
    str, Header(description="The `ETag` or the `seq` of the session as it was seen: if it has changed since, 412.")
]
_TAG = re.compile(r'\s*(?:W/)?"([^"]*)"\s*(?:,|$)')
_SEQ = re.compile(r'\s*"?([0-9]{1,18})(?:-[a-z]+)?"?\s*')


def tag_of(info: SessionInfo) -> str:
    """Return the ETag of everything that belongs to a session: its seq.

    A session that runs has another one, because it becomes interrupted without a write when its worker dies.
    """
    return f'"{info.seq}-running"' if info.status == "running" else f'"{info.seq}"'


def unchanged(if_none_match: str, tag: str) -> Response | None:
    """Return a response without a body, if the client has what the tag stands for."""
    if tag.strip('"') in _TAG.findall(if_none_match) or if_none_match.strip() == "*":
        return Response(status_code=304, headers={"ETag": tag, "Cache-Control": "no-cache"})
    return None


def check_seen(info: SessionInfo, if_match: str) -> int | None:
    """Return the seq that a decision is based on, if the client names it.

    Raises:
        Problem: the session has changed since.
    """
    if not if_match or if_match.strip() == "*":
        return None
    if (found := _SEQ.fullmatch(if_match)) is None or int(found[1]) != info.seq:
        detail = f"session {info.id!r} has changed since you have seen it: its seq is {info.seq}"
        raise Problem(412, "Changed", detail, ETag=tag_of(info))
    return info.seq


@asynccontextmanager
async def as_seen(cases: Cases, session: str, if_match: str) -> AsyncGenerator[int | None]:
    """Yield the seq that a decision is based on, if the client names it. The write that follows checks it again.

    Raises:
        Problem: the session has changed since.
    """
    seq = check_seen(await cases.info(session), if_match)
    try:
        yield seq
    except Conflict:
        check_seen(await cases.info(session), if_match)
        raise


def reply(
    value: Any, status: int = 200, *, tag: str = "", if_none_match: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """Return a value as JSON. Without a ``tag``, its ETag is a digest of the text."""
    body = _text(value).encode()
    tag = tag or f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    if (same := unchanged(if_none_match, tag)) is not None:
        return same
    about = {"ETag": tag, "Cache-Control": "no-cache", **(headers or {})}
    return Response(body, status, about, "application/json")


def _text(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, default=lambda odd: stored(odd, "$"))
    except ValueError:  # not a number
        return json.dumps(stored(value, "$"))
