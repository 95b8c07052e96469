"""The casts of the other tests, and a process that dies without dying: nothing more of it is recorded."""

import sys
from pathlib import Path

import pytest
from tools.servers.shared import store_url

import midturn
import midturn.lease.ledger
from midturn.autogen.calls import recorders

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.with_name("autogen")), str(HERE.with_name("sessions"))]


def pytest_collection_modifyitems(items):
    """The casts keep count in objects of their own, which no session has to keep."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.filterwarnings("ignore::midturn.errors.NotKept"))


@pytest.fixture(autouse=True)
def dead(monkeypatch):
    """Pretend that the holder of every lease is dead: tests in one process cannot kill it."""
    monkeypatch.setattr(midturn.lease.ledger, "is_dead", lambda _owner: True)


@pytest.fixture(autouse=True)
def mortal(monkeypatch):
    """A tool or a model that raises ``Killed`` takes its whole process with it: nothing is recorded any more."""
    from desk import Killed

    real = recorders.CallRecorder.make

    async def call(self, *args, **options):
        try:
            return await real(self, *args, **options)
        except Killed as death:
            await self.run.calls._appender.stop(death)

    monkeypatch.setattr(recorders.CallRecorder, "make", call)


@pytest.fixture
async def memory():
    async with midturn.open("memory://") as store:
        yield store


@pytest.fixture(params=("sqlite", "postgres"))
async def database(request, tmp_path):
    """A store that has transactions."""
    async with midturn.open(store_url(request.param, tmp_path / "store")) as store:
        yield store
