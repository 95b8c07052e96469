"""The helpers beside the tests can be imported by name, here as in the processes that the tests start."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def zygote():
    """Return processes to fork from that have everything imported."""
    from zygote import Zygote

    made = Zygote()
    yield made
    made.close()
