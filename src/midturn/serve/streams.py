"""Server-sent events: a turn as somebody follows it, which continues after the last event that a client has seen."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from midturn.record.odd import stored

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from midturn.sessions.runs import Run

BEAT = 15.0
"""Seconds without an event after which a comment is sent, so that both sides notice a connection that is gone."""


class EventStream(StreamingResponse):
    """A response that is a stream of events."""

    def __init__(self, events: AsyncGenerator[str, None], status: int = 200) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(with_beats(events), status, headers, "text/event-stream")


def event_text(name: str, data: Any, id: str = "") -> str:  # noqa: A002 - the name of the field
    """Return an event as it is sent."""
    text = json.dumps(stored(data, "$"), ensure_ascii=True)
    return (f"id: {id}\n" if id else "") + f"event: {name}\ndata: {text}\n\n"


async def run_events(run: Run[Any, Any], after: int = 0) -> AsyncGenerator[str, None]:
    """Yield the events of a turn after a number, and at the end the status of the turn."""
    async with aclosing(run.events(after=after)) as events:
        async for item in events:
            yield event_text("message", {"turn": item.turn, **item.event.dump()}, item.id)
    yield event_text("end", {"session": run.session, "turn": run.turn, "status": run.status})


async def with_beats(events: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """Yield the events, and a comment whenever none has come for some time."""
    async with aclosing(events):
        upcoming: asyncio.Task[str] | None = None
        try:
            while True:
                upcoming = upcoming or asyncio.ensure_future(anext(events))
                done, _ = await asyncio.wait({upcoming}, timeout=BEAT)
                if not done:
                    yield ": still here\n\n"
                    continue
                try:
                    yield upcoming.result()
                except StopAsyncIteration:
                    return
                upcoming = None
        finally:
            if upcoming is not None:
                upcoming.cancel()
                await asyncio.wait({upcoming})
