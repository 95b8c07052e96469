"""``midturn rewind``: go back to an older checkpoint of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from midturn.cli.options import busy_option, by_option, command_line, common, timeout_option, why_option
from midturn.cli.output import note, print_json, say
from midturn.cli.session_argument import existing, find_checkpoint
from midturn.cli.signals import run, stoppable

if TYPE_CHECKING:
    from midturn.turns.session_options import Busy


@click.command()
@click.argument("session", metavar="SESSION@N")
@click.option("--discard", is_flag=True, help="Give up the open turn, if there is one.")
@by_option
@why_option
@timeout_option
@busy_option
@common
def rewind(
    *,
    session: str,
    discard: bool,
    by: str | None,
    why: str | None,
    timeout: float,
    busy: Busy,
    url: str,
    as_json: bool,
) -> None:
    """Go back to checkpoint N of a session: make a new checkpoint with its state.

    Nothing is removed: the history marks the turns between as left behind. What their tools did stays done, and their
    keys still return the recorded results. To undo it, go back to the checkpoint that was the latest before.

    For example: midturn rewind case-42@7 --why "wrong customer"
    """

    async def go_back() -> tuple[str, int, int, int]:
        async with existing(url) as store:
            info, number = await find_checkpoint(store, session)
            case = store.session(info.id, busy=busy, timeout=timeout)
            made = await stoppable(case.rewind(number, by=by, why=why, discard=discard))
            parent = (await case.at(made).read()).row.parent
            return info.id, number, made, parent

    id_, number, made, before = run(go_back())
    if as_json:
        print_json({"session": id_, "checkpoint": made, "restores": number})
        return
    say(f"{id_} is back at checkpoint {number}, as checkpoint {made}")
    note(f"to undo it: {command_line('rewind', f'{id_}@{before}', url=url)}")
