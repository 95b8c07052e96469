"""The owners of the schema of midturn in a Postgres database, and of everything in it.

Whoever owns a table, a view or a function decides what runs when others use it, with the rights of those others. So
midturn uses nothing that belongs to a role which its own role does not trust.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from midturn.errors import StoreUnavailable
from midturn.stores.scripts import named

if TYPE_CHECKING:
    from midturn.stores.postgres.pool import Connection

_QUERY = named("postgres/queries.sql")["strangers"].encode()


async def check(connection: Connection, schema: str, owner: str | None) -> None:
    """Check that the schema and its objects belong to the current role or to ``owner``; read nothing from them.

    Raises:
        StoreUnavailable: another role owns one of them, or may create objects in the schema.
    """
    cursor = await connection.execute(_QUERY, {"schema": schema, "owner": owner})
    strangers = await cursor.fetchall()
    if not strangers:
        return
    kind, name, role, me = strangers[0]
    if kind == "grant":
        raise StoreUnavailable(
            f"the role {role!r} may create objects in the schema {schema}, and so run code with the rights of {me!r}; "
            f"type: REVOKE CREATE ON SCHEMA {schema} FROM {role}"
        )
    what = f"the {kind} {name}" if kind == "schema" else f"the {kind} {schema}.{name}"
    raise StoreUnavailable(
        f"{what} belongs to the role {role!r}, not to {me!r}, and so can run code with the rights of {me!r}; if "
        f"you trust {role!r}, add owner={role} to the URL; if not, choose another schema with schema=... in the URL"
    )
