"""Sessions are listed in order, page by page, and by exactly the filters that were given."""
# ruff: noqa: S101 - a suite asserts

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from midturn.testing.samples import HOSTILE_IDS, HOSTILE_LABELS, a_row, a_write
from midturn.testing.subject import Suite, ids, timeless

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


async def _write_all(store: Store, sessions: Iterable[str]) -> None:
    await asyncio.gather(*(store.write(a_write(session)) for session in sessions))


async def _matching(store: Store, labels: Mapping[str, str], status: Status | None = None) -> list[str]:
    return [head.session for head in await store.heads(limit=1_000, labels=labels, status=status)]


async def _paged(store: Store, *, limit: int, prefix: str = "", status: Status | None = None) -> list[list[str]]:
    """Page after page until one is empty; a store that never ends is stopped."""
    pages: list[list[str]] = []
    after = ""
    while len(pages) <= len(HOSTILE_IDS):
        page = [head.session for head in await store.heads(after=after, limit=limit, prefix=prefix, status=status)]
        if not page:
            break
        pages.append(page)
        after = page[-1]
    return pages


class Listing(Suite):
    """Which sessions there are."""

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
        statuses: tuple[Status, ...] = ("failed", "idle", "running")
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
