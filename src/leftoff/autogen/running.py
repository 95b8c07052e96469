"""Running an AutoGen agent or team so that it can be stopped at once, whatever it is doing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from autogen_agentchat.base import TaskResult
from autogen_agentchat.teams import BaseGroupChat
from autogen_core import CancellationToken

from leftoff.autogen import private
from leftoff.autogen.messages import load, outcome

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from leftoff.codec import Json

GRACE = 0.2
"""Seconds that a cancelled run gets to end by itself before it is cancelled again."""

TRIES = 5
"""How often a run is cancelled before it is left to itself: AutoGen waits in `finally` for what never ends."""


async def stream(live: Any, task: Sequence[Json] | None) -> AsyncGenerator[Any, None]:
    """The events of a run, then its outcome. Closing it ends the run; the instance is of no use then."""
    token = CancellationToken()
    queue: asyncio.Queue[Any] = asyncio.Queue()
    messages = None if task is None else load(live, task)
    driver = asyncio.create_task(_drive(live, messages, token, queue))
    driver.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (item := await queue.get()) is not None:
            yield outcome(item) if isinstance(item, TaskResult) else item
        await driver
    finally:
        if not driver.done():
            await _stop(live, driver, token)


async def _drive(live: Any, task: Any, token: CancellationToken, queue: asyncio.Queue[Any]) -> None:
    async for item in live.run_stream(task=task, cancellation_token=token):
        queue.put_nowait(item)


async def _stop(live: Any, driver: asyncio.Task[None], token: CancellationToken) -> None:
    token.cancel()
    for _ in range(TRIES):
        driver.cancel()
        await asyncio.wait({driver}, timeout=GRACE)
        if driver.done():
            break
    for team in teams(live):
        for task in private.tasks(team):
            task.cancel()


def teams(live: Any) -> Iterator[BaseGroupChat]:
    """A team and the teams inside it."""
    if isinstance(live, BaseGroupChat):
        yield live
        for participant in private.participants(live):
            yield from teams(participant)
