"""Sealed stores keep the contract of every store, and behave as a plain dict does.

What seals is the same around every store. So most stores are tried with what they do themselves to the bytes of
records, to removals and deletions, and in races; MIDTURN_LONG=1 tries all of them with everything.
"""

import os
from contextlib import asynccontextmanager

import pytest
from hypothesis import settings
from tools.servers.shared import STORES, store_url

from midturn.stores.registry import open_store
from midturn.stores.sealed.keys import Keys, new_key
from midturn.stores.sealed.store import Sealed
from midturn.stores.wrapper import wrap
from midturn.testing import StoreConformance, StoreMachine
from midturn.testing.concurrency import Racing
from midturn.testing.writes import Deleting, Forgetting, Removing, Writing

LONG_RUN = bool(os.environ.get("MIDTURN_LONG"))
KEYS = Keys.parse(new_key("2026-11"))


@asynccontextmanager
async def opened(url):
    store = wrap(Sealed, await open_store(url), keys=KEYS)
    try:
        yield store
    finally:
        await store.close()


class WhatStoresDoThemselves(Writing, Removing, Deleting, Forgetting, Racing):
    """The topics in which stores differ."""


Chosen = StoreConformance if LONG_RUN else WhatStoresDoThemselves


class TestSealedMemoryStore(StoreConformance):
    shared = False
    durable = False

    def open_store(self, where):
        return opened("memory://")


class TestSealedSqliteStore(StoreConformance):
    def open_store(self, where):
        return opened(store_url("sqlite", where))


class TestSealedFileStore(Chosen):
    def open_store(self, where):
        return opened(store_url("file", where))


class TestSealedPostgresStore(Chosen):
    def open_store(self, where):
        return opened(store_url("postgres", where))


class TestSealedRedisStore(Chosen):
    def open_store(self, where):
        return opened(store_url("redis", where))


def machine(kind):
    """The machine for one kind of store."""

    class Machine(StoreMachine):
        shared = durable = kind != "memory"

        def open_store(self, where):
            return opened(store_url(kind, where))

    common = settings()
    fewer = common.max_examples // (1 if kind == "memory" else 2 if LONG_RUN else 4)
    Machine.TestCase.settings = settings(max_examples=fewer)
    return pytest.mark.timeout(7_200)(Machine.TestCase)


for kind in STORES if LONG_RUN else ("memory", "sqlite"):
    globals()[f"TestSealed{kind.title()}Machine"] = machine(kind)
