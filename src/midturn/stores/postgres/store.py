"""``postgresql://``: sessions in one database, for many workers on many machines."""

from __future__ import annotations

import logging
import os
import re
from contextlib import asynccontextmanager
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import unquote_plus

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from midturn.errors import Conflict, InvalidArgument, SessionDeleted, StateInvalid, StoreUnavailable
from midturn.record.codec import decode, encode
from midturn.record.head import MAX_ID, NO_LABELS, Head, Kind, Row, Status, Write, read_cursor
from midturn.store import DEADLINE
from midturn.stores.postgres import schema as postgres_schema
from midturn.stores.postgres.pool import Pool, not_a_url
from midturn.stores.postgres.transaction import PostgresTransaction, fence
from midturn.stores.postgres.write import apply
from midturn.stores.privacy import report_without_tls
from midturn.stores.retrying import MovedOn, ServerStore, Tries, Unreached
from midturn.stores.scripts import named
from midturn.stores.secrets import Secret, unchained

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

    from psycopg.abc import Params

    from midturn.store import ListOrder, Profile, Transaction

_log = logging.getLogger(__name__)

OLDEST = 14
TLS = frozenset({"require", "verify-ca", "verify-full"})
"""Values of ``sslmode`` with which the driver rejects a server without TLS."""
MAX_ROLE = 63
"""Largest number of bytes in the name of a role."""
_SQL = named("postgres/queries.sql")
_BY_CHANGE = {
    # "changed + 0" has an index that lists of one status cannot use: Postgres would sometimes read all others, too.
    "of_any_status": ("status <> 'deleted'", "(changed + 0)"),
    "of_one_status": ("status = %(status)s::text", "changed"),
}
for _name in ("heads_by_change", "heads_by_change_reversed"):
    _text = _SQL.pop(_name)
    for _which, (_status, _changed) in _BY_CHANGE.items():
        _SQL[f"{_name}_{_which}"] = _text.replace("{status}", _status).replace("{changed}", _changed)
_SCHEMA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_FIELDS = ("session", "seq", "epoch", "status", "labels", "owner", "expires", "token", "created", "updated", "data")
_LAST_N = 2**63 - 1
_STANDBY = "is a standby; name the primary, or let the URL find it: ?target_session_attrs=read-write"


class PostgresStore(ServerStore):
    """Sessions in one schema of a Postgres database; :meth:`open` makes one."""

    profile: Profile = "strict"
    newest = postgres_schema.NEWEST

    def __init__(self, url: str, deadline: float) -> None:
        conninfo, self.schema, self._owner = _split(url)
        super().__init__(_address(conninfo), deadline)
        report_without_tls(_hosts_without_tls(conninfo), "add sslmode=verify-full to the URL")
        self._pool = Pool(Secret(conninfo), self._address, deadline)
        self._sql = {name: text.replace("midturn.", f'"{self.schema}".').encode() for name, text in _SQL.items()}
        self._doubtful: dict[str, list[Write]] = {}
        self.server = 0
        """The version of PostgreSQL."""
        self.version = 0
        """The version of the tables; 0 if there are none."""

    @classmethod
    async def open(cls, url: str, *, deadline: float = DEADLINE) -> PostgresStore:
        """Connect to the database, and create the tables if there are none.

        Raises:
            UnknownVersion: a newer midturn made the tables.
            StoreUnavailable: the server cannot be reached or used, the tables have an older version, or a part of the
                schema belongs to a role that is neither the current one nor the one that ``?owner=...`` names.
        """
        with unchained():
            store = cls(url, deadline)
        await store._ready(make=True)
        return store

    @classmethod
    async def connect(cls, url: str, *, deadline: float = DEADLINE) -> PostgresStore:
        """Connect to the database without a check of the tables' version and without a change.

        Raises:
            StoreUnavailable: the server cannot be reached or used, or a part of the schema belongs to another role.
        """
        with unchained():
            store = cls(url, deadline)
        await store._ready(make=False)
        return store

    async def upgrade(self) -> None:
        """Upgrade the tables to the newest version."""
        await self._try(self._upgrade)

    async def _ready(self, *, make: bool) -> None:
        async def work(tries: Tries) -> None:
            await self._look(tries)
            if make:
                if not self.version:
                    await self._upgrade(tries)
                postgres_schema.check(self.version, self.schema)

        await self._open(work)

    async def _look(self, tries: Tries) -> None:
        """Check that midturn can use the server, and read its durability and the version of the tables."""
        [(self.server, standby, encoding, fsync, synchronous)] = await self._pool.run(tries, self._sql["server"])
        if self.server < OLDEST:
            raise StoreUnavailable(f"{self._address} is PostgreSQL {self.server}; midturn needs {OLDEST} or newer")
        if standby:
            raise StoreUnavailable(f"{self._address} {_STANDBY}")
        if encoding != "UTF8":
            raise StoreUnavailable(
                f"the encoding of {self._address} is {encoding}, which cannot hold every text; "
                "create the database again: createdb -T template0 -E UTF8"
            )
        if fsync == "off" or synchronous == "off":
            self.profile = "bounded-loss"
            settings = f"fsync={fsync}, synchronous_commit={synchronous}"
            self._warn(f"{self._address} may lose the last turns when it crashes ({settings})")
        self.version = await postgres_schema.version(self._pool, tries, self.schema, self._owner)

    async def _upgrade(self, tries: Tries) -> None:
        await postgres_schema.upgrade(self._pool, tries, self.schema, self._owner)
        self.version = postgres_schema.NEWEST

    async def heads(
        self,
        *,
        after: str = "",
        limit: int = 100,
        prefix: str = "",
        status: Status | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        order: ListOrder = "id",
        reverse: bool = False,
    ) -> Sequence[Head]:
        values: dict[str, object] = {
            "after": after,
            "prefix": prefix,
            # Exactly the ids with this prefix are between the prefix and this value.
            "last": prefix + "\U0010ffff" * MAX_ID,
            "status": status,
            "labels": encode(dict(labels), "labels").decode(),
            "limit": limit,
        }
        query = f"heads{'_by_change' if order == 'updated' else ''}{'_reversed' if reverse else ''}"
        if order == "updated":
            query += "_of_any_status" if status is None else "_of_one_status"
            values["updated"], values["after"] = read_cursor(after, reverse=reverse)
        elif reverse and not after:
            values["after"] = "\U0010ffff" * (MAX_ID + 1)  # greater than every id
        found: list[Head] = []
        # Heads that cannot be read are omitted. A page of nothing else must not look like the end of the list.
        while len(found) < limit:
            values["limit"] = wanted = limit - len(found)
            # A plan for any values would sometimes sort all sessions of a status, or read them by another index.
            page = await self._try(lambda tries: self._read(tries, query, values, prepare=False))
            found += _readable(page)
            if len(page) < wanted:
                break
            last = dict(zip(_FIELDS, page[-1], strict=False))
            values["after"], values["updated"] = last["session"], last["updated"]
        return found

    async def counts(self) -> Mapping[Status, int]:
        found = await self._try(lambda tries: self._read(tries, "counts", ()))
        return {status: count for status, count in found if status in get_args(Status)}

    async def rows(self, session: str, kind: Kind, *, start: int = 0, stop: int | None = None) -> Sequence[Row]:
        values = (session, int(kind), start, _LAST_N if stop is None else stop - 1)
        found = await self._try(lambda tries: self._read(tries, "rows", values), session)
        return [Row(kind=kind, n=n, data=data) for n, data in found]

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        def doubt(write: Write) -> None:
            self._doubtful.setdefault(write.session, []).append(write)

        transaction = PostgresTransaction(self._pool, self._address, self._deadline, self._sql, doubt)
        try:
            await self._try(transaction.begin)
            yield transaction
        finally:
            await transaction.end()

    async def _settle(self, session: str) -> float:
        until = await super()._settle(session)
        while doubtful := self._doubtful.get(session):
            write = doubtful[0]
            await self._try(partial(self._fence, write), session, Tries(until))
            if write in doubtful:  # no other call was faster
                doubtful.remove(write)
                if not doubtful:
                    self._doubtful.pop(session, None)
        return until

    async def _fence(self, write: Write, tries: Tries) -> None:
        await fence(self._pool, tries, self._sql, write)

    async def close(self) -> None:
        if not self._closed and os.getpid() == self._pid:
            self._pool.close()
        self._closed = True

    async def _head(self, session: str, tries: Tries) -> Head | None:
        found = await self._read(tries, "head", (session,))
        return _as_head(found[0]) if found else None

    async def _write(self, write: Write, tries: Tries) -> Head:
        try:
            verdict = await self._pool.use(tries, partial(apply, sql=self._sql, write=write), writes=True)
        except pg.UniqueViolation:
            raise Conflict.of(write.session) from None
        match verdict.what:
            case "written":
                return write.head(now=verdict.updated, created=verdict.created)
            case "repeated" if tries.sent:
                return write.head(now=verdict.updated, created=verdict.created)
            case "deleted":
                raise SessionDeleted.of(write.session)
            case "later" if tries.sent:
                raise MovedOn.of(write.session)
            case _:
                raise Conflict.of(write.session)

    async def _delete(self, session: str, by: str, data: bytes, tries: Tries) -> bool:  # noqa: ARG002 - tries.sent is enough
        [(found,)] = await self._pool.run(tries, self._sql["delete"], (session, data), writes=True)
        return found == "deleted" or (found == "deleted before" and tries.sent)

    async def _forget(self, session: str, tries: Tries) -> bool:
        [(found,)] = await self._pool.run(tries, self._sql["forget"], (session,), writes=True)
        if found == "kept":
            raise Conflict.of(session)
        return found == "forgotten" or tries.sent

    async def _read(
        self, tries: Tries, name: str, values: Params, *, prepare: bool | None = None
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query without their first column, which is true if a standby answered.

        Every query returns at least one row with that column.
        """
        found = await self._pool.run(tries, self._sql[name], values, prepare=prepare)
        if found[0][0]:
            self._pool.forget()
            raise Unreached(_STANDBY)
        return [row[1:] for row in found if row[1] is not None]


def _split(url: str) -> tuple[str, str, str | None]:
    """Return the URL for the driver, and midturn's own options: the schema, and the role that may own it."""
    base, _, query = url.partition("?")
    schema, owner = "midturn", None
    others: list[str] = []
    for item in query.split("&") if query else ():
        if item.startswith("schema="):
            schema = item.removeprefix("schema=")
        elif item.startswith("owner="):
            owner = _role(unquote_plus(item.removeprefix("owner=")))
        else:
            others.append(item)
    if not _SCHEMA_NAME.fullmatch(schema):
        raise InvalidArgument(
            "schema= in the URL must be a name of up to 63 letters, digits and _ that begins with a letter", path="url"
        )
    if schema.lower().startswith("pg_") or schema.lower() == "information_schema":
        raise InvalidArgument(
            "schema= in the URL names a schema of Postgres itself; choose another, such as midturn", path="url"
        )
    return base + ("?" + "&".join(others) if others else ""), schema, owner


def _role(name: str) -> str:
    if not name.isprintable() or not 0 < len(name.encode(errors="replace")) <= MAX_ROLE:
        raise InvalidArgument("owner= in the URL must be the name of a role, of up to 63 bytes", path="url")
    return name


def _address(conninfo: str) -> str:
    """Return the name of the server for error messages: hosts, ports and database, without any part of a password."""
    address, _, query = conninfo.partition("?")
    if "@" in query:  # A password with a ? that nobody escaped: the message must not name a part of it as an option.
        raise not_a_url()
    known = {option.keyword.decode() for option in Conninfo.get_defaults()} | {"ssl"}
    for name in (item.partition("=")[0] for item in query.split("&") if query):
        if name not in known and name.isidentifier():
            near = get_close_matches(name, {"schema", "owner", *known}, n=1)
            hint = f"; did you mean {near[0]}=?" if near else ""
            raise InvalidArgument(f"the URL has an option that Postgres does not know: {name}={hint}", path="url")
    try:
        parts = conninfo_to_dict(conninfo)
    except (psycopg.Error, UnicodeError):
        raise not_a_url() from None
    hosts, ports = (str(parts.get(name) or "").split(",") for name in ("host", "port"))
    pieces = [*hosts, query, address.partition("://")[2].partition("/")[2]]
    if any("@" in piece for piece in pieces) or not all(port.isdecimal() for port in ports if port):
        raise not_a_url()
    names = [f"{host}:{port}" if port else host for host, port in zip(hosts, ports * len(hosts), strict=False)]
    return f"Postgres {','.join(names)}/{parts.get('dbname', '')}"


def _hosts_without_tls(conninfo: str) -> list[str]:
    """Return the hosts to which the driver may connect without TLS, as the URL and the environment say."""
    defaults = {option.keyword.decode(): option.val.decode() for option in Conninfo.get_defaults() if option.val}
    given = defaults | {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
    if given.get("sslmode") in TLS or "service" in given:  # a service file may have a mode of its own
        return []
    return (given.get("hostaddr") or given.get("host", "")).split(",")


def _readable(rows: Iterable[Sequence[Any]]) -> Iterable[Head]:
    for row in rows:
        try:
            yield _as_head(row)
        except StateInvalid as error:
            _log.warning("a session is omitted from the list: %s", error)


def _as_head(row: Sequence[Any]) -> Head:
    *values, now = row
    fields = dict(zip(_FIELDS, values, strict=True))
    session = fields["session"]
    fields["labels"] = decode(fields["labels"].encode(), f"labels of {session!r}")
    return Head.stored(fields | {"now": now})
