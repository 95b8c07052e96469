"""The store that is being proved, and how the tests look at it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pytest
import pytest_asyncio

from midturn.record.head import Kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from midturn.record.head import Head, Row
    from midturn.store import Store


class Subject:
    """Says how the store is opened and what it claims; a store's own tests override only this."""

    shared: ClassVar[bool] = True
    """Whether two handles that are opened at the same path work on the same data."""
    durable: ClassVar[bool] = True
    """Whether what was acknowledged is there when the store is opened again."""

    def open_store(self, where: Path) -> AbstractAsyncContextManager[Store]:
        """Return a handle on the data at ``where``, closed on leaving; the first one makes an empty store there.

        ``where`` does not exist yet, its folder does. A store that keeps nothing in files derives a name from it.
        """
        raise NotImplementedError


class Suite(Subject):
    """What every topic of the suite has at hand."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def where(self, tmp_path: Path) -> Path:
        """Return a new path, deep enough that an id can try to climb out of it."""
        folder = tmp_path / "outer" / "inner"
        folder.mkdir(parents=True)
        return folder / "store"

    @pytest_asyncio.fixture
    async def store(self, where: Path) -> AsyncIterator[Store]:
        """Return a handle on a new store."""
        async with self.open_store(where) as store:
            yield store


def timeless(head: Head) -> Head:
    """Return the head without the moment at which it was read."""
    return replace(head, now=0.0)


async def snapshot(store: Store, session: str) -> tuple[Head | None, tuple[Row, ...]]:
    """Return all that a store says about a session, for comparing."""
    head = await store.head(session)
    rows = [row for kind in Kind for row in await store.rows(session, kind)]
    return head and timeless(head), tuple(rows)


async def ids(store: Store, *, prefix: str = "") -> list[str]:
    """Return the ids that a store lists."""
    return [head.session for head in await store.heads(limit=10_000, prefix=prefix)]


async def calls(store: Store, session: str = "case-42") -> list[int]:
    """Return the numbers of the calls that a session has."""
    return [row.n for row in await store.rows(session, Kind.CALL)]
