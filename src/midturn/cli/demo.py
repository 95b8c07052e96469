"""``midturn demo``: kill an agent mid-turn and finish the turn."""

from __future__ import annotations

import click

from midturn.cli.options import json_option
from midturn.cli.output import console
from midturn.cli.signals import run


@click.command()
@json_option
def demo(*, as_json: bool) -> int:
    """Kill an agent mid-turn, and finish the turn in another process.

    The demo uses a store of its own.
    """
    from midturn.demo.walkthrough import run_demo

    return run(run_demo(console(), as_json=as_json))
