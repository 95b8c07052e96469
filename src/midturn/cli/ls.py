"""``midturn ls``: list the sessions of a store."""

from __future__ import annotations

import dataclasses
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, get_args

import click
from rich.text import Text

from midturn.cli.options import command_line, common, label_option
from midturn.cli.output import ago, cell, clean, iso, line, note, print_json, print_table, say, status_text, table_of
from midturn.cli.session_argument import existing
from midturn.cli.signals import run
from midturn.history.session_info import SessionStatus

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
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N sessions.")
@common
def ls(
    *,
    statuses: tuple[SessionStatus, ...],
    labels: dict[str, str],
    prefix: str,
    limit: int | None,
    url: str,
    as_json: bool,
) -> None:
    """List the sessions of a store.

    A session is "interrupted" if its worker died during a turn, or if a question was answered and nobody has continued
    the turn. The next turn finishes the interrupted one first, and so does `midturn resume`. A session is "waiting" if
    its turn needs an answer from a human: `midturn answer`.
    """

    async def read() -> list[SessionInfo]:
        listed: list[SessionInfo] = []
        async with (
            existing(url) as store,
            aclosing(store.sessions(status=statuses or None, labels=labels, prefix=prefix)) as all_,
        ):
            async for info in all_:
                listed.append(info)
                if len(listed) == limit:
                    break
        return listed

    found = run(read())
    if as_json:
        print_json([dataclasses.asdict(info) | times_json(info) for info in found])
    elif found:
        _print_sessions(found, url)
    elif statuses or labels or prefix:
        say("no session matches")
    else:
        say("no sessions yet")
        note(f"start one: {command_line('chat', 'APP', 'SESSION', url=url)}")


def times_json(info: SessionInfo) -> dict[str, str | None]:
    """Return the times of a session for scripts."""
    return {"created": iso(info.created), "updated": iso(info.updated)}


def _print_sessions(found: list[SessionInfo], url: str) -> None:
    table = table_of(session="flexible", status="", turns="right", updated="", labels="flexible")
    now = time.time()
    shown: set[str] = set()
    for info in found:
        status = status_text("unusable" if info.problem else info.status)
        shown.add(status.plain)
        labels = ", ".join(f"{name}={value}" for name, value in sorted(info.labels.items()))
        table.add_row(
            cell(Text(clean(info.id).replace("\n", "\\n"), style="bold")),
            status,
            str(info.turns),
            ago(info.updated, now),
            cell(Text(line(labels), style="dim")),
        )
    print_table(table)
    for info in found:
        if info.problem:
            note(info.problem)
    if "interrupted" in shown:
        note(f"finish interrupted turns: {command_line('resume', 'APP', url=url, flags=['--all'])}")
    if "waiting" in shown:
        note(f"see what is asked: {command_line('answer', 'SESSION', url=url)}")
