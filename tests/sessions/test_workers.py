"""Several workers on one session: one writes at a time, and one that lost its lease cannot."""

import asyncio
from contextlib import nullcontext
from dataclasses import replace

import pytest
from cast import Gate, agents, crash, expected, numbers, said

import midturn
from midturn.lease.ledger import Ledger


async def test_two_session_objects_take_turns(store):
    factory, _ = agents()
    sessions = [store.session("case", factory), store.session("case", factory)]
    tasks = [f"task {n}" for n in range(6)]
    results = [await sessions[n % 2].run(task=task) for n, task in enumerate(tasks)]
    assert [said(result) for result in results] == [await expected(*tasks[: n + 1]) for n in range(6)]


async def test_turns_at_once_run_one_after_the_other(store):
    factory, model = agents()
    one, other = store.session("case", factory), store.session("case", factory)
    await asyncio.gather(*(session.run(task=f"task {n}") for n in range(4) for session in (one, other)))
    assert await numbers(one) == [(n, "done") for n in range(1, 9)]
    assert sorted(len(messages) for messages in model.seen) == [2, 4, 6, 8, 10, 12, 14, 16]


async def test_a_failure_of_another_worker_is_noticed(store):
    factory, _ = agents("first", ConnectionError("503"))
    one, other = store.session("case", factory), store.session("case", factory)
    await one.run(task="one")
    with pytest.raises(midturn.TurnFailed):
        await other.run(task="a long task that fails " * 10)
    result = await one.run(task="three")
    assert result.turn == 3
    assert [message["content"] for message in (await one.at(3).state())["llm_context"]["messages"]] == [
        "one",
        "first",
        "three",
        said(result),
    ]


async def test_a_deleted_session_is_noticed_by_a_session_object_that_is_in_use(store):
    factory, _ = agents()
    session = store.session("case", factory)
    await session.run(task="one")
    await store.delete("case")
    with pytest.raises(midturn.SessionDeleted):
        await session.run(task="two")


# --- busy


async def test_a_busy_session_is_waited_for(store):
    gate = Gate()
    factory, _ = agents(gate)
    first = asyncio.create_task(store.session("case", factory).run(task="one"))
    await gate.reached.wait()
    second = asyncio.create_task(store.session("case", factory).run(task="two"))
    await asyncio.sleep(0.02)
    assert not second.done()
    gate.open()
    assert [said(await first), said(await second)] == [await expected("one"), await expected("one", "two")]


@pytest.mark.parametrize("options", [{"busy": "raise"}, {"timeout": 0.05}, {"timeout": 0}])
async def test_a_session_that_another_worker_holds_is_busy(store, options):
    gate = Gate()
    factory, _ = agents(gate)
    first = asyncio.create_task(store.session("case", factory).run(task="one"))
    await gate.reached.wait()
    other = store.session("case", factory, **options)
    async with asyncio.timeout(60):
        with pytest.raises(midturn.SessionBusy, match=r"^worker .* holds session") as caught:
            await other.run(task="two")
    assert caught.value.session == "case"
    assert caught.value.owner == (await store.store.head("case")).owner
    gate.open()
    await first
    assert said(await other.run(task="two")) == await expected("one", "two")
    assert await numbers(other) == [(1, "done"), (2, "done")]


@pytest.mark.parametrize("options", [{"busy": "raise"}, {"timeout": 0.05}, {"timeout": 0}])
async def test_a_session_object_that_runs_a_turn_is_busy(store, options):
    gate = Gate()
    factory, _ = agents(gate)
    session = store.session("case", factory, **options)
    first = asyncio.create_task(session.run(task="one"))
    await gate.reached.wait()
    try:
        async with asyncio.timeout(60):
            with pytest.raises(midturn.SessionBusy, match="in this process"):
                await session.run(task="two")
    finally:
        gate.open()
        await first
    assert said(await session.run(task="two")) == await expected("one", "two")


async def test_a_session_object_in_use_is_busy_when_another_worker_holds_the_session(store):
    gate = Gate()
    factory, _ = agents("first", gate)
    session = store.session("case", factory, busy="raise")
    await session.run(task="one")
    other = asyncio.create_task(store.session("case", factory).run(task="two"))
    await gate.reached.wait()
    with pytest.raises(midturn.SessionBusy):
        await session.run(task="three")
    with pytest.raises(midturn.SessionBusy):
        await session.resume()
    gate.open()
    await other


async def test_saving_by_hand_waits_for_a_busy_session(store):
    gate = Gate()
    factory, _ = agents(gate)
    running = asyncio.create_task(store.session("case", factory).run(task="one"))
    await gate.reached.wait()
    saving = asyncio.create_task(store.save("case", factory()))
    await asyncio.sleep(0.02)
    assert not saving.done()
    gate.open()
    await running
    assert await saving == 2


# --- the lease


async def test_a_long_turn_keeps_its_lease(store, monkeypatch, pass_time):
    # Renewed after a third, three times; all of that is less than what a store gives to a call that is under way.
    monkeypatch.setattr("midturn.lease.ledger.LEASE", 9.0)
    gate = Gate()
    factory, model = agents(gate)
    first = asyncio.create_task(store.session("case", factory).run(task="one"))
    await gate.reached.wait()
    second = asyncio.create_task(store.session("case", factory).run(task="two"))
    for _ in range(3):
        taken = head = await store.store.head("case")
        pass_time(3.1)
        async with asyncio.timeout(60):
            while head.expires == taken.expires:
                await asyncio.sleep(0.01)
                head = await store.store.head("case")
        assert head.epoch == taken.epoch
    assert not second.done()
    gate.open()
    assert said(await first) == await expected("one")
    assert (await second).turn == 2
    assert len(model.seen) == 2


@pytest.mark.parametrize("how", ["in the URL", "by name", "of a store of one's own", "of a fork"])
async def test_a_lease_is_as_long_as_the_store_was_opened_with(url, how):
    gate = Gate()
    factory, _ = agents("one", gate) if how == "of a fork" else agents(gate)
    async with midturn.open(f"{url}{'&' if '?' in url else '?'}lease=1000") as by_url:
        opened = {
            "by name": midturn.open(url, lease=1000),
            "of a store of one's own": midturn.open(store=by_url.store, lease=1000.0),
        }.get(how)
        async with opened or nullcontext(by_url) as store:
            session = store.session("case", factory)
            if how == "of a fork":
                await session.run(task="one")
                session = await session.fork("other", at=1)
            running = asyncio.create_task(session.run(task="hello"))
            await gate.reached.wait()
            head = await store.store.head(session.id)
            assert 900 < head.expires - head.now <= 1000
            gate.open()
            await running


async def _take_over(store):
    """Take the lease as another worker, when it has run out."""
    other = Ledger(store.store, "case")
    await other.refresh()
    other.head = replace(other.head, expires=other.head.now)
    await other.write(status="running", progress=other.progress)
    return other


async def test_a_ledger_does_not_write_over_the_lease_of_a_living_worker(store):
    holder, other = Ledger(store.store, "case"), Ledger(store.store, "case")
    await holder.refresh()
    await holder.write(status="idle", progress=holder.progress)
    await other.refresh()
    with pytest.raises(midturn.Conflict):
        await other.write(status="idle", progress=other.progress)
    await holder.write(status="idle", progress=holder.progress, release=True)
    await other.refresh()
    await other.write(status="idle", progress=other.progress, release=True)


async def test_a_worker_that_was_taken_over_cannot_commit(store):
    gate = Gate()
    factory, _ = agents("first", gate)
    session = store.session("case", factory)
    await session.run(task="one")
    zombie = asyncio.create_task(session.run(task="two"))
    await gate.reached.wait()
    other = await _take_over(store)
    gate.open()
    with pytest.raises(midturn.LeaseLost, match="another worker took over") as caught:
        await zombie
    assert caught.value.session == "case"
    assert await numbers(session) == [(1, "done"), (2, "running")]
    head = await store.store.head("case")
    assert (head.owner, head.epoch, head.seq) == (other.head.owner, other.head.epoch, other.head.seq)


async def test_a_worker_that_was_taken_over_is_told_at_its_next_renewal(store, monkeypatch, pass_time):
    monkeypatch.setattr("midturn.lease.ledger.LEASE", 9.0)
    gate = Gate()
    factory, _ = agents(gate)
    zombie = asyncio.create_task(store.session("case", factory).run(task="one"))
    await gate.reached.wait()
    await _take_over(store)
    pass_time(3.1)
    async with asyncio.timeout(60):
        with pytest.raises(midturn.LeaseLost):
            await zombie


async def test_a_worker_that_was_taken_over_cannot_record_a_failure(store):
    gate = Gate()

    async def fail(messages):
        await gate(messages)
        raise ConnectionError("503")

    factory, _ = agents(fail)
    session = store.session("case", factory)
    zombie = asyncio.create_task(session.run(task="one"))
    await gate.reached.wait()
    other = await _take_over(store)
    gate.open()
    with pytest.raises(midturn.MidturnError):
        await zombie
    assert (await store.store.head("case")).token == other.head.token
    assert await numbers(session) == [(1, "running")]


async def test_a_turn_whose_lease_ran_out_is_finished_by_the_next_worker_and_counts_once(store, monkeypatch):
    monkeypatch.setattr("midturn.lease.ledger.LEASE", 0.05)
    monkeypatch.setattr("midturn.lease.ledger.Holding._begin", lambda self: None)  # as in a process that is paused
    gate = Gate()
    factory, model = agents(gate)
    session = store.session("case", factory)
    zombie = asyncio.create_task(session.run(task="one"))
    await gate.reached.wait()
    await asyncio.sleep(0.1)
    monkeypatch.undo()
    assert said(await store.session("case", factory).run(task="two")) == await expected("one", "two")
    gate.open()
    with pytest.raises(midturn.LeaseLost):
        await zombie
    assert said(await session.run(task="three")) == await expected("one", "two", "three")
    assert await numbers(session) == [(1, "done"), (2, "done"), (3, "done")]
    assert [len(messages) for messages in model.seen] == [2, 2, 4, 6]


async def test_a_crashed_turn_is_finished_by_resume(store):
    factory, _ = agents()
    await crash(store, factory, task="one")
    session = store.session("case", factory)
    assert said(await session.resume()) == await expected("one")
    assert await session.resume() is None


async def test_a_crashed_turn_is_finished_before_the_next_one(store):
    factory, _ = agents()
    await crash(store, factory, task="one")
    session = store.session("case", factory)
    assert said(await session.run(task="two")) == await expected("one", "two")
    assert await numbers(session) == [(1, "done"), (2, "done")]


async def test_a_crashed_turn_that_fails_when_it_is_finished_is_reported_and_then_replaced(store):
    factory, _ = agents(ConnectionError("503"))
    await crash(store, factory, task="one")
    session = store.session("case", factory)
    with pytest.raises(midturn.TurnFailed) as caught:
        await session.run(task="two")
    assert caught.value.turn == 1
    assert said(await session.run(task="two")) == await expected("two")
    assert await numbers(session) == [(1, "failed"), (2, "done")]


async def test_a_state_is_not_saved_by_hand_over_a_crashed_turn(store):
    factory, _ = agents()
    await crash(store, factory, task="one")
    with pytest.raises(midturn.MidturnError, match="resume"):
        await store.save("case", factory())
    assert await numbers(store.session("case")) == [(1, "interrupted")]


# --- deleting


async def test_a_session_deleted_during_a_turn_stays_deleted(store):
    gate = Gate()
    factory, _ = agents("first", gate)
    session = store.session("case", factory)
    await session.run(task="one")
    running = asyncio.create_task(session.run(task="two"))
    await gate.reached.wait()
    assert await store.delete("case")
    gate.open()
    with pytest.raises(midturn.SessionDeleted, match="stays deleted"):
        await running
    for late in (session.run(task="three"), session.resume(), numbers(session), session.at(1).state()):
        with pytest.raises(midturn.SessionDeleted):
            await late
    assert [info async for info in store.sessions()] == []
    assert [info.id async for info in store.sessions(status="deleted")] == ["case"]
    assert not await store.delete("case")


async def test_a_deleted_session_is_not_saved_by_hand_either(store):
    factory, _ = agents()
    await store.save("case", factory())
    assert await store.session("case").delete()
    with pytest.raises(midturn.SessionDeleted):
        await store.save("case", factory())
    with pytest.raises(midturn.SessionDeleted):
        await store.load("case", factory())


async def test_a_factory_that_raises_leaves_a_crashed_turn_for_a_better_one(store):
    await crash(store, None, task="one")

    def broken():
        raise RuntimeError("no API key")

    for call in (store.session("case", broken).resume(), store.session("case", broken).run(task="two")):
        with pytest.raises(RuntimeError, match="no API key"):
            await call
    assert await numbers(store.session("case")) == [(1, "interrupted")]
    factory, _ = agents("first")
    assert said(await store.session("case", factory).resume()) == "first"
