"""``midturn db``: the tables of a store."""

from __future__ import annotations

from typing import Any

import click

from midturn.cli.key_argument import key_in_use
from midturn.cli.options import command_line, common
from midturn.cli.output import note, print_json, say
from midturn.cli.session_argument import existing
from midturn.cli.signals import run
from midturn.stores.registry import POSTGRES, compression, connect_postgres, locate
from midturn.stores.wrapper import innermost


@click.group(invoke_without_command=True)
@click.pass_context
def db(context: click.Context) -> None:
    """Show the tables of a store, or upgrade them."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@db.command()
@common
def status(*, url: str, as_json: bool) -> None:
    """Show what a store guarantees, the version of its tables, and the key that seals it."""
    facts = run(_facts(url))
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if value is not None and name not in ("risks", "upgrade"):
            say(f"{name:9}{value}")
    if facts["sealed"] is None:
        say(f"{'sealed':9}no")
    for risk in facts["risks"]:
        say(f"risk     {risk}")
    if facts["upgrade"]:
        note(f"{'upgrade' if facts['version'] else 'create'} the tables: {command_line('db', 'upgrade', url=url)}")
    elif facts["version"] and facts["version"] > facts["newest"]:
        note("a newer midturn created the tables: upgrade midturn")


@db.command()
@common
def upgrade(*, url: str, as_json: bool) -> None:
    """Create or upgrade the tables in Postgres.

    The role needs the right to create a schema. Workers need fewer rights: docs/how-to/postgres.md lists them. Stop
    workers of an older midturn first.
    """
    before, after = run(_upgrade(url))
    if as_json:
        print_json({"before": before, "version": after})
    elif before == after:
        say(f"nothing to do: the tables have version {after}")
    else:
        say(f"upgraded the tables from version {before} to {after}" if before else f"created tables of version {after}")


async def _facts(url: str) -> dict[str, Any]:
    scheme, path = locate(url)
    if scheme in POSTGRES:
        store = await connect_postgres(url)
        try:
            return {
                "store": scheme,
                "address": store.address,
                "server": f"PostgreSQL {store.server}",
                "profile": store.profile,
                "risks": store.risks,
                "schema": store.schema,
                "version": store.version,
                "newest": store.newest,
                "upgrade": store.version < store.newest,
                "compress": compression(url),
                "sealed": key_in_use(),
            }
        finally:
            await store.close()
    async with existing(url) as opened:
        found = innermost(opened.store)
        facts = {"store": scheme, "address": getattr(found, "address", path and str(path)), "server": None}
        facts |= {"profile": found.profile, "risks": getattr(found, "risks", [])}
        facts |= {"schema": None, "version": None, "newest": None, "upgrade": False}
        return facts | {"compress": compression(url), "sealed": key_in_use()}


async def _upgrade(url: str) -> tuple[int, int]:
    scheme, _ = locate(url)
    if scheme not in POSTGRES:
        raise click.UsageError(f"a {scheme}:// store has no tables to upgrade; opening it is enough")
    store = await connect_postgres(url)
    try:
        before = store.version
        await store.upgrade()
        return before, store.version
    finally:
        await store.close()
