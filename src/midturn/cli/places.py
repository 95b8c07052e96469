"""Finding things: the store behind a URL, a session in it, one of its turns."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import midturn
from midturn.cli.failures import NotFound
from midturn.cli.options import command_line
from midturn.errors import SessionDeleted, StateInvalid
from midturn.lease.ledger import Ledger
from midturn.record.head import check_id
from midturn.stores.registry import exists, locate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from midturn.record.head import Head

_NUMBERED = re.compile(r"(.+)@([0-9]{1,18})", re.DOTALL)


@asynccontextmanager
async def existing(url: str) -> AsyncGenerator[midturn.OpenStore]:
    """The store, if there is one: to look for something must not make an empty one.

    Raises:
        NotFound: there is none.
    """
    if not await exists(url):
        _, path = locate(url)
        error = NotFound(f"there is no store at {path}" if path else "the schema has no tables of midturn yet")
        error.add_note(f"name another URL, or begin one: {command_line('chat', 'APP', 'SESSION', url=url)}")
        raise error
    async with midturn.open(url) as store:
        yield store


async def look_up(store: midturn.OpenStore, session: str) -> Ledger:
    """What the store knows of a session; its head is ``None`` if that is nothing.

    Raises:
        SessionDeleted: it was deleted.
    """
    ledger = Ledger(store.store, check_id(session))
    await ledger.refresh()
    return ledger


class Found(NamedTuple):
    """A session that exists, and which of its turns is meant."""

    session: str
    ledger: Ledger
    head: Head
    number: int | None


async def find(store: midturn.OpenStore, name: str) -> Found:
    """What ``SESSION`` or ``SESSION@N`` means.

    Raises:
        NotFound: there is no such session.
        SessionDeleted: there was.
    """
    number: int | None = None
    if (match := _NUMBERED.fullmatch(name)) and not await _exists(store, name):
        name, number = match[1], int(match[2])
    found = await find_session(store, name)
    return Found(found.session, found.ledger, found.head, number)


async def find_session(store: midturn.OpenStore, session: str) -> Found:
    """The session with this id; raises as :func:`find`."""
    ledger = await look_up(store, session)
    if ledger.head is None:
        error = NotFound(f"there is no session {session!r}", session=session)
        error.add_note("midturn ls, with the same --store, shows which there are")
        raise error
    return Found(session, ledger, ledger.head, None)


async def _exists(store: midturn.OpenStore, session: str) -> bool:
    try:
        return (await look_up(store, session)).head is not None
    except (SessionDeleted, StateInvalid):  # also an id that is too long with its @N
        return False
