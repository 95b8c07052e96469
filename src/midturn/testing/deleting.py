"""A deleted session stays deleted, whoever wants to write it."""
# ruff: noqa: S101 - a suite asserts

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from midturn.errors import SessionDeleted
from midturn.record.head import Kind
from midturn.testing.samples import a_row, a_write
from midturn.testing.subject import Suite, ids, snapshot, timeless

if TYPE_CHECKING:
    from midturn.store import Store


class Deleting(Suite):
    """What is left of a session, and what is not."""

    async def test_a_deleted_session_leaves_only_a_head_that_says_so(self, store: Store) -> None:
        rows = [a_row(n, kind=kind) for kind in Kind for n in range(3)]
        write = a_write(labels={"team": "claims"}, owner="me", lease=60.0, epoch=4, data=b"[1]", rows=rows)
        written = await store.write(write)
        assert await store.delete("case-42") is True
        head, left = await snapshot(store, "case-42")
        assert left == ()
        assert head is not None
        assert head.updated >= written.updated
        assert head == timeless(written.deleted(now=head.updated))

    async def test_a_deleted_session_is_listed_only_by_its_status(self, store: Store) -> None:
        await store.write(a_write("kept", labels={"team": "claims"}))
        await store.write(a_write("gone", labels={"team": "claims"}))
        assert await store.delete("gone")
        assert await ids(store) == ["kept"]
        assert await ids(store, prefix="gone") == []
        assert [head.session for head in await store.heads(labels={"team": "claims"})] == ["kept"]
        [listed] = await store.heads(status="deleted")
        head = await store.head("gone")
        assert head is not None
        assert timeless(listed) == timeless(head)
        assert list(await store.heads(status="deleted", labels={"team": "claims"})) == []

    async def test_deleting_again_finds_nothing_to_delete(self, store: Store) -> None:
        await store.write(a_write())
        assert await store.delete("case-42") is True
        before = await snapshot(store, "case-42")
        assert await store.delete("case-42") is False
        assert await snapshot(store, "case-42") == before

    async def test_an_unknown_session_is_not_deleted_and_not_made(self, store: Store) -> None:
        await store.write(a_write("another"))
        assert await store.delete("case-42") is False
        assert await store.head("case-42") is None
        assert list(await store.heads(status="deleted")) == []
        assert (await store.write(a_write())).seq == 1

    async def test_a_write_after_the_deletion_is_refused_whatever_its_seq(self, store: Store) -> None:
        for seq in range(3):
            await store.write(a_write(seq=seq, owner="me", lease=60.0, rows=[a_row(seq)]))
        assert await store.delete("case-42")
        before = await snapshot(store, "case-42")
        for seq in range(6):
            for rows in ([], [a_row(0)], [a_row(9)], [a_row(9), a_row(9)]):
                with pytest.raises(SessionDeleted) as caught:
                    await store.write(a_write(seq=seq, owner="me", rows=rows))
                assert caught.value.session == "case-42"
        assert await snapshot(store, "case-42") == before
        assert await ids(store) == []

    async def test_a_held_session_is_deleted_all_the_same(self, store: Store) -> None:
        held = await store.write(a_write(owner="me", lease=3_600.0, status="running"))
        assert await store.delete("case-42") is True
        with pytest.raises(SessionDeleted):
            await store.write(a_write(seq=held.seq, owner="me", lease=3_600.0, rows=[a_row(1)]))

    async def test_only_the_named_session_is_deleted(self, store: Store) -> None:
        names = ("case", "case-4", "case-42", "case-42 ", "case-42/1", "case-420", "Case-42", "%", "*")
        for name in names:
            await store.write(a_write(name, labels={"name": name}, rows=[a_row(1), a_row(2, kind=Kind.DECISION)]))
        kept = {name: await snapshot(store, name) for name in names}
        for name in ("%", "*", "case-42"):
            assert await store.delete(name)
            del kept[name]
            assert {name: await snapshot(store, name) for name in kept} == kept
        assert await ids(store) == sorted(kept)
