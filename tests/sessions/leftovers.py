"""The proof that a test leaves nothing running and nothing unheard behind."""

import asyncio
import gc

import pytest


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
