"""``midturn rm``: delete sessions."""

from __future__ import annotations

import sys

import click

from midturn.cli.options import by_option, command_line, common, why_option
from midturn.cli.output import clean, note, print_json, say
from midturn.cli.session_argument import existing, look_up
from midturn.cli.signals import run
from midturn.errors import NotFound, SessionDeleted, StateInvalid, UnknownVersion
from midturn.record.head import check_id


@click.command()
@click.argument("session", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--forget", is_flag=True, help="Remove the record of the deletion, too. The id can then be used again.")
@by_option
@why_option
@common
def rm(
    *, session: tuple[str, ...], yes: bool, forget: bool, by: str | None, why: str | None, url: str, as_json: bool
) -> int:
    """Delete sessions for good.

    Only a record of the deletion is left: who deleted the session, when and why. `midturn audit` shows it.

    A worker that runs a deleted session can no longer write it. A deleted id cannot be used again while the record of
    the deletion is there. --forget removes this record, also that of an earlier deletion.

    For example: midturn rm case-42 --why "the customer asked for it"
    """
    ids = list(dict.fromkeys(session))
    known = run(_known(ids, url, forget=forget))
    if known and not yes:
        if not sys.stdin.isatty():
            line = command_line("rm", *ids, url=url, flags=("--yes",))
            raise click.UsageError(f"there is no terminal to confirm this; type {line}")
        if not click.confirm(clean(f"Delete {', '.join(known)} for good?"), err=True):
            note("nothing was deleted")
            return 1
    deleted = run(_delete(known, url, by, why, forget=forget))
    missing = [id_ for id_ in ids if id_ not in deleted]
    if as_json:
        print_json({"deleted": deleted, "missing": missing})
    else:
        for id_ in deleted:
            say(f"deleted {id_}{', and forgot it' if forget else ''}")
    if missing:
        error = NotFound(f"there is no session {', '.join(map(repr, missing))}", session=missing[0])
        error.add_note(f"list the sessions: {command_line('ls', url=url)}")
        raise error
    return 0


async def _known(ids: list[str], url: str, *, forget: bool) -> list[str]:
    """Return the ids of the sessions that exist; with ``forget``, also of deleted ones."""
    known: list[str] = []
    async with existing(url) as store:
        for id_ in map(check_id, ids):
            try:
                info = await look_up(store, id_)
            except SessionDeleted:
                known += [id_] if forget else []
            except (StateInvalid, UnknownVersion):
                known.append(id_)  # damaged: deleting is the way out
            else:
                known += [id_] if info is not None else []
    return known


async def _delete(ids: list[str], url: str, by: str | None, why: str | None, *, forget: bool) -> list[str]:
    async with existing(url) as store:
        gone: list[str] = []
        for id_ in ids:
            found = await store.delete(id_, by=by, why=why)
            if forget:
                found |= await store.forget(id_)
            gone += [id_] if found else []
        return gone
