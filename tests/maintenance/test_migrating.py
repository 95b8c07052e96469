"""Many sessions to a new version, and back: each once, in its own write, whatever becomes of the others."""

import asyncio
from collections import Counter

import pytest
from autogen_agentchat.agents import AssistantAgent
from scripted import Scripted
from tools.many import multiply
from tools.servers.shared import DURABLE, store_url

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.errors import InvalidArgument, StoreFull
from midturn.lease.ledger import Ledger
from midturn.maintenance import migrating as bulk
from midturn.maintenance.migrating import MigrationRun, RollbackRun, in_bulk
from midturn.record.head import Kind


@pytest.fixture(params=DURABLE)
async def store(request, tmp_path):
    async with midturn.open(store_url(request.param, tmp_path / "store")) as store:
        yield store


def build(prompt="Be kind."):
    return lambda: AssistantAgent("clerk", Scripted(), system_message=prompt)


def blueprint(version=1, name="desk"):
    return midturn.Blueprint(name, build(), version=version)


def secretive():
    """Version 2, in which numbers of cards are not kept."""
    new = blueprint(2)

    @new.migration(1, 2)
    def forget_cards(state):
        return state.redact(r"\d{4}-\d{4}", "[card]")

    return new


async def each(store, *workers, ids=None, limit=None):
    """Return what became of the sessions, by their ids."""

    async def listed():
        for id_ in ids or [info.id async for info in store.sessions()]:
            yield id_

    found = {}
    await in_bulk(listed(), workers, lambda result: found.setdefault(result.session, result), limit=limit)
    return found


def migration(store, new=None, **options):
    return MigrationRun(store.store, new or secretive(), AutoGen(), **{"run": "desk-v2"} | options)


def counted(results):
    return Counter(result.became for result in results.values())


async def dump(store, session):
    """All rows and the head's data of a session."""
    return {kind: list(await store.store.rows(session, kind)) for kind in Kind}, (await store.store.head(session)).data


async def test_each_session_is_migrated_once_and_back_again(store):
    first = store.session("case-0", blueprint(), labels={"team": "a"})
    await first.run(task="My card is 1234-5678.")
    await first.run(task="Thanks.")
    await multiply(store.store, "case-0", [f"case-{i}" for i in range(1, 30)])
    before = {f"case-{i}": await store.session(f"case-{i}").at(2).tree() for i in range(30)}
    assert "1234-5678" in str(before["case-7"])
    results = await each(store, *(migration(store) for _ in range(3)))
    assert counted(results) == {"changed": 30}
    for id_, result in results.items():
        case = store.session(id_)
        assert await case.at(2).tree() == before[id_] == result.before, "the original was changed"
        after = await case.at(3).tree()
        assert after == result.after
        assert "[card]" in str(after)
        assert "1234-5678" not in str(after)
        assert [turn.origin async for turn in case.history()] == ["run", "run", "migration"]
    assert (await store.store.head("case-0")).labels == {"team": "a"}
    assert counted(await each(store, migration(store))) == {"unchanged": 30}
    # And back.
    undo = RollbackRun(store.store, run="desk-v2")
    assert counted(await each(store, undo, RollbackRun(store.store, run="desk-v2"))) == {"changed": 30}
    for id_, tree in before.items():
        stored = await store.session(id_).at(4).read()
        assert (stored.tree, stored.row.version, stored.row.blueprint) == (tree, 1, "desk")
        assert stored.fingerprint == await store.session(id_).at(2).fingerprint()
    assert counted(await each(store, undo)) == {"unchanged": 30}
    assert (await store.session("case-3", blueprint()).run(task="Again.")).turn == 5
    # And once more forward, which is what using it does as well.
    assert counted(await each(store, migration(store))) == {"changed": 30}
    result = await store.session("case-3", secretive()).run(task="And?")
    assert (result.turn, await store.session("case-3").at(7).version()) == (7, 2)


async def test_a_store_that_goes_back_in_time_ends_the_run(memory, monkeypatch):
    for number in range(3):
        await memory.session(f"case-{number}", blueprint()).run(task="card 1234-5678")
    write, tried = memory.store.write, []

    async def forgetful(change):
        tried.append(change.session)
        memory.store._heads.clear()
        return await write(change)

    monkeypatch.setattr(memory.store, "write", forgetful)
    with pytest.raises(midturn.HistoryLost, match="no longer has the session"):
        await each(memory, migration(memory), ids=[f"case-{number}" for number in range(3)])
    assert tried == ["case-0"]


async def test_in_bulk_and_when_used_come_to_the_same(memory):
    await memory.session("one", blueprint()).run(task="My card is 1234-5678.")
    await multiply(memory.store, "one", ["two"])
    await each(memory, migration(memory), ids=["one"])
    told = []
    for session in ("one", "two"):
        agent = AssistantAgent("clerk", Scripted(lambda messages: told.append(list(messages)) or "yes"))
        new = midturn.Blueprint("desk", lambda agent=agent: agent, version=2)
        new.migration(1, 2)(lambda state: state.redact(r"\d{4}-\d{4}", "[card]"))
        await memory.session(session, new, on_drift="ignore").run(task="And?")
    assert told[0] == told[1]


async def test_a_dry_run_changes_nothing(store):
    await store.session("case", blueprint()).run(task="My card is 1234-5678.")
    before = await dump(store, "case")
    (result,) = (await each(store, migration(store, dry_run=True))).values()
    assert result.became == "changed"
    assert "[card]" in str(result.after)
    assert await dump(store, "case") == before
    await each(store, migration(store))
    (result,) = (await each(store, RollbackRun(store.store, run="desk-v2", dry_run=True))).values()
    assert result.became == "changed"
    assert await store.session("case").at(2).version() == 2


async def test_what_is_not_to_be_migrated_is_left_alone(store, monkeypatch):
    monkeypatch.setattr(bulk, "PAUSE", 0.01)

    def failing(messages):
        raise RuntimeError("503")

    sessions = {
        "fine": blueprint(),
        "stranger": blueprint(name="other"),
        "nameless": build(),
        "newer": blueprint(3),
        "deleted": blueprint(),
        "busy": blueprint(),
        "open": blueprint(),
    }
    for id_, what in sessions.items():
        await store.session(id_, what).run(task="My card is 1234-5678.")
    await store.delete("deleted")
    with pytest.raises(midturn.TurnFailed):
        await store.session("open", midturn.Blueprint("desk", lambda: AssistantAgent("clerk", Scripted(failing)))).run()
    holder = Ledger(store.store, "busy")
    await holder.refresh()
    await holder.write(status="idle", progress=holder.progress)
    before = {id_: await dump(store, id_) for id_ in sessions if id_ not in ("fine", "deleted")}
    results = await each(store, migration(store), migration(store), ids=list(sessions))
    assert {id_: result.became for id_, result in results.items()} == {
        "fine": "changed",
        "stranger": "unchanged",
        "nameless": "unchanged",
        "newer": "unchanged",
        "deleted": "unchanged",
        "busy": "busy",
        "open": "open",
    }
    reasons = {id_: result.reason for id_, result in results.items()}
    assert "'other'" in reasons["stranger"]
    assert "of version 3, which is newer" in reasons["newer"]
    assert "turn 2 failed" in reasons["open"]
    assert "is held by" in reasons["busy"]
    assert {id_: await dump(store, id_) for id_ in before} == before
    # Named by its owner, one without a blueprint is meant.
    assert counted(await each(store, migration(store, adopt=True), ids=["nameless"])) == {"changed": 1}
    # When the holder has gone, another run does it.
    await holder.write(status="idle", progress=holder.progress, release=True)
    assert counted(await each(store, migration(store), ids=["busy"])) == {"changed": 1}


async def test_a_session_that_is_busy_is_tried_again_at_the_end(memory, monkeypatch):
    monkeypatch.setattr(bulk, "PAUSE", 0.01)
    for id_ in ("busy", "fine"):
        await memory.session(id_, blueprint()).run(task="one")
    holder = Ledger(memory.store, "busy")
    await holder.refresh()
    await holder.write(status="idle", progress=holder.progress)
    real = asyncio.sleep

    async def released(seconds):
        if holder.owned:  # others sleep, too
            await holder.write(status="idle", progress=holder.progress, release=True)
        await real(seconds)

    monkeypatch.setattr(bulk.asyncio, "sleep", released)
    results = await each(memory, migration(memory))
    assert list(results) == ["fine", "busy"], "the busy one comes last"
    assert counted(results) == {"changed": 2}


async def test_one_that_fails_does_not_keep_the_others(memory):
    for id_ in ("a", "poison", "z"):
        await memory.session(id_, blueprint()).run(task=id_)
    new = blueprint(2)

    @new.migration(1, 2)
    def picky(state):
        if "poison" in str(state.tree):
            raise ValueError("not this one")
        return state

    before = await dump(memory, "poison")
    results = await each(memory, migration(memory, new))
    assert [results[id_].became for id_ in ("a", "poison", "z")] == ["changed", "failed", "changed"]
    assert "'poison'" in results["poison"].reason
    assert "from version 1 to 2 (picky) raised ValueError: not this one" in results["poison"].reason
    assert await dump(memory, "poison") == before


async def test_a_session_that_has_gone_on_is_not_rolled_back(store):
    await store.session("case", blueprint()).run(task="one")
    await store.session("lazy", blueprint()).run(task="one")
    await each(store, migration(store), ids=["case"])
    for id_ in ("case", "lazy"):
        await store.session(id_, secretive()).run(task="two")
    before = await dump(store, "case")
    results = await each(store, RollbackRun(store.store, run="desk-v2"))
    assert {id_: result.became for id_, result in results.items()} == {"case": "failed", "lazy": "unchanged"}
    assert "has continued since to turn 3; checkpoint 1 has the state before the run" in results["case"].reason
    assert await dump(store, "case") == before


async def test_a_session_that_went_on_to_a_later_version_is_reported(memory):
    await memory.session("case", blueprint()).run(task="one")
    await each(memory, migration(memory))
    newest = blueprint(3)
    newest.migration(1, 2)(lambda state: state)
    newest.migration(2, 3)(lambda state: state)
    await memory.session("case", newest).run(task="two")
    (result,) = (await each(memory, RollbackRun(memory.store, run="desk-v2"))).values()
    assert result.became == "failed"
    assert "; checkpoint 1 has the state before the run" in result.reason


async def test_several_runs_are_undone_one_after_the_other(store):
    await store.session("case", blueprint()).run(task="My card is 1234-5678.")
    newest = midturn.Blueprint("desk", build(), version=3)
    newest.migration(1, 2)(lambda state: state.redact(r"\d{4}-\d{4}", "[card]"))
    newest.migration(2, 3)(lambda state: state.redact("My", "Our"))
    case = store.session("case")
    await each(store, migration(store))
    await each(store, migration(store, newest, run="desk-v3"))
    (result,) = (await each(store, RollbackRun(store.store, run="desk-v2"))).values()
    assert result.became == "failed", "the later one comes first"
    for run, restored in (("desk-v3", 2), ("desk-v2", 1)):
        (result,) = (await each(store, RollbackRun(store.store, run=run))).values()
        assert result.became == "changed"
        (result,) = (await each(store, RollbackRun(store.store, run=run))).values()
        assert result.became == "unchanged"
        number = (await store.store.rows("case", Kind.CHECKPOINT))[-1].n
        assert await case.at(number).tree() == await case.at(restored).tree()
    assert await case.at(number).version() == 1
    await each(store, migration(store, newest, run="desk-v3"))
    assert await case.at(number + 1).tree() == await case.at(3).tree()
    await store.session("case", newest).run(task="And?")
    (result,) = (await each(store, RollbackRun(store.store, run="desk-v3"))).values()
    assert "; checkpoint 5 has the state before the run" in result.reason


async def test_a_run_without_a_name_undoes_nothing(memory):
    await memory.session("case", blueprint()).run(task="one")
    with pytest.raises(InvalidArgument, match="run: is empty"):
        RollbackRun(memory.store, run="")


@pytest.mark.parametrize("limit", [1, 5, 7])
async def test_no_more_than_the_limit_are_changed(memory, limit):
    await memory.session("case-0", blueprint()).run(task="one")
    await multiply(memory.store, "case-0", [f"case-{i}" for i in range(1, 20)])
    results = await each(memory, *(migration(memory) for _ in range(4)), limit=limit)
    changed = [info.id async for info in memory.sessions() if info.checkpoint == 2]
    assert len(changed) == limit
    assert {id_ for id_, result in results.items() if result.became == "changed"} == set(changed)


async def stopped(work, enough):
    """Cancel work when there is enough of it."""
    task = asyncio.create_task(work)
    await enough.wait()
    task.cancel()
    await task


async def test_when_it_is_stopped_all_that_was_done_is_told(memory, monkeypatch):
    await memory.session("case-0", blueprint()).run(task="one")
    await multiply(memory.store, "case-0", [f"case-{i}" for i in range(1, 20)])
    real, told, enough = memory.store.write, [], asyncio.Event()

    async def slow(write):
        await asyncio.sleep(0.01)
        return await real(write)

    async def listed():
        for i in range(20):
            yield f"case-{i}"

    def tell(result):
        told.append(result)
        if len(told) == 5:
            enough.set()

    monkeypatch.setattr(memory.store, "write", slow)
    with pytest.raises(asyncio.CancelledError):
        await stopped(in_bulk(listed(), [migration(memory) for _ in range(4)], tell), enough)
    changed = {info.id async for info in memory.sessions() if info.checkpoint == 2}
    assert {result.session for result in told} == changed
    assert len(changed) < 20


async def test_what_agents_of_ones_own_raise_does_not_end_the_run(memory):
    for id_ in ("a", "b"):
        await memory.session(id_, blueprint()).run(task=id_)
    new = blueprint(2)
    new.migration(1, 2)(lambda state: state)

    class Moody(AutoGen):
        async def fit(self, live, tree):
            raise ValueError("not now")

    results = await each(memory, MigrationRun(memory.store, new, Moody(), run="r"))
    assert counted(results) == {"failed": 2}
    assert "not now" in results["a"].reason


@pytest.mark.parametrize("factory", [lambda: None, lambda: 42])
async def test_what_is_built_has_to_be_something(memory, factory):
    await memory.session("case", blueprint()).run(task="one")
    new = midturn.Blueprint("desk", factory, version=2)
    new.migration(1, 2)(lambda state: state)
    (result,) = (await each(memory, migration(memory, new))).values()
    assert result.became == "failed"
    assert "factory: returned" in result.reason


async def test_a_session_keeps_its_blueprint_when_it_is_saved_by_hand(memory):
    await memory.session("case", blueprint()).run(task="My card is 1234-5678.")
    agent = build()()
    await memory.load("case", agent)
    await memory.save("case", agent)
    assert (await memory.session("case").at(2).read()).row.blueprint == "desk"
    await memory.session("case", blueprint()).run(task="And?")
    assert counted(await each(memory, migration(memory))) == {"changed": 1}


async def test_a_store_that_is_full_ends_the_run(memory, monkeypatch):
    for i in range(5):
        await memory.session(f"case-{i}", blueprint()).run(task="one")
    real, written = memory.store.write, []

    async def full(write):
        if len(written) == 2:
            raise StoreFull("no space is left", session=write.session)
        written.append(write.session)
        return await real(write)

    monkeypatch.setattr(memory.store, "write", full)
    with pytest.raises(StoreFull):
        await each(memory, migration(memory))
    monkeypatch.setattr(memory.store, "write", real)
    assert counted(await each(memory, migration(memory))) == {"changed": 3, "unchanged": 2}


async def test_what_was_appended_after_a_rollback_is_not_mixed_up(store):
    """The migrated state has more messages in the same list, and the list continues from its earlier end."""
    case = store.session("case", blueprint())
    await case.run(task="one")
    new = blueprint(2)

    @new.migration(1, 2)
    def add(state):
        def change(tree):
            messages = tree["state"]["llm_context"]["messages"]
            messages.append(messages[-2] | {"content": "By the way."})

        return state.edit(change)

    await each(store, migration(store, new))
    assert "By the way." in str(await store.session("case").at(2).tree())
    await each(store, RollbackRun(store.store, run="desk-v2"))
    await store.session("case", blueprint()).run(task="two")
    tree = await store.session("case").at(4).tree()
    assert [message["content"] for message in tree["state"]["llm_context"]["messages"]][2] == "two"
    assert "By the way." not in str(tree)
    assert "By the way." in str(await store.session("case").at(2).tree())
