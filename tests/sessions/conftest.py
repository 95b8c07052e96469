"""Stores of every kind; a test leaves nothing behind."""

import os
import sys
from pathlib import Path

import pytest
from tools.servers.shared import STORES, store_url

import midturn

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.with_name("autogen"))]


@pytest.fixture(autouse=True)
def quiet(nothing_left):
    """See that a test leaves nothing behind."""


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
