"""Step 2: save the state of the agent durably before the process ends."""

import asyncio

from support import FACT, support

import midturn


async def main() -> None:
    async with support() as build, midturn.open() as store:
        agent = build()
        await agent.run(task=FACT)
        checkpoint = await store.save("case-42", agent)
        print(f"saved as checkpoint {checkpoint}; now run step3_restore.py")


asyncio.run(main())
