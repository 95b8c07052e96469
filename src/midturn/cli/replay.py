"""``midturn replay``: run a finished turn again from its record, without any call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from midturn.cli.app_argument import broken, load_app
from midturn.cli.options import common, traceback_option
from midturn.cli.output import note, print_json, say
from midturn.cli.session_argument import existing, find_checkpoint
from midturn.cli.signals import run, stoppable
from midturn.errors import MidturnError
from midturn.history.json_view import replay_json

if TYPE_CHECKING:
    from midturn import Replay


@click.command()
@click.argument("app")
@click.argument("session", metavar="SESSION@N")
@traceback_option
@common
def replay(*, app: str, session: str, url: str, as_json: bool, trace: bool) -> int:  # noqa: ARG001 - main() reads it
    """Run turn N of a session again with the agents of APP, from the record, and compare.

    Nothing is called and nothing is written: models, tools and people answer as they did then. The exit code is 1 if
    today's code does something else.

    For example: midturn replay app:support case-42@7
    """
    what = load_app(app)

    async def again() -> tuple[str, Replay]:
        async with existing(url) as store:
            info, number = await find_checkpoint(store, session)
            try:
                return info.id, await stoppable(store.session(info.id, what).replay(number))
            except (MidturnError, OSError):
                raise
            except Exception as error:
                raise broken(app, error) from error

    id_, found = run(again())
    if as_json:
        differences, notes, messages = found.differences, found.notes, found.messages
        print_json(replay_json(id_, found.turn, differences=differences, notes=notes, messages=messages))
    else:
        say(f"turn {found.turn} of {id_} {'runs as it did' if found.same else 'does not run as it did'}")
        for text in found.differences:
            say(text, style="red")
        for text in found.notes:
            note(text)
    return 0 if found.same else 1
