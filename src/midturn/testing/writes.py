"""Writes, removals and deletions.

A write happens as a whole or not at all, names the seq that it saw, and is read back exactly. It removes exactly the
rows that it names, and only if it takes effect. A deleted session stays deleted until it is forgotten, whoever tries
to write it.
"""
# ruff: noqa: S101, PLR2004 - a suite asserts, and expected numbers are the point

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from midturn.errors import Conflict, SessionDeleted
from midturn.record.head import Kind
from midturn.testing.samples import SAMPLE_BYTES, a_call, a_removal, a_row, a_write
from midturn.testing.subject import Suite, calls, ids, snapshot, timeless

if TYPE_CHECKING:
    from midturn.record.head import Status, Write
    from midturn.store import Store

STATUSES: tuple[Status, ...] = ("idle", "running", "waiting", "failed", "cancelled")


async def _is_refused(store: Store, write: Write) -> None:
    """Check that the write is a conflict, and that the store does not change."""
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
        """Reject a write whose seq matches by chance: the store has lost writes, and others took their place."""
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


class Removing(Suite):
    """The rows that a write removes, and those that it leaves."""

    @pytest.mark.parametrize("kind", [Kind.BODY, Kind.CHECKPOINT, Kind.CALL])
    async def test_a_removal_takes_exactly_the_rows_of_its_range(self, store: Store, kind: Kind) -> None:
        numbers = [0, 1, 2, 9, 10, 255, 256, 2**53, 2**53 + 1, 2**62]
        ranges = [
            *((0, 0), (3, 3), (5, 4), (2**62 + 1, 2**63 - 1), (0, 1), (9, 10), (2, 9), (3, 10), (255, 257)),
            *((2**53, 2**53 + 1), (11, 2**62), (0, 2**62 + 1)),
        ]
        await store.write(a_write(rows=[a_row(n, kind=kind) for n in numbers]))
        for seq, (start, stop) in enumerate(ranges, start=1):
            written = await store.write(a_write(seq=seq, removes=[a_removal(stop, start, kind=kind)]))
            numbers = [n for n in numbers if not start <= n < stop]
            assert await snapshot(store, "case-42") == (timeless(written), tuple(a_row(n, kind=kind) for n in numbers))
            assert list(await store.rows("case-42", kind, start=start, stop=stop)) == []

    async def test_a_removal_leaves_other_kinds_and_other_sessions(self, store: Store) -> None:
        rows = [a_row(n, kind=kind) for kind in Kind for n in range(4)]
        names = ("case-42", "case-4", "case-420", "Case-42", "case-42/1", "%")
        for name in names:
            await store.write(a_write(name, rows=rows))
        others = {name: await snapshot(store, name) for name in names[1:]}
        kinds = [kind for kind in Kind if kind is not Kind.DECISION]  # no write can remove those
        for seq, kind in enumerate(kinds, start=1):
            await store.write(a_write(seq=seq, removes=[a_removal(3, 1, kind=kind)]))
            rows = [row for row in rows if row.kind is not kind or row.n in (0, 3)]
            assert (await snapshot(store, "case-42"))[1] == tuple(rows)
        assert {name: await snapshot(store, name) for name in others} == others
        assert await ids(store) == sorted(names)

    async def test_a_write_has_several_removals(self, store: Store) -> None:
        await store.write(a_write(rows=[a_row(n, kind=kind) for kind in Kind for n in range(9)]))
        turns = [a_removal(2, kind=Kind.TURN), a_removal(7, 5, kind=Kind.TURN), a_removal(6, 1, kind=Kind.TURN)]
        removes = [*turns, a_removal(9), a_removal(9), a_removal(1, kind=Kind.KEY)]
        await store.write(a_write(seq=1, removes=removes, rows=[a_call(3)]))
        left = {kind: range(9) for kind in Kind} | {Kind.TURN: (7, 8), Kind.KEY: range(1, 9), Kind.CALL: (3,)}
        assert (await snapshot(store, "case-42"))[1] == tuple(a_row(n, kind=kind) for kind in Kind for n in left[kind])

    async def test_a_row_is_removed_before_the_rows_of_the_write_are_added(self, store: Store) -> None:
        for kind in (Kind.BODY, Kind.CALL):
            await store.write(a_write(kind.name, rows=[a_row(n, kind=kind) for n in range(6)]))
            rows = [a_row(3, b"[3]", kind=kind), a_row(1, b"[1]", kind=kind), a_row(6, kind=kind)]
            await store.write(a_write(kind.name, seq=1, removes=[a_removal(4, kind=kind)], rows=rows))
            new = (rows[1], rows[0], a_row(4, kind=kind), a_row(5, kind=kind), rows[2])
            assert (await snapshot(store, kind.name))[1] == new
            rows = [a_row(n, b"[9]", kind=kind) for n in range(100)]
            await store.write(a_write(kind.name, seq=2, removes=[a_removal(7, kind=kind)], rows=rows))
            assert (await snapshot(store, kind.name))[1] == tuple(rows)

    async def test_a_refused_write_removes_nothing(self, store: Store) -> None:
        rows = [*(a_call(n) for n in range(6)), a_row(1)]
        first = await store.write(a_write(rows=rows))
        before = await snapshot(store, "case-42")
        gone = [a_removal(4), a_removal(9, 2, kind=Kind.BODY)]
        for write in (
            a_write(seq=0, removes=gone),
            a_write(seq=2, removes=gone, rows=[a_call(6)]),
            a_write(seq=1, after="another", removes=gone),
            a_write(seq=1, removes=gone, rows=[a_row(1)]),
            a_write(seq=1, removes=gone, rows=[a_call(2), a_call(5)]),
            a_write(seq=1, removes=gone, rows=[a_call(4)]),
            a_write(seq=1, removes=gone, rows=[a_call(7), a_call(7)]),
            a_write(seq=1, removes=gone, rows=[a_call(2), a_call(2)]),
        ):
            with pytest.raises(Conflict):
                await store.write(write)
            assert await snapshot(store, "case-42") == before
        await store.write(a_write("deleted", removes=gone))
        assert await store.delete("deleted")
        with pytest.raises(SessionDeleted):
            await store.write(a_write("deleted", seq=1, removes=gone))
        assert (await store.write(a_write(seq=1, after=first.token, removes=gone))).seq == 2
        assert await calls(store) == [4, 5]

    async def test_rows_are_added_and_removed_again_after_a_removal(self, store: Store) -> None:
        await store.write(a_write(removes=[a_removal(7)]))
        await store.write(a_write(seq=1, rows=[a_call(n) for n in range(1, 6)]))
        await store.write(a_write(seq=2, removes=[a_removal(4)], rows=[a_call(6), a_call(7)]))
        assert await calls(store) == [4, 5, 6, 7]
        with pytest.raises(Conflict):
            await store.write(a_write(seq=3, rows=[a_call(5)]))
        await store.write(a_write(seq=3, removes=[a_removal(100)], rows=[a_call(100), a_row(8)]))
        assert await calls(store) == [100]
        # A number whose row was removed can be used again.
        await store.write(a_write(seq=4, rows=[a_call(2, b"[]"), a_call(101)]))
        await store.write(a_write(seq=5, removes=[a_removal(1)]))
        assert (await snapshot(store, "case-42"))[1] == (a_row(8), a_call(2, b"[]"), a_call(100), a_call(101))


class Deleting(Suite):
    """Deletion of sessions, and the heads that remain."""

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

    async def test_a_deleted_head_keeps_the_data_of_its_deletion(self, store: Store) -> None:
        for number, data in enumerate([*SAMPLE_BYTES, b"", b"\0", bytes(range(256)), b"\xff\xfe not JSON\r\n"]):
            written = await store.write(a_write(f"case-{number:03}", data=b"[1]", rows=[a_row(1)]))
            assert await store.delete(written.session, data=data) is True
            head, rows = await snapshot(store, written.session)
            assert head is not None
            assert (head, rows) == (timeless(written.deleted(now=head.updated, data=data)), ())
            [listed] = await store.heads(prefix=written.session, status="deleted")
            assert timeless(listed) == head

    async def test_deleting_again_finds_nothing_to_delete(self, store: Store) -> None:
        await store.write(a_write())
        assert await store.delete("case-42", data=b"[1]") is True
        before = await snapshot(store, "case-42")
        for data in (b"", b"[2]"):
            assert await store.delete("case-42", data=data) is False
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


class Forgetting(Suite):
    """Deleted sessions whose ids are free again."""

    async def test_a_forgotten_session_was_never_written(self, store: Store) -> None:
        await store.write(a_write("kept"))
        for seq in range(3):
            await store.write(a_write(seq=seq, labels={"team": "claims"}, rows=[a_row(seq), a_call(seq)]))
        assert await store.delete("case-42", data=b"[1]")
        assert await store.forget("case-42") is True
        assert await snapshot(store, "case-42") == (None, ())
        for order in ("id", "updated"):
            assert list(await store.heads(status="deleted", order=order)) == []
        assert await ids(store) == ["kept"]
        assert dict(await store.counts()) == {"idle": 1}
        assert await store.delete("case-42") is False
        assert await store.head("case-42") is None

    async def test_forgetting_again_or_an_unknown_session_finds_nothing(self, store: Store) -> None:
        assert await store.forget("case-42") is False
        await store.write(a_write())
        assert await store.delete("case-42")
        assert [await store.forget("case-42") for _ in range(3)] == [True, False, False]

    @pytest.mark.parametrize("status", STATUSES)
    async def test_only_a_deleted_session_is_forgotten(self, store: Store, status: Status) -> None:
        await store.write(a_write(status=status, labels={"team": "claims"}, rows=[a_row(1)]))
        before = await snapshot(store, "case-42")
        with pytest.raises(Conflict) as caught:
            await store.forget("case-42")
        assert caught.value.session == "case-42"
        assert await snapshot(store, "case-42") == before
        assert await ids(store) == ["case-42"]

    async def test_a_forgotten_id_begins_anew(self, store: Store) -> None:
        for life in range(4):
            write = a_write(labels={"life": str(life)}, rows=[a_row(1, b"[%d]" % life), a_call(1)])
            written = await store.write(write)
            assert (written.seq, written.created) == (1, written.updated)
            assert await snapshot(store, "case-42") == (timeless(written), write.rows)
            [listed] = await store.heads(order="updated")
            assert timeless(listed) == timeless(written)
            newer = await store.write(a_write(seq=1, after=written.token, rows=[a_row(2)]))
            assert newer.created == written.created
            assert await store.delete("case-42")
            assert await store.forget("case-42")

    async def test_a_late_write_of_an_earlier_life_is_refused(self, store: Store) -> None:
        old = await store.write(a_write(owner="me", lease=3_600.0, rows=[a_row(1)]))
        late = [a_write(seq=seq, after=old.token, owner="me", lease=3_600.0, rows=[a_row(9)]) for seq in (1, 2, 3)]
        assert await store.delete("case-42")
        assert await store.forget("case-42")
        for write in late:
            await _is_refused(store, write)
        for seq in range(3):
            await store.write(a_write(seq=seq, rows=[a_row(seq)]))
            for write in late:
                await _is_refused(store, write)

    async def test_only_the_named_session_is_forgotten(self, store: Store) -> None:
        names = ("case", "case-4", "case-42", "case-42 ", "case-42/1", "case-420", "Case-42", "%", "*")
        for name in names:
            await store.write(a_write(name, rows=[a_row(1)]))
            assert await store.delete(name, data=name.encode())
        kept = {name: await snapshot(store, name) for name in names}
        for name in ("%", "*", "case-42"):
            assert await store.forget(name)
            del kept[name]
            assert {name: await snapshot(store, name) for name in kept} == kept
        assert [head.session for head in await store.heads(status="deleted")] == sorted(kept)
