"""Step 4: let a session save the state after each turn."""

import asyncio

from support import FACT, SECOND_FACT, URGENT_QUESTION, support

import midturn


async def main() -> None:
    async with support() as build, midturn.open() as store:
        case = store.session("case-43", build)
        for task in (FACT, SECOND_FACT, URGENT_QUESTION):
            result = await case.run(task=task)
            print(f"turn {result.turn}: {result.messages[-1].to_text()}")
        async for turn in case.history():
            print(f"  checkpoint {turn.number}: {turn.status}")


asyncio.run(main())
