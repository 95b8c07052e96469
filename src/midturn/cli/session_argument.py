"""The argument SESSION: find a store, a session in it, or one of its turns."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from midturn.cli.key_argument import opened
from midturn.cli.options import command_line
from midturn.errors import Misfit, NotFound, SessionDeleted
from midturn.sessions.reader import SessionReader
from midturn.stores.registry import exists, locate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import midturn
    from midturn import SessionInfo

_NUMBERED = re.compile(r"(.+)@([0-9]{1,18})", re.DOTALL)


@asynccontextmanager
async def existing(
    url: str, *, keys: str | None = None, allow_plain: bool = False
) -> AsyncGenerator[midturn.OpenStore]:
    """Open a store that exists. A command that only reads must not create an empty one.

    ``keys`` is that of :func:`~midturn.cli.key_argument.opened`, ``allow_plain`` that of :func:`midturn.open`.

    Raises:
        NotFound: there is no store.
    """
    if not await exists(url):
        _, path = locate(url)
        error = NotFound(f"there is no store at {path}" if path else "the schema has no midturn tables yet")
        error.add_note(f"name another --store, or start one: {command_line('chat', 'APP', 'SESSION', url=url)}")
        raise error
    async with opened(url, keys=keys, allow_plain=allow_plain) as store:
        yield store


def reader(store: midturn.OpenStore, session: str) -> SessionReader:
    """Return a reader of a session. Unlike ``store.session()``, it does not import AutoGen."""
    return SessionReader(store.store, session)


class Found(NamedTuple):
    """An existing session, and the number of one of its turns if ``@N`` gives it."""

    info: SessionInfo
    number: int | None


async def find(store: midturn.OpenStore, name: str) -> Found:
    """Return what ``SESSION`` or ``SESSION@N`` names. It raises the same errors as :func:`find_session`."""
    number: int | None = None
    if (match := _NUMBERED.fullmatch(name)) and not await _exists(store, name):
        name, number = match[1], int(match[2])
    return Found(await find_session(store, name), number)


async def find_checkpoint(store: midturn.OpenStore, name: str) -> tuple[SessionInfo, int]:
    """Return the session and the checkpoint that ``SESSION@N`` names. It raises what :func:`find_session` raises.

    Raises:
        UsageError: there is no ``@N``.
    """
    info, number = await find(store, name)
    if number is None:
        raise click.UsageError(f"which turn of {name}? name it: SESSION@N")
    return info, number


async def find_session(store: midturn.OpenStore, session: str) -> SessionInfo:
    """Return the info of the session with this id.

    Raises:
        NotFound: there is no such session.
        SessionDeleted: the session was deleted.
    """
    info = await look_up(store, session)
    if info is None:
        raise NotFound.of(session)
    return info


async def look_up(store: midturn.OpenStore, session: str) -> SessionInfo | None:
    """Return the info of the session with this id, or ``None`` if there is no such session.

    Raises:
        SessionDeleted: the session was deleted.
    """
    try:
        info = await store.info(session)
    except NotFound:
        return None
    if info.status == "deleted":
        raise SessionDeleted.of(session)
    return info


async def _exists(store: midturn.OpenStore, session: str) -> bool:
    try:
        return await look_up(store, session) is not None
    except (SessionDeleted, Misfit):  # also an id that is too long with its @N
        return False
