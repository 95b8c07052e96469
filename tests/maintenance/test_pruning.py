"""Pruning: exactly what was named goes, and nothing that somebody uses, needs or could not archive."""

import asyncio
import errno
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cast import agents, crash, expected, said
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.servers.shared import STORES, store_url

import midturn
from midturn.errors import InvalidArgument, SessionDeleted, StoreFull, StoreUnavailable
from midturn.record.rows import BURYING, Progress, Tombstone, decode_record, encode_record
from midturn.stores import memory as memory_store
from midturn.stores.memory import MemoryStore
from midturn.stores.wrapper import StoreWrapper
from midturn.testing import a_row, a_write
from midturn.testing.subject import snapshot

DAY = timedelta(days=1)
IDLE = encode_record(Progress(turn=1, checkpoint=1, blueprint="support"))
OPEN = encode_record(Progress(turn=2, checkpoint=1, open="running"))


@pytest.fixture
def clock(monkeypatch):
    """The clock of ``memory://``, which a test sets forward."""
    now = [1_700_000_000.0]

    class Clock:
        time = staticmethod(lambda: now[0])

    monkeypatch.setattr(memory_store, "time", Clock)
    return now


async def add(store, session, status="idle", data=IDLE, **options):
    return await store.store.write(a_write(session, status=status, data=data, rows=[a_row(0)], **options))


async def ids(store):
    return sorted([info.id async for info in store.sessions()])


@pytest.mark.parametrize("conditions", [{}, {"status": []}, {"labels": {}, "prefix": ""}, {"dry_run": True}])
async def test_pruning_without_a_condition_is_refused(memory, conditions):
    await add(memory, "case")
    with pytest.raises(InvalidArgument, match="would delete every session; give a condition"):
        await memory.prune(**conditions)
    assert await ids(memory) == ["case"]


@pytest.mark.parametrize(
    ("conditions", "match"),
    [
        ({"older_than": 90}, "older_than: is 90; give a timedelta above 0"),
        ({"older_than": timedelta(0)}, "older_than"),
        ({"keep_last": -1}, "keep_last"),
        ({"keep_last": True}, "keep_last"),
        ({"status": "deleted"}, "a deleted session cannot be deleted"),
        ({"status": "gone"}, "status"),
        ({"labels": {"a": 1}}, "labels"),
        ({"prefix": 7}, "prefix"),
        ({"prefix": "a", "by": ""}, "by"),
        ({"blueprint": midturn.Blueprint("support", dict)}, "of a blueprint without retain="),
        ({"blueprint": midturn.Blueprint("", dict, retain=DAY)}, "has no name"),
    ],
)
async def test_a_condition_that_is_not_valid_is_refused(memory, conditions, match):
    await add(memory, "case")
    with pytest.raises(InvalidArgument, match=match):
        await memory.prune(**conditions)
    assert await ids(memory) == ["case"]


async def test_sessions_go_by_their_age_and_the_oldest_first(memory, clock):
    for number in range(6):
        await add(memory, f"case-{5 - number}")
        clock[0] += DAY.total_seconds()
    clock[0] -= 1
    found = await memory.prune(older_than=3 * DAY, by="ann", dry_run=True)
    assert (found.deleted, found.skipped, found.dry_run) == (["case-5", "case-4", "case-3"], [], True)
    assert len(await ids(memory)) == 6
    done = await memory.prune(older_than=3 * DAY, by="ann")
    assert (done.deleted, done.dry_run) == (found.deleted, False)
    assert await ids(memory) == ["case-0", "case-1", "case-2"]
    head = await memory.store.head("case-4")
    left = decode_record(Tombstone, head.data, "tombstone")
    assert (left.by, left.why) == ("ann", "prune: unchanged for 3 days")
    assert (await memory.prune(older_than=3 * DAY)).deleted == []


async def test_the_latest_of_those_that_match_are_kept(memory, clock):
    for number in range(6):
        await add(memory, f"case-{number}", labels={"team": "ab"[number % 2]})
        clock[0] += 1
    assert (await memory.prune(labels={"team": "a"}, keep_last=2)).deleted == ["case-0"]
    assert (await memory.prune(keep_last=4, older_than=timedelta(seconds=3))).deleted == []
    assert (await memory.prune(keep_last=4)).deleted == ["case-1"]
    assert (await memory.prune(keep_last=0)).deleted == ["case-2", "case-3", "case-4", "case-5"]


async def test_a_session_that_is_used_or_has_an_open_turn_stays_unless_it_is_asked_for(memory):
    await add(memory, "held", "running", OPEN, owner="host:1:x", lease=3_600.0)
    await add(memory, "crashed", "running", OPEN)
    await add(memory, "asks", "waiting", encode_record(Progress(turn=1, open="waiting")))
    await add(memory, "failed", "failed", encode_record(Progress(turn=1, open="failed")))
    await add(memory, "idle")
    await add(memory, "odd", data=b"{}")
    before = await memory.store.head("held")
    done = await memory.prune(prefix="", keep_last=0)
    assert done.deleted == ["idle"]
    assert {each.session: each.reason for each in done.skipped} == {
        "held": "held",
        "crashed": "open",
        "asks": "open",
        "failed": "open",
        "odd": "unreadable",
    }
    done = await memory.prune(status=["interrupted", "waiting", "running"])
    assert (sorted(done.deleted), [each.reason for each in done.skipped]) == (["asks", "crashed"], ["held"])
    assert await ids(memory) == ["failed", "held", "odd"]
    assert replace(await memory.store.head("held"), now=0.0) == replace(before, now=0.0)


async def test_a_blueprint_says_how_long_its_sessions_are_kept(memory, clock):
    await add(memory, "support")
    await add(memory, "other", data=encode_record(Progress(turn=1, checkpoint=1, blueprint="other")))
    await add(memory, "nobodys", data=encode_record(Progress(turn=1, checkpoint=1)))
    blueprint = midturn.Blueprint("support", dict, retain=90 * DAY)
    assert (await memory.prune(blueprint=blueprint)).deleted == []
    clock[0] += 91 * DAY.total_seconds()
    assert (await memory.prune(blueprint=blueprint, older_than=92 * DAY)).deleted == []
    with pytest.raises(InvalidArgument, match=r"older_than: .* give a timedelta above 0"):
        await memory.prune(blueprint=blueprint, older_than=0 * DAY)
    assert (await memory.prune(blueprint=blueprint)).deleted == ["support"]
    with pytest.raises(InvalidArgument, match="retain: is 90; give a timedelta"):
        midturn.Blueprint("support", dict, retain=90)


SESSIONS = st.lists(
    st.tuples(
        st.sampled_from(["idle", "running", "waiting", "failed", "cancelled"]),
        st.booleans(),
        st.sampled_from([{}, {"team": "a"}, {"team": "b"}]),
        st.integers(0, 3),
    ),
    max_size=9,
)
RULES = st.fixed_dictionaries(
    {"prefix": st.sampled_from(["case-", "case-1"])},
    optional={
        "older_than": st.sampled_from([timedelta(seconds=2), timedelta(seconds=5)]),
        "status": st.lists(st.sampled_from(["idle", "running", "interrupted", "waiting", "failed"]), min_size=1),
        "labels": st.sampled_from([{"team": "a"}, {}]),
        "keep_last": st.integers(0, 3),
    },
)


@given(sessions=SESSIONS, rule=RULES)
@settings(max_examples=200, deadline=None)
def test_a_dry_run_names_exactly_what_is_then_deleted(sessions, rule):
    """Without ``clock``: fixtures of a function live through all examples."""
    now = [1_000.0]

    class Clock:
        time = staticmethod(lambda: now[0])

    async def run():
        async with midturn.open(store=MemoryStore()) as store:
            for number, (status, held, labels, rest) in enumerate(sessions):
                progress = IDLE if status == "idle" else encode_record(Progress(turn=1, open=status))
                lease = {"owner": "host:1:x", "lease": 60.0} if held and status == "running" else {}
                await add(store, f"case-{number}", status, progress, labels=labels, **lease)
                now[0] += rest
            before = await ids(store)
            named = await store.prune(**rule, dry_run=True)
            assert await ids(store) == before
            done = await store.prune(**rule)
            assert (done.deleted, done.skipped) == (named.deleted, named.skipped)
            assert await ids(store) == sorted(set(before) - set(named.deleted))
            for session in before:
                assert (await store.store.rows(session, a_row(0).kind) == []) == (session in done.deleted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_store, "time", Clock)
        asyncio.run(run())


class Meddling(StoreWrapper):
    """A store where something happens just before or just after a session is taken away from everybody."""

    before = after = None

    async def write(self, write):
        fence = write.data == BURYING
        if fence and self.before:
            await self.before(write.session)
        head = await super().write(write)
        if fence and self.after:
            await self.after(write.session)
        return head


@pytest.fixture(params=STORES)
async def meddling(request, tmp_path):
    async with midturn.open(store_url(request.param, tmp_path / "store")) as opened:
        inner = Meddling(opened.store)
        async with midturn.open(store=inner) as store:
            store.meddling = inner
            yield store
            await opened.aclose()


@pytest.mark.fault("F34")
async def test_a_session_that_is_written_between_look_and_deletion_stays(meddling):
    factory, _ = agents()
    for name in ("one", "two", "three"):
        await meddling.session(name, factory).run(task="first")

    async def run(session):
        if session == "two":
            await meddling.session("two", factory).run(task="second")

    meddling.meddling.before = run
    done = await meddling.prune(keep_last=0)
    assert done.deleted == ["one", "three"]
    assert [(each.session, each.reason) for each in done.skipped] == [("two", "changed")]
    assert [turn.number async for turn in meddling.session("two").history()] == [1, 2]
    meddling.meddling.before = meddling.delete
    done = await meddling.prune(keep_last=0)
    assert (done.deleted, [each.reason for each in done.skipped]) == ([], ["changed"])


class Killed(Exception):
    """The process dies here."""


@pytest.mark.fault("F1")
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_pruning_that_is_killed_in_the_middle_continues(meddling, moment):
    factory, _ = agents()
    for name in ("one", "two", "three"):
        await meddling.session(name, factory, labels={"team": "a"}).run(task="first")

    async def die(session):
        if session == "two":
            raise Killed

    setattr(meddling.meddling, moment, die)
    with pytest.raises(Killed):
        await meddling.prune(labels={"team": "a"})
    setattr(meddling.meddling, moment, None)
    assert await ids(meddling) == ["three", "two"]
    case = meddling.session("two", factory)
    if moment == "after":
        with pytest.raises(SessionDeleted, match=r"'two' is being deleted; .* finish it: midturn rm two"):
            await case.run(task="second")
        rule = {"older_than": DAY}  # it was changed a moment ago, but its deletion was decided
        assert (await meddling.prune(**rule, dry_run=True)).deleted == ["two"]
        assert (await meddling.prune(**rule)).deleted == ["two"]
        with pytest.raises(SessionDeleted):
            await case.run(task="second")
    else:
        await case.run(task="second")
    done = await meddling.prune(labels={"team": "a"})
    assert sorted(done.deleted) == (["three"] if moment == "after" else ["three", "two"])
    assert await ids(meddling) == []


@pytest.mark.fault("F34")
async def test_pruning_beside_workers_deletes_no_accepted_input(tmp_path):
    """Find every turn that was reported as done, or find that the session was deleted after it."""
    async with midturn.open(store_url("sqlite", tmp_path / "store")) as store:
        factory, _ = agents()
        for number in range(12):
            await store.session(f"case-{number}", factory).run(task="first")
        turns = [asyncio.ensure_future(store.session(f"case-{n}", factory).run(task="more")) for n in range(12)]
        for _ in range(5):
            await asyncio.sleep(0)
        done = await store.prune(prefix="case-")
        ended = await asyncio.gather(*turns, return_exceptions=True)
        for number, result in enumerate(ended):
            name = f"case-{number}"
            if isinstance(result, Exception):
                assert isinstance(result, SessionDeleted), result
                assert name in done.deleted
            elif name not in done.deleted:
                assert [turn.number async for turn in store.session(name).history()] == [1, 2]
        assert len(done.deleted) + len(done.skipped) == 12


@pytest.mark.fault("F34")
async def test_a_worker_whose_session_is_being_pruned_hears_that_it_is_deleted(meddling):
    factory, _ = agents()
    case, heard = meddling.session("case", factory), []
    await case.run(task="first")

    async def use(_):
        for use in (case.run(task="second"), case.resume(), case.discard(), case.turn(1), case.at(1).tree()):
            with pytest.raises(SessionDeleted) as error:
                await use
            heard.append(error.value)

    meddling.meddling.after = use
    assert (await meddling.prune(keep_last=0)).deleted == ["case"]
    assert len(heard) == 5


async def test_a_crashed_turn_is_kept_until_its_status_is_asked_for(memory):
    factory, _ = agents()
    await crash(memory, factory, task="one")
    assert [each.reason for each in (await memory.prune(prefix="c")).skipped] == ["open"]
    await memory.session("case", factory).resume()
    assert (await memory.prune(prefix="c")).deleted == ["case"]


# The archive


async def test_what_is_pruned_is_in_the_archive(memory, tmp_path):
    factory, model = agents()
    for name in ("one", "two"):
        await memory.session(name, factory, labels={"team": "claims"}).run(task=f"remember {name}", key="k")
    rows = {name: (await snapshot(memory.store, name))[1] for name in ("one", "two")}
    archive = tmp_path / "archive"
    assert (await memory.prune(prefix="o", archive=archive, dry_run=True)).deleted == ["one"]
    assert not archive.exists()
    assert (await memory.prune(prefix="o", archive=archive)).deleted == ["one"]
    assert (await memory.prune(keep_last=0, archive=str(archive))).deleted == ["two"]
    async with midturn.open(f"file://{archive}") as found:
        assert await ids(found) == ["one", "two"]
        assert {name: (await snapshot(found.store, name))[1] for name in rows} == rows
        assert (await found.info("one")).labels == {"team": "claims"}
        asked = len(model.seen)
        await found.session("one", factory).run(task="remember one", key="k")
        assert len(model.seen) == asked


async def test_a_full_archive_loses_nothing(memory, tmp_path, monkeypatch):
    for number in range(4):
        await add(memory, f"case-{number}")
    before = {f"case-{n}": await snapshot(memory.store, f"case-{n}") for n in range(4)}
    real = os.write

    def full(file, data):
        place = Path(f"/proc/self/fd/{file}").readlink()
        if place.name == "case-2.jsonl":
            raise OSError(errno.ENOSPC, "no space")
        return real(file, data)

    told = []
    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full)
        with pytest.raises(StoreFull):
            await memory.prune(prefix="case", archive=tmp_path / "archive", on_session=lambda *each: told.append(each))
    assert told == [("case-0", None), ("case-1", None)]
    assert {name: await snapshot(memory.store, name) for name in ("case-2", "case-3")} == {
        name: before[name] for name in ("case-2", "case-3")
    }
    done = await memory.prune(prefix="case", archive=tmp_path / "archive")
    assert done.deleted == ["case-2", "case-3"]
    async with midturn.open(f"file://{tmp_path / 'archive'}") as found:
        assert {name: (await snapshot(found.store, name))[1] for name in before} == {
            name: rows for name, (_, rows) in before.items()
        }


@pytest.mark.parametrize("kind", ["a file", "a missing parent", "another program's"])
async def test_a_directory_that_cannot_be_the_archive_loses_nothing(memory, tmp_path, kind):
    await add(memory, "case")
    archive = tmp_path / "archive"
    if kind == "a file":
        archive.write_text("mine")
    elif kind == "a missing parent":
        archive = archive / "deeper"
    else:
        archive.mkdir()
        (archive / "notes").write_text("mine")
    with pytest.raises(StoreUnavailable):
        await memory.prune(prefix="c", archive=archive)
    assert await ids(memory) == ["case"]


async def test_the_store_itself_is_no_archive(tmp_path):
    async with midturn.open(f"file://{tmp_path / 'store'}") as store:
        await add(store, "case")
        (tmp_path / "link").symlink_to(tmp_path / "store")
        for place in ("store", "link"):
            with pytest.raises(InvalidArgument, match="archive: is the store itself"):
                await store.prune(prefix="c", archive=tmp_path / place)
        assert await ids(store) == ["case"]


async def test_a_session_that_does_not_fit_into_the_archive_stays(memory, tmp_path):
    archive = tmp_path / "archive"
    factory, _ = agents()
    async with midturn.open(f"file://{archive}") as other:
        await other.session("two", factory).run(task="another case under the same id")
    for name in ("one", "two"):
        await memory.session(name, factory).run(task="first")
    done = await memory.prune(keep_last=0, archive=archive)
    assert done.deleted == ["one"]
    assert [(each.session, each.reason) for each in done.skipped] == [("two", "not archived")]
    assert await ids(memory) == ["two"]


# Ids that are used anew


async def test_a_deleted_id_begins_anew_if_it_is_asked_for(meddling):
    store = meddling
    factory, _ = agents()
    case = store.session("case", factory)
    for task in ("first", "second"):
        await case.run(task=task, key=task)
    await store.delete("case")
    with pytest.raises(SessionDeleted):
        await store.session("case", factory).run(task="third")
    again = store.session("case", factory, reuse=True)
    result = await again.run(task="anew", key="first")
    assert "first" not in str(result.messages[0].content)
    assert [turn.number async for turn in again.history()] == [1]
    assert await case.delete()
    with pytest.raises(SessionDeleted):
        await again.run(task="a later deletion counts")
    assert await store.forget("case") is True
    assert await store.forget("case") is False
    for task in ("first", "second"):
        await store.session("case", factory).run(task=task, key=task)
    with pytest.raises(midturn.Conflict, match="session 'case' is not deleted; delete it first"):
        await store.forget("case")
    assert [turn.number async for turn in store.session("case", factory, reuse=True).history()] == [1, 2]


@pytest.mark.parametrize("how", ["the store", "the session", "a pruning", "another worker"])
async def test_a_worker_that_forgets_a_session_uses_its_id_anew(meddling, how):
    store = meddling
    factory, _ = agents()
    case = store.session("case", factory)
    await case.run(task="first")
    match how:
        case "the store":
            await store.delete("case")
        case "the session":
            await case.delete()
        case "a pruning":
            await store.prune(prefix="case")
        case _:
            await store.store.delete("case")
    if how == "another worker":
        await store.forget("case")
    else:
        await store.store.forget("case")
    assert said(await case.run(task="second")) == await expected("second")
    assert said(await store.session("case", factory).run(task="third")) == await expected("second", "third")


async def test_an_agent_of_an_earlier_session_does_not_work_for_the_new_one(memory):
    """The object of the earlier session has a live agent, and the new session has as many turns and bodies."""
    factory, model = agents()
    case = memory.session("case", factory)
    await case.run(task="the secret of the first")
    await memory.delete("case")
    with pytest.raises(SessionDeleted):
        await case.run(task="more")
    await memory.forget("case")
    await memory.session("case", agents()[0]).run(task="the secret of the other")
    await case.run(task="what was it?")
    assert "the other" in str(model.seen[-1])
    assert "the first" not in str(model.seen[-1])
