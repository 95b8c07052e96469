"""Parsing the URL of a Redis store."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import unquote, unquote_plus, urlsplit

from midturn.errors import InvalidArgument

Layout: TypeAlias = Literal["server", "cluster", "sentinel"]

FORMS = (
    "redis://user:password@host:6379/0, redis+cluster://user:password@host-1:6379,host-2:6379 or "
    "redis+sentinel://user:password@host-1:26379,host-2:26379/service/0 (rediss... for TLS)"
)

_LAYOUTS: dict[str, Layout] = {"": "server", "+cluster": "cluster", "+sentinel": "sentinel"}
_SCHEMES: dict[str, tuple[str, Layout]] = {
    f"{scheme}{end}": (scheme, layout) for scheme in ("redis", "rediss") for end, layout in _LAYOUTS.items()
}
_PORTS = {"cluster": 6379, "sentinel": 26379}
_OURS = frozenset({"prefix", "strict", "replicas", "ttl"})
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The servers of a store, and the options of its URL."""

    layout: Layout
    urls: tuple[str, ...] = field(repr=False)
    """One URL for each host, in the form that redis-py reads."""
    service: str = ""
    """The Sentinels' name for the primary."""
    prefix: str = "midturn"
    strict: bool = False
    replicas: int = 0
    ttl: int | None = None
    """Milliseconds from a session's last write until it expires."""


def parse(url: str) -> Target:
    """Parse a URL; no error repeats a part of it that may be a password.

    Raises:
        InvalidArgument: the URL is wrong.
    """
    name, _, rest = url.partition("://")
    if name not in _SCHEMES:
        raise InvalidArgument(f"this is not the URL of a Redis store; use {FORMS}", path="url")
    scheme, layout = _SCHEMES[name]
    place, _, query = rest.partition("?")
    authority, _, path = place.partition("/")
    login, at, hosts = authority.rpartition("@")
    if "#" in rest or "@" in path + query or not url.isprintable():
        raise _wrong("write the special characters of a password as %-escapes: / ? # @ as %2F %3F %23 %40")
    options = [option for option in query.split("&") if option.partition("=")[0] not in _OURS]
    ours = [option.partition("=") for option in query.split("&") if option not in options]
    theirs = "?" + "&".join(options) if any(options) else ""
    service, db = "", ""
    if layout == "server":
        if not re.fullmatch(r"\d*", path, re.ASCII):
            raise _wrong("the database must be a number, such as /0")
        urls: tuple[str, ...] = (f"{scheme}://{place}{theirs}",)
        if hosts:
            _port(hosts)
    else:
        if layout == "sentinel":
            service, _, db = path.partition("/")
            if not service or not re.fullmatch(r"\d*", db, re.ASCII):
                raise _wrong("the name of the service is missing, or its database is not a number")
        elif path not in {"", "0"}:
            raise _wrong("a cluster has only the database 0")
        places = [_with_port(host, _PORTS[layout]) for host in hosts.split(",")]
        urls = tuple(f"{scheme}://{login}{at}{host}/{db or 0}{theirs}" for host in places)
    values = {name: unquote_plus(value) for name, _, value in ours}
    strict, replicas = _strictness(values)
    prefix = values.get("prefix", "midturn")
    if not prefix or len(prefix) > 200 or not prefix.isprintable():  # noqa: PLR2004
        raise InvalidArgument("prefix= must be 1 to 200 printable characters, such as prefix=claims", path="url")
    return Target(
        layout=layout,
        urls=urls,
        service=unquote(service),
        prefix=prefix,
        strict=strict,
        replicas=replicas,
        ttl=_ttl(values.get("ttl")),
    )


def _strictness(values: dict[str, str]) -> tuple[bool, int]:
    strict, replicas = values.get("strict", "false").lower(), values.get("replicas", "0")
    if strict not in {"true", "false"}:
        raise InvalidArgument("strict= must be true or false", path="url")
    if not re.fullmatch(r"\d{1,3}", replicas, re.ASCII):
        raise InvalidArgument("replicas= must be a number from 0 to 999", path="url")
    if int(replicas) and strict == "false":
        raise InvalidArgument("replicas= is part of strict mode; add strict=true", path="url")
    return strict == "true", int(replicas)


def _ttl(text: str | None) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,10})([smhd]?)", text, re.ASCII)
    if match is None or int(match[1]) == 0:
        raise InvalidArgument("ttl= must be a number of seconds, or one with s, m, h or d, such as ttl=30d", path="url")
    return int(match[1]) * _SECONDS[match[2]] * 1_000


def _with_port(host: str, port: int) -> str:
    return host if _port(host) else f"{host.rstrip(':')}:{port}"


def _port(host: str) -> int | None:
    try:
        parts = urlsplit(f"//{host}")
        if parts.netloc == host and parts.hostname and "," not in host:
            return parts.port
    except ValueError:
        pass
    raise _wrong("a host or port cannot be read; write special characters of a password as %-escapes (/ as %2F)")


def _wrong(reason: str) -> InvalidArgument:
    return InvalidArgument(f"the URL of the Redis store is wrong: {reason}; use {FORMS}", path="url")
