"""Two agents who tell a story word by word and look things up; as a script, a worker that tells it to its output."""

import asyncio
import json
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import FunctionTool
from scripted import Scripted, calls, remembered

import midturn


class Slow(Scripted):
    """A model that takes its time for every word."""

    async def create_stream(self, messages, **options):
        async for item in super().create_stream(messages, **options):
            await asyncio.sleep(0.002)
            yield item


def answer(messages):
    """Look something up, and then tell."""
    looked = sum(type(message).__name__ == "FunctionExecutionResultMessage" for message in messages)
    if looked < sum(type(message).__name__ == "UserMessage" for message in messages):
        return calls(("look", json.dumps({"page": len(messages)})))
    return f"once upon a time {remembered(messages)} and they lived happily"


@midturn.tool(effect="read")
async def look(page: int) -> str:
    """Look something up."""
    await asyncio.sleep(0.002)
    return f"page {page}"


def build():
    tools = [FunctionTool(look, name="look", description="")]
    tellers = [
        AssistantAgent(name, Slow(answer), tools=tools, model_client_stream=True, max_tool_iterations=4)
        for name in ("ann", "bob")
    ]
    return RoundRobinGroupChat(tellers, termination_condition=MaxMessageTermination(7))


def plain(event):
    """An event without its time, and without the mark of a repeated one. It has its id, which stays the same."""
    dropped = ("created_at", "request_id", "metadata")
    found = {key: value for key, value in event.dump().items() if key not in dropped}
    return json.loads(json.dumps(found, default=str))


async def main(url, after):
    async with midturn.open(url) as store:
        run = await store.session("case", build).start("tell", key="k1")
        async for item in run.events(after=after):
            print(json.dumps([item.number, plain(item.event)]), flush=True)
        await run.result()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
