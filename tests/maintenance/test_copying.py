"""Copying sessions between stores: all of it, again and again, whatever happens on the way."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from cast import Gate, agents, crash, expected, numbers, said
from tools.servers.shared import store_url

import midturn
from midturn.errors import Conflict, HistoryLost, NotFound, SessionBusy, SessionDeleted, StateInvalid
from midturn.maintenance import copying
from midturn.record.head import Kind, Removal, Row, Write
from midturn.record.rows import encode_record, progress_of

PAIRS = ["file sqlite", "sqlite file", "sqlite postgres", "postgres redis", "redis file"]
LABELS = {"team": "claims", "näme": "ü"}


@pytest.fixture(params=PAIRS)
async def pair(request, tmp_path):
    """Two stores of different kinds."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(midturn.open(store_url(kind, tmp_path / str(number))))
            for number, kind in enumerate(request.param.split())
        ]


@pytest.fixture
async def both():
    async with midturn.open("memory://") as source, midturn.open("memory://") as target:
        yield source, target


class Wrapped:
    """A store of which some calls are other than they were."""

    def __init__(self, inner, **calls):
        self._inner = inner
        self.__dict__ |= calls

    def __getattr__(self, name):
        return getattr(self._inner, name)


async def fill(store, session="case", rounds=1):
    """A session with keys and labels, and with turns that failed."""
    for _ in range(rounds):
        case = store.session(session, agents(ValueError("broken"), "noted " + "x" * 100)[0], labels=LABELS)
        with pytest.raises(midturn.TurnFailed):
            await case.run(task="first try")
        await case.run(task="first", key="k1" if await numbers(case) == [(1, "failed")] else None)
        await case.run(task="second " + "y" * 100)


async def content(store, session="case"):
    """All that a copy should have of a session."""
    head = await store.store.head(session)
    return (
        head.data,
        head.status,
        dict(head.labels),
        [row for kind in Kind for row in await store.store.rows(session, kind)],
    )


def transfer(source, target, session="case"):
    inner = [getattr(store, "store", store) for store in (source, target)]
    return copying.copy(*inner, session, on_write=lambda size: None)


def writes_of(store):
    """The store, and what is written to it."""
    written = []

    async def write(write):
        head = await store.write(write)
        written.append(write)
        return head

    return Wrapped(store, write=write), written


async def test_a_copy_has_the_whole_history_and_goes_on(pair):
    source, target = pair
    await fill(source, rounds=2)
    assert await transfer(source, target) == "copied"
    assert await content(target) == await content(source)
    head, old = [await store.store.head("case") for store in (target, source)]
    assert (head.owner, head.expires, head.epoch) == (None, 0.0, old.epoch + 1)
    factory, model = agents()
    case, original = target.session("case", factory), source.session("case", factory)
    assert [turn async for turn in case.history()] == [turn async for turn in original.history()]
    assert await case.run(task="first", key="k1") == await original.run(task="first", key="k1")
    assert model.seen == []
    assert said(await case.run(task="third")) == said(await original.run(task="third"))
    assert "first" in str(model.seen[0])


async def test_a_complete_copy_is_not_written_again(pair):
    source, target = pair
    await fill(source)
    await transfer(source, target)
    store, written = writes_of(target.store)
    assert await transfer(source, store) == "unchanged"
    assert written == []


async def test_the_source_is_only_read(both):
    source, target = both
    await fill(source)
    allowed = {name: getattr(source.store, name) for name in ("head", "rows")}
    assert await transfer(Wrapped(None, **allowed), target) == "copied"


async def test_a_small_session_is_one_write(both):
    source, target = both
    await fill(source)
    store, written = writes_of(target.store)
    await transfer(source, store)
    assert len(written) == 1


@pytest.mark.parametrize("page", [1, 3, 250])
async def test_a_large_session_goes_in_chunks_and_cannot_be_used_before_the_last(pair, monkeypatch, page):
    source, target = pair
    await fill(source, rounds=3)
    monkeypatch.setattr(copying, "CHUNK", 300)
    monkeypatch.setattr(copying, "PAGE", page)
    seen = []

    async def rows(session, kind, **limits):
        found = await source.store.rows(session, kind, **limits)
        assert len(found) <= page + 1 or kind is Kind.KEY
        return found

    async def write(write):
        head = await target.store.write(write)
        seen.append((sum(len(row.data) for row in write.rows), len(write.rows), head))
        if not write.owner:
            return head
        for use in (
            lambda: target.session("case", agents()[0]).run(task="more"),
            lambda: target.session("case", agents()[0]).resume(),
            lambda: numbers(target.session("case")),
            lambda: target.load("case", agents()[0]()),
            lambda: target.save("case", agents()[0]()),
        ):
            with pytest.raises(StateInvalid) as caught:
                await use()
            assert str(caught.value) == (
                "session 'case': only half copied; finish it: midturn copy SRC_URL DST_URL --session case"
            )
        [info] = [info async for info in target.sessions()]
        assert (info.status, info.problem) == ("idle", str(caught.value))
        assert [info async for info in target.sessions(status="running")] == []
        assert write.lease == copying.LEASE
        return head

    assert await transfer(Wrapped(source.store, rows=rows), Wrapped(target.store, write=write)) == "copied"
    assert await content(target) == await content(source)
    assert len(seen) > 10
    assert all(size <= 300 or rows == 1 for size, rows, _ in seen)
    assert len({head.epoch for _, _, head in seen}) == 1


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("effect", [False, True], ids=["before the write", "after the write"])
async def test_a_copier_that_died_at_any_write_is_gone_on_with(both, monkeypatch, effect):
    source, whole = both
    await fill(source, rounds=2)
    rows = len((await content(source))[3])
    monkeypatch.setattr(copying, "CHUNK", 200)
    monkeypatch.setattr(copying, "LEASE", 0.0)  # this process, which holds it, lives on
    store, written = writes_of(whole.store)
    await transfer(source, store)
    writes = len(written)
    assert writes > 5
    for last in range(1, writes + 1):
        async with midturn.open("memory://") as target:
            store, written = writes_of(target.store)
            left = last

            async def write(write, store=store):
                nonlocal left
                left -= 1
                if left > 0 or effect:
                    head = await store.write(write)
                if left <= 0:
                    raise Died
                return head

            with pytest.raises(Died):
                await transfer(source, Wrapped(store, write=write))
            assert len(written) == (last if effect else last - 1)
            assert await transfer(source, store) == ("unchanged" if effect and last == writes else "copied")
            assert await content(target) == await content(source)
            assert sum(len(write.rows) for write in written) == rows


async def test_what_the_source_gains_while_it_is_read_comes_along(both, monkeypatch):
    source, target = both
    await fill(source)
    monkeypatch.setattr(copying, "CHUNK", 200)
    calls = 0

    async def rows(session, kind, **limits):
        nonlocal calls
        calls += 1
        if calls in (2, 9):
            await source.session("case", agents()[0]).run(task=f"meanwhile {calls}")
        return await source.store.rows(session, kind, **limits)

    assert await transfer(Wrapped(source.store, rows=rows), target) == "copied"
    assert calls > 12
    assert await content(target) == await content(source)
    assert len(await numbers(target.session("case"))) == 5


async def test_a_source_that_never_rests_is_given_up(both):
    source, target = both
    await fill(source)

    async def rows(session, kind, **limits):
        if kind is Kind.KEY:
            await source.session("case", agents()[0]).run(task="more")
        return await source.store.rows(session, kind, **limits)

    with pytest.raises(Conflict, match="changed in the source each of the 5 times that it was read; run again when"):
        await transfer(Wrapped(source.store, rows=rows), target)
    assert await target.store.head("case") is None


@pytest.mark.parametrize("chunk", [1, copying.CHUNK])
async def test_a_copy_is_brought_up_to_date(pair, monkeypatch, chunk):
    source, target = pair
    monkeypatch.setattr(copying, "CHUNK", chunk)
    await fill(source)
    await transfer(source, target)
    before = (await content(target))[3]
    await fill(source)
    store, written = writes_of(target.store)
    assert await transfer(source, store) == "copied"
    assert await content(target) == await content(source)
    assert not set(before) & {row for write in written for row in write.rows}


FIRST = 10_000
"""A number far from those of the calls that turns record."""


def call(n):
    return Row(kind=Kind.CALL, n=FIRST + n, data=b"{}")


@pytest.mark.parametrize("chunk", [1, copying.CHUNK])
async def test_calls_are_copied_and_those_that_the_source_has_removed_are_removed(pair, monkeypatch, chunk):
    source, target = pair
    monkeypatch.setattr(copying, "CHUNK", chunk)
    await fill(source)
    await add(source, [call(n) for n in range(300)])
    await add(source, removes=(Removal(Kind.CALL, 0, FIRST + 200),))
    assert await transfer(source, target) == "copied"
    assert await content(target) == await content(source)
    assert await transfer(source, target) == "unchanged"
    for prune, rows in [(250, []), (250, [call(300)]), (301, []), (301, [call(301)])]:
        await add(source, rows, removes=(Removal(Kind.CALL, 0, FIRST + prune),))
        assert await transfer(source, target) == "copied"
        assert await content(target) == await content(source)
    await add(source, removes=(Removal(Kind.CALL, 0, FIRST + 302),))
    await transfer(source, target)
    for task in ("third", "fourth", "fifth"):  # each may remove calls of those before it
        await source.session("case", agents()[0]).run(task=task)
        assert await transfer(source, target) == "copied"
        assert await content(target) == await content(source)


async def test_a_half_copy_is_finished_after_its_source_was_pruned(both, monkeypatch):
    monkeypatch.setattr(copying, "CHUNK", 1)
    monkeypatch.setattr(copying, "LEASE", 0.0)  # this process, which holds it, lives on
    source, target = both
    await fill(source)
    await add(source, [call(n) for n in range(8)])
    total = len((await content(source))[3])
    await die_after(total - 3, source, target)
    assert await target.store.rows("case", Kind.CALL, start=FIRST)
    await add(source, removes=(Removal(Kind.CALL, 0, FIRST + 8),))
    assert await transfer(source, target) == "copied"
    assert await content(target) == await content(source)


async def test_a_session_comes_back_whose_calls_were_removed_elsewhere(both):
    source, target = both
    await fill(source)
    await add(source, [call(1), call(2)])
    await transfer(source, target)
    await add(target, [Row(kind=Kind.KEY, n=7, data=b"{}"), call(3)], removes=(Removal(Kind.CALL, 0, FIRST + 3),))
    assert await transfer(target, source) == "copied"
    assert await content(target) == await content(source)


@pytest.mark.parametrize(("here", "there"), [([], [1]), ([1], [2]), ([2], [1, 3])])
async def test_calls_of_the_copy_itself_are_kept(both, here, there):
    source, target = both
    await fill(source)
    await add(source, removes=(Removal(Kind.CALL, 0, FIRST),))
    await transfer(source, target)
    await add(source, [call(n) for n in here])
    await add(target, [call(n) for n in there])
    await refused(source, target, f"call {FIRST + there[-1]} ")


async def test_a_session_comes_back_after_it_has_gone_on_elsewhere(both):
    source, target = both
    await fill(source)
    await transfer(source, target)
    await target.session("case", agents()[0]).run(task="elsewhere")
    assert await transfer(target, source) == "copied"
    assert await content(target) == await content(source)
    assert (await target.store.head("case")).epoch < (await source.store.head("case")).epoch


async def test_a_turn_that_is_tried_again_in_the_source_changes_the_copy(both):
    source, target = both
    with pytest.raises(midturn.TurnFailed):
        await source.session("case", agents(ValueError("broken"))[0]).run(task="one")
    await transfer(source, target)
    head = await source.store.head("case")
    running = encode_record(replace(progress_of(head), open="running"))
    write = Write(session="case", seq=head.seq, epoch=head.epoch, status="running", token="gone", data=running)
    await source.store.write(write)
    epoch = (await target.store.head("case")).epoch
    assert await transfer(source, target) == "copied"
    assert await content(target) == await content(source)
    assert (await target.store.head("case")).epoch == epoch + 1


async def add(store, rows=(), **changes):
    """Write to a session what no turn would."""
    head = await store.store.head("case")
    told = {"epoch": head.epoch, "status": head.status, "labels": head.labels, "data": head.data, "token": "other"}
    await store.store.write(Write(session="case", seq=head.seq, rows=tuple(rows), **told | changes))


async def refused(source, target, match):
    """The copy is refused, and nothing was overwritten."""
    before = await content(target), replace(await target.store.head("case"), now=0.0)
    with pytest.raises(Conflict, match=match) as caught:
        await transfer(source, target)
    assert caught.value.session == "case"
    assert (await content(target), replace(await target.store.head("case"), now=0.0)) == before


@pytest.mark.parametrize("chunk", [1, copying.CHUNK])
@pytest.mark.parametrize("more", [1, 3])
async def test_a_session_that_has_gone_on_in_both_stores_is_left_alone(pair, monkeypatch, chunk, more):
    source, target = pair
    monkeypatch.setattr(copying, "CHUNK", chunk)
    await fill(source)
    await transfer(source, target)
    await target.session("case", agents()[0]).run(task="there")
    for _ in range(more):
        await source.session("case", agents()[0]).run(task="here")
    await refused(
        source,
        target,
        r"^session 'case' has continued in both stores \(body \d+ differs\), nothing was overwritten; continue one of "
        r"them, or keep both in different stores: midturn copy SRC_URL OTHER_URL --session case$",
    )


async def test_a_session_that_has_gone_on_in_the_destination_is_left_alone(pair):
    source, target = pair
    await fill(source)
    await transfer(source, target)
    await target.session("case", agents()[0]).run(task="there")
    await refused(
        source,
        target,
        r"^session 'case' has continued in the destination \(body \d+ is not in the source\), nothing was overwritten;"
        r" to bring the source up to date: midturn copy DST_URL SRC_URL --session case$",
    )


async def test_a_head_that_was_changed_in_the_destination_is_left_alone(both):
    source, target = both
    await fill(source)
    await transfer(source, target)
    await add(target, labels={})
    await refused(source, target, r"continued in both stores \(its status or labels differs\)")


async def test_rows_that_only_one_of_the_stores_has_are_kept(both):
    source, target = both
    await fill(source)
    await transfer(source, target)
    await add(target, [Row(kind=Kind.KEY, n=7, data=b"{}")])
    await add(source, [Row(kind=Kind.KEY, n=8, data=b"{}")])
    await refused(source, target, r"continued in both stores \(key 7 differs\)")


async def test_a_row_that_was_lost_is_there_again(both):
    source, target = both
    await fill(source)
    data, status, labels, rows = await content(source)
    lossy = Write(session="case", seq=0, epoch=1, status=status, labels=labels, token="t", data=data)
    await target.store.write(replace(lossy, rows=tuple(rows[:3] + rows[4:])))
    assert await transfer(source, target) == "copied"
    assert await content(target) == await content(source)


async def test_a_source_that_is_deleted_while_it_is_compared_is_deleted(both):
    source, target = both
    await fill(source)
    await transfer(source, target)

    async def rows(session, kind, **limits):
        await source.delete("case")
        return await source.store.rows(session, kind, **limits)

    with pytest.raises(Conflict, match="was deleted in the source"):
        await transfer(Wrapped(source.store, rows=rows), target)
    assert (await target.store.head("case")).status == "idle"


async def test_what_was_half_copied_from_another_source_is_left_alone(both, monkeypatch):
    source, target = both
    await fill(source)
    async with midturn.open("memory://") as other:
        await other.session("case", agents()[0]).run(task="something else")
        monkeypatch.setattr(copying, "CHUNK", 1)
        monkeypatch.setattr(copying, "LEASE", 0.0)
        await die_after(1, other, target)
        await refused(
            source, target, r"^session 'case' was half copied to the destination from another source \(body 0"
        )
        with pytest.raises(StateInvalid, match="session 'case': only half copied"):
            await transfer(target, source)
        assert await transfer(other, target) == "copied"


async def die_after(number, source, target):
    """Leave a copy behind that was cut off after so many writes."""

    async def write(write):
        nonlocal number
        if number == 0:
            raise Died
        number -= 1
        return await target.store.write(write)

    with pytest.raises(Died):
        await transfer(source, Wrapped(target.store, write=write))


async def test_a_destination_that_is_written_meanwhile_is_not_overwritten(both):
    source, target = both
    await fill(source)
    await transfer(source, target)
    await fill(source)

    async def write(write):
        await target.session("case", agents()[0]).run(task="there")
        return await target.store.write(write)

    with pytest.raises(Conflict, match="was written in the destination by somebody else during the copy; run again"):
        await transfer(source, Wrapped(target.store, write=write))
    assert await numbers(target.session("case")) == [(1, "failed"), (2, "done"), (3, "done"), (4, "done")]


@pytest.mark.parametrize("when", ["before a write", "after the last write"])
async def test_a_destination_that_loses_the_copy_meanwhile_is_told(both, when):
    source, target = both
    await fill(source)
    await transfer(source, target)
    await fill(source)

    async def write(write):
        if when == "before a write":
            target.store._heads.clear()
        head = await target.store.write(write)
        target.store._heads.clear()
        return head

    with pytest.raises(HistoryLost, match="the destination had write"):
        await transfer(source, Wrapped(target.store, write=write))


async def test_a_source_that_goes_back_while_it_is_read_is_told(both):
    source, target = both
    await fill(source)
    old = dict(source.store._heads)
    await fill(source)

    async def rows(*args, **options):
        found = await source.store.rows(*args, **options)
        source.store._heads.update(old)
        return found

    with pytest.raises(HistoryLost, match="the source had write"):
        await transfer(Wrapped(source.store, rows=rows), target)
    assert await target.store.head("case") is None


async def test_a_session_whose_turn_runs_is_busy(both):
    source, target = both
    gate = Gate()
    running = asyncio.create_task(source.session("case", agents(gate)[0]).run(task="one"))
    await gate.reached.wait()
    owner = (await source.store.head("case")).owner
    with pytest.raises(SessionBusy) as caught:
        await transfer(source, target)
    assert str(caught.value) == (f"session 'case' is held in the source by {owner}; run again when its turn has ended")
    assert await target.store.head("case") is None
    gate.open()
    await running
    assert await transfer(source, target) == "copied"


async def test_an_interrupted_turn_is_finished_in_the_destination(pair):
    source, target = pair
    factory, _ = agents()
    await source.session("case", factory).run(task="one")
    await crash(source, factory, task="two")
    assert await transfer(source, target) == "copied"
    assert (await target.store.head("case")).status == "running"
    result = await target.session("case", factory).resume()
    assert said(result) == await expected("one", "two")
    assert (await source.store.head("case")).status == "running"


async def test_the_session_of_a_dead_worker_is_not_busy(both, monkeypatch):
    source, target = both
    await fill(source)
    head = await source.store.head("case")
    held = Write(
        session="case", seq=head.seq, epoch=9, status="running", owner="o", lease=60.0, token="t", data=head.data
    )
    await source.store.write(held)
    with pytest.raises(SessionBusy):
        await transfer(source, target)
    monkeypatch.setattr("midturn.lease.ledger.is_dead", lambda owner: owner == "o")
    assert await transfer(source, target) == "copied"
    head = await target.store.head("case")
    assert (head.owner, head.expires, head.epoch) == (None, 0.0, 10)


async def test_of_two_copiers_one_finds_the_session_busy(both, monkeypatch):
    source, target = both
    await fill(source)
    monkeypatch.setattr(copying, "CHUNK", 200)
    outcomes = []

    async def write(write):
        head = await target.store.write(write)
        if write.owner:
            with pytest.raises(SessionBusy, match=r"is held in the destination by .*; run again when it is released"):
                await transfer(source, target)
            outcomes.append("busy")
        return head

    assert await transfer(source, Wrapped(target.store, write=write)) == "copied"
    assert outcomes
    assert await content(target) == await content(source)


async def test_a_destination_in_use_is_busy(both):
    source, target = both
    await fill(source)
    await transfer(source, target)
    gate = Gate()
    running = asyncio.create_task(target.session("case", agents(gate)[0]).run(task="one"))
    await gate.reached.wait()
    with pytest.raises(SessionBusy, match="held in the destination"):
        await transfer(source, target)
    gate.open()
    await running


async def test_a_deleted_session_stays_deleted(pair):
    source, target = pair
    await fill(source)
    await source.store.delete("case", data=b'{"v":1}')
    assert await transfer(source, target) == "deletion"
    head = await target.store.head("case")
    assert (head.status, head.data) == ("deleted", b'{"v":1}')
    assert await transfer(source, target) == "unchanged"
    with pytest.raises(SessionDeleted):
        await target.session("case", agents()[0]).run(task="one")


async def test_a_deletion_that_was_cut_off_is_gone_on_with(both):
    source, target = both
    await fill(source)
    await source.delete("case")

    async def delete(session, *, data):
        raise Died

    with pytest.raises(Died):
        await transfer(source, Wrapped(target.store, delete=delete))
    with pytest.raises(SessionDeleted, match="is being deleted; if that was interrupted, finish it: midturn rm case"):
        await target.session("case", agents()[0]).run(task="one")
    assert await transfer(source, target) == "deletion"
    assert (await target.store.head("case")).status == "deleted"


async def test_a_session_that_lives_in_the_destination_is_not_deleted(both):
    source, target = both
    await fill(source)
    await transfer(source, target)
    await source.delete("case")
    await refused(source, target, "still exists in the destination; to delete it there, too: midturn rm case --st")


async def test_a_session_that_was_deleted_in_the_destination_is_not_copied(both):
    source, target = both
    await fill(source)
    await transfer(source, target)
    await target.delete("case")
    with pytest.raises(SessionDeleted, match="was deleted in the destination and stays deleted; copy it to another"):
        await transfer(source, target)


def alter_row(write):
    row = write.rows[-1]
    return replace(write, rows=(*write.rows[:-1], replace(row, data=b" " + row.data[:-1])))


ALTERED = {
    "a row is altered": alter_row,
    "a row is lost": lambda write: replace(write, rows=write.rows[:-1]),
    "a row is added": lambda write: replace(write, rows=(*write.rows, replace(write.rows[-1], n=9_999))),
    "a row gets another number": lambda write: replace(
        write, rows=(*write.rows[:-1], replace(write.rows[-1], n=9_999))
    ),
    "labels are lost": lambda write: replace(write, labels={}),
    "the status is another": lambda write: replace(write, status="failed"),
    "the head's data is another": lambda write: replace(write, data=write.data + b" "),
}


@pytest.mark.parametrize("alter", ALTERED.values(), ids=ALTERED)
@pytest.mark.parametrize("chunk", [1, copying.CHUNK])
async def test_a_destination_that_alters_what_is_written_is_caught(both, monkeypatch, alter, chunk):
    source, target = both
    monkeypatch.setattr(copying, "CHUNK", chunk)
    await fill(source)

    async def write(write):
        return await target.store.write(write if write.owner else alter(write))

    with pytest.raises(StateInvalid) as caught:
        await transfer(source, Wrapped(target.store, write=write))
    assert str(caught.value) == (
        "session 'case': the destination returned other data than was written to it; the source is unchanged: "
        "check the destination's disk, and copy to another store"
    )


async def test_a_copy_that_is_used_at_once_is_no_damaged_one(both):
    source, target = both
    await fill(source)

    async def write(write):
        head = await target.store.write(write)
        await target.session("case", agents()[0]).run(task="quick", key="k9")
        return head

    assert await transfer(source, Wrapped(target.store, write=write)) == "copied"


async def test_a_damaged_copy_that_is_used_at_once_is_caught(both):
    source, target = both
    await fill(source)

    async def write(write):
        head = await target.store.write(alter_row(write))
        await target.store.write(Write(session="case", seq=1, epoch=9, status="idle", token="t", data=head.data))
        return head

    with pytest.raises(StateInvalid, match="returned other data"):
        await transfer(source, Wrapped(target.store, write=write))


async def test_a_copy_that_is_deleted_at_once_is_deleted(both):
    source, target = both
    await fill(source)

    async def write(write):
        head = await target.store.write(write)
        await target.delete("case")
        return head

    with pytest.raises(SessionDeleted):
        await transfer(source, Wrapped(target.store, write=write))


async def test_every_id_is_copied(pair):
    source, target = pair
    ids = ["a/../b", "%41", "ü🎉", "-x", "x" * 200, "case", "CASE"]
    for id_ in ids:
        await source.session(id_, agents()[0]).run(task=f"I am {id_}")
    for id_ in ids:
        assert await transfer(source, target, id_) == "copied"
        assert await content(target, id_) == await content(source, id_)
    with pytest.raises(NotFound, match="there is no session 'absent' in the source"):
        await transfer(source, target, "absent")
