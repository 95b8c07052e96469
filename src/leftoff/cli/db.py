"""``leftoff db``: the tables of a store in a database."""

from __future__ import annotations

from typing import Any

import click

from leftoff.cli.failures import NotFound
from leftoff.cli.options import command_line, common
from leftoff.cli.output import note, print_json, say
from leftoff.cli.places import existing
from leftoff.cli.signals import run
from leftoff.urls import POSTGRES, locate, postgres


@click.group()
def db() -> None:
    """Look at a store's tables, and bring them to the newest version."""


@db.command()
@common
def status(*, url: str, as_json: bool) -> None:
    """Say what a store promises, and whether its tables must be upgraded."""
    facts = run(_facts(url))
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if value is not None and name != "risks":
            say(f"{name:9}{value}")
    for risk in facts["risks"]:
        say(f"risk     {risk}")
    if facts["version"] != facts["newest"]:
        note(f"upgrade it: {command_line('db', 'upgrade', url=url)}")


@db.command()
@common
def upgrade(*, url: str, as_json: bool) -> None:
    """Make the tables of leftoff in a Postgres database, or bring them to the newest version.

    The role needs the right to create a schema. The roles of the workers do not: give them what the how-to says. Stop
    workers of an older leftoff first.
    """
    before, after = run(_upgrade(url))
    if as_json:
        print_json({"before": before, "version": after})
    elif before == after:
        say(f"nothing to do: the tables have version {after}")
    else:
        say(f"upgraded the tables from version {before} to {after}" if before else f"made the tables, version {after}")


async def _facts(url: str) -> dict[str, Any]:
    scheme, path = locate(url)
    facts: dict[str, Any] = {"store": scheme, "place": None if path is None else str(path)}
    if scheme not in POSTGRES:
        async with existing(url) as opened:
            facts |= {"place": getattr(opened.store, "place", facts["place"]), "profile": opened.store.profile}
            return facts | {"risks": getattr(opened.store, "risks", []), "version": None, "newest": None}
    store = await postgres().connect(url)
    try:
        return facts | {
            "place": store.place,
            "server": f"PostgreSQL {store.server}",
            "profile": store.profile,
            "risks": store.risks,
            "schema": store.schema,
            "version": store.version,
            "newest": store.newest,
        }
    finally:
        await store.close()


async def _upgrade(url: str) -> tuple[int, int]:
    scheme, _ = locate(url)
    if scheme not in POSTGRES:
        raise NotFound(f"a {scheme}:// store has no tables to upgrade; opening it does what is needed")
    store = await postgres().connect(url)
    try:
        before = store.version
        await store.upgrade()
        return before, store.version
    finally:
        await store.close()
