"""One process of the restart tests: the next turns of a session of each kind on each store, printed as JSON.

Usage: restart_worker.py FIRST STOP URL...
"""

import asyncio
import json
import sys
import traceback

from kinds import KINDS, TASKS, transcript

import midturn


async def turns(url, first, stop):
    said = {}
    async with midturn.open(url) as store:
        for kind, factory in KINDS.items():
            try:
                session = store.session(kind, factory)
                said[kind] = [transcript(await session.run(task=TASKS[turn])) for turn in range(first, stop)]
            except Exception:  # noqa: BLE001 - the parent reports it under its kind
                said[kind] = traceback.format_exc()
    return said


async def main(first, stop, *urls):
    print(json.dumps([await turns(url, int(first), int(stop)) for url in urls]))


asyncio.run(main(*sys.argv[1:]))
