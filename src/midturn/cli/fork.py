"""``midturn fork``: begin a session with a checkpoint of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from midturn.cli.options import by_option, command_line, common, label_option, why_option
from midturn.cli.output import note, print_json, say
from midturn.cli.session_argument import existing, find, find_session
from midturn.cli.signals import run
from midturn.history.json_view import session_json

if TYPE_CHECKING:
    from midturn import SessionInfo


@click.command()
@click.argument("session", metavar="SESSION[@N]")
@click.argument("other", metavar="OTHER")
@label_option("A label of the new session; repeatable.")
@by_option
@why_option
@common
def fork(
    *, session: str, other: str, labels: dict[str, str], by: str | None, why: str | None, url: str, as_json: bool
) -> None:
    """Begin the session OTHER with a checkpoint of SESSION: the latest one, or that of turn N.

    The new session remembers where it comes from. SESSION does not change, and may run a turn meanwhile.

    For example: midturn fork case-42@7 case-42-b --why "try the new prompt"
    """

    async def begin() -> SessionInfo:
        async with existing(url) as store:
            info, number = await find(store, session)
            case = await store.session(info.id).fork(other, at=number, labels=labels or None, by=by, why=why)
            return await find_session(store, case.id)

    info = run(begin())
    if as_json:
        print_json(session_json(info))
        return
    say(f"{other} begins with the state of {info.forked_from}")
    note(f"continue: {command_line('chat', 'APP', other, url=url)}")
