"""Calls that nobody needs any more are removed by a write: exactly those, and only if the write takes effect."""
# ruff: noqa: S101, PLR2004 - a suite asserts, and expected numbers are the point

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from midturn.errors import Conflict, SessionDeleted
from midturn.record.head import Kind
from midturn.testing.samples import a_row, a_write
from midturn.testing.subject import Suite, ids, snapshot, timeless

if TYPE_CHECKING:
    from midturn.record.head import Row
    from midturn.store import Store


def a_call(n: int, data: bytes | None = None) -> Row:
    """A row of a call."""
    return a_row(n, data, kind=Kind.CALL)


async def calls(store: Store, session: str = "case-42") -> list[int]:
    """The numbers of the calls that a session has."""
    return [row.n for row in await store.rows(session, Kind.CALL)]


class Pruning(Suite):
    """What a write removes, and what it leaves."""

    async def test_a_prune_removes_the_calls_with_a_lower_number(self, store: Store) -> None:
        numbers = [0, 1, 2, 9, 10, 255, 256, 2**53, 2**53 + 1, 2**62]
        await store.write(a_write(rows=[a_call(n) for n in numbers]))
        for seq, prune in enumerate([0, 1, 2, 5, 10, 256, 2**53 + 1, 2**62, 2**62 + 1], start=1):
            written = await store.write(a_write(seq=seq, prune=prune))
            left = [n for n in numbers if n >= prune]
            assert await snapshot(store, "case-42") == (timeless(written), tuple(a_call(n) for n in left))
            assert list(await store.rows("case-42", Kind.CALL, start=0, stop=prune)) == []
            for n in left[:1]:
                assert list(await store.rows("case-42", Kind.CALL, start=n, stop=n + 1)) == [a_call(n)]

    async def test_a_prune_leaves_other_kinds_and_other_sessions(self, store: Store) -> None:
        rows = [a_row(n, kind=kind) for kind in Kind for n in range(4)]
        names = ("case-42", "case-4", "case-420", "Case-42", "case-42/1", "%")
        for name in names:
            await store.write(a_write(name, rows=rows))
        others = {name: await snapshot(store, name) for name in names[1:]}
        await store.write(a_write(seq=1, prune=3))
        left = tuple(row for row in rows if row.kind is not Kind.CALL or row.n >= 3)
        assert (await snapshot(store, "case-42"))[1] == left
        assert {name: await snapshot(store, name) for name in others} == others
        assert await ids(store) == sorted(names)

    async def test_a_refused_write_prunes_nothing(self, store: Store) -> None:
        rows = [*(a_call(n) for n in range(6)), a_row(1)]
        first = await store.write(a_write(rows=rows))
        before = await snapshot(store, "case-42")
        for write in (
            a_write(seq=0, prune=4),
            a_write(seq=2, prune=4, rows=[a_call(6)]),
            a_write(seq=1, after="another", prune=4),
            a_write(seq=1, prune=4, rows=[a_row(1)]),
            a_write(seq=1, prune=4, rows=[a_call(5)]),
            a_write(seq=1, prune=4, rows=[a_call(2)]),
            a_write(seq=1, prune=4, rows=[a_call(7), a_call(7)]),
        ):
            with pytest.raises(Conflict):
                await store.write(write)
            assert await snapshot(store, "case-42") == before
        await store.write(a_write("deleted", prune=4))
        assert await store.delete("deleted")
        with pytest.raises(SessionDeleted):
            await store.write(a_write("deleted", seq=1, prune=4))
        assert (await store.write(a_write(seq=1, after=first.token, prune=4))).seq == 2
        assert await calls(store) == [4, 5]

    async def test_calls_are_added_and_pruned_again_after_a_prune(self, store: Store) -> None:
        await store.write(a_write(prune=7))
        await store.write(a_write(seq=1, rows=[a_call(n) for n in range(1, 6)]))
        await store.write(a_write(seq=2, prune=4, rows=[a_call(6), a_call(7)]))
        assert await calls(store) == [4, 5, 6, 7]
        with pytest.raises(Conflict):
            await store.write(a_write(seq=3, rows=[a_call(5)]))
        await store.write(a_write(seq=3, prune=100, rows=[a_call(8), a_call(99), a_call(100), a_row(8)]))
        assert await calls(store) == [100]
        # A number that is free again is a number like any other.
        await store.write(a_write(seq=4, rows=[a_call(2, b"[]"), a_call(101)]))
        await store.write(a_write(seq=5, prune=1))
        assert (await snapshot(store, "case-42"))[1] == (a_row(8), a_call(2, b"[]"), a_call(100), a_call(101))
