"""``midturn lineage``: show which sessions were forked from which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text
from rich.tree import Tree

from midturn.cli.options import common
from midturn.cli.output import console, line, print_json, status_text
from midturn.cli.session_argument import existing
from midturn.cli.signals import run
from midturn.history.json_view import lineage_json

if TYPE_CHECKING:
    from midturn import Lineage, Relative


@click.command()
@click.argument("session")
@common
def lineage(*, session: str, url: str, as_json: bool) -> None:
    """Show the sessions that SESSION was forked from, and those that were forked from it.

    The command looks at every session of the store, so it takes longer in a large one.

    For example: midturn lineage case-42-b
    """

    async def read() -> Lineage:
        async with existing(url) as store:
            return await store.lineage(session)

    found = run(read())
    if as_json:
        print_json(lineage_json(found))
        return
    chain: list[Relative] = [*found.ancestors, found]
    root = tree = Tree(_line(chain[0], session))
    for each in chain[1:]:
        tree = tree.add(_line(each, session))
    left = [(tree, each) for each in reversed(found.forks)]
    while left:  # a chain of forks may be longer than the calls that Python can nest
        above, each = left.pop()
        below = above.add(_line(each, session))
        left += [(below, fork) for fork in reversed(each.forks)]
    console().print(root)


def _line(relative: Relative, me: str) -> Text:
    """Return a session with the checkpoint of its origin that it began with, and its status."""
    at = f" from @{relative.forked_from.checkpoint}" if relative.forked_from is not None else ""
    name = Text(line(relative.session), style="bold" if relative.session == me else "")
    return Text.assemble(name, (at, "dim"), "  ", status_text(relative.status))
