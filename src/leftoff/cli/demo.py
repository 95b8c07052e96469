"""``leftoff demo``."""

from __future__ import annotations

import click

from leftoff.cli.options import json_option
from leftoff.cli.output import console
from leftoff.cli.signals import run


@click.command()
@json_option
def demo(*, as_json: bool) -> int:
    """Kill an agent in mid-turn and see it go on.

    Another process picks up where the first one left off, in a store of its own.
    """
    from leftoff.demo.show import run_demo

    return run(run_demo(console(), as_json=as_json))
