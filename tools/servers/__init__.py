"""Real servers for tests, benchmarks and examples: on this machine, on free ports. They end with their process."""

from .certificates import Certificates, certificates
from .pgbouncer import PgBouncer, pgbouncer_binary
from .postgres import Postgres, postgres_binaries
from .process import ServerFailed, ServerMissing
from .proxy import Proxy
from .redis import Redis, RedisCluster, RedisSentinel, redis_binaries

__all__ = [
    "Certificates",
    "PgBouncer",
    "Postgres",
    "Proxy",
    "Redis",
    "RedisCluster",
    "RedisSentinel",
    "ServerFailed",
    "ServerMissing",
    "certificates",
    "pgbouncer_binary",
    "postgres_binaries",
    "redis_binaries",
]
