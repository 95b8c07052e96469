"""The casts of the other tests."""

import sys
from pathlib import Path

import pytest

import midturn
import midturn.lease.ledger

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.with_name(name)) for name in ("autogen", "sessions", "journal"))]


def pytest_collection_modifyitems(items):
    """The casts keep count in objects of their own, which no session has to keep."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.filterwarnings("ignore::midturn.errors.NotKept"))


@pytest.fixture
async def memory():
    async with midturn.open("memory://") as store:
        yield store


@pytest.fixture
async def store(memory):
    return memory
