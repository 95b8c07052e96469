"""Sealed stores keep the contract of every store."""

from contextlib import asynccontextmanager

from tools.servers.shared import store_url

from midturn.stores.registry import open_store
from midturn.stores.sealed.keys import Keys, new_key
from midturn.stores.sealed.store import Sealed
from midturn.stores.wrapper import wrap
from midturn.testing import StoreConformance

KEYS = Keys.parse(new_key("2026-11"))


@asynccontextmanager
async def opened(url):
    store = wrap(Sealed, await open_store(url), keys=KEYS)
    try:
        yield store
    finally:
        await store.close()


class TestSealedMemoryStore(StoreConformance):
    shared = False
    durable = False

    def open_store(self, where):
        return opened("memory://")


class TestSealedSqliteStore(StoreConformance):
    def open_store(self, where):
        return opened(store_url("sqlite", where))


class TestSealedFileStore(StoreConformance):
    def open_store(self, where):
        return opened(store_url("file", where))


class TestSealedPostgresStore(StoreConformance):
    def open_store(self, where):
        return opened(store_url("postgres", where))


class TestSealedRedisStore(StoreConformance):
    def open_store(self, where):
        return opened(store_url("redis", where))
