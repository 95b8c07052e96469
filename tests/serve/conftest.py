"""Servers of memory stores: as an app that is called without sockets, and as a real one in the test's own loop."""

import asyncio
import importlib
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

import midturn
from midturn.serve.server import listen, serve

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]

TOKEN = "a token for the tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(autouse=True)
def quiet(nothing_left):
    """See that a test leaves nothing behind."""


@pytest.fixture
def clerks():
    found = importlib.import_module("clerks")
    found.GO = asyncio.Event()
    return found


@pytest.fixture
async def store():
    async with midturn.open("memory://", drain=0) as store:
        yield store


def client_of(app, headers=BEARER, base="http://localhost"):
    """A client that calls an app without sockets."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base, headers=headers)


@pytest.fixture
def app(store, clerks):
    return midturn.asgi(store, [clerks.support, clerks.desk], token=TOKEN, by="ann@desk")


@pytest.fixture
async def api(app):
    async with client_of(app, base="http://localhost/api") as client:
        yield client


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


@pytest.fixture
async def address(app, store):
    async with served(app, store) as address:
        yield address


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
