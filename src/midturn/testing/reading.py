"""Rows come back byte for byte, in order, and only those that were asked for."""
# ruff: noqa: S101, PLR2004 - a suite asserts, and expected numbers are the point

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from midturn.record.codec import encode
from midturn.record.head import Kind
from midturn.testing.samples import HOSTILE_IDS, SAMPLE_BYTES, a_row, a_write
from midturn.testing.subject import Suite, ids, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from midturn.store import Store


class Reading(Suite):
    """Rows, and whose they are."""

    async def test_rows_come_back_as_the_very_bytes(self, store: Store) -> None:
        rows = [a_row(n, data) for n, data in enumerate([*SAMPLE_BYTES, b""])]
        await store.write(a_write(rows=rows))
        for row in rows:
            assert list(await store.rows("case-42", row.kind, start=row.n, stop=row.n + 1)) == [row]
        found = await store.rows("case-42", Kind.BODY)
        assert list(found) == rows
        assert all(type(row.data) is bytes and type(row.kind) is Kind for row in found)

    async def test_rows_are_ordered_by_number_whatever_order_they_were_written_in(self, store: Store) -> None:
        numbers = [9, 0, 100, 10, 2**62, 11, 1, 2**31, 99, 2**32]
        for seq, n in enumerate(numbers[:5]):
            await store.write(a_write(seq=seq, rows=[a_row(n)]))
        await store.write(a_write(seq=5, rows=[a_row(n) for n in numbers[5:]]))
        assert [row.n for row in await store.rows("case-42", Kind.BODY)] == sorted(numbers)

    async def test_a_range_has_its_start_and_not_its_stop(self, store: Store) -> None:
        numbers = [0, 1, 2, 5, 9, 10]
        await store.write(a_write(rows=[a_row(n) for n in numbers]))
        for start in range(12):
            found = await store.rows("case-42", Kind.BODY, start=start)
            assert [row.n for row in found] == [n for n in numbers if n >= start]
            for stop in range(12):
                found = await store.rows("case-42", Kind.BODY, start=start, stop=stop)
                assert [row.n for row in found] == [n for n in numbers if start <= n < stop]

    async def test_large_numbers_are_exact(self, store: Store) -> None:
        numbers = [2**53, 2**53 + 1, 2**62 - 1, 2**62, 2**62 + 1]
        await store.write(a_write(rows=[a_row(n, kind=Kind.KEY) for n in numbers]))
        assert [row.n for row in await store.rows("case-42", Kind.KEY)] == numbers
        for n in numbers:
            assert list(await store.rows("case-42", Kind.KEY, start=n, stop=n + 1)) == [a_row(n, kind=Kind.KEY)]

    async def test_kinds_are_kept_apart(self, store: Store) -> None:
        rows = {kind: [a_row(n, encode([kind.name, n]), kind=kind) for n in range(kind, kind + 3)] for kind in Kind}
        await store.write(a_write(rows=[row for kind in reversed(Kind) for row in rows[kind]]))
        for kind in Kind:
            assert list(await store.rows("case-42", kind)) == rows[kind]

    async def test_later_writes_leave_earlier_rows_alone(self, store: Store) -> None:
        rows = [a_row(n, encode("x" * n)) for n in range(8)]
        for seq, row in enumerate(rows):
            await store.write(a_write(seq=seq, rows=[row]))
            await store.write(a_write("other", seq=seq, rows=[a_row(row.n, b"[]")]))
            assert list(await store.rows("case-42", Kind.BODY)) == rows[: seq + 1]

    async def test_two_thousand_rows_in_one_write(self, store: Store) -> None:
        rows = [a_row(n, encode({"n": n, "text": "x" * (n % 50)})) for n in range(2_000)]
        shuffled = random.Random(7).sample(rows, len(rows))  # noqa: S311 - no secret
        await store.write(a_write(rows=shuffled))
        assert list(await store.rows("case-42", Kind.BODY)) == rows
        assert list(await store.rows("case-42", Kind.BODY, start=1_990)) == rows[1_990:]

    async def test_a_row_and_a_head_of_five_megabytes(self, store: Store) -> None:
        large = encode(random.Random(7).randbytes(2_600_000).hex())  # noqa: S311 - no secret
        assert len(large) > 5_000_000
        await store.write(a_write(data=large, rows=[a_row(1, large), a_row(2)]))
        head = await store.head("case-42")
        assert head is not None
        assert head.data == large
        assert list(await store.rows("case-42", Kind.BODY)) == [a_row(1, large), a_row(2)]

    async def test_every_hostile_id_is_a_session_of_its_own(self, store: Store, where: Path) -> None:
        assert len(set(HOSTILE_IDS)) == len(HOSTILE_IDS)
        for number, session in enumerate(HOSTILE_IDS):
            rows = (a_row(1, encode(number)), a_row(number + 2, encode(session)))
            written = await store.write(a_write(session, data=encode(session), labels={"n": str(number)}, rows=rows))
            assert written.session == session
        for number, session in enumerate(HOSTILE_IDS):
            head, found = await snapshot(store, session)
            assert head is not None, session
            assert (head.session, head.seq, head.data) == (session, 1, encode(session))
            assert found == (a_row(1, encode(number)), a_row(number + 2, encode(session)))
        assert await ids(store) == sorted(HOSTILE_IDS)
        # Whatever the store keeps in files stands at ``where`` or beside it under the same name.
        inner = where.parent
        assert [path.name for path in inner.parent.parent.iterdir()] == [inner.parent.name]
        assert [path.name for path in inner.parent.iterdir()] == [inner.name]
        assert all(path.name.startswith(where.name) for path in inner.iterdir())

    async def test_a_hostile_id_is_changed_and_deleted_alone(self, store: Store) -> None:
        for session in HOSTILE_IDS:
            await store.write(a_write(session, rows=[a_row(1)]))
        changed, deleted = set(HOSTILE_IDS[1::3]), set(HOSTILE_IDS[2::3])
        for session in changed:
            await store.write(a_write(session, seq=1, rows=[a_row(2)]))
        for session in deleted:
            assert await store.delete(session)
        for session in HOSTILE_IDS:
            head, rows = await snapshot(store, session)
            assert head is not None, session
            assert (head.status == "deleted") == (session in deleted), session
            expected = [] if session in deleted else [1, 2] if session in changed else [1]
            assert [row.n for row in rows] == expected, session
        assert await ids(store) == sorted(set(HOSTILE_IDS) - deleted)

    async def test_an_id_that_was_never_written_finds_nothing_of_its_neighbours(self, store: Store) -> None:
        for session in HOSTILE_IDS[::2]:
            await store.write(a_write(session, rows=[a_row(1)]))
        for session in HOSTILE_IDS[1::2]:
            assert await snapshot(store, session) == (None, ()), session
