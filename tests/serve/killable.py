"""An app under uvicorn, as a process that a test kills and starts again at the same address."""

import asyncio
import os
import signal
import socket
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx


class Killable:
    """A server that keeps its port."""

    def __init__(self, environment):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {**os.environ, **environment}
        self._process = None

    async def start(self):
        command = [sys.executable, "-m", "uvicorn", "--factory", "protocol_app:app", "--port", str(self.port)]
        self._process = await asyncio.create_subprocess_exec(
            *command, "--log-level", "warning", cwd=Path(__file__).parent, env=self.environment
        )
        until = time.monotonic() + 120
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as client:
            while True:
                with suppress(httpx.TransportError):
                    await client.get("/")
                    return
                assert time.monotonic() < until
                assert self._process.returncode is None
                await asyncio.sleep(0.05)

    async def kill(self):
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()


@asynccontextmanager
async def started(**environment):
    """Start the server; kill it at the end."""
    server = Killable(environment)
    try:
        await server.start()
        yield server
    finally:
        await server.kill()
