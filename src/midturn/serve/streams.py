"""Server-sent events: a turn as somebody follows it, which continues after the last event that a client has seen."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from midturn.errors import MidturnError, NotFound
from midturn.record.odd import stored
from midturn.serve.cases import Cases, Forbidden
from midturn.serve.problems import problem_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Receive, Scope, Send

    from midturn.sessions.runs import Run

BEAT = 15.0
"""Seconds without an event after which a comment is sent, so that both sides notice a connection that is gone."""
CHECK = 5.0
"""Seconds after which a stream that has events looks again whether its reader may still see the session."""


class EventStream(StreamingResponse):
    """A response that is a stream of events.

    It counts among the open streams of its reader. It ends when the server stops, and when the reader may no longer see
    the session: the one with the id ``session``, else the one in the path of the request.
    """

    def __init__(self, events: AsyncGenerator[str, None], status: int = 200, *, session: str | None = None) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, status, headers, "text/event-stream")
        self._events = events
        self._session = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cases: Cases = scope["state"]["cases"]
        session = self._session or scope.get("path_params", {}).get("session")
        async with aclosing(self._events), aclosing(_lasting(self._events, cases, session)) as lasting:
            with cases.streaming():
                self.body_iterator = lasting
                await super().__call__(scope, receive, send)


def event_text(name: str, data: Any, id: str = "") -> str:  # noqa: A002 - the name of the field
    """Return an event as it is sent."""
    text = json.dumps(stored(data, "$"), ensure_ascii=True)
    return (f"id: {id}\n" if id else "") + f"event: {name}\ndata: {text}\n\n"


async def run_events(run: Run[Any, Any], after: int = 0) -> AsyncGenerator[str, None]:
    """Yield the events of a turn after a number, and at the end the status of the turn, or an error."""
    try:
        async with aclosing(run.events(after=after)) as events:
            async for item in events:
                yield event_text("message", {"turn": item.turn, **item.event.dump()}, item.id)
    except MidturnError as error:
        yield event_text("error", problem_of(error))
    else:
        yield event_text("end", {"session": run.session, "turn": run.turn, "status": run.status})


async def _lasting(events: AsyncGenerator[str, None], cases: Cases, session: str | None) -> AsyncGenerator[str, None]:
    """Yield the events as long as the reader may see them, and a comment whenever none has come for some time."""
    loop = asyncio.get_running_loop()
    checked, upcoming = loop.time(), None
    stopping = asyncio.ensure_future(cases.stopping.wait())
    try:
        while True:
            upcoming = upcoming or asyncio.ensure_future(anext(events, None))
            await asyncio.wait({upcoming, stopping}, timeout=BEAT, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                return
            if session is not None and (not upcoming.done() or loop.time() - checked >= CHECK):
                checked = loop.time()
                if not await _sees(cases, session):
                    return
            if not upcoming.done():
                yield ": still here\n\n"
                continue
            event, upcoming = upcoming.result(), None
            if event is None:
                return
            yield event
    finally:
        left = {stopping} if upcoming is None else {stopping, upcoming}
        for task in left:
            task.cancel()
        await asyncio.wait(left)


async def _sees(cases: Cases, session: str) -> bool:
    try:
        await cases.info(session)
    except (NotFound, Forbidden):
        return False
    return True
