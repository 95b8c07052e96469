"""``midturn serve``: sessions over HTTP, with a page for people."""

from __future__ import annotations

import logging
import secrets
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

import midturn
from midturn.cli.app_argument import load_attribute, load_blueprint
from midturn.cli.errors import Stopped
from midturn.cli.key_argument import opened
from midturn.cli.options import by_option, common
from midturn.cli.output import note, print_json, say
from midturn.cli.signals import run
from midturn.sessions.runs import DRAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from midturn.versions.blueprint import Blueprint

PORT = 8642
LOCAL = ("127.0.0.1", "localhost", "::1")
"""The hosts to which nobody from another machine can connect."""


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that starts a server."""
    for option in reversed(
        (
            click.option("--host", default=LOCAL[0], show_default=True, help="The address to listen on."),
            click.option(
                "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: a free one."
            ),
            click.option(
                "--host-name",
                "host_names",
                metavar="NAME",
                multiple=True,
                help="A name by which browsers may reach the server, besides its address; repeatable. '*' allows all.",
            ),
            click.option(
                "--token",
                envvar="MIDTURN_TOKEN",
                show_envvar=True,
                help="Who knows it may use the server. Better in the environment, where other users do not see it.",
            ),
            click.option("--read-only", is_flag=True, help="Reject everything but reading."),
            click.option("--access-log", is_flag=True, help="Print a line for each request on stderr."),
        )
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The options of a server."""

    url: str = field(repr=False)
    host: str = LOCAL[0]
    port: int = PORT
    host_names: Sequence[str] = ()
    token: str | None = field(default=None, repr=False)
    read_only: bool = False
    access_log: bool = False
    by: str | None = None
    drain: float = DRAIN
    as_json: bool = False
    session: str | None = None
    """The session whose page is printed, instead of the list."""
    blueprints: Sequence[Blueprint] = ()
    authenticate: Any = None
    authorize: Any = None


def serve_until_stopped(what: Serving) -> int:
    """Serve a store until a signal comes; return the exit code."""
    if what.host not in LOCAL and what.token is None and what.authenticate is None:
        raise click.UsageError(
            f"everybody in the network of {what.host} could use the server: set MIDTURN_TOKEN, or give --auth"
        )
    if what.token is not None and what.authenticate is not None:
        raise click.UsageError("--token and --auth exclude each other")
    return run(_serve(what))


@click.command()
@click.argument("app", nargs=-1)
@server_options
@click.option("--auth", metavar="MODULE:FUNCTION", help="A function that returns the midturn.Principal of a request.")
@click.option("--authorize", metavar="MODULE:FUNCTION", help="A function that says what a principal may do.")
@click.option(
    "--drain",
    type=click.FloatRange(min=0),
    default=DRAIN,
    show_default=True,
    metavar="SECONDS",
    help="At the end, let turns run for so long.",
)
@by_option
@common
def serve(*, app: tuple[str, ...], auth: str | None, authorize: str | None, url: str, **options: Any) -> int:
    """Serve the sessions of a store over HTTP: an API, and a page for people.

    Each APP is a Blueprint, whose turns this server runs. Sessions of others are shown, too, and take answers. Several
    servers may share one store.

    Without --token and --auth, the server listens on this machine only, and prints an address with a new token. Ctrl-C
    and SIGTERM stop it: turns get the time of --drain to end, and any process can resume the others.

    For example: midturn serve app:support app:claims --port 8000
    """
    return serve_until_stopped(
        Serving(
            url=url,
            blueprints=[load_blueprint(name) for name in app],
            authenticate=None if auth is None else load_attribute(auth),
            authorize=None if authorize is None else load_attribute(authorize),
            **options,
        )
    )


async def _serve(what: Serving) -> int:
    make = midturn.asgi  # it says so if the extra is not installed
    from midturn.serve.gate import LOOPBACK
    from midturn.serve.paths import segment
    from midturn.serve.server import listen, serve

    token, made = what.token, None
    if token is None and what.authenticate is None:
        token = made = secrets.token_urlsafe(24)
    if what.access_log:
        log = logging.getLogger("uvicorn.access")
        log.addHandler(logging.StreamHandler(sys.stderr))
        log.setLevel(logging.INFO)
    async with opened(what.url, drain=what.drain) as store:
        shown = f"[{what.host}]" if ":" in what.host else what.host
        gate = make(
            store,
            what.blueprints,
            token=token,
            by=what.by or "token",
            authenticate=what.authenticate,
            authorize=what.authorize,
            hosts=[*LOOPBACK, shown, *what.host_names],
            read_only=what.read_only,
        )
        try:
            listening = listen(what.host, what.port)
        except OSError as error:
            raise click.ClickException(f"cannot listen on {shown}:{what.port}: {error.strerror}") from None
        port = listening.getsockname()[1]
        path = "" if what.session is None else f"s/{segment(what.session)}"
        address = f"http://{shown}:{port}/{path}" + ("" if made is None else f"?token={quote(made)}")
        if what.as_json:
            print_json({"url": address, "host": what.host, "port": port, "token": made})
        else:
            say(f"serving on {address}")
            note("Ctrl-C stops it")
        number = await serve(gate, store, listening, drain=what.drain, access_log=what.access_log)
    if number:
        raise Stopped(number, "stopped")
    return 0
