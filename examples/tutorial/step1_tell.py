"""Step 1: tell an agent a fact. The agent and its memory live only in this process."""

import asyncio

from support import FACT, QUESTION, support


async def main() -> None:
    async with support() as build:
        agent = build()
        for task in (FACT, QUESTION):
            result = await agent.run(task=task)
            print(f"user: {task}\nsupport_agent: {result.messages[-1].to_text()}")


asyncio.run(main())
