"""Durability of a Redis server: whether it keeps acknowledged writes, and what it may lose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from midturn.errors import StoreUnavailable
from midturn.stores.redis.server import Forbidden, Request, Trouble

if TYPE_CHECKING:
    from midturn.store import Profile
    from midturn.stores.redis.server import Command, Server
    from midturn.stores.redis.url import Target

Refuse: TypeAlias = Callable[..., NoReturn]

OLDEST = (6, 2)
WAITAOF = (7, 2)
"""The first version that can confirm that a write is on the disk."""

_SETTINGS = ("appendfsync", "save", "no-appendfsync-on-rewrite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of checking a primary."""

    profile: Profile
    waits: tuple[str, ...] = ()
    """The commands that confirm a write in strict mode."""
    tells_role: bool
    """True if the server may be asked whether it is still the primary."""
    risk: str = ""
    """A sentence that says what the server may lose."""


async def check(server: Server, target: Target) -> Checked:
    """Check the durability of a server.

    Raises:
        Trouble: the server cannot be used as the URL says.
    """

    def refuse(what: str, *, again: bool = False) -> NoReturn:
        raise Trouble(StoreUnavailable(f"the Redis server {server.name} {what}"), again=again, stale=again)

    info = await _info(server)
    if info.get("loading", "0") != "0":  # its report about its files is not correct yet
        raise Trouble(StoreUnavailable(f"the Redis server {server.name} is still loading its data"), soon=True)
    role = await _may(server, ("ROLE",))
    if not info and target.strict:
        refuse("does not allow this user the command INFO, which strict=true needs; allow it with ACL SETUSER")
    if "sentinel" in (info.get("redis_mode"), info.get("server_mode")):
        refuse("is a Sentinel; use redis+sentinel://host:26379/service")
    if info.get("cluster_enabled") == "1" and target.layout != "cluster":
        refuse("is part of a cluster; use redis+cluster://")
    if info.get("role", "master") != "master":
        refuse("is a replica; name the primary", again=True)
    version = tuple(int(part) for part in info.get("redis_version", "6.2").split(".")[:2])
    if version < OLDEST:
        refuse(f"has version {info['redis_version']}; midturn needs Redis 6.2 or newer, or Valkey")
    _check_eviction(info, target, refuse)
    settings = {name: await _setting(server, name) for name in _SETTINGS}
    if target.strict:
        waits = _strict(info, settings, version, target, refuse)
        return Checked(profile="strict", waits=waits, tells_role=role is not None)
    profile, risk = _bounded(info, settings)
    return Checked(profile=profile, tells_role=role is not None, risk=risk and f"the Redis server {server.name} {risk}")


def _check_eviction(info: dict[str, str], target: Target, refuse: Refuse) -> None:
    policy = info.get("maxmemory_policy", "noeviction")
    evicts = policy.startswith("allkeys") or (policy.startswith("volatile") and target.ttl is not None)
    if evicts and info.get("maxmemory", "0") != "0":
        refuse(f"may evict sessions ({policy}): set maxmemory-policy noeviction")


def _strict(
    info: dict[str, str], settings: dict[str, str | None], version: tuple[int, ...], target: Target, refuse: Refuse
) -> tuple[str, ...]:
    if info.get("aof_enabled") != "1":
        refuse("keeps no append-only file, which strict=true needs: set appendonly yes")
    if settings["appendfsync"] == "no":
        refuse("does not control when its file reaches the disk, which strict=true needs: set appendfsync always")
    always = settings["appendfsync"] == "always" and settings["no-appendfsync-on-rewrite"] == "no"
    if not always and version < WAITAOF:
        refuse(
            "does not write each change to its disk at once, which strict=true needs: "
            "set appendfsync always and no-appendfsync-on-rewrite no, or use Redis 7.2 or newer"
        )
    online = sum(value.count("state=online") for name, value in info.items() if name.startswith("slave"))
    if online < target.replicas:
        refuse(f"has {online} of the {target.replicas} replicas that replicas= asks for; start the others", again=True)
    # WAITAOF even with appendfsync always: the setting may change while the server runs.
    return tuple(name for name, used in (("WAITAOF", version >= WAITAOF), ("WAIT", target.replicas > 0)) if used)


_RISKS = {
    "always": "does not have to confirm that each write is on its disk: add ?strict=true to be sure",
    "everysec": "may lose the last second or two of writes if it crashes (appendfsync everysec)",
    "no": "may lose the last half minute of writes if it crashes (appendfsync no)",
}


def _bounded(info: dict[str, str], settings: dict[str, str | None]) -> tuple[Profile, str]:
    unsure = "could not be checked, because CONFIG GET or INFO is not allowed"
    if info.get("aof_enabled") == "1":
        risk = f"may lose the last writes if it crashes; how many {unsure}"
        return "bounded-loss", _RISKS.get(settings["appendfsync"] or "", risk)
    if settings["save"] is None:
        return "bounded-loss", f"may keep nothing when it stops; that {unsure}"
    if settings["save"]:
        return "bounded-loss", "may lose all writes since its last snapshot (appendonly no): set appendonly yes"
    return "volatile", "keeps nothing when it stops (appendonly no, no save points): set appendonly yes"


async def _info(server: Server) -> dict[str, str]:
    text = await _may(server, ("INFO",))
    lines = [line.partition(":") for line in bytes(text or b"").decode(errors="replace").splitlines()]
    return {name: value for name, colon, value in lines if colon}


async def _setting(server: Server, name: str) -> str | None:
    found = await _may(server, ("CONFIG", "GET", name))
    return found[1].decode() if found else None


async def _may(server: Server, command: Command) -> Any:
    """Return the reply to a command; ``None`` if the user may not run it."""
    try:
        [reply] = await server.run(Request(0.0), [command])
    except Forbidden:
        return None
    return reply
