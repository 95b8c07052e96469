"""The tables of midturn in a Postgres database: their version, and the upgrade to the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.sql import SQL, Identifier

from midturn.errors import StoreUnavailable, UnknownVersion
from midturn.stores.postgres import ownership
from midturn.stores.postgres.pool import ALREADY_THERE
from midturn.stores.retrying import Unreached
from midturn.stores.scripts import script

if TYPE_CHECKING:
    from midturn.stores.postgres.pool import Connection, Pool
    from midturn.stores.retrying import Tries

NEWEST = 1
"""The version of the tables that ``schema.sql`` makes."""


async def version(pool: Pool, tries: Tries, schema: str, owner: str | None) -> int:
    """Return the version of the tables; 0 if there are none.

    Raises:
        StoreUnavailable: a part of the schema belongs to a role that is neither the current one nor ``owner``.
    """

    async def read(connection: Connection) -> int:
        await ownership.check(connection, schema, owner)  # first: reading from a stranger's view would run his code
        cursor = await connection.execute("SELECT pg_catalog.to_regclass(%s)::oid", (f'"{schema}".migrations',))
        if await cursor.fetchone() == (None,):
            return 0
        query = SQL("SELECT pg_catalog.max(number) FROM {}").format(Identifier(schema, "migrations"))
        cursor = await connection.execute(query)
        found = await cursor.fetchone()
        return found[0] or 0 if found else 0

    return await pool.use(tries, read)


def check(found: int, schema: str) -> None:
    """Check that this midturn can use tables of this version.

    Raises:
        UnknownVersion: a newer midturn made them.
        StoreUnavailable: an older midturn made them.
    """
    if found > NEWEST:
        raise UnknownVersion(
            f"the tables in schema {schema!r} have version {found}, of a newer midturn; upgrade midturn"
        )
    if found < NEWEST:
        raise StoreUnavailable(
            f"the tables in schema {schema!r} have version {found} and this midturn needs {NEWEST}; "
            "type: midturn db upgrade --store URL, with the role that owns them"
        )


async def upgrade(pool: Pool, tries: Tries, schema: str, owner: str | None) -> int:
    """Upgrade the tables to the newest version in one transaction, and return the version that they had.

    If two processes upgrade at the same time, the second waits for the first, and then has nothing to do.
    """

    async def work(connection: Connection) -> int:
        async with connection.transaction():
            cursor = await connection.execute("SELECT pg_catalog.to_regnamespace(%s)::oid", (f'"{schema}"',))
            if await cursor.fetchone() == (None,):
                await connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
            await ownership.check(connection, schema, owner)  # again: somebody may just have made it
            # Functions keep this path. Temporary tables come last: one of the same name must not hide ours.
            path = f'"{schema}", pg_temp'
            await connection.execute("SELECT pg_catalog.set_config('search_path', %s, true)", (path,))
            await connection.execute(script("postgres/migrations.sql").encode())
            cursor = await connection.execute("SELECT coalesce(max(number), 0) FROM migrations")
            found = await cursor.fetchone()
            before: int = found[0] if found else 0
            if before > NEWEST:
                check(before, schema)
            if before < NEWEST:
                await connection.execute(script("postgres/schema.sql").encode())
                await connection.execute("INSERT INTO migrations (number) VALUES (%s)", (NEWEST,))
            return before

    try:
        return await pool.use(tries, work, writes=True)
    except ALREADY_THERE as error:
        if await version(pool, tries, schema, owner):
            raise Unreached(f"another process has made the tables in schema {schema!r}") from error
        message = f"schema {schema!r} has tables of another program; choose another schema: ?schema=..."
        raise StoreUnavailable(message) from error
