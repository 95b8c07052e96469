"""Stores of every kind, and the proof that a test leaves nothing running and nothing unheard behind."""

import asyncio
import gc
import os
import sys
from pathlib import Path

import pytest
from tools.servers.shared import STORES, store_url

import midturn

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.with_name("autogen"))]


# The second run of `make test` is there for AutoGen, of which stores know nothing.
@pytest.fixture(params=("memory", "sqlite") if os.environ.get("MIDTURN_AUTOGEN") else STORES)
def url(request, tmp_path):
    return store_url(request.param, tmp_path / "store")


@pytest.fixture
async def store(url):
    async with midturn.open(url) as store:
        yield store


@pytest.fixture
async def memory():
    async with midturn.open("memory://") as store:
        yield store


@pytest.fixture(autouse=True)
async def quiet(caplog):
    """No task is left behind, and asyncio had nothing to complain about."""
    before = asyncio.all_tasks()
    yield
    for _ in range(100):
        if not (left := asyncio.all_tasks() - before - {asyncio.current_task()}):
            break
        await asyncio.sleep(0.01)
    assert not left
    gc.collect(1)
    await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"] == []
