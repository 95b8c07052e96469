"""Step 3: load the state into a new agent in another process. It answers from memory."""

import asyncio

from support import QUESTION, support

import midturn


async def main() -> None:
    async with support() as build, midturn.open() as store:
        fresh = build()
        result = await fresh.run(task=QUESTION)
        print(f"without the state: {result.messages[-1].to_text()}")

        agent = build()
        if not await store.load("case-42", agent):
            raise SystemExit("nothing is saved yet; run step2_save.py first")
        result = await agent.run(task=QUESTION)
        print(f"with the state: {result.messages[-1].to_text()}")


asyncio.run(main())
