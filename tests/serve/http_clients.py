"""Clients and servers for the tests of serving: without sockets, over sockets of this process, and as a process."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from midturn.serve.server import listen, serve

HERE = Path(__file__).parent

TOKEN = "a token for the tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def client_of(app, headers=BEARER, base="http://localhost"):
    """A client that calls an app without sockets."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base, headers=headers)


def events(text):
    """The events of a stream: the id, the kind and the data of each."""
    found = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append((fields.get("id"), fields["event"], json.loads(fields["data"])))
    return found


@asynccontextmanager
async def served(app, store, *, drain=0.0, access_log=False):
    """Serve an app on a real port; yield the address. Stop it as a signal does."""
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        task = asyncio.create_task(serve(app, store, listening, drain=drain, access_log=access_log))
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            app.stop()
            task.cancel()
            await asyncio.wait({task})


@asynccontextmanager
async def process(folder, *words, url, env=None):
    """A process of ``midturn serve``; yield it and what it printed at its start."""
    command = [sys.executable, "-m", "midturn", "serve", *words, "--port", "0", "--json", "--store", url]
    found = {**os.environ, "PYTHONPATH": str(HERE), **(env or {})}
    made = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=found, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(120):
            line = await made.stdout.readline()
        assert line, (await made.stderr.read()).decode()
        yield made, json.loads(line)
    finally:
        if made.returncode is None:
            made.kill()
        await made.communicate()


def inner(app):
    """The FastAPI app behind the gate."""
    return app._app
