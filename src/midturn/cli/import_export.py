"""``midturn import`` and ``midturn export``: read and write the JSON of AutoGen, and write that of other libraries."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, cast, get_args

import click

import midturn
from midturn.cli.app_argument import load_blueprint
from midturn.cli.key_argument import opened
from midturn.cli.options import command_line, common
from midturn.cli.output import dump_json, note, print_json, say
from midturn.cli.session_argument import existing, find, look_up, reader
from midturn.cli.signals import run
from midturn.errors import MidturnError, StateInvalid
from midturn.framework import Destination
from midturn.record.codec import decode_foreign
from midturn.stores.privacy import create, report_if_shared


@click.command("import")
@click.argument("file", type=click.Path(allow_dash=True))
@click.argument("session")
@click.option("--force", is_flag=True, help="Add the state to an existing session as its next checkpoint.")
@click.option("--app", metavar="APP", help="The state has the version of this Blueprint. Without it: version 1.")
@common
def import_(*, file: str, session: str, force: bool, app: str | None, url: str, as_json: bool) -> None:
    """Start a session from AutoGen's own JSON.

    FILE contains what AutoGen's save_state() returned. FILE can be - for stdin.
    """
    blueprint = load_blueprint(app) if app else None
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    name = "stdin" if file == "-" else file
    state = decode_foreign(data, name)
    if not isinstance(state, dict):
        raise StateInvalid("is not a JSON object, as AutoGen's save_state() returns", path=name)

    async def save() -> int:
        async with opened(url) as store:
            info = await look_up(store, session)
            if info is not None and not force:
                error = MidturnError(f"session {session!r} exists already", session=session)
                error.add_note(f"to add the state as its checkpoint {info.turns + 1}: --force")
                raise error
            return await store.session(session, blueprint).save({"state": state}, origin="import")

    checkpoint = run(save())
    if as_json:
        print_json({"session": session, "checkpoint": checkpoint})
    else:
        say(f"imported as checkpoint {checkpoint} of {session}")
        note(f"continue: {command_line('chat', 'APP', session, url=url)}")


@click.command()
@click.argument("session", metavar="SESSION[@N]")
@click.option(
    "--to",
    type=click.Choice(["autogen", *get_args(Destination)]),
    default="autogen",
    show_default=True,
    help="The library that reads it.",
)
@click.option("-o", "--output", metavar="FILE", default="-", help="Write to FILE instead of stdout.")
@common
def export(*, session: str, to: str, output: str, url: str, as_json: bool) -> None:
    """Print the state of a session as JSON for AutoGen, or its conversations for another library.

    For AutoGen, it is exactly what save_state() returned after the last turn, or after turn N. load_state() reads it.

    For another library, it has a document for each agent, one for the thread of each team, and a list of what was left
    out, such as memories and whose turn it is.

    The documents for agent-framework are sessions of Microsoft Agent Framework, those for responses are input items of
    OpenAI's Responses API, and those for openai-chat are messages of its chat completions.

    For example: midturn export case-42 --to agent-framework
    """

    async def read() -> tuple[str, int, Any]:
        async with existing(url) as store:
            info, number = await find(store, session)
            number = info.checkpoint if number is None else number
            if to == "autogen":
                return info.id, number, await reader(store, info.id).at(number).state()
            found = await midturn.export(store, info.id, to=cast("Destination", to), at=number)
            for line in found.left_out:
                note(f"left out: {line}")
            return info.id, number, found.json()

    id_, number, state = run(read())
    if output == "-":
        print_json(state)
        return
    _write(Path(output), dump_json(state) + "\n")
    if as_json:
        print_json({"session": id_, "checkpoint": number, "file": output})
    else:
        note(f"wrote checkpoint {number} of {id_} to {output}")


def _write(path: Path, text: str) -> None:
    """Write a file. A new one can be read only by its owner, because it holds a conversation."""
    try:
        file = create(path, os.O_WRONLY)
    except FileExistsError:
        report_if_shared(path)
        file = os.open(path, os.O_WRONLY | os.O_TRUNC)
    with os.fdopen(file, "w", encoding="ascii") as output:
        output.write(text)
