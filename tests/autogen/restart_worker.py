"""One process of the restart tests: the next turns of a session of each kind, printed as JSON.

Usage: restart_worker.py URL FIRST STOP
"""

import asyncio
import json
import sys
import traceback

from kinds import KINDS, TASKS, transcript

import midturn


async def main(url, first, stop):
    said = {}
    async with midturn.open(url) as store:
        for kind, factory in KINDS.items():
            try:
                session = store.session(kind, factory)
                said[kind] = [transcript(await session.run(task=TASKS[turn])) for turn in range(first, stop)]
            except Exception:  # noqa: BLE001 - the parent reports it under its kind
                said[kind] = traceback.format_exc()
    print(json.dumps(said))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
