"""A real Chromium, one for each process of the tests, and a real server with the desk's sessions."""

import importlib
import os
import sys
from pathlib import Path

import httpx
import pytest
from playwright.async_api import async_playwright

import midturn

sys.path[:0] = [str(Path(__file__).parent)]
browser = importlib.import_module("browser")


@pytest.fixture(autouse=True)
def quiet():
    """Leave tasks alone: those of the browser live in a thread of their own."""


@pytest.fixture(scope="session")
def chromium():
    """The browser, and the thread in which it is used."""
    thread = browser.Thread()
    playwright = thread.run(async_playwright().start())
    try:
        chromium = thread.run(browser.launched(playwright))
        if chromium is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(browser.MISSING)
        try:
            yield thread, chromium
        finally:
            thread.run(chromium.close())
    finally:
        thread.run(playwright.stop())
        thread.stop()


@pytest.fixture(scope="module")
def shared_desk(tmp_path_factory):
    """A server for all tests of a file, each with sessions of its own."""
    with browser.serving(tmp_path_factory.mktemp("desk")) as server:
        yield server


@pytest.fixture
def desk(request, tmp_path):
    if request.node.get_closest_marker("kills"):
        with browser.serving(tmp_path) as server:
            yield server
    else:
        yield request.getfixturevalue("shared_desk")


def pytest_configure(config):
    config.addinivalue_line("markers", "kills: the test kills its server, and so has one of its own.")


@pytest.fixture
async def store():
    async with midturn.open("memory://", drain=0) as store:
        yield store


@pytest.fixture
async def make(store):
    """A client of the page without a browser, for a principal and blueprints."""
    clients = []

    def made(blueprints=(), headers=None, **options):
        options = options or {"token": browser.TOKEN, "by": "ann@desk"}
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(midturn.asgi(store, blueprints, **options)),
            base_url="http://localhost",
            headers={"Authorization": f"Bearer {browser.TOKEN}", "Accept": "text/html"} if headers is None else headers,
            follow_redirects=True,
        )
        clients.append(client)
        return client

    yield made
    for client in clients:
        await client.aclose()
