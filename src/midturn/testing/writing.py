"""A write is whole or nothing, names the seq it saw, and comes back exactly."""
# ruff: noqa: S101, PLR2004 - a suite asserts, and expected numbers are the point

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from midturn.errors import Conflict
from midturn.record.head import Kind
from midturn.testing.samples import SAMPLE_BYTES, a_row, a_write
from midturn.testing.subject import Suite, ids, snapshot, timeless

if TYPE_CHECKING:
    from midturn.record.head import Status, Write
    from midturn.store import Store

STATUSES: tuple[Status, ...] = ("idle", "running", "waiting", "failed")


async def _is_refused(store: Store, write: Write) -> None:
    """The write is a conflict, and the store looks as before it."""
    before, listed = await snapshot(store, write.session), await ids(store)
    with pytest.raises(Conflict) as caught:
        await store.write(write)
    assert caught.value.session == write.session
    assert await snapshot(store, write.session) == before
    assert await ids(store) == listed


class Writing(Suite):
    """Heads and the writes that make them."""

    async def test_the_profile_agrees_with_what_is_being_proved(self, store: Store) -> None:
        assert store.profile in {"volatile", "strict", "bounded-loss"}
        assert (store.profile != "volatile") == self.durable

    async def test_an_unknown_session_has_no_head_and_no_rows(self, store: Store) -> None:
        assert await store.head("case-42") is None
        assert await snapshot(store, "case-42") == (None, ())
        assert await ids(store) == []

    async def test_a_new_session_is_written_at_seq_0_and_becomes_seq_1(self, store: Store) -> None:
        written = await store.write(a_write(seq=0, rows=[a_row(1)]))
        assert (written.session, written.seq) == ("case-42", 1)
        assert await snapshot(store, "case-42") == (timeless(written), (a_row(1),))

    async def test_a_new_session_has_no_head_to_come_after(self, store: Store) -> None:
        assert (await store.write(a_write(seq=0, after="lost", rows=[a_row(1)]))).seq == 1
        await _is_refused(store, a_write(seq=0, after="lost"))

    @pytest.mark.parametrize("status", STATUSES)
    async def test_a_head_comes_back_exactly(self, store: Store, status: Status) -> None:
        write = a_write(
            "cas\u00e9/'%\n\N{GRINNING FACE}",
            epoch=2**40,
            status=status,
            labels={"team": "claims", "": "empty", "caf\u00e9": "\N{GRINNING FACE}'\"\\"},
            owner="host-1:4711:'\"\n\N{GRINNING FACE}",
            lease=12.5,
            token="token '\"\\%\n\N{GRINNING FACE}",  # noqa: S106 - names a write, keeps no secret
            data=b'{"a": "\\u0000"}',
        )
        written = await store.write(write)
        assert timeless(written) == timeless(write.head(now=written.updated, created=written.created))
        assert written.created == written.updated
        read = await store.head(write.session)
        assert read is not None
        assert timeless(read) == timeless(written)
        assert [timeless(head) for head in await store.heads()] == [timeless(written)]
        assert dict(read.labels) == dict(write.labels)

    async def test_the_head_keeps_any_bytes(self, store: Store) -> None:
        for seq, data in enumerate([*SAMPLE_BYTES, b"", b"\0", bytes(range(256)), b"\xff\xfe not JSON\r\n"]):
            written = await store.write(a_write(seq=seq, data=data))
            read = await store.head("case-42")
            assert read is not None
            assert (written.data, read.data) == (data, data)

    async def test_the_seq_rises_by_one_with_each_write(self, store: Store) -> None:
        for seq in range(12):
            assert (await store.write(a_write(seq=seq))).seq == seq + 1

    async def test_every_write_replaces_the_whole_head(self, store: Store) -> None:
        full = a_write(labels={"a": "1", "b": "2"}, owner="me", lease=60.0, epoch=7, status="running", data=b"[1]")
        first = await store.write(full)
        second = await store.write(a_write(seq=1, labels={"b": "3"}, epoch=8, data=b"", token="second"))  # noqa: S106
        assert (second.labels, second.owner, second.expires, second.data) == ({"b": "3"}, None, 0.0, b"")
        assert (second.epoch, second.status, second.token) == (8, "idle", "second")
        assert second.created == first.created
        assert second.updated >= first.updated
        assert await snapshot(store, "case-42") == (timeless(second), ())

    async def test_what_was_written_does_not_follow_the_writers_dict(self, store: Store) -> None:
        labels = {"team": "claims"}
        await store.write(a_write(labels=labels))
        labels["team"] = "changed"
        head = await store.head("case-42")
        assert head is not None
        assert head.labels == {"team": "claims"}

    async def test_a_stale_seq_is_a_conflict_and_changes_nothing(self, store: Store) -> None:
        for seq in range(3):
            await store.write(a_write(seq=seq, labels={"at": str(seq)}, rows=[a_row(seq)]))
        for stale in (1, 2):
            rows = [a_row(9), a_row(9, kind=Kind.DECISION)]
            write = a_write(seq=stale, labels={"at": "stale"}, data=b"[]", rows=rows)
            await _is_refused(store, write)

    async def test_a_future_seq_is_a_conflict_and_changes_nothing(self, store: Store) -> None:
        await store.write(a_write(rows=[a_row(0)]))
        for future in (2, 3, 2**40):
            await _is_refused(store, a_write(seq=future, data=b"[]", rows=[a_row(9)]))

    async def test_seq_0_on_an_existing_session_is_a_conflict(self, store: Store) -> None:
        await store.write(a_write(rows=[a_row(0)]))
        await _is_refused(store, a_write(seq=0, data=b"[]"))
        await _is_refused(store, a_write(seq=0, data=b"[]", rows=[a_row(9)]))

    async def test_a_seq_on_an_unknown_session_is_a_conflict(self, store: Store) -> None:
        await store.write(a_write("another"))
        await _is_refused(store, a_write("case-42", seq=1, rows=[a_row(0)]))

    async def test_a_write_after_another_head_is_a_conflict(self, store: Store) -> None:
        """As many writes, but not the same: the store has lost some, and others have come in their place."""
        first = await store.write(a_write(rows=[a_row(1)]))
        await _is_refused(store, a_write(seq=1, after="token of a lost write", rows=[a_row(2)]))
        second = await store.write(a_write(seq=1, after=first.token, rows=[a_row(2)]))
        await _is_refused(store, a_write(seq=2, after=first.token))
        assert (await store.write(a_write(seq=2, after=second.token))).seq == 3

    async def test_the_same_write_twice_is_a_conflict(self, store: Store) -> None:
        write = a_write()
        await store.write(write)
        await _is_refused(store, write)

    async def test_a_higher_epoch_does_not_help_a_stale_seq(self, store: Store) -> None:
        await store.write(a_write(epoch=1))
        await store.write(a_write(seq=1, epoch=2))
        await _is_refused(store, a_write(seq=1, epoch=3))

    async def test_a_row_that_is_there_already_is_a_conflict_and_nothing_is_kept(self, store: Store) -> None:
        await store.write(a_write(rows=[a_row(5), a_row(2**62)]))
        for there in (a_row(5, b"[]"), a_row(5), a_row(2**62)):
            await _is_refused(store, a_write(seq=1, data=b"[]", rows=[a_row(6), there, a_row(7)]))
            await _is_refused(store, a_write(seq=1, data=b"[]", rows=[a_row(7, kind=Kind.DECISION), there]))
        assert (await store.write(a_write(seq=1, rows=[a_row(6), a_row(7), a_row(5, kind=Kind.DECISION)]))).seq == 2

    async def test_a_row_twice_in_one_write_is_a_conflict_and_nothing_is_kept(self, store: Store) -> None:
        for twice in ([a_row(5), a_row(5)], [a_row(4), a_row(5), a_row(6), a_row(5, b"[]")]):
            await _is_refused(store, a_write("new", rows=twice))
        await store.write(a_write(rows=[a_row(1)]))
        await _is_refused(store, a_write(seq=1, data=b"[]", rows=[a_row(2), a_row(3), a_row(2)]))

    async def test_the_same_number_in_another_kind_or_session_is_no_conflict(self, store: Store) -> None:
        for session in ("case-42", "case-43"):
            rows = [a_row(1, kind=kind) for kind in Kind]
            await store.write(a_write(session, rows=rows))
            assert (await snapshot(store, session))[1] == tuple(rows)

    async def test_the_clock_is_sane_and_never_goes_back(self, store: Store) -> None:
        last = 0.0
        for seq in range(15):
            written = await store.write(a_write(seq=seq))
            read = await store.head("case-42")
            [listed] = await store.heads()
            assert read is not None
            assert written.created <= written.updated <= written.now
            assert last <= written.now <= read.now <= listed.now
            assert last - 0.002 < written.updated, "stored times may be cut to milliseconds, no further"
            last = listed.now
        assert abs(last - time.time()) < 86_400.0

    async def test_a_lease_runs_from_the_write_and_only_with_an_owner(self, store: Store) -> None:
        held = await store.write(a_write(owner="me", lease=30.0))
        assert held.expires == pytest.approx(held.updated + 30.0, abs=0.001)
        free = await store.write(a_write(seq=1, owner=None, lease=30.0))
        assert (free.owner, free.expires) == (None, 0.0)

    async def test_a_lease_runs_out_on_the_stores_clock(self, store: Store) -> None:
        held = await store.write(a_write(owner="me", lease=0.1))
        assert held.now < held.expires
        async with asyncio.timeout(5.0):
            while (head := await store.head("case-42")) is None or head.now < head.expires:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (head.owner, head.expires) == ("me", held.expires)
