"""Lists of sessions: order, time, pages, and what the pages read."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

import midturn
from midturn.stores.memory import MemoryStore
from midturn.stores.wrapper import StoreWrapper
from midturn.testing import a_write

STATUSES = ("idle", "idle", "waiting", "failed", "running", "cancelled")


class Counted(StoreWrapper):
    """Counts the heads that lists have read."""

    read = 0

    async def heads(self, **filters):
        found = await super().heads(**filters)
        self.read += len(found)
        return found


@pytest.fixture
async def store(monkeypatch):
    """Sixty sessions: the last change of each was ten seconds after that of the one before."""
    inner = MemoryStore()
    with monkeypatch.context() as patch:
        for number in range(60):
            patch.setattr("time.time", lambda number=number: 1_000.0 + 10 * number)
            session, status = f"case-{number * 7 % 60:02}", STATUSES[number % 6]
            await inner.write(a_write(session, status=status, labels={"odd": str(number % 2)}, data=b'{"v":1}'))
    async with midturn.open(store=Counted(inner)) as opened:
        yield opened


def at(number):
    return datetime.fromtimestamp(1_000 + 10 * number, UTC)


async def ids(store, **filters):
    return [info.id async for info in store.sessions(**filters)]


FILTERS = (
    {},
    {"status": "idle"},
    {"status": ["waiting", "failed", "interrupted"]},
    {"status": ["interrupted"], "limit": 4},
    {"labels": {"odd": "1"}},
    {"prefix": "case-3"},
    {"since": at(30)},
    {"status": ["idle", "failed"], "since": at(41), "labels": {"odd": "1"}},
)


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("order", ["id", "updated"])
@pytest.mark.parametrize("limit", [1, 3, 7])
async def test_pages_of_any_size_make_the_list(store, filters, order, limit):
    for reverse in (False, True):
        chosen = filters | {"order": order, "reverse": reverse}
        whole = await ids(store, **chosen)
        assert whole
        paged, after = [], ""
        while page := [info async for info in store.sessions(**chosen | {"limit": limit}, after=after)]:
            assert len(page) <= limit
            paged += [info.id for info in page]
            after = page[-1].cursor
            assert len(paged) <= 60
        assert paged == (whole if "limit" not in filters else await ids(store, **chosen | {"limit": None}))


@pytest.mark.parametrize("filters", FILTERS[:2] + FILTERS[4:])
async def test_reverse_turns_a_list_round(store, filters):
    for order in ("id", "updated"):
        found = await ids(store, order=order, **filters)
        assert await ids(store, order=order, reverse=True, **filters) == found[::-1]


async def test_since_is_the_time_of_the_earliest_change(store):
    expected = sorted(f"case-{number * 7 % 60:02}" for number in range(50, 60))
    for order in ("id", "updated"):
        for reverse in (False, True):
            assert sorted(await ids(store, order=order, reverse=reverse, since=at(50))) == expected
    east = at(50).astimezone(timezone(timedelta(hours=9)))
    assert sorted(await ids(store, since=east)) == expected
    assert await ids(store, since=timedelta(days=1)) == []
    assert len(await ids(store, since=datetime.now(UTC) - at(0) + timedelta(days=1))) == 60
    assert len(await ids(store, since=datetime.min.replace(tzinfo=UTC))) == 60
    await store.store.write(a_write("case-00", seq=1))
    assert await ids(store, since=timedelta(hours=1), order="updated") == ["case-00"]


async def test_a_page_of_the_latest_changes_reads_only_that_page(store):
    counting = store.store
    for filters in ({}, {"status": "idle"}, {"since": at(5)}, {"labels": {"odd": "1"}}):
        for reverse in (False, True):
            counting.read = 0
            assert len(await ids(store, order="updated", reverse=reverse, limit=5, **filters)) == 5
            assert counting.read == 5
    counting.read = 0
    await ids(store, order="updated", limit=5, status=["idle", "failed"])
    assert counting.read == 10, "as many of each status"


async def test_the_latest_changes_end_where_they_are_too_old(store):
    counting = store.store
    counting.read = 0
    assert len(await ids(store, order="updated", limit=20, since=at(55))) == 5
    assert counting.read == 20


@pytest.mark.parametrize("order", ["id", "updated"])
async def test_each_page_of_a_list_without_a_limit_is_twice_as_large(order):
    """A store of files reads all of them for each page of the latest changes."""
    inner = MemoryStore()
    for number in range(7_000):
        await inner.write(a_write(f"case-{number:04}", data=b'{"v":1}'))
    asked = []

    class Asked(StoreWrapper):
        async def heads(self, **filters):
            asked.append(filters["limit"])
            return await super().heads(**filters)

    async with midturn.open(store=Asked(inner)) as store:
        assert len(set(await ids(store, order=order))) == 7_000
        assert asked == [100, 200, 400, 800, 1_600, 3_200, 3_200, 3_200]
        asked.clear()
        assert len(await ids(store, order=order, limit=300)) == 300
        assert asked == [100, 100, 100]


async def test_counting_reads_the_running_sessions_only(store):
    store.store.read = 0
    counts = await store.counts()
    assert counts == {
        "idle": 20, "running": 0, "interrupted": 10, "waiting": 10, "failed": 10, "cancelled": 10, "deleted": 0,
    }  # fmt: skip
    assert store.store.read == 10


class Busy(StoreWrapper):
    """A store whose sessions change all the time."""

    async def heads(self, **filters):
        found = await super().heads(**filters)
        for head in found[:3]:
            now = await self.inner.head(head.session)
            await self.inner.write(a_write(head.session, seq=now.seq, status="running", data=b'{"v":1}'))
        return found


async def test_a_list_of_sessions_that_change_all_the_time_has_an_end():
    inner = MemoryStore()
    for number in range(250):
        await inner.write(a_write(f"case-{number:03}", status="running", data=b'{"v":1}'))
    async with midturn.open(store=Busy(inner)) as store:
        found = await ids(store, order="updated", reverse=True)
        assert set(found) == {f"case-{number:03}" for number in range(250)}
        assert (await store.counts())["interrupted"] == 250


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"since": datetime(2026, 1, 1)}, "since"),  # noqa: DTZ001 - no time zone, which is what is wrong
        ({"since": "2d"}, "since"),
        ({"since": timedelta.max}, "since"),
        ({"limit": 0}, "limit"),
        ({"limit": "5"}, "limit"),
        ({"limit": True}, "limit"),
        ({"after": "case-1"}, "after"),
        ({"after": "inf case-1"}, "after"),
        ({"after": 5}, "after"),
        ({"order": "created"}, "order"),
    ],
)
async def test_a_list_that_cannot_be_is_wrong(store, wrong, path):
    with pytest.raises(midturn.InvalidArgument) as caught:
        await ids(store, **wrong)
    assert caught.value.path == path
