"""``midturn label``: set and remove labels of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from midturn.cli.options import common, label_values
from midturn.cli.output import print_json, say
from midturn.cli.session_argument import existing, find_session
from midturn.cli.signals import run
from midturn.history.json_view import session_json

if TYPE_CHECKING:
    from midturn import SessionInfo


@click.command()
@click.argument("session")
@click.argument("labels", metavar="[NAME=VALUE]...", nargs=-1, callback=label_values)
@click.option("--remove", metavar="NAME", multiple=True, help="Remove this label; repeatable.")
@common
def label(*, session: str, labels: dict[str, str], remove: tuple[str, ...], url: str, as_json: bool) -> None:
    """Set labels of a session. Other labels stay.

    For example: midturn label case-42 team=claims --remove new
    """
    if not labels and not remove:
        raise click.UsageError("give a label as NAME=VALUE, or --remove NAME")
    if both := sorted(labels.keys() & set(remove)):
        raise click.UsageError(f"{', '.join(both)}: set it or remove it, not both")

    async def change() -> SessionInfo:
        async with existing(url) as store:
            await find_session(store, session)
            await store.label(session, labels | dict.fromkeys(remove))
            return await find_session(store, session)

    info = run(change())
    if as_json:
        print_json(session_json(info))
    else:
        say(", ".join(f"{name}={value}" for name, value in sorted(info.labels.items())) or f"{session} has no labels")
