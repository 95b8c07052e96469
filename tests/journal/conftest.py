"""The casts of the other tests, and a dead worker whose lease nobody waits for."""

import sys
from pathlib import Path

import pytest

import leftoff
import leftoff.ledger

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.with_name("autogen")), str(HERE.with_name("session"))]


@pytest.fixture(autouse=True)
def dead(monkeypatch):
    """Whoever held a lease is dead: tests in one process cannot kill it to show that."""
    monkeypatch.setattr(leftoff.ledger, "is_dead", lambda _owner: True)


@pytest.fixture
async def memory():
    async with leftoff.open("memory://") as store:
        yield store
