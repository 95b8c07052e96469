"""The helpers beside these tests and those of tests/autogen can be imported by name."""

import sys
from pathlib import Path

import pytest

import leftoff

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "autogen")]


@pytest.fixture
async def store():
    async with leftoff.open("memory://") as opened:
        yield opened
