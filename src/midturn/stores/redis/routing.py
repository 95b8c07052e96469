"""Routing: find the Redis server that has a key, whether alone, named by Sentinels, or part of a cluster.

This is midturn's own code on plain connections of redis-py. It does not use redis-py's clients for clusters and
Sentinels, because a call of a store must know three things about each attempt:

* Whether a server may have carried it out (``Request.sent``). Only that distinguishes an interrupted write from a
  rejected one. So every attempt is one exchange on one connection, and nothing below the store tries again.
* Which server answered. WAIT and WAITAOF confirm a write on the connection that wrote. ROLE, sent together with a read,
  shows that the server is still a primary. Durability is checked once for each server.
* How much time is left. All attempts, redirections and questions to Sentinels share one deadline, and a server that
  does not answer gets only a part of it. A connection whose attempt was cancelled or failed is never used again.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from redis.crc import key_slot

from midturn.errors import StoreUnavailable
from midturn.stores.redis.durability import check
from midturn.stores.redis.server import Connector, Detour, Request, Server, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterable

    from midturn.stores.redis.durability import Checked
    from midturn.stores.redis.server import Address, Command, Then
    from midturn.stores.redis.url import Target

SLOTS = 16_384


class Servers:
    """All servers that a store uses, by their slots."""

    def __init__(self, target: Target, patience: float) -> None:
        self._target = target
        self._patience = patience
        self._connectors = [Connector(url, patience) for url in target.urls]
        self._known: dict[Address, Server] = {}
        self._starts: list[int] = []
        self._primaries: list[Address] = []
        self._waits = {"WAITAOF": ("WAITAOF", 1, 0), "WAIT": ("WAIT", target.replicas)}
        self._stale = True
        self._learning = asyncio.Lock()

    @property
    def name(self) -> str:
        """Return the name of the servers for error messages."""
        return ", ".join(f"{host}:{port}" for host, port in (connector.address for connector in self._connectors))

    @property
    def hosts(self) -> list[str]:
        """Return the hosts that the URL names."""
        return [connector.address[0] for connector in self._connectors]

    @property
    def sure(self) -> bool:
        """Return whether a cluster or Sentinels, which notice failovers, have named the servers."""
        return self._target.layout != "server" and bool(self._primaries)

    async def read(self, request: Request, key: bytes, commands: list[Command]) -> list[Any]:
        """Return the replies of the server that has the key, if it is still the primary."""
        server, asking = await self._server(key, request)
        if not (await self._check(server)).tells_role:
            return await self._run(server, request, commands, asking=asking)
        *replies, role = await self._run(server, request, [*commands, ("ROLE",)], asking=asking)
        if role[0] != b"master":
            await server.drop()
            message = f"the Redis server {server.name} has become a replica; name the primary"
            raise Trouble(StoreUnavailable(message), stale=True)
        return replies

    async def write(self, request: Request, key: bytes, command: Command) -> Any:
        """Return the reply of the server that has the key, once its write is as durable as the store promises."""
        server, asking = await self._server(key, request)
        checked = await self._check(server)

        def waits(replies: list[Any]) -> list[Command]:
            # Sent after the reply and not with the command: a rejection must not wait for replicas that hang.
            first: Any = replies[0]
            written = bool(type(first) is list and first[0] in {b"written", b"gone"})
            left = min(self._patience, request.until - asyncio.get_running_loop().time())
            commands = {name: (*parts, max(1, int(left * 500))) for name, parts in self._waits.items()}
            return [commands[name] for name in checked.waits] if written else []

        reply, *waited = await self._run(server, request, [command], asking=asking, then=waits)
        if waited:
            self._confirm(server, request, dict(zip(checked.waits, waited, strict=True)))
        return reply

    def _confirm(self, server: Server, request: Request, waited: dict[str, Any]) -> None:
        what = ""
        if "WAITAOF" in waited and waited["WAITAOF"][0] < 1:
            what = f"the Redis server {server.name} has not put the change on its disk in time"
        elif waited.get("WAIT", self._target.replicas) < self._target.replicas:
            which = f"{waited['WAIT']} of {self._target.replicas} replicas of the Redis server {server.name}"
            what = f"only {which} have confirmed the change in time"
        if what:
            # With little time left, another try would only end with a less useful message.
            again = asyncio.get_running_loop().time() + self._patience / 2 < request.until
            raise Trouble(StoreUnavailable(what), again=again)

    async def run_each(
        self, request: Request, commands: dict[bytes, Command], last: Command
    ) -> dict[bytes, tuple[Any, Any]]:
        """Return the reply to each key's command, and the reply of the same server to ``last`` after it."""
        parts: dict[tuple[Server, bool], list[bytes]] = {}
        for key in commands:
            parts.setdefault(await self._server(key, request), []).append(key)
        found: dict[bytes, tuple[Any, Any]] = {}
        for (server, asking), keys in parts.items():
            await self._check(server)
            sent = [*(commands[key] for key in keys), last]
            *replies, end = await self._run(server, request, sent, asking=asking)
            found |= {key: (reply, end) for key, reply in zip(keys, replies, strict=True)}
        return found

    async def check_all(self) -> list[Checked]:
        """Check every primary, and return the results."""
        await self._learn()
        return [await self._check(self._at(address)) for address in dict.fromkeys(self._primaries)]

    def forget(self) -> None:
        """Ask again which server has which slots before the next call."""
        self._stale = True

    async def doubt(self) -> None:
        """Drop all idle connections, after a server has not answered on one."""
        self.forget()
        for server in self._known.values():
            await server.drop()

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(server.close() for server in self._known.values()))

    async def _run(
        self, server: Server, request: Request, commands: list[Command], *, asking: bool, then: Then | None = None
    ) -> list[Any]:
        try:
            return await server.run(request, commands, asking=asking, then=then)
        except Detour as detour:
            request.detours[detour.slot] = detour.address
            raise
        except Trouble as trouble:
            if trouble.stale:
                request.detours.clear()
                await server.drop()
            raise

    async def _check(self, server: Server) -> Checked:
        if server.checked is None:
            server.checked = await check(server, self._target)
        checked: Checked = server.checked  # type: ignore[assignment]  # just set
        return checked

    async def _server(self, key: bytes, request: Request) -> tuple[Server, bool]:
        await self._learn()
        slot = key_slot(key)
        if slot in request.detours:
            return self._at(request.detours[slot]), True
        return self._at(self._primaries[bisect_right(self._starts, slot) - 1]), False

    def _at(self, address: Address) -> Server:
        if address not in self._known:
            self._known[address] = Server(self._connectors[0], address)
        return self._known[address]

    async def _learn(self) -> None:
        async with self._learning:
            if not self._stale:
                return
            if self._target.layout == "cluster":
                slots = await self._told_by_the_cluster()
            elif self._target.layout == "sentinel":
                slots = [(0, await self._named_by_a_sentinel())]
            else:
                slots = [(0, self._connectors[0].address)]
            self._starts = [start for start, _ in slots]
            self._primaries = [address for _, address in slots]
            self._stale = False
            for address in self._known.keys() - set(self._primaries):
                await self._known.pop(address).close()

    async def _told_by_the_cluster(self) -> list[tuple[int, Address]]:
        # First the servers that were named last: those in the URL may no longer exist.
        known = dict.fromkeys([*self._primaries, *(connector.address for connector in self._connectors)])
        expected = 0
        for rest in range(len(known)):  # a server that was cut off from its cluster does not notice it
            asked, reply = await self._first([self._at(address) for address in [*known][rest:]], ("CLUSTER", "SLOTS"))
            slots, expected = self._slots(asked, reply)
            if expected == SLOTS:
                return slots
        message = f"the Redis cluster at {self.name} has no server for slot {expected}; see CLUSTER SLOTS"
        raise Trouble(StoreUnavailable(message), soon=True, stale=True)

    @staticmethod
    def _slots(asked: Server, reply: Any) -> tuple[list[tuple[int, Address]], int]:
        """Return each server with its first slot, and the first slot that no server has."""
        found = sorted((int(start), int(end), primary) for start, end, primary, *_ in reply)
        expected = 0
        slots: list[tuple[int, Address]] = []
        for start, end, (host, port, *_) in found:
            if start != expected or not port:
                break
            # A server without a name of its own has the address at which it was asked.
            name = bytes(host or b"").decode()
            slots.append((start, (asked.name.rpartition(":")[0] if name in {"", "?"} else name, int(port))))
            expected = end + 1
        return slots, expected

    async def _named_by_a_sentinel(self) -> Address:
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._target.service)
        # A Sentinel without a password rejects one, even if its servers have one.
        sentinels = [
            Server(connector, connector.address, login=login, db=0)
            for login in (False, True)
            for connector in self._connectors
        ]
        try:
            _, reply = await self._first(sentinels, command)
        finally:
            for sentinel in sentinels:
                await sentinel.drop()
        if reply is None:
            known = f"the Sentinels at {self.name} have no service {self._target.service!r}"
            raise Trouble(StoreUnavailable(f"{known}; SENTINEL MASTERS lists the services"), stale=True)
        host, port = reply
        return host.decode(), int(port)

    async def _first(self, servers: Iterable[Server], command: Command) -> tuple[Server, Any]:
        """Return the first server that replies, and its reply."""
        servers = list(servers)
        trouble = Trouble(StoreUnavailable(f"no Redis server at {self.name} answers; check that they run"), stale=True)
        for server in servers:
            try:
                async with asyncio.timeout(self._patience / (len(servers) + 1)):
                    [reply] = await server.run(Request(0.0), [command])
                return server, reply
            except TimeoutError:
                continue
            except Trouble as error:
                trouble = error
        raise Trouble(trouble.error, again=trouble.again, soon=trouble.soon, stale=True) from trouble.__cause__
