"""The casts of the other tests; a test leaves nothing behind."""

import sys
from pathlib import Path

import pytest

import midturn

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.with_name(name)) for name in ("autogen", "sessions"))]

from leftovers import quiet  # noqa: E402, F401 - it needs the path above; pytest uses it


@pytest.fixture
async def memory():
    async with midturn.open("memory://") as store:
        yield store
