"""Concurrency: calls at the same time, cancelled calls, and calls after the store was closed."""
# ruff: noqa: S101, PLR2004 - a suite asserts, and expected numbers are the point

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from midturn.errors import Conflict, SessionDeleted, StoreUnavailable
from midturn.record.codec import decode, encode
from midturn.record.head import Head, Kind
from midturn.store import DEADLINE
from midturn.testing.samples import a_row, a_write
from midturn.testing.subject import Suite, ids, snapshot, timeless

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from midturn.store import Store


KINDS = (Kind.BODY, Kind.DECISION, Kind.CHECKPOINT)


async def race(handles: Sequence[Store], session: str, *, rounds: int, writers: int = 8) -> None:
    """Let many writers race from the same seq, and check that one wins each round and only its rows are stored."""
    winners: list[int] = []
    for seq in range(rounds):
        # Each writer has rows of its own, so that only the seq can cause a conflict.
        own = [[a_row(seq * writers + writer, kind=kind) for kind in KINDS] for writer in range(writers)]
        writes = [a_write(session, seq, rows=rows) for rows in own]
        calls = (handles[writer % len(handles)].write(write) for writer, write in enumerate(writes))
        results = await asyncio.gather(*calls, return_exceptions=True)
        [winner] = [writer for writer, result in enumerate(results) if isinstance(result, Head)]
        assert Counter(map(type, results)) == {Head: 1, Conflict: writers - 1}
        winners.append(winner)
        for store in handles:
            head, rows = await snapshot(store, session)
            assert head is not None
            assert (head.seq, head.token) == (seq + 1, writes[winner].token)
            assert rows == tuple(
                a_row(at * writers + won, kind=kind) for kind in KINDS for at, won in enumerate(winners)
            )


async def watch(writer: Store, reader: Store, *, turns: int = 40) -> None:
    """Read while another handle writes, and check that no read sees a head without its rows, or half of a write."""
    done = asyncio.Event()

    async def write() -> None:
        for seq in range(turns):
            await writer.write(a_write(seq=seq, data=encode(seq), rows=[a_row(seq, kind=kind) for kind in KINDS]))
            await asyncio.sleep(0)
        done.set()

    async def read() -> int:
        last = -1
        while not done.is_set() or last < turns - 1:
            await asyncio.sleep(0)
            for head in [await reader.head("case-42"), *await reader.heads()]:
                if head is None:
                    continue
                at = decode(head.data, "head")
                assert head.seq == at + 1
                assert at >= last, "a newer head was seen before"
                last = at
            seen = last
            # A later read has everything that an earlier one showed.
            for kind in KINDS:
                found = list(await reader.rows("case-42", kind))
                assert found == [a_row(n, kind=kind) for n in range(len(found))]
                assert len(found) > seen
                seen = len(found) - 1
        return last

    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        readers = [tasks.create_task(read()) for _ in range(2)]
    assert [task.result() for task in readers] == [turns - 1] * 2


async def interrupt(work: Coroutine[object, object, object], *, after: int) -> None:
    """Start the work, cancel it after some time, and wait until it has ended."""
    task = asyncio.ensure_future(work)
    for tick in range(after):
        await asyncio.sleep(0 if tick < 4 else 0.0005)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def settle(store: Store, session: str, seq: int, token: str) -> Head:
    """Return the head after a cancelled write, as its writer would find it; afterwards that write cannot happen."""
    try:
        return await store.write(a_write(session, seq))
    except Conflict:
        head = await store.head(session)
        assert head is not None
        assert (head.seq, head.token) == (seq + 1, token)
        return head


class Racing(Suite):
    """Many calls at once."""

    async def test_a_race_from_one_seq_has_one_winner(self, store: Store) -> None:
        await race([store], "case-42", rounds=5)

    async def test_writes_of_different_sessions_do_not_disturb_each_other(self, store: Store) -> None:
        sessions = [f"case-{number:02}" for number in range(30)]
        for seq in range(2):
            writes = (a_write(session, seq, data=encode(session), rows=[a_row(seq)]) for session in sessions)
            assert {head.seq for head in await asyncio.gather(*map(store.write, writes))} == {seq + 1}
        for session in sessions:
            head, rows = await snapshot(store, session)
            assert head is not None
            assert (head.data, rows) == (encode(session), (a_row(0), a_row(1)))

    async def test_a_reader_sees_the_old_or_the_new_and_never_half(self, store: Store) -> None:
        await watch(store, store)

    async def test_of_deletions_at_once_one_finds_something(self, store: Store) -> None:
        await store.write(a_write(rows=[a_row(1)]))
        assert sorted(await asyncio.gather(*(store.delete("case-42") for _ in range(6)))) == [False] * 5 + [True]

    async def test_of_calls_that_forget_at_once_one_finds_something(self, store: Store) -> None:
        await store.write(a_write(rows=[a_row(1)]))
        assert await store.delete("case-42")
        assert sorted(await asyncio.gather(*(store.forget("case-42") for _ in range(6)))) == [False] * 5 + [True]
        assert await store.head("case-42") is None

    async def test_a_new_session_beside_forgetting_the_old_one_is_refused_or_stays(self, store: Store) -> None:
        for number in range(6):
            session = f"case-{number}"
            await store.write(a_write(session, rows=[a_row(1)]))
            assert await store.delete(session)
            write = a_write(session, rows=[a_row(1)])
            calls = (store.write(write), store.forget(session))
            results = await asyncio.gather(*(calls if number % 2 else calls[::-1]), return_exceptions=True)
            assert True in results
            written = [result for result in results if isinstance(result, Head)]
            assert written or any(isinstance(result, SessionDeleted) for result in results)
            expected = (timeless(written[0]), write.rows) if written else (None, ())
            assert await snapshot(store, session) == expected

    async def test_a_write_beside_a_deletion_is_before_it_or_refused(self, store: Store) -> None:
        for number in range(6):
            session = f"case-{number}"
            await store.write(a_write(session, rows=[a_row(1)]))
            write, delete = store.write(a_write(session, 1, rows=[a_row(2)])), store.delete(session)
            calls = (write, delete) if number % 2 else (delete, write)
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert True in results
            assert any(isinstance(result, Head | SessionDeleted) for result in results)
            head, rows = await snapshot(store, session)
            assert head is not None
            assert (head.status, rows) == ("deleted", ())
        assert await ids(store) == []

    async def test_a_cancelled_write_happened_whole_or_not_at_all(self, store: Store) -> None:
        for after in range(16):
            session = f"case-{after}"
            first = await store.write(a_write(session, rows=[a_row(0)]))
            write = a_write(session, first.seq, rows=[a_row(1), a_row(2)])
            async with asyncio.timeout(DEADLINE):
                await interrupt(store.write(write), after=after)
                head = await settle(store, session, first.seq, write.token)
            expected = [0, 1, 2] if head.token == write.token else [0]
            for _ in range(2):
                now, rows = await snapshot(store, session)
                assert now == timeless(head)
                assert [row.n for row in rows] == expected
                await asyncio.sleep(0.001)

    async def test_a_cancelled_call_leaves_the_store_usable(self, store: Store) -> None:
        await store.write(a_write(rows=[a_row(n) for n in range(200)]))
        calls: tuple[Callable[[], Coroutine[object, object, object]], ...] = (
            lambda: store.head("case-42"),
            lambda: store.heads(labels={"a": "b"}),
            lambda: store.heads(order="updated"),
            store.counts,
            lambda: store.rows("case-42", Kind.BODY),
            lambda: store.delete("no such session"),
            lambda: store.forget("no such session"),
        )
        before = await snapshot(store, "case-42")
        async with asyncio.timeout(DEADLINE):
            for after in range(8):
                for call in calls:
                    await interrupt(call(), after=after)
            assert await snapshot(store, "case-42") == before
            assert (await store.write(a_write(seq=1, rows=[a_row(200)]))).seq == 2

    async def test_cancelling_some_of_many_waiting_calls_leaves_the_others(self, store: Store) -> None:
        tasks = [asyncio.ensure_future(store.write(a_write(f"case-{number:02}"))) for number in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        async with asyncio.timeout(DEADLINE):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, Head) for result in results[1::2])
        assert set(await ids(store)) >= {f"case-{number:02}" for number in range(1, 20, 2)}

    async def test_closing_twice_is_fine(self, store: Store) -> None:
        await store.write(a_write())
        for _ in range(3):
            await store.close()

    async def test_a_closed_store_says_so(self, store: Store) -> None:
        await store.write(a_write(rows=[a_row(1)]))
        await store.close()
        calls: tuple[Callable[[], Coroutine[object, object, object]], ...] = (
            lambda: store.head("case-42"),
            store.heads,
            lambda: store.write(a_write(seq=1)),
            lambda: store.write(a_write("another")),
            lambda: store.rows("case-42", Kind.BODY),
            lambda: store.delete("case-42"),
            lambda: store.forget("case-42"),
        )
        for call in calls:
            with pytest.raises(StoreUnavailable):
                await call()

    async def test_closing_ends_the_calls_under_way(self, store: Store) -> None:
        writes = [asyncio.ensure_future(store.write(a_write(f"case-{number}"))) for number in range(10)]
        reads = [asyncio.ensure_future(store.head(f"case-{number}")) for number in range(10)]
        await asyncio.sleep(0)
        async with asyncio.timeout(DEADLINE):
            await store.close()
            written = await asyncio.gather(*writes, return_exceptions=True)
            read = await asyncio.gather(*reads, return_exceptions=True)
        assert all(isinstance(result, Head | StoreUnavailable) for result in written)
        assert all(isinstance(result, Head | StoreUnavailable | None) for result in read)
