"""``midturn audit``: show who did what to which session, when and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from midturn.cli import times
from midturn.cli.options import common, label_option
from midturn.cli.output import cell, dump_json, line, moment, print_json, print_table, say, table_of
from midturn.cli.session_argument import existing
from midturn.cli.signals import run
from midturn.history.json_view import audit_json

if TYPE_CHECKING:
    from datetime import datetime

    from midturn import AuditEntry


@click.command()
@click.option("--session", metavar="ID", help="Only this session.")
@click.option("--since", type=times.since, metavar="WHEN", help="Only what was done since: 2d, or a time.")
@click.option("--by", metavar="NAME", help="Only what this person did.")
@label_option("Only sessions with this label; repeatable.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N entries.")
@common
def audit(
    *,
    session: str | None,
    since: datetime | None,
    by: str | None,
    labels: dict[str, str],
    limit: int | None,
    url: str,
    as_json: bool,
) -> None:
    """Show who did what: answers, discards, rewinds, edits, resets, forks, migrations, compactions and deletions.

    The session that changed last comes first. The entries of one session are in the order in which they happened. For a
    deleted session, only the deletion is left.

    For example: midturn audit --since 2d --by ann@desk
    """

    async def read() -> list[AuditEntry]:
        found: list[AuditEntry] = []
        async with existing(url) as store:
            async for entry in store.audit(session, since=since, by=by, labels=labels):
                found.append(entry)
                if len(found) == limit:
                    break
        return found

    found = run(read())
    if as_json:
        print_json([audit_json(entry) for entry in found])
    elif not found:
        say("nobody did anything")
    else:
        table = table_of(when="", session="whole", turn="right", what="", by="", details="flexible")
        for entry in found:
            table.add_row(
                moment(entry.at),
                Text(line(entry.session), style="bold"),
                "" if entry.turn is None else str(entry.turn),
                Text(entry.what, style="red" if entry.what in ("delete", "unreadable") else "cyan"),
                line(entry.by or ""),
                cell(*_details(entry)),
            )
        print_table(table)


def _details(entry: AuditEntry) -> list[Text]:
    """Return the details of an entry, and its reason, as lines."""
    shown = dict(entry.details)
    lines = [Text(line(f"{shown.pop('question')} {shown.pop('answer', '')}"))] if "question" in shown else []
    lines += [Text(line(f"{name}: {_plain(value)}"), style="dim") for name, value in shown.items()]
    return [*lines, *([Text(line(f"why: {entry.why}"), style="yellow")] if entry.why else [])]


def _plain(value: object) -> str:
    return value if isinstance(value, str) else dump_json(value)
