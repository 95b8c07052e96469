"""An app of the examples under uvicorn, as a process that a test can kill."""

import asyncio
import socket
import sys
import time
from contextlib import asynccontextmanager, suppress

import httpx


@asynccontextmanager
async def started(folder, app, environment):
    """Start an app, such as ``app:app``; yield its process and a client. At the end, kill the process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", app, "--port", str(port), "--log-level", "warning"]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environment)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=120) as client:
            yield process, client
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()


async def first_answer(client, path="/"):
    """Return the first answer of a server that starts. It has to be a success."""
    until = time.monotonic() + 120
    while True:
        with suppress(httpx.TransportError):
            return (await client.get(path)).raise_for_status()
        assert time.monotonic() < until
        await asyncio.sleep(0.05)
