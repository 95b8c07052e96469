"""Reads: the rows of a session, and lists of sessions.

Rows are returned byte for byte, in order, and only the requested ones. Sessions are listed in order, page by page, with
exactly the given filters.
"""
# ruff: noqa: S101, PLR2004 - a suite asserts, and expected numbers are the point

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

from midturn.record.codec import encode
from midturn.record.head import Kind, by_change, cursor
from midturn.testing.samples import HOSTILE_IDS, HOSTILE_LABELS, SAMPLE_BYTES, a_row, a_write
from midturn.testing.subject import Suite, ids, snapshot, timeless

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pytest

    from midturn.record.head import Status
    from midturn.store import Store


PREFIXES = (
    *(
        "a",
        "A",
        "%",
        "_",
        "*",
        "?",
        "[",
        "[a",
        "\\",
        "\\%",
        "'",
        '"',
        "..",
        "/",
        ".",
        "a%",
        "a_",
        "a/",
        "a*",
        " ",
        "\n",
    ),
    *("caf", "caf\u00e9", "cafe", "cafe\u0301", "\N{GRINNING FACE}", "\N{GRINNING FACE}" * 199, "x" * 199, "x" * 200),
    *("\ud7ff", "\ue000", "\uffff", "\U0010ffff", "\U0010ffff" * 199, "\U0010ffff" * 200, "zzz", "no such prefix"),
)

_FEW = 20
"""More sessions than the tests of reversed lists have: a store that repeats a page must not go on for ever."""
_TICK = 0.002
"""Seconds after which every store's clock has advanced."""


async def _write_all(store: Store, sessions: Iterable[str]) -> None:
    await asyncio.gather(*(store.write(a_write(session)) for session in sessions))


async def _matching(store: Store, labels: Mapping[str, str], status: Status | None = None) -> list[str]:
    return [head.session for head in await store.heads(limit=1_000, labels=labels, status=status)]


async def _paged(store: Store, *, limit: int, prefix: str = "", status: Status | None = None) -> list[list[str]]:
    """Return all pages until an empty one; stop if a store never returns an empty one."""
    pages: list[list[str]] = []
    after = ""
    while len(pages) <= len(HOSTILE_IDS):
        page = [head.session for head in await store.heads(after=after, limit=limit, prefix=prefix, status=status)]
        if not page:
            break
        pages.append(page)
        after = page[-1]
    return pages


async def _by_change(store: Store, limit: int) -> list[str]:
    """Return all ids, read page by page with the latest change first."""
    heads = await store.heads(limit=1_000)
    expected = [head.session for head in sorted(heads, key=by_change, reverse=True)]
    found: list[str] = []
    after = ""
    while page := await store.heads(order="updated", after=after, limit=limit):
        assert len(page) <= limit
        found += [head.session for head in page]
        after = cursor(page[-1])
        assert len(found) <= len(expected)
    assert found == expected
    return found


async def _reversed(store: Store, limit: int, **filters: Any) -> list[str]:
    """Return all ids, read page by page with the greatest id first."""
    found: list[str] = []
    while page := await store.heads(reverse=True, after=found[-1] if found else "", limit=limit, **filters):
        found += [head.session for head in page]
        assert len(found) <= _FEW
    return found


async def _oldest(store: Store, limit: int, **filters: Any) -> list[str]:
    """Return all ids, read page by page with the oldest change first."""
    found: list[str] = []
    after = ""
    while page := await store.heads(order="updated", reverse=True, after=after, limit=limit, **filters):
        found += [head.session for head in page]
        after = cursor(page[-1])
        assert len(found) <= _FEW
    return found


class Reading(Suite):
    """Rows, and the sessions that they belong to."""

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
        # All files of the store are at ``where``, or beside it with names that begin in the same way.
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


class Listing(Suite):
    """Lists and counts of sessions."""

    async def test_a_new_store_lists_nothing(self, store: Store) -> None:
        assert list(await store.heads()) == []
        assert list(await store.heads(status="deleted")) == []

    async def test_sessions_are_listed_by_code_point_not_by_a_language(self, store: Store) -> None:
        ordered = ["", " ", "10", "2", "A", "Z", "_", "a", "aa", "b", "z", "\u00c4", "\u00e4", "\ud7ff", "\ue000"]
        ordered = [*ordered[1:], "\uff5e", "\uffff", "\U00010000", "\N{GRINNING FACE}", "\U0010ffff"]
        await _write_all(store, reversed(ordered))
        assert await ids(store) == ordered

    async def test_a_listed_head_is_the_head(self, store: Store) -> None:
        for number in range(3):
            session = f"case-{number}"
            await store.write(a_write(session, rows=[a_row(1)]))
            await store.write(a_write(session, seq=1, labels={"n": str(number)}, owner="me", lease=9.0, data=b"[0]"))
        for listed in await store.heads():
            head = await store.head(listed.session)
            assert head is not None
            assert timeless(listed) == timeless(head)

    async def test_pages_cover_every_session_once_in_order(self, store: Store) -> None:
        await _write_all(store, HOSTILE_IDS)
        for limit in (1, 7, 1_000):
            pages = await _paged(store, limit=limit)
            assert [session for page in pages for session in page] == sorted(HOSTILE_IDS)
            assert all(len(page) == limit for page in pages[:-1])

    async def test_a_page_starts_after_an_id_whether_it_exists_or_not(self, store: Store) -> None:
        await _write_all(store, ["a", "b", "c"])
        for after, expected in (("", "abc"), ("a", "bc"), ("a!", "bc"), ("b", "c"), ("c", ""), ("\U0010ffff", "")):
            assert [head.session for head in await store.heads(after=after)] == list(expected)
        for after in HOSTILE_IDS:
            found = [head.session for head in await store.heads(after=after)]
            assert found == [session for session in "abc" if session > after], after

    async def test_a_page_has_a_hundred_sessions_unless_told_otherwise(self, store: Store) -> None:
        sessions = [f"case-{number:03}" for number in range(102)]
        await _write_all(store, sessions)
        assert [head.session for head in await store.heads()] == sessions[:100]
        assert [head.session for head in await store.heads(limit=101)] == sessions[:101]
        assert [head.session for head in await store.heads(limit=1)] == sessions[:1]

    async def test_a_prefix_is_literal(self, store: Store) -> None:
        await _write_all(store, HOSTILE_IDS)
        for prefix in (*PREFIXES, *HOSTILE_IDS):
            expected = sorted(session for session in HOSTILE_IDS if session.startswith(prefix))
            assert await ids(store, prefix=prefix) == expected, prefix

    async def test_a_prefix_is_paged_too(self, store: Store) -> None:
        await _write_all(store, HOSTILE_IDS)
        for prefix in ("a", "%", "\U0010ffff", "\N{GRINNING FACE}"):
            pages = await _paged(store, limit=2, prefix=prefix)
            expected = sorted(session for session in HOSTILE_IDS if session.startswith(prefix))
            assert [session for page in pages for session in page] == expected
        assert [head.session for head in await store.heads(after="zzz", prefix="a")] == []
        first = min(session for session in HOSTILE_IDS if session.startswith("case"))
        assert (await store.heads(after="b", prefix="case"))[0].session == first

    async def test_a_label_matches_by_its_exact_key_and_value(self, store: Store) -> None:
        for number, (key, value) in enumerate(HOSTILE_LABELS):
            await store.write(a_write(f"case-{number:02}", labels={key: value, "common": "yes"}))
        for number, (key, value) in enumerate(HOSTILE_LABELS):
            assert await _matching(store, {key: value}) == [f"case-{number:02}"], (key, value)
            assert await _matching(store, {key: value + "!"}) == [], (key, value)
            assert await _matching(store, {key + "!": value}) == [], (key, value)
        assert len(await _matching(store, {"common": "yes"})) == len(HOSTILE_LABELS)

    async def test_every_label_asked_for_must_match(self, store: Store) -> None:
        await store.write(a_write("both", labels={"team": "claims", "tier": "gold", "more": "x"}))
        await store.write(a_write("none"))
        await store.write(a_write("other", labels={"team": "claims", "tier": "lead"}))
        await store.write(a_write("swapped", labels={"team": "gold", "tier": "claims"}))
        await store.write(a_write("team", labels={"team": "claims"}))
        await store.write(a_write("tier", labels={"tier": "gold"}))
        assert await _matching(store, {"team": "claims", "tier": "gold"}) == ["both"]
        assert await _matching(store, {"team": "claims"}) == ["both", "other", "team"]
        assert await _matching(store, {"team": ""}) == []
        assert await _matching(store, {}) == ["both", "none", "other", "swapped", "team", "tier"]

    async def test_many_labels_on_one_session(self, store: Store) -> None:
        labels = {f"key-{number}": f"value-{number}" for number in range(60)}
        await store.write(a_write(labels=labels))
        assert await _matching(store, labels) == ["case-42"]
        assert await _matching(store, labels | {"key-59": "value-58"}) == []

    async def test_filters_follow_the_newest_write(self, store: Store) -> None:
        await store.write(a_write(labels={"team": "claims", "old": "1"}, status="running"))
        await store.write(a_write(seq=1, labels={"team": "legal"}, status="failed"))
        assert await _matching(store, {"team": "claims"}) == await _matching(store, {"old": "1"}) == []
        assert await _matching(store, {"team": "legal"}) == ["case-42"]
        assert await _matching(store, {}, "running") == []
        assert await _matching(store, {}, "failed") == ["case-42"]

    async def test_a_status_is_listed_alone_and_deleted_only_when_asked_for(self, store: Store) -> None:
        statuses: tuple[Status, ...] = ("cancelled", "failed", "idle", "running")
        for status in statuses:
            for number in range(2):
                await store.write(a_write(f"{status}-{number}", status=status))
        await store.write(a_write("gone"))
        assert await store.delete("gone")
        for status in statuses:
            assert await _matching(store, {}, status) == [f"{status}-0", f"{status}-1"]
        assert await _matching(store, {}, "deleted") == ["gone"]
        assert await ids(store) == [f"{status}-{number}" for status in statuses for number in range(2)]

    async def test_filters_work_together_and_the_limit_counts_what_matches(self, store: Store) -> None:
        for number in range(12):
            labels = {"even": str(number % 2 == 0)}
            await store.write(a_write(f"a{number:02}", labels=labels, status="failed" if number % 3 else "idle"))
            await store.write(a_write(f"b{number:02}", labels=labels, status="failed"))
        found = await store.heads(prefix="a", status="failed", labels={"even": "True"}, limit=3)
        assert [head.session for head in found] == ["a02", "a04", "a08"]
        found = await store.heads(after="a04", prefix="a", status="failed", labels={"even": "True"}, limit=3)
        assert [head.session for head in found] == ["a08", "a10"]
        pages = await _paged(store, limit=4, prefix="b", status="failed")
        assert pages == [[f"b{number:02}" for number in range(start, start + 4)] for start in (0, 4, 8)]

    async def test_the_last_change_comes_first_page_by_page(self, store: Store) -> None:
        await _write_all(store, HOSTILE_IDS)
        await asyncio.sleep(_TICK)
        await store.write(a_write(HOSTILE_IDS[3], seq=1))
        found = await _by_change(store, 1_000)
        assert found[0] == HOSTILE_IDS[3]
        for limit in (1, 7):
            assert await _by_change(store, limit) == found

    async def test_of_equal_changes_the_greater_id_comes_first(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A store with a clock of its own does not use this time, but must also pass.
        moment = time.time()
        monkeypatch.setattr(time, "time", lambda: moment)
        await _write_all(store, HOSTILE_IDS)
        await store.write(a_write(HOSTILE_IDS[3], seq=1))
        found = await _by_change(store, 1_000)
        for limit in (1, 7):
            assert await _by_change(store, limit) == found

    async def test_a_change_between_two_pages_lists_no_other_session_twice(self, store: Store) -> None:
        for number in range(6):
            await store.write(a_write(f"case-{number}"))
            await asyncio.sleep(_TICK)
        first = await store.heads(order="updated", limit=2)
        assert [head.session for head in first] == ["case-5", "case-4"]
        await store.write(a_write("case-1", seq=1))
        await asyncio.sleep(_TICK)
        await store.write(a_write("new"))
        rest = await store.heads(order="updated", after=cursor(first[-1]))
        assert [head.session for head in rest] == ["case-3", "case-2", "case-0"]
        assert [head.session for head in await store.heads(order="updated", limit=2)] == ["new", "case-1"]

    async def test_the_last_change_comes_first_with_filters_too(self, store: Store) -> None:
        for session in ("a1", "b1", "a2", "a3", "b2"):
            labels = {"team": "x" if session < "b2" else "y"}
            await store.write(a_write(session, labels=labels, status="failed" if session == "a2" else "idle"))
            await asyncio.sleep(_TICK)
        for session in ("a3", "a1"):
            await store.delete(session)
            await asyncio.sleep(_TICK)

        async def listed(**filters: Any) -> list[str]:
            return [head.session for head in await store.heads(order="updated", **filters)]

        assert await listed() == ["b2", "a2", "b1"]
        assert await listed(status="deleted") == ["a1", "a3"]
        assert await listed(status="idle") == ["b2", "b1"]
        assert await listed(labels={"team": "x"}) == ["a2", "b1"]
        assert await listed(labels={"team": "x"}, limit=1) == ["a2"]
        assert await listed(prefix="b", labels={"team": "x"}) == ["b1"]
        assert await listed(status="running") == []

    async def test_the_greatest_id_comes_first_in_reverse(self, store: Store) -> None:
        sessions = [f"case-{number}" for number in range(7)]
        await _write_all(store, ["before", *sessions, "late"])
        for limit in (1, 3, 100):
            assert await _reversed(store, limit) == ["late", *sessions[::-1], "before"]
            assert await _reversed(store, limit, prefix="case-") == sessions[::-1]
        for after, expected in (("case-2", [1, 0]), ("case-2!", [2, 1, 0]), ("zzz", [6, 5, 4, 3, 2, 1, 0]), ("a", [])):
            found = await store.heads(after=after, prefix="case-", reverse=True)
            assert [head.session for head in found] == [f"case-{number}" for number in expected], after

    async def test_the_oldest_change_comes_first_in_reverse(self, store: Store) -> None:
        for session in ("c", "a", "d", "b"):
            await store.write(a_write(session, status="failed" if session in "cd" else "idle"))
            await asyncio.sleep(_TICK)
        await store.write(a_write("c", seq=1, status="failed"))
        for limit in (1, 2, 100):
            assert await _oldest(store, limit) == ["a", "d", "b", "c"]
            assert await _oldest(store, limit, status="failed") == ["d", "c"]

    async def test_of_equal_changes_the_smaller_id_comes_first_in_reverse(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        moment = time.time()
        monkeypatch.setattr(time, "time", lambda: moment)
        await _write_all(store, [f"case-{number}" for number in range(9)])
        expected = [head.session for head in sorted(await store.heads(), key=by_change)]
        for limit in (1, 4, 100):
            assert await _oldest(store, limit) == expected

    async def test_a_change_between_two_pages_is_not_missed_in_reverse(self, store: Store) -> None:
        for number in range(4):
            await store.write(a_write(f"case-{number}"))
            await asyncio.sleep(_TICK)
        first = await store.heads(order="updated", reverse=True, limit=2)
        assert [head.session for head in first] == ["case-0", "case-1"]
        await store.write(a_write("case-2", seq=1))
        await asyncio.sleep(_TICK)
        await store.write(a_write("case-0", seq=1))
        rest = await store.heads(order="updated", reverse=True, after=cursor(first[-1]))
        assert [head.session for head in rest] == ["case-3", "case-2", "case-0"]

    async def test_every_status_is_counted_deleted_too(self, store: Store) -> None:
        assert dict(await store.counts()) == {}
        for session in ("a", "b", "c", "d"):
            await store.write(a_write(session, status="failed" if session == "a" else "idle"))
        await store.write(a_write("b", seq=1, status="running"))
        await store.delete("d")
        assert dict(await store.counts()) == {"failed": 1, "running": 1, "idle": 1, "deleted": 1}
