"""``midturn import``, ``export`` and ``rm``: sessions that come and go."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import midturn
from midturn.cli.app import load_blueprint
from midturn.cli.failures import NotFound
from midturn.cli.options import command_line, common
from midturn.cli.output import clean, dump_json, note, print_json, say
from midturn.cli.places import existing, find, look_up
from midturn.cli.signals import run
from midturn.errors import MidturnError, StateInvalid
from midturn.history.checkpoints import Checkpoint
from midturn.record.codec import decode_foreign
from midturn.record.head import Kind, check_id
from midturn.record.rows import CheckpointRow

if TYPE_CHECKING:
    from midturn.lease.ledger import Ledger


@click.command("import")
@click.argument("file", type=click.Path(allow_dash=True))
@click.argument("session")
@click.option("--force", is_flag=True, help="Add the state to a session that exists, as its next checkpoint.")
@click.option(
    "--app", metavar="APP", help="The Blueprint whose present version the state is of; else it is of version 1."
)
@common
def import_(*, file: str, session: str, force: bool, app: str | None, url: str, as_json: bool) -> None:
    """Begin a session from AutoGen's own JSON.

    FILE has what save_state() gave; - is stdin.
    """
    blueprint = load_blueprint(app) if app else None
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    name = "stdin" if file == "-" else file
    state = decode_foreign(data, name)
    if not isinstance(state, dict):
        raise StateInvalid("not a JSON object, which save_state() gives", path=name)

    async def save() -> int:
        async with midturn.open(url) as store:
            ledger = await look_up(store, session)
            if ledger.head is not None and not force:
                error = MidturnError(f"session {session!r} exists already", session=session)
                error.add_note(f"--force adds the state as its checkpoint {ledger.progress.turn + 1}")
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
@click.option("-o", "--output", metavar="FILE", default="-", help="Write to FILE instead of stdout.")
@common
def export(*, session: str, output: str, url: str, as_json: bool) -> None:
    """Print the state as AutoGen's own JSON.

    It is exactly what save_state() gave after the last turn, or after turn N, and load_state() takes it.
    """

    async def read() -> tuple[str, int, Any]:
        async with existing(url) as store:
            found = await find(store, session)
            number = await _checkpoint(found.ledger, found.number)
            return found.session, number, await Checkpoint(found.ledger, number).state()

    id_, number, state = run(read())
    if output == "-":
        print_json(state)
        return
    Path(output).write_text(dump_json(state) + "\n", encoding="ascii")
    if as_json:
        print_json({"session": id_, "checkpoint": number, "file": output})
    else:
        note(f"wrote checkpoint {number} of {id_} to {output}")


@click.command()
@click.argument("session", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def rm(*, session: tuple[str, ...], yes: bool, url: str, as_json: bool) -> int:
    """Delete sessions for good.

    Whoever runs one of them cannot write it any more, and its id stays deleted.
    """
    ids = list(dict.fromkeys(session))
    known = run(_known(ids, url))
    if known and not yes:
        if not sys.stdin.isatty():
            line = command_line("rm", *ids, url=url, flags=("--yes",))
            raise click.UsageError(f"nobody can be asked whether this is meant; type {line}")
        if not click.confirm(clean(f"Delete {', '.join(known)} for good?"), err=True):
            note("nothing was deleted")
            return 1
    deleted = run(_delete(known, url))
    missing = [id_ for id_ in ids if id_ not in deleted]
    if as_json:
        print_json({"deleted": deleted, "missing": missing})
    else:
        for id_ in deleted:
            say(f"deleted {id_}")
    if missing:
        raise NotFound(f"there is no session {', '.join(map(repr, missing))}", session=missing[0])
    return 0


async def _known(ids: list[str], url: str) -> list[str]:
    """Those of the sessions that exist."""
    known: list[str] = []
    async with existing(url) as store:
        for id_ in map(check_id, ids):
            try:
                head = await store.store.head(id_)
            except StateInvalid:
                known.append(id_)  # damaged; to delete it is the way out
            else:
                if head is not None and head.status != "deleted":
                    known.append(id_)
    return known


async def _delete(ids: list[str], url: str) -> list[str]:
    async with existing(url) as store:
        return [id_ for id_ in ids if await store.delete(id_)]


async def _checkpoint(ledger: Ledger, number: int | None) -> int:
    """The number of a checkpoint that is there: the given one, or the latest."""
    session, latest = ledger.session, ledger.progress.checkpoint
    if not latest:
        raise NotFound(f"session {session!r} has no checkpoint yet", session=session)
    if number is None:
        return latest
    if await ledger.read(Kind.CHECKPOINT, CheckpointRow, number) is None:
        raise NotFound(f"session {session!r} has no checkpoint {number}; the latest is {latest}", session=session)
    return number
