"""The casts of the other tests; a test leaves nothing behind."""

import sys
from pathlib import Path

import pytest

import midturn

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.with_name(name)) for name in ("autogen", "sessions"))]


@pytest.fixture(autouse=True)
def quiet(nothing_left):
    """See that a test leaves nothing behind."""


@pytest.fixture
async def memory():
    async with midturn.open("memory://") as store:
        yield store
