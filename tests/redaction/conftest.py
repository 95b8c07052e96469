"""The casts of the other tests."""

import sys
from pathlib import Path

import pytest
from tools.servers.shared import store_url

import midturn
import midturn.lease.ledger
from midturn.autogen.calls import recorders

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.with_name("autogen"))]


@pytest.fixture(autouse=True)
def mortal(monkeypatch):
    """A tool that raises ``Killed`` takes its whole process with it: nothing is recorded any more."""
    from desks import Killed

    monkeypatch.setattr(midturn.lease.ledger, "is_dead", lambda _owner: True)
    real = recorders.CallRecorder.make

    async def call(self, *args, **options):
        try:
            return await real(self, *args, **options)
        except Killed as death:
            await self.run.calls._appender.stop(death)

    monkeypatch.setattr(recorders.CallRecorder, "make", call)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    url = "memory://" if request.param == "memory" else store_url("sqlite", tmp_path / "store")
    async with midturn.open(url) as store:
        yield store


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return "memory://" if request.param == "memory" else store_url("sqlite", tmp_path / "store")
