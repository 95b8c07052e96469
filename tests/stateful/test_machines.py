"""The stores that leftoff ships behave as a plain dict does, in any order of calls."""

from contextlib import asynccontextmanager

import pytest
from hypothesis import settings

from leftoff.stores.files import FileStore
from leftoff.stores.memory import MemoryStore
from leftoff.stores.sqlite import SqliteStore
from leftoff.testing import StoreMachine

pytestmark = pytest.mark.timeout(7_200)  # LEFTOFF_LONG=1 takes its time


class MemoryMachine(StoreMachine):
    shared = False
    durable = False

    @asynccontextmanager
    async def open_store(self, where):
        store = MemoryStore()
        try:
            yield store
        finally:
            await store.close()


class FileMachine(StoreMachine):
    @asynccontextmanager
    async def open_store(self, where):
        store = await FileStore.open(where)
        try:
            yield store
        finally:
            await store.close()


class SqliteMachine(StoreMachine):
    @asynccontextmanager
    async def open_store(self, where):
        store = await SqliteStore.open(where)
        try:
            yield store
        finally:
            await store.close()


# The profile of tests/conftest.py; a machine's own default would be Hypothesis's.
MemoryMachine.TestCase.settings = FileMachine.TestCase.settings = SqliteMachine.TestCase.settings = settings()
TestMemoryMachine = MemoryMachine.TestCase
TestFileMachine = FileMachine.TestCase
TestSqliteMachine = SqliteMachine.TestCase
