"""``midturn ls``: list the sessions of a store."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, get_args

import click
from rich.cells import cell_len
from rich.text import Text

from midturn.cli import times
from midturn.cli.options import command_line, common, label_option
from midturn.cli.output import (
    ago,
    cell,
    clean,
    console,
    line,
    note,
    print_json,
    print_table,
    say,
    status_text,
    table_of,
)
from midturn.cli.session_argument import existing
from midturn.cli.signals import run
from midturn.history.json_view import session_json
from midturn.history.session_info import SessionStatus
from midturn.store import ListOrder

if TYPE_CHECKING:
    from midturn import SessionInfo


@click.command()
@click.option(
    "--status",
    "statuses",
    type=click.Choice(get_args(SessionStatus)),
    multiple=True,
    help="Only sessions with this status; repeatable.",
)
@label_option("Only sessions with this label; repeatable.")
@click.option("--prefix", default="", help="Only sessions whose id begins with this.")
@click.option("--since", type=times.since, metavar="WHEN", help="Only sessions that have changed since: 2d, or a time.")
@click.option(
    "--sort",
    type=click.Choice(get_args(ListOrder)),
    default="id",
    show_default=True,
    help="The order: by id, or by the last change with the latest first.",
)
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N sessions.")
@click.option("--after", default="", metavar="CURSOR", help="Continue after the session with this cursor in --json.")
@common
def ls(
    *,
    statuses: tuple[SessionStatus, ...],
    labels: dict[str, str],
    prefix: str,
    since: datetime | None,
    sort: ListOrder,
    reverse: bool,
    limit: int | None,
    after: str,
    url: str,
    as_json: bool,
) -> None:
    """List the sessions of a store.

    `midturn ls --sort updated --limit 50` shows the 50 sessions that changed last. For the next page, repeat the
    options and add `--after` with the "cursor" of the last session, which `--json` prints.

    A session is "interrupted" if its worker died during a turn, or if a question was answered and nobody has continued
    the turn. The next turn finishes the interrupted one first, and so does `midturn resume`. A session is "waiting" if
    its turn needs an answer from a human: `midturn answer`.
    """

    async def read() -> list[SessionInfo]:
        async with existing(url) as store:
            found = store.sessions(
                status=statuses or None,
                labels=labels,
                prefix=prefix,
                order=sort,
                reverse=reverse,
                since=since,
                after=after,
                limit=limit,
            )
            return [info async for info in found]

    found = run(read())
    if as_json:
        print_json([session_json(info) | {"cursor": info.cursor} for info in found])
    elif found:
        _print_sessions(found, url)
        if len(found) == limit:
            note(f"for the sessions after these, add: {shlex.join(['--after', found[-1].cursor])}")
    elif statuses or labels or prefix or since or after:
        say("no session matches")
    else:
        say("no sessions yet")
        note(f"start one: {command_line('chat', 'APP', 'SESSION', url=url)}")


_COLUMNS = {"status": ("left", 13), "turns": ("right", 7), "updated": ("left", 18), "labels": ("flexible", 8)}
"""The columns beside the id: their kind, and the room that each needs."""


def _print_sessions(found: list[SessionInfo], url: str) -> None:
    now = datetime.now(UTC)
    ids = [clean(info.id).replace("\n", "\\n") for info in found]
    left, columns = console().width - max(map(cell_len, ids)), {"session": "whole"}
    for name, (kind, room) in _COLUMNS.items():  # an id is there to be copied: the other columns give way to it
        if (left := left - room) >= 0:
            columns[name] = kind
    table = table_of(**columns)
    shown: set[str] = set()
    for id_, info in zip(ids, found, strict=True):
        status = status_text("unusable" if info.problem else info.status)
        shown.add(status.plain)
        facts = [f"{name}={value}" for name, value in sorted(info.labels.items())]
        facts += [f"fork of {info.forked_from}"] if info.forked_from is not None else []
        facts += [f"deleted by {info.deleted.by}"] if info.deleted is not None and info.deleted.by else []
        cells: dict[str, Text | str] = {
            "session": Text(id_, style="bold"),
            "status": status,
            "turns": str(info.turns),
            "updated": ago(info.updated, now),
            "labels": cell(Text(line(", ".join(facts)), style="dim")),
        }
        table.add_row(*(cells[name] for name in columns))
    print_table(table)
    for info in found:
        if info.problem:
            note(info.problem)
    if "interrupted" in shown:
        note(f"finish interrupted turns: {command_line('resume', 'APP', url=url, flags=['--all'])}")
    if "waiting" in shown:
        note(f"see the questions: {command_line('answer', 'SESSION', url=url)}")
