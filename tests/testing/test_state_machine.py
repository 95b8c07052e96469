"""The stores that midturn ships behave as a plain dict does, in any order of calls."""

import os
from contextlib import asynccontextmanager

import pytest
from hypothesis import settings
from tools.servers.shared import EMBEDDED, STORES, store_url

from midturn.stores.registry import open_store
from midturn.testing import StoreMachine

pytestmark = pytest.mark.timeout(7_200)  # MIDTURN_LONG=1 takes its time


def machine(kind, option=""):
    """The machine for one kind of store, with an option in its URL."""

    class Machine(StoreMachine):
        shared = durable = kind != "memory"

        @asynccontextmanager
        async def open_store(self, where):
            url = store_url(kind, where)
            store = await open_store(f"{url}{'&' if '?' in url else '?'}{option}" if option else url)
            try:
                yield store
            finally:
                await store.close()

    # The profile of tests/conftest.py; a machine's own default would be Hypothesis's. A server takes its time.
    # So does a disk; memory has them all.
    common = settings()
    share = 1 if kind == "memory" else 2 if kind in EMBEDDED else 3
    fewer = settings(max_examples=common.max_examples // share)
    Machine.TestCase.settings = fewer
    return Machine.TestCase


for kind in STORES:
    globals()[f"Test{kind.title()}Machine"] = machine(kind)
TestCompressedMemoryMachine = machine("memory", "compress=zstd")
if os.environ.get("MIDTURN_LONG"):
    for kind in ("file", "sqlite", "postgres"):
        globals()[f"TestCompressed{kind.title()}Machine"] = machine(kind, "compress=zstd")
    TestPlainRedisMachine = machine("redis", "compress=none")
