"""One process of the demo. It runs one turn of the case, or finishes an interrupted turn.

``python -m midturn.demo.worker tell URL TEXT`` or ``... finish URL``. It prints JSON lines: ``{"event": "running"}``
once the input is durable and the agent is at work, then the answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from autogen_agentchat.agents import AssistantAgent

import midturn
from midturn.demo.model import SYSTEM_MESSAGE, model_client

if TYPE_CHECKING:
    from autogen_core.models import ChatCompletionClient

CASE = "case-42"


def support_agent(client: ChatCompletionClient) -> AssistantAgent:
    """Return the agent of the demo."""
    return AssistantAgent("support_agent", client, system_message=SYSTEM_MESSAGE)


async def tell(url: str, text: str) -> None:
    """Run one turn."""
    async with model_client() as client, midturn.open(url) as store:
        case = store.session(CASE, lambda: support_agent(client))
        async for item in case.run_stream(task=text):
            if isinstance(item, midturn.TurnResult):
                _say(event="done", answer=item.messages[-1].to_text(), checkpoint=item.checkpoint)
            else:
                _say(event="running")


async def finish(url: str) -> None:
    """Finish the interrupted turn."""
    async with model_client() as client, midturn.open(url) as store:
        result = await store.session(CASE, lambda: support_agent(client)).resume()
        if result is not None:
            _say(event="done", answer=result.messages[-1].to_text(), checkpoint=result.checkpoint)


def _say(**line: object) -> None:
    print(json.dumps(line), flush=True)  # noqa: T201 - how the processes of the demo talk to each other


if __name__ == "__main__":
    verb, url, *texts = sys.argv[1:]
    asyncio.run(tell(url, texts[0]) if verb == "tell" else finish(url))
