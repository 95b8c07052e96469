"""The list of sessions, with filters that are all in the address."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from midturn.errors import InvalidArgument, MidturnError, NotFound
from midturn.history.json_view import session_json
from midturn.history.listing import Listing
from midturn.history.session_info import SessionStatus
from midturn.history.spoken import result_text
from midturn.serve.paths import segment
from midturn.serve.problems import Problem
from midturn.serve.requests import Mine
from midturn.serve.streams import EventStream
from midturn.serve.web.forms import Form, text_of
from midturn.serve.web.live import looked, sent
from midturn.serve.web.rendering import page, part
from midturn.serve.web.views import last_words

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from midturn.history.session_info import SessionInfo
    from midturn.serve.cases import Cases
    from midturn.sessions.reader import SessionReader

router = APIRouter()

PAGE = 50
"""Sessions in a page."""
AT_ONCE = 8
"""Sessions whose last words are read at the same time."""
SHORT = 200
"""Characters of the last words of a session."""

Labels = Annotated[list[str], Query(alias="label")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The sessions that somebody wants to see. Each filter is a part of the address."""

    status: SessionStatus | None
    prefix: str
    labels: dict[str, str]
    after: str = ""

    @classmethod
    def of(cls, status: str, prefix: str, labels: Sequence[str], after: str = "") -> Filters:
        """Return the filters of an address.

        Raises:
            InvalidArgument: one of them is not valid.
        """
        if status and status not in get_args(SessionStatus):
            raise InvalidArgument(
                f"is {status!r}; it can be one of {', '.join(get_args(SessionStatus))}", path="status"
            )
        for label in labels:
            if label and ("=" not in label or label.startswith("=")):
                raise InvalidArgument(f"{label!r} is not NAME=VALUE", path="label")
        known: Any = status or None
        pairs = [label.partition("=") for label in labels if label]
        return cls(
            status=known, prefix=prefix, labels={name.strip(): value.strip() for name, _, value in pairs}, after=after
        )

    def listing(self) -> Listing:
        """Return the list of these sessions, the latest changed first."""
        return Listing.of(
            status=self.status, prefix=self.prefix, labels=self.labels, order="updated", after=self.after, limit=PAGE
        )

    def query(self, **changed: Any) -> str:
        """Return the filters as the query of an address, with some of them changed."""
        given: dict[str, Any] = {
            "status": self.status or "",
            "prefix": self.prefix,
            "label": [f"{name}={value}" for name, value in self.labels.items()],
        } | changed
        found = urlencode({name: value for name, value in given.items() if value}, doseq=True)
        return f"?{found}" if found else ""

    def without(self, label: str) -> str:
        """Return the query without one label."""
        return self.query(label=[f"{name}={value}" for name, value in self.labels.items() if name != label])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A session in the list."""

    info: SessionInfo
    who: str = ""
    words: str = ""
    """The last message, or the question that is open."""


@router.get("/")
@router.get("/sessions.json")
async def sessions(
    request: Request,
    cases: Mine,
    *,
    status: str = "",
    prefix: str = "",
    after: str = "",
    label: Labels = [],  # noqa: B006
) -> Response:
    """Show the sessions that changed last."""
    filters = Filters.of(status, prefix, label, after)
    found, counts = await _read(cases, filters), await cases.counts()
    more = found[-1].cursor if len(found) == PAGE else None
    if request.scope["path"].endswith(".json"):
        listed = {"sessions": [session_json(info) for info in found], "next": more, "counts": counts}
        return await page(request, "", data=listed)
    return await page(
        request,
        "sessions.html",
        filters=filters,
        rows=await _rows(cases, found),
        counts=counts,
        total=sum(count for word, count in counts.items() if word != "deleted"),
        more=more,
        blueprints=list(cases.blueprints),
        fresh=secrets.token_hex(4),
    )


@router.get("/live")
async def live(request: Request, cases: Mine, status: str = "", prefix: str = "", label: Labels = []) -> Response:  # noqa: B006
    """Send what changes in the first page of a list, to those who look at it."""
    filters = Filters.of(status, prefix, label)
    shown = set[str]()

    async def look() -> Any:
        newest = [info async for info in cases.sessions(Listing.of(order="updated", limit=1))]
        running = [info.id async for info in cases.sessions(Listing.of(status="running", order="updated", limit=PAGE))]
        return [(info.id, info.seq) for info in newest], running

    async def parts(*, first: bool) -> str:
        found = await _read(cases, filters)
        new = [info for info in found if info.id not in shown]
        if first:
            shown.update(info.id for info in found)
            new = []
        rows = await _rows(cases, [info for info in found if info.id in shown])
        return part(
            request, "sessions_live.html", rows=rows, counts=await cases.counts(), new=len(new), filters=filters
        )

    async def events() -> AsyncGenerator[str, None]:
        async for number in looked(look):
            yield await parts(first=not number)

    return EventStream(sent(events()))


@router.post("/begin")
async def begin(request: Request, cases: Mine, form: Form) -> Response:
    """Begin a session with its first turn. The same form sent again leads to the same turn."""
    session, key = text_of(form, "session"), text_of(form, "key") or None
    case = await cases.runnable(session, blueprint=text_of(form, "blueprint") or None)
    with suppress(NotFound):
        if (await case.follow()).key != key:  # else these words would answer a question of that session
            raise Problem(409, "Taken", f"there is already a session {session!r}: go back, and choose another id")
    await case.start(text_of(form, "text"), key=key)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/s/{segment(session)}#latest", 303)


async def _read(cases: Cases, filters: Filters) -> list[SessionInfo]:
    return [info async for info in cases.sessions(filters.listing())]


async def _rows(cases: Cases, infos: Sequence[SessionInfo]) -> list[Row]:
    """Return sessions with their last words, a few at a time."""
    free = asyncio.Semaphore(AT_ONCE)

    async def row(info: SessionInfo) -> Row:
        async with free:
            try:
                return await _row(cases, info)
            except MidturnError as error:  # a damaged session must not hide the others
                return Row(info=info, words=str(error).partition("\n")[0])

    return list(await asyncio.gather(*map(row, infos)))


async def _row(cases: Cases, info: SessionInfo) -> Row:
    if info.problem is not None:
        return Row(info=info, words=info.problem)
    if info.deleted is not None:
        return Row(info=info, who=info.deleted.by or "", words=info.deleted.why or "deleted")
    who, words = await _last_words(cases.reader_of(info), info) if info.turns else ("", "")
    return Row(info=info, who=who, words=_short(words))


async def _last_words(reader: SessionReader, info: SessionInfo) -> tuple[str, str]:
    """Return who spoke last in a session, and what: a question, an error, a call that is complete, or a message."""
    if info.status == "waiting" and (asked := await reader.waiting()) is not None:
        return asked.agent, asked.question
    is_open = info.status in ("running", "interrupted")
    turns = [turn async for turn in reader.history(last=1, calls=is_open)]
    for turn in turns:
        if info.status == "failed" and turn.error:
            return "", turn.error.partition("\n")[0]
        if is_open and turn.calls:
            call = turn.calls[-1]
            return call.name or call.agent, result_text(call.kind, call.result)
        if (words := last_words(turn)) is not None:
            return words.who, words.text
    return "", ""


def _short(text: str) -> str:
    line = " ".join(text[: 4 * SHORT].split())
    return line if len(line) <= SHORT else f"{line[: SHORT - 1]}…"
