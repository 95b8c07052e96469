"""Step 5: kill a process after its turn was acknowledged. The next process remembers the turn."""

import asyncio
import os
import signal
import subprocess
import sys

from support import FACT, QUESTION, support

import midturn


async def turn(task: str) -> None:
    async with support() as build, midturn.open() as store:
        result = await store.session("case-44", build).run(task=task)
        print(f"acknowledged: {result.messages[-1].to_text()}", flush=True)
        if task == FACT:
            await asyncio.sleep(3600)  # the process is killed while it waits here


def main() -> None:
    child = subprocess.Popen([sys.executable, __file__, FACT], stdout=subprocess.PIPE, text=True)
    told = child.stdout.readline().strip() if child.stdout else ""
    print(f"process {child.pid}: {told}")
    os.kill(child.pid, signal.SIGKILL)
    print(f"process {child.pid}: killed, exit code {child.wait()}")
    child = subprocess.run([sys.executable, __file__, QUESTION], stdout=subprocess.PIPE, text=True, check=True)
    print(f"a new process: {child.stdout.strip()}")


if sys.argv[1:]:
    asyncio.run(turn(sys.argv[1]))
else:
    main()
