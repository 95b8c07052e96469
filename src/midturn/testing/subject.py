"""The store under test, and the functions with which the tests read it."""

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
    """The properties of the store under test, and how to open it; a store's own tests override only these."""

    shared: ClassVar[bool] = True
    """True if two handles that are opened at the same path work on the same data."""
    durable: ClassVar[bool] = True
    """True if acknowledged writes are still there when the store is opened again."""

    def open_store(self, where: Path) -> AbstractAsyncContextManager[Store]:
        """Return a handle on the data at ``where``, which is closed on leaving the block.

        The first handle creates an empty store. ``where`` does not exist yet, but its folder does. A store that does
        not use files derives a name from it.
        """
        raise NotImplementedError


class Suite(Subject):
    """Base of all topics of the suite, with their fixtures."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def where(self, tmp_path: Path) -> Path:
        """Return a new path, deep enough to notice an id that leads out of it with ``..``."""
        folder = tmp_path / "outer" / "inner"
        folder.mkdir(parents=True)
        return folder / "store"

    @pytest_asyncio.fixture
    async def store(self, where: Path) -> AsyncIterator[Store]:
        """Yield a handle on a new store."""
        async with self.open_store(where) as store:
            yield store


def timeless(head: Head) -> Head:
    """Return the head without the time at which it was read."""
    return replace(head, now=0.0)


async def snapshot(store: Store, session: str) -> tuple[Head | None, tuple[Row, ...]]:
    """Return the head and all rows of a session, for comparison."""
    head = await store.head(session)
    rows = [row for kind in Kind for row in await store.rows(session, kind)]
    return head and timeless(head), tuple(rows)


async def ids(store: Store, *, prefix: str = "") -> list[str]:
    """Return the ids that a store lists."""
    return [head.session for head in await store.heads(limit=10_000, prefix=prefix)]


async def calls(store: Store, session: str = "case-42") -> list[int]:
    """Return the numbers of a session's calls."""
    return [row.n for row in await store.rows(session, Kind.CALL)]
