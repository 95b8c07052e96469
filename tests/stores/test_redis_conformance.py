"""Redis, Valkey and a Redis cluster pass the suite that every store passes."""

from contextlib import asynccontextmanager
from functools import cache
from hashlib import sha256

import pytest
from hypothesis import settings
from tools.servers import Redis, RedisCluster, redis_binaries

from leftoff.stores.redis import RedisStore
from leftoff.testing import StoreConformance, StoreMachine

pytestmark = pytest.mark.timeout(7_200)  # LEFTOFF_LONG=1 takes its time


@cache
def url_of(kind):
    """Of one server for all tests of this process; it ends with the process."""
    if kind == "cluster":
        server = RedisCluster()
    else:
        server = Redis(binary=next(binary for binary in redis_binaries() if binary.name.startswith(kind)))
    server.start()
    return server.url


class Place:
    kind = ""

    @asynccontextmanager
    async def open_store(self, where):
        prefix = sha256(str(where).encode()).hexdigest()[:16]
        store = await RedisStore.open(f"{url_of(self.kind)}?prefix={prefix}")
        try:
            yield store
        finally:
            await store.close()


class OnRedis(Place):
    kind = "redis"


class OnValkey(Place):
    kind = "valkey"


class OnCluster(Place):
    kind = "cluster"


class TestRedis(OnRedis, StoreConformance):
    pass


class TestValkey(OnValkey, StoreConformance):
    pass


class TestCluster(OnCluster, StoreConformance):
    pass


class RedisMachine(OnRedis, StoreMachine):
    pass


class ValkeyMachine(OnValkey, StoreMachine):
    pass


class ClusterMachine(OnCluster, StoreMachine):
    pass


RedisMachine.TestCase.settings = ValkeyMachine.TestCase.settings = ClusterMachine.TestCase.settings = settings()
TestRedisMachine = RedisMachine.TestCase
TestValkeyMachine = ValkeyMachine.TestCase
TestClusterMachine = ClusterMachine.TestCase
