"""Handles: several on one store, at once or one after another."""
# ruff: noqa: S101, PLR2004 - a suite asserts, and expected numbers are the point

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from midturn.errors import Conflict, SessionDeleted
from midturn.record.codec import encode
from midturn.record.head import Head, Kind
from midturn.store import DEADLINE
from midturn.testing.concurrency import interrupt, race, settle, watch
from midturn.testing.samples import HOSTILE_IDS, SAMPLE_BYTES, a_call, a_removal, a_row, a_write
from midturn.testing.subject import Suite, calls, ids, snapshot, timeless

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from midturn.store import Store


class Sharing(Suite):
    """Two handles on one store; for stores that are ``shared``."""

    @pytest_asyncio.fixture
    async def other(self, where: Path) -> AsyncIterator[Store]:
        """Yield a second handle on the same data."""
        async with self.open_store(where) as other:
            yield other

    async def test_another_handle_sees_a_write_at_once(self, store: Store, other: Store) -> None:
        assert await other.head("case-42") is None
        handles = (store, other)
        for seq in range(6):
            writer, reader = handles[seq % 2], handles[1 - seq % 2]
            write = a_write(seq=seq, labels={"at": str(seq)}, owner="me", lease=60.0, rows=[a_row(seq)])
            written = await writer.write(write)
            assert await snapshot(reader, "case-42") == (timeless(written), tuple(a_row(n) for n in range(seq + 1)))
            assert [timeless(head) for head in await reader.heads(labels={"at": str(seq)})] == [timeless(written)]

    async def test_another_handles_write_makes_a_seq_stale(self, store: Store, other: Store) -> None:
        await store.write(a_write(rows=[a_row(0)]))
        newest = await other.write(a_write(seq=1, rows=[a_row(1)]))
        for stale in (0, 1):
            with pytest.raises(Conflict):
                await store.write(a_write(seq=stale, rows=[a_row(9)]))
        with pytest.raises(Conflict):
            await store.write(a_write(seq=2, rows=[a_row(1)]))
        assert await snapshot(store, "case-42") == (timeless(newest), (a_row(0), a_row(1)))

    async def test_another_handle_sees_a_deletion_at_once(self, store: Store, other: Store) -> None:
        held = await store.write(a_write(owner="me", lease=60.0, rows=[a_row(1)]))
        assert await other.delete("case-42") is True
        head, rows = await snapshot(store, "case-42")
        assert head is not None
        assert (head.status, rows, await ids(store)) == ("deleted", (), [])
        with pytest.raises(SessionDeleted):
            await store.write(a_write(seq=held.seq, owner="me", lease=60.0))
        assert await store.delete("case-42") is False

    async def test_another_handle_sees_at_once_that_an_id_was_forgotten(self, store: Store, other: Store) -> None:
        handles = (store, other)
        seen: list[float] = []
        for life in range(4):
            one, two = handles[life % 2], handles[1 - life % 2]
            written = await one.write(a_write(rows=[a_row(1, b"[%d]" % life)]))
            newer = await two.write(a_write(seq=1, after=written.token, labels={"life": str(life)}, rows=[a_row(2)]))
            assert newer.created == written.created
            for handle in handles:
                rows = (a_row(1, b"[%d]" % life), a_row(2))
                assert await snapshot(handle, "case-42") == (timeless(newer), rows)
                assert [timeless(head) for head in await handle.heads()] == [timeless(newer)]
            seen.append(newer.created)
            assert await one.delete("case-42")
            assert await two.forget("case-42")
            for handle in handles:
                assert await snapshot(handle, "case-42") == (None, ())
        assert seen == sorted(set(seen))

    async def test_another_handle_sees_a_removal_at_once(self, store: Store, other: Store) -> None:
        """Remove so much that a store also reclaims the space."""
        large = encode("x" * 40_000)
        handles = (store, other)
        for number in range(6):
            writer, reader = handles[number % 2], handles[1 - number % 2]
            for n in range(4):
                await writer.write(
                    a_write(seq=5 * number + n, rows=[a_call(4 * number + n, large), a_row(4 * number + n)])
                )
            assert await calls(reader) == [4 * number + n for n in range(4)]
            written = await writer.write(a_write(seq=5 * number + 4, removes=[a_removal(4 * number + 4)]))
            rows = tuple(a_row(n) for n in range(4 * number + 4))
            assert await snapshot(reader, "case-42") == (timeless(written), rows)
            assert [timeless(head) for head in await reader.heads()] == [timeless(written)]

    async def test_a_race_between_handles_has_one_winner(self, store: Store, other: Store) -> None:
        await race([store, other], "case-42", rounds=5)

    async def test_a_reader_with_another_handle_never_sees_half(self, store: Store, other: Store) -> None:
        await watch(store, other)

    async def test_closing_one_handle_leaves_the_other(self, store: Store, other: Store) -> None:
        await store.write(a_write())
        await other.close()
        assert (await store.write(a_write(seq=1))).seq == 2

    async def test_a_cancelled_write_is_settled_by_another_handle(self, store: Store, other: Store) -> None:
        for after in range(12):
            write = a_write(f"case-{after}", rows=[a_row(1)])
            async with asyncio.timeout(DEADLINE):
                await interrupt(store.write(write), after=after)
                head = await settle(other, write.session, 0, write.token)
            expected = write.rows if head.token == write.token else ()
            assert await snapshot(store, write.session) == (timeless(head), expected)

    async def test_many_handles_open_a_new_store_at_once(self, where: Path) -> None:
        async with AsyncExitStack() as stack:
            opening = (stack.enter_async_context(self.open_store(where)) for _ in range(5))
            stores = await asyncio.gather(*opening)
            for seq in range(2):
                writes = (store.write(a_write(f"case-{number}", seq)) for number, store in enumerate(stores))
                assert [head.seq for head in await asyncio.gather(*writes)] == [seq + 1] * 5
            for store in stores:
                assert await ids(store) == [f"case-{number}" for number in range(5)]

    async def test_handles_in_several_threads_have_one_winner(self, store: Store, where: Path) -> None:
        async def work(thread: int) -> int:
            won = 0
            async with self.open_store(where) as own:
                for seq in range(8):
                    try:
                        await own.write(a_write(seq=seq, rows=[a_row(seq, encode(thread))]))
                        won += 1
                    except Conflict:
                        head = await own.head("case-42")
                        assert head is not None
                        assert head.seq > seq
            return won

        def run(thread: int) -> int:
            return asyncio.run(work(thread))

        async with asyncio.timeout(DEADLINE):
            wins = await asyncio.gather(*(asyncio.to_thread(run, thread) for thread in range(3)))
        assert sum(wins) == 8
        assert [row.n for row in await store.rows("case-42", Kind.BODY)] == list(range(8))


class Lasting(Suite):
    """One handle after another on one store; for stores that are ``durable``."""

    async def test_everything_is_there_when_opened_again(self, where: Path) -> None:
        async with self.open_store(where) as store:
            for number, session in enumerate(HOSTILE_IDS):
                labels = {"n": str(number), session: session}
                rows = [a_row(number), a_row(2**62, encode(session), kind=Kind.KEY)]
                await store.write(a_write(session, labels=labels, owner="me", lease=60.0, epoch=number, rows=rows))
            full = a_write(data=bytes(range(256)), rows=[a_row(n, data) for n, data in enumerate(SAMPLE_BYTES)])
            await store.write(full)
            for session in HOSTILE_IDS[::5]:
                assert await store.delete(session)
            before = {session: await snapshot(store, session) for session in ("case-42", *HOSTILE_IDS)}
            listed = await ids(store)
        for _ in range(2):
            async with self.open_store(where) as store:
                assert {session: await snapshot(store, session) for session in before} == before
                assert await ids(store) == listed
                labelled = await store.heads(labels={"n": "1", HOSTILE_IDS[1]: HOSTILE_IDS[1]})
                assert [head.session for head in labelled] == [HOSTILE_IDS[1]]

    async def test_a_session_continues_after_opening_again(self, where: Path) -> None:
        for seq in range(5):
            async with self.open_store(where) as store:
                if seq:
                    with pytest.raises(Conflict):
                        await store.write(a_write(seq=seq - 1, rows=[a_row(9)]))
                    with pytest.raises(Conflict):
                        await store.write(a_write(seq=seq, rows=[a_row(seq - 1)]))
                assert (await store.write(a_write(seq=seq, rows=[a_row(seq)]))).seq == seq + 1
                assert [row.n for row in await store.rows("case-42", Kind.BODY)] == list(range(seq + 1))

    async def test_the_clock_continues_after_opening_again(self, where: Path) -> None:
        async with self.open_store(where) as store:
            first = await store.write(a_write(owner="me", lease=0.01))
        async with self.open_store(where) as store:
            await asyncio.sleep(0.02)
            head = await store.head("case-42")
        assert head is not None
        assert (head.created, head.updated, head.expires) == (first.created, first.updated, first.expires)
        assert head.now > head.expires

    async def test_deleted_stays_deleted_after_opening_again(self, where: Path) -> None:
        async with self.open_store(where) as store:
            await store.write(a_write(rows=[a_row(1)]))
            assert await store.delete("case-42", data=b"[1]")
            before = await snapshot(store, "case-42")
        async with self.open_store(where) as store:
            assert await ids(store) == []
            assert await store.delete("case-42") is False
            assert await snapshot(store, "case-42") == before
            assert before[1] == ()
            for seq in range(3):
                with pytest.raises(SessionDeleted):
                    await store.write(a_write(seq=seq))

    async def test_forgotten_stays_forgotten_after_opening_again(self, where: Path) -> None:
        async with self.open_store(where) as store:
            await store.write(a_write(rows=[a_row(1)]))
            assert await store.delete("case-42")
            assert await store.forget("case-42")
        async with self.open_store(where) as store:
            assert await snapshot(store, "case-42") == (None, ())
            assert list(await store.heads(status="deleted")) == []
            written = await store.write(a_write(rows=[a_row(1, b"[2]")]))
        async with self.open_store(where) as store:
            assert await snapshot(store, "case-42") == (timeless(written), (a_row(1, b"[2]"),))

    async def test_closing_loses_nothing_that_was_acknowledged(self, where: Path) -> None:
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(self.open_store(where))
            writes = [a_write(f"case-{number:02}", rows=[a_row(number)]) for number in range(20)]
            tasks = [asyncio.ensure_future(store.write(write)) for write in writes]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await store.close()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert any(isinstance(result, Head) for result in results)
        async with self.open_store(where) as store:
            for write, result in zip(writes, results, strict=True):
                head, rows = await snapshot(store, write.session)
                if isinstance(result, Head):
                    assert head == timeless(result)
                assert rows == (write.rows if head else ())

    async def test_what_was_removed_is_gone_after_opening_again(self, where: Path) -> None:
        large = encode("x" * 30_000)
        async with self.open_store(where) as store:
            await store.write(a_write("small", rows=[a_call(n) for n in range(4)]))
            await store.write(a_write("small", seq=1, removes=[a_removal(2)]))
            await store.write(a_write(rows=[*(a_call(n, large) for n in range(9)), *(a_row(n) for n in range(3))]))
            await store.write(a_write(seq=1, removes=[a_removal(7)], labels={"team": "claims"}))
        for seq in range(2, 5):
            async with self.open_store(where) as store:
                assert await calls(store, "small") == [2, 3]
                head, rows = await snapshot(store, "case-42")
                more = range(9, 7 + seq)
                assert rows == (*map(a_row, range(3)), a_call(7, large), a_call(8, large), *map(a_call, more))
                assert head is not None
                assert (head.seq, head.labels) == (seq, {"team": "claims"})
                await store.write(a_write(seq=seq, labels=head.labels, rows=[a_call(7 + seq)]))

    async def test_a_deletion_gives_the_space_back(self, where: Path) -> None:
        async with self.open_store(where) as store:
            await store.write(a_write("kept"))
        before = _size(where)
        async with self.open_store(where) as store:
            for number in range(4):
                large = encode(random.Random(number).randbytes(500_000).hex())  # noqa: S311 - no secret
                await store.write(a_write(f"large-{number}", rows=[a_row(n, large) for n in range(2)]))
                assert await store.delete(f"large-{number}")
        assert _size(where) - before < 500_000

    async def test_removing_calls_gives_the_space_back(self, where: Path) -> None:
        async with self.open_store(where) as store:
            for number in range(20):
                large = encode(random.Random(number).randbytes(100_000).hex())  # noqa: S311 - no secret
                await store.write(a_write(seq=2 * number, rows=[a_call(number, large)]))
                await store.write(a_write(seq=2 * number + 1, removes=[a_removal(number + 1)], rows=[a_row(number)]))
        assert _size(where) < 2_000_000


def _size(where: Path) -> int:
    """Return the number of bytes in a store's files."""
    return sum(path.stat().st_size for path in where.parent.rglob("*") if path.is_file())
