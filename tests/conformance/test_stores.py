"""The stores that leftoff ships pass the suite that it ships."""

from contextlib import asynccontextmanager

from leftoff.stores.files import FileStore
from leftoff.stores.memory import MemoryStore
from leftoff.stores.sqlite import SqliteStore
from leftoff.testing import StoreConformance


class TestMemoryStore(StoreConformance):
    shared = False
    durable = False

    @asynccontextmanager
    async def open_store(self, where):
        store = MemoryStore()
        try:
            yield store
        finally:
            await store.close()


class TestFileStore(StoreConformance):
    @asynccontextmanager
    async def open_store(self, where):
        store = await FileStore.open(where)
        try:
            yield store
        finally:
            await store.close()


class TestSqliteStore(StoreConformance):
    @asynccontextmanager
    async def open_store(self, where):
        store = await SqliteStore.open(where)
        try:
            yield store
        finally:
            await store.close()
