"""The audit trail and the lineage of sessions: complete, in order, and true after deletions."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from cast import agents, panel
from kinds import assistant

import midturn
from midturn import history
from midturn.record.head import Kind, Write
from midturn.record.rows import Progress, encode_record


async def acts(store, *words, **options):
    return [(each.session, each.what, each.by) async for each in store.audit(*words, **options)]


async def test_every_act_of_a_person_is_in_the_trail(store):
    case = store.session("case", panel)
    await case.run(task="write")
    await case.answer("ACCEPT", by="ann")
    await case.run(task="again")
    await case.discard(by="bob")
    await case.edit(lambda state: state, by="cid", why="typo")
    await case.reset(by="dan")
    await case.rewind(1, by="eve", why="wrong customer")
    await case.fork("other", by="fay")
    entries = [each async for each in store.audit("case")]
    assert [(each.what, each.by, each.why, each.turn) for each in entries] == [
        ("human", "ann", None, 1),
        ("discard", "bob", None, 2),
        ("edit", "cid", "typo", 3),
        ("reset", "dan", None, 4),
        ("rewind", "eve", "wrong customer", 5),
    ]
    assert all(each.at.tzinfo is UTC for each in entries)
    assert entries[4].details == {
        "question": "Go back to checkpoint 1?",
        "answer": "rewind",
        "arguments": {"checkpoint": 1},
    }
    assert await acts(store, "other") == [("other", "fork", "fay")]
    assert await acts(store, by="fay") == [("other", "fork", "fay")]


async def test_a_deletion_leaves_who_and_why_and_no_content(store):
    case = store.session("case", assistant, labels={"team": "claims"})
    await case.run(task="my secret")
    assert await case.delete(by="ann@desk", why="the customer asked for it")
    info = await store.info("case")
    assert (info.status, info.deleted.by, info.deleted.why) == ("deleted", "ann@desk", "the customer asked for it")
    assert (info.deleted.at, info.labels) == (info.updated, {})
    [entry] = [each async for each in store.audit("case")]
    assert (entry.what, entry.by, entry.why, entry.at) == ("delete", "ann@desk", info.deleted.why, info.updated)
    assert b"secret" not in (await store.store.head("case")).data
    assert not await store.delete("case", by="bob")
    assert (await store.info("case")).deleted.by == "ann@desk"


async def test_a_session_that_nobody_names_a_person_for_is_deleted_too(store):
    await store.session("case", assistant).run(task="one")
    assert await store.delete("case")
    assert (await store.info("case")).deleted == midturn.Deletion(at=(await store.info("case")).updated)
    assert not await store.delete("absent")


async def test_of_one_session_only_what_was_done_since_a_time_is_told(store):
    case = store.session("case", assistant)
    await case.run(task="one")
    for name in ("ann", "bob", "cid"):
        await case.rewind(1, by=name)
    entries = [each async for each in store.audit("case")]
    assert [each.by for each in entries] == ["ann", "bob", "cid"]
    for since in (each.at for each in entries):
        told = [each async for each in store.audit("case", since=since)]
        assert told == [each for each in entries if each.at >= since]
    after = entries[-1].at + timedelta(milliseconds=1)
    assert [each async for each in store.audit("case", since=after)] == []


async def test_the_trail_of_all_sessions_begins_with_the_latest_change_and_stops_in_time(store):
    for name in ("a", "b", "c"):
        await store.session(name, assistant, labels={"name": name}).run(task="one")
    for name in ("b", "c", "a"):
        await store.session(name).rewind(1, by=name)
    await store.delete("c", by="dan")
    assert await acts(store) == [("c", "delete", "dan"), ("a", "rewind", "a"), ("b", "rewind", "b")]
    assert await acts(store, labels={"name": "b"}) == [("b", "rewind", "b")]
    assert await acts(store, since=timedelta(days=1)) == await acts(store)
    assert await acts(store, since=datetime.now(UTC) + timedelta(days=1)) == []
    assert await acts(store, "a", labels={"name": "b"}) == []
    with pytest.raises(midturn.NotFound):
        await acts(store, "absent")


@pytest.mark.parametrize("wrong", [{"since": 5}, {"since": datetime(2026, 1, 1)}, {"by": 5}, {"labels": 3}])  # noqa: DTZ001
async def test_a_wrong_argument_of_the_trail_is_refused(memory, wrong):
    with pytest.raises(midturn.InvalidArgument):
        await acts(memory, **wrong)


async def test_a_trail_reads_no_turns_and_says_when_it_cannot_be_read(memory, monkeypatch):
    await memory.session("case", assistant).run(task="one")
    await memory.session("case").rewind(1, by="ann")
    await memory.session("quiet", assistant).run(task="one")
    read, seen = memory.store.rows, []

    async def rows(session, kind, **limits):
        seen.append((session, kind))
        return await read(session, kind, **limits)

    async def head(session):
        raise AssertionError("the list has the heads")

    monkeypatch.setattr(memory.store, "rows", rows)
    with monkeypatch.context() as patch:
        patch.setattr(memory.store, "head", head)
        assert await acts(memory) == [("case", "rewind", "ann")]
    assert seen == [("case", Kind.DECISION)]

    async def lost(session, kind, **limits):
        return [] if kind is Kind.DECISION else await read(session, kind, **limits)

    monkeypatch.setattr(memory.store, "rows", lost)
    [entry] = [each async for each in memory.audit()]
    assert (entry.what, "is missing" in entry.details["problem"]) == ("unreadable", True)


async def test_the_trails_of_some_sessions_are_read_at_once_and_come_in_order(memory, monkeypatch):
    for number in range(7):
        case = memory.session(f"case-{number}", assistant)
        await case.run(task="one")
        await case.rewind(1, by=str(number))
    read, reading, most = memory.store.rows, 0, 0

    async def rows(session, kind, **limits):
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        for _ in range(int(session[-1])):
            await asyncio.sleep(0)
        reading -= 1
        return await read(session, kind, **limits)

    monkeypatch.setattr(memory.store, "rows", rows)
    monkeypatch.setattr(history.audit, "AT_ONCE", 3)
    assert await acts(memory) == [(f"case-{number}", "rewind", str(number)) for number in reversed(range(7))]
    assert most == 3

    async def broken(session, kind, **limits):
        await rows(session, kind, **limits)
        raise midturn.StoreUnavailable("down")

    monkeypatch.setattr(memory.store, "rows", broken)
    with pytest.raises(midturn.StoreUnavailable, match="down"):
        await acts(memory)
    assert reading == 0


async def test_of_a_session_that_is_deleted_during_an_audit_the_deletion_is_told(memory, monkeypatch):
    await memory.session("case", assistant).run(task="one")
    await memory.session("case").rewind(1, by="ann")
    read = memory.store.rows

    async def rows(session, kind, **limits):
        monkeypatch.undo()
        await memory.delete("case", by="bob")
        return await read(session, kind, **limits)

    monkeypatch.setattr(memory.store, "rows", rows)
    found = await acts(memory)
    assert ("case", "delete", "bob") in found
    assert ("case", "rewind", "ann") not in found


async def test_a_migration_and_its_rollback_are_in_the_trail(memory):
    from midturn.autogen.adapter import AutoGen
    from midturn.maintenance.migrating import MigrationRun, RollbackRun

    await memory.session("case", midturn.Blueprint("desk", assistant)).run(task="one")
    new = midturn.Blueprint("desk", assistant, version=2)
    new.migration(1, 2)(lambda state: state)
    await MigrationRun(memory.store, new, AutoGen(), run="desk-v2", by="ann")("case")
    await RollbackRun(memory.store, run="desk-v2", by="bob")("case")
    entries = [each async for each in memory.audit("case")]
    assert [(each.what, each.by, each.details["arguments"]) for each in entries] == [
        ("migration", "ann", {"run": "desk-v2", "version": 2}),
        ("rollback", "bob", {"run": "desk-v2", "checkpoint": 1}),
    ]
    assert [turn.left_behind_by async for turn in memory.session("case").history()] == [None, 3, None]


# --- lineage


def tree(relative):
    return {each.session: tree(each) for each in relative.forks}


async def test_the_lineage_of_a_session_has_its_ancestors_and_its_forks(store):
    case = store.session("a", assistant)
    await case.run(task="one")
    await case.run(task="two")
    b = await case.fork("b", at=1)
    await case.fork("c")
    d = await b.fork("d")
    await d.fork("e")
    await store.session("stranger", assistant).run(task="one")
    found = await store.lineage("b")
    assert [each.session for each in found.ancestors] == ["a"]
    assert (found.status, found.forked_from) == ("idle", midturn.Fork(session="a", checkpoint=1))
    assert tree(found) == {"d": {"e": {}}}
    assert tree(await store.lineage("a")) == {"b": {"d": {"e": {}}}, "c": {}}
    await store.delete("b", by="ann")
    assert [(each.session, each.status) for each in (await store.lineage("e")).ancestors] == [
        ("a", "idle"),
        ("b", "deleted"),
        ("d", "idle"),
    ]
    assert tree(await store.lineage("a")) == {"b": {"d": {"e": {}}}, "c": {}}
    assert (await store.lineage("b")).status == "deleted"
    with pytest.raises(midturn.NotFound):
        await store.lineage("absent")


async def test_an_id_that_is_used_again_is_not_taken_for_the_origin(memory):
    case = memory.session("a", assistant)
    await case.run(task="one")
    fork = await case.fork("b")
    await memory.delete("a")
    assert await memory.store.forget("a")
    async with midturn.open(store=memory.store) as other:  # a worker that has not seen the earlier one
        await other.session("a", assistant).run(task="another")
        found = await other.lineage("b")
        assert [(each.session, each.status) for each in found.ancestors] == [("a", "deleted")]
        assert tree(await other.lineage("a")) == {}
        assert [turn.session async for turn in fork.history(origins=True)] == ["b"]


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_fork_of_a_checkpoint_that_was_compacted_away_is_still_one(store, at):
    case = store.session("case", assistant)
    for task in ("one", "two", "three"):
        await case.run(task=task)
    await case.fork("case-b", at=at)
    await case.compact(before=3)
    assert [each.session for each in (await store.lineage("case")).forks] == ["case-b"]
    assert [each.session for each in (await store.lineage("case-b")).ancestors] == ["case"]


async def test_a_chain_of_a_thousand_forks_is_read(memory):
    for number in range(1200):
        progress = Progress(turn=1, checkpoint=1, forked_from=f"s{number - 1}" * (number > 0), forked_at=min(number, 1))
        data = encode_record(progress)
        await memory.store.write(Write(session=f"s{number}", seq=0, epoch=1, status="idle", token="t", data=data))
    found = await memory.lineage("s600")
    assert len(found.ancestors) == 600
    deep = 0
    while found.forks:
        [found], deep = found.forks, deep + 1
    assert deep == 599


async def test_damaged_records_do_not_lead_in_circles(memory):
    for name, origin in (("a", "b"), ("b", "a")):
        data = encode_record(Progress(turn=1, checkpoint=1, forked_from=origin, forked_at=1))
        await memory.store.write(Write(session=name, seq=0, epoch=1, status="idle", token="t", data=data))
    found = await memory.lineage("a")
    assert len(found.ancestors) <= 2
    with pytest.raises(midturn.StateInvalid):
        [turn async for turn in memory.session("a").history(origins=True)]


async def test_an_audit_beside_writers_misses_nothing_that_was_there(memory):
    for number in range(5):
        case = memory.session(f"case-{number}", agents()[0])
        await case.run(task="one")
        await case.rewind(1, by="ann")

    async def write():
        for number in range(5):
            await memory.session(f"case-{number}").rewind(1, by="bob")

    found, _ = await asyncio.gather(acts(memory, "case-4"), write())
    assert ("case-4", "rewind", "ann") in found
