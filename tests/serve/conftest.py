"""Servers of memory stores: as an app that is called without sockets, and as a real one in the test's own loop."""

import asyncio
import importlib
import sys
from pathlib import Path

import pytest

import midturn

sys.path[:0] = [str(Path(__file__).parent)]

from http_clients import TOKEN, client_of, served  # noqa: E402 - the folder is known only now


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


@pytest.fixture
def app(store, clerks):
    return midturn.asgi(store, [clerks.support, clerks.desk], token=TOKEN, by="ann@desk")


@pytest.fixture
async def api(app):
    async with client_of(app, base="http://localhost/api") as client:
        yield client


@pytest.fixture
async def address(app, store):
    async with served(app, store) as address:
        yield address


@pytest.fixture
def paid(tmp_path, monkeypatch):
    """Returns what the clerk of ``protocol_app`` has paid."""
    monkeypatch.setattr("protocol_app.PAID", tmp_path / "paid")
    return lambda: (tmp_path / "paid").read_text().splitlines() if (tmp_path / "paid").exists() else []


@pytest.fixture
def url(tmp_path, paid):
    return f"sqlite:///{tmp_path / 'cases.db'}"
