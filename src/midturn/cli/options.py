"""Options that several commands share."""

from __future__ import annotations

import functools
import getpass
import os
import shlex
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from midturn.sessions.opening import DEFAULT_URL
from midturn.stores.registry import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Function = TypeVar("Function", bound="Callable[..., Any]")


def label_values(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Return the labels that ``NAME=VALUE`` words give."""
    for value in values:
        if not value.partition("=")[0] or "=" not in value:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
    return dict(cast("tuple[str, str]", tuple(value.split("=", 1))) for value in values)


def login_name() -> str | None:
    """Return the login name of whoever types the command; ``None`` if this machine does not know it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
store_option = click.option(
    "--store",
    "url",
    metavar="URL",
    default=DEFAULT_URL,
    envvar="MIDTURN_URL",
    show_default=True,
    show_envvar=True,
    help="The store: sqlite:///relative.db, file:///absolute/directory, postgresql://... or redis://... "
    "An option of all is compress=zstd or none, as in sqlite:///x.db?compress=zstd",
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait this long while another worker holds the session.",
)
busy_option = click.option(
    "--busy",
    type=click.Choice(["wait", "raise"]),
    default="wait",
    show_default=True,
    help="Wait while another worker holds the session, or fail at once.",
)
by_option = click.option(
    "--by",
    metavar="NAME",
    default=login_name,
    help="Who decides; the history keeps it.  [default: your login name]",
)
why_option = click.option("--why", metavar="TEXT", help="The reason; the history keeps it.")
traceback_option = click.option("--traceback", "trace", is_flag=True, help="Show the traceback of a failed agent.")


def label_option(about: str) -> Callable[[Function], Function]:
    """Return the option ``--label``, which can be repeated."""
    return click.option("--label", "labels", metavar="NAME=VALUE", multiple=True, callback=label_values, help=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The options of the running command that hints repeat."""

    url: str = field(repr=False)
    app: str = "APP"
    waits: bool = False
    """The command has ``--timeout``."""


GIVEN: ContextVar[Given | None] = ContextVar("GIVEN", default=None)
"""``None`` if no later command can help: the running one works on no store, or on ``memory://``."""


def common(command: Function) -> Function:
    """Add the options that every command on a store has, and remember them in :data:`GIVEN`."""

    @functools.wraps(command)
    def remembering(**options: Any) -> Any:
        url, app = options["url"], options.get("app") or "APP"
        GIVEN.set(None if url.startswith("memory:") else Given(url=url, app=app, waits="timeout" in options))
        return command(**options)

    return store_option(json_option(cast("Function", remembering)))


def command_line(verb: str, *words: str, url: str, flags: Sequence[str] = ()) -> str:
    """Return a line to type. It names the store only if the same shell would use another, and never a password."""
    store = [] if url == (os.environ.get("MIDTURN_URL") or DEFAULT_URL) else ["--store", without_secrets(url)]
    if any(word.startswith("-") for word in words):
        return shlex.join(["midturn", verb, *flags, *store, "--", *words])
    return shlex.join(["midturn", verb, *words, *flags, *store])
