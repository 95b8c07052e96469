"""``midturn web``: the page on which people see sessions and answer."""

from __future__ import annotations

from typing import Any

import click

from midturn.cli.app_argument import load_blueprint
from midturn.cli.options import by_option, common
from midturn.cli.serve import Serving, serve_until_stopped, server_options
from midturn.cli.session_argument import existing
from midturn.cli.signals import run


@click.command()
@click.argument("app", nargs=-1)
@click.option("--session", metavar="ID", help="Print the address of this session's page.")
@server_options
@by_option
@common
def web(*, app: tuple[str, ...], session: str | None, url: str, **options: Any) -> int:
    """Serve the page on which people see the sessions of a store, and answer.

    It needs no APP: it records answers, and a worker elsewhere continues the turn. With a Blueprint as APP, this server
    continues the turn itself, and the page can begin turns. `midturn serve` is the same with the options of a server.

    For example: midturn web --session case-42
    """
    run(_check(url, session))
    return serve_until_stopped(
        Serving(url=url, blueprints=[load_blueprint(name) for name in app], session=session, **options)
    )


async def _check(url: str, session: str | None) -> None:
    """Check that the store and the session exist: on an empty page, nobody would notice a wrong URL."""
    async with existing(url) as store:
        if session is not None:
            await store.info(session)
