"""``midturn compact``: remove the early turns of a session."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from midturn.cli.options import by_option, command_line, common, timeout_option, why_option
from midturn.cli.output import clean, note, print_json, say
from midturn.cli.session_argument import existing, find_session
from midturn.cli.signals import run, stoppable
from midturn.maintenance.compacting import compact as remove_turns
from midturn.questions import check_by, check_why

if TYPE_CHECKING:
    from midturn.maintenance.compacting import Compacted


@click.command()
@click.argument("session")
@click.option("--before", type=click.IntRange(min=1), required=True, metavar="N", help="The first turn to keep.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@timeout_option
@by_option
@why_option
@common
def compact(
    *,
    session: str,
    before: int,
    yes: bool,
    timeout: float,
    by: str | None,
    why: str | None,
    url: str,
    as_json: bool,
) -> int:
    """Remove the turns, checkpoints and calls before turn N of a session.

    The turns and checkpoints from N on stay as they are. So do the decisions of people, and the state from which the
    next turn continues. If the key of a removed turn is delivered again, that is an error, and the turn does not run
    again. Run an interrupted command again to continue it.

    For example: midturn compact case-42 --before 100
    """
    if not yes:
        if not sys.stdin.isatty():
            line = command_line("compact", session, url=url, flags=("--before", str(before), "--yes"))
            raise click.UsageError(f"there is no terminal to confirm this; type {line}")
        if not click.confirm(clean(f"Remove what is before turn {before} of {session} for good?"), err=True):
            note("nothing was removed")
            return 1

    async def work() -> Compacted:
        async with existing(url) as store:
            await find_session(store, session)
            return await stoppable(
                remove_turns(store.store, session, before, by=check_by(by), why=check_why(why), patience=timeout)
            )

    done = run(work())
    if as_json:
        print_json({"session": session, "first_turn": done.first, "turns": done.turns, "bodies": done.bodies})
    else:
        say(f"{session} begins with turn {done.first}: removed {done.turns} turns, {done.bodies} messages and texts")
    return 0
