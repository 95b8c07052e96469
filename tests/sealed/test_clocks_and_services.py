"""Sealed stores whose clock is set while they are used, and key services that do not answer."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from forger import KEYS
from records import clerk
from tools.servers.shared import store_url

import midturn
from midturn.record.head import Write
from midturn.record.rows import Progress, encode_record
from midturn.stores.registry import open_store
from midturn.stores.sealed.store import Sealed
from midturn.stores.wrapper import StoreWrapper, wrap


class Jumping(StoreWrapper):
    """A memory store with a clock that is set to another time."""

    ahead = 0.0
    failing = None

    async def write(self, write):
        if self.failing:
            self.failing -= 1
            if not self.failing:
                raise midturn.StoreUnavailable("off")
        return await super().write(write)

    async def close(self):
        pass


@pytest.fixture
async def jumping(monkeypatch):
    inner = await open_store("memory://")
    clock = Jumping(inner)

    class Time:
        def time(self):
            return time.time() + clock.ahead

    monkeypatch.setattr("midturn.stores.memory.time", Time())
    return clock


@pytest.mark.parametrize("jump", [-90_000.0, -700.0, 700.0, 90_000.0])
async def test_a_clock_that_is_set_between_two_writes_is_no_forgery(jumping, jump):
    async with midturn.open(store=jumping, keys=KEYS) as store:
        await store.session("case-42", clerk).run(task="hello")
        jumping.ahead += jump
        await store.session("case-42", clerk).run(task="hello again")
        await store.session("other", clerk).run(task="hello")
    async with midturn.open(store=jumping, keys=KEYS) as store:
        assert [info.problem async for info in store.sessions()] == [None, None]
        assert (await store.session("case-42", clerk).run(task="and again")).turn == 3


async def test_the_first_write_of_a_process_whose_clock_is_wrong_is_no_forgery(jumping):
    jumping.ahead = 90_000.0
    async with midturn.open(store=jumping, keys=KEYS) as store:
        await store.session("case-42", clerk).run(task="hello")
    async with midturn.open(store=jumping, keys=KEYS) as store:
        assert (await store.info("case-42")).problem is None


@pytest.mark.parametrize("at", range(1, 7))
async def test_a_time_that_cannot_be_put_right_at_once_is_put_right_by_the_next_write(jumping, at):
    async with midturn.open(store=jumping, keys=KEYS) as store:
        case = store.session("case-42", clerk)
        await case.run(task="hello")
        jumping.ahead += 90_000.0
        jumping.failing = at
        with suppress(midturn.StoreUnavailable):
            await case.run(task="hello again")
        jumping.failing = None
        turn = await case.resume()
        assert turn is None or turn.turn == 2
    async with midturn.open(store=jumping, keys=KEYS) as store:
        assert (await store.session("case-42", clerk).run(task="and again")).turn in (2, 3)


async def test_a_time_that_was_changed_is_named_so_that_it_can_be_put_back(jumping):
    async with midturn.open(store=jumping, keys=KEYS) as store:
        await store.session("case-42", clerk).run(task="hello")
        head = jumping.inner._heads["case-42"]
        jumping.inner._heads["case-42"] = replace(head, updated=1_000_000.0)
        was = datetime.fromtimestamp(head.updated, UTC).strftime("%Y-%m-%d %H:%M")
        with pytest.raises(midturn.Tampered, match=f"it was {was}.*the record has 1970-01-12"):
            await store.info("case-42")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_transaction_of_a_session_that_was_not_read_before_is_sealed(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("midturn.stores.sealed.store.MOST_SESSIONS", 0)
    data = encode_record(Progress(turn=1, open="running"))
    write = Write(session="case-42", seq=0, epoch=1, status="running", owner="me", lease=60.0, token="t", data=data)
    store = wrap(Sealed, await open_store(store_url(kind, tmp_path / "store")), keys=KEYS)
    async with asyncio.timeout(20):
        async with store.transaction() as transaction:
            await transaction.execute("CREATE TABLE booked (what text)")
            await transaction.write(write)
        async with store.transaction() as transaction:
            await transaction.execute("INSERT INTO booked VALUES ('a seat')")
            await transaction.write(replace(write, seq=1, after="t", token="t2"))
        async with store.transaction() as transaction:
            assert await transaction.execute("SELECT what FROM booked") == [("a seat",)]
    assert ((await store.head("case-42")).seq, (await store.head("case-42")).data) == (2, data)
    await store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_transaction_after_a_pause_of_its_process_has_the_right_time(kind, tmp_path, monkeypatch):
    data = encode_record(Progress(turn=1, open="running"))
    write = Write(session="case-42", seq=0, epoch=1, status="running", owner="me", lease=60.0, token="t", data=data)
    inner = await open_store(store_url(kind, tmp_path / "store"))
    store = wrap(Sealed, inner, keys=KEYS)
    times = iter([time.time() - 90_000.0])  # it sealed the head long before it wrote it
    monkeypatch.setattr(store, "_time", lambda: next(times, time.time()))
    async with asyncio.timeout(20), store.transaction() as transaction:
        await transaction.execute("CREATE TABLE paused (what text)")
        head = await transaction.write(write)
    assert (head.seq, head.data) == (2, data)
    assert (await Sealed(inner, keys=KEYS).head("case-42")).token == head.token
    await store.close()


class Hanging:
    """A key service that answers until it is told to hang, and fails once."""

    def __init__(self, fails_at=None):
        self.hangs, self.asked, self.fails_at = False, 0, fails_at

    async def wrap(self, data_key, context):
        self.asked += 1
        await self.answer()
        return await KEYS.wrap(data_key, context)

    async def unwrap(self, key_id, wrapped, context):
        self.asked += 1
        await self.answer()
        return await KEYS.unwrap(key_id, wrapped, context)

    async def answer(self):
        if self.hangs:
            await asyncio.Event().wait()
        if self.asked == self.fails_at:
            raise OSError("connection reset")


async def test_turns_continue_while_the_key_service_hangs(monkeypatch):
    monkeypatch.setattr("midturn.stores.sealed.store.BRIEFLY", 0.1)
    monkeypatch.setattr("midturn.stores.sealed.store.CURRENT_FOR", 0.0)
    service = Hanging()
    async with midturn.open("memory://", keys=service) as store:
        case = store.session("case-42", clerk)
        await case.run(task="hello")
        service.hangs, service.asked = True, 0
        for number in range(5):
            await case.run(task=f"hello {number}")
        assert service.asked == 1


async def test_however_many_ask_each_gives_up_in_time(monkeypatch):
    monkeypatch.setattr("midturn.stores.sealed.store.DEADLINE", 0.2)
    service = Hanging()
    service.hangs = True
    store = Sealed(await open_store("memory://"), keys=service)
    data = encode_record(Progress())
    async with asyncio.timeout(20):
        writes = [
            store.write(Write(session=f"case-{number}", seq=0, epoch=1, status="idle", token="t", data=data))
            for number in range(2_000)
        ]
        found = await asyncio.gather(*writes, return_exceptions=True)
    assert {type(each) for each in found} == {midturn.StoreUnavailable}


async def listed(store):
    return {info.id: info.problem async for info in store.sessions()}


async def rekeyed(store):
    return await store.rekey(deep=True)


FLOWS = {
    "run": lambda store: store.session("case-0", clerk).run(task="again", key="k"),
    "info": lambda store: store.info("case-0"),
    "list": listed,
    "count": lambda store: store.key_counts(),
    "rekey": rekeyed,
    "label": lambda store: store.label("case-0", {"desk": "8"}),
    "fork": lambda store: store.session("case-0", clerk).fork("fork"),
    "delete": lambda store: store.delete("case-0"),
}


@pytest.mark.parametrize("flow", FLOWS)
async def test_a_key_service_that_fails_at_any_question_is_a_store_that_cannot_be_reached(
    flow, monkeypatch, nothing_left
):
    monkeypatch.setattr("midturn.stores.sealed.store.CURRENT_FOR", 0.0)
    ends = set()
    for at in range(1, 100):
        inner = await open_store("memory://")
        kept = Jumping(inner)
        async with midturn.open(store=kept, keys=KEYS) as store:
            for number in range(3):
                await store.session(f"case-{number}", clerk).run(task="hello")
        service = Hanging(fails_at=at)
        async with midturn.open(store=kept, keys=service) as store:
            try:
                await FLOWS[flow](store)
                ends.add("done")
            except midturn.StoreUnavailable as error:
                ends.add(str(error))
        monkeypatch.setattr("midturn.lease.ledger.is_dead", lambda owner: True)
        async with midturn.open(store=kept, keys=KEYS) as store:
            with suppress(midturn.Conflict, midturn.SessionDeleted):  # it may have been forked or deleted
                await FLOWS[flow](store)
            assert not any((await listed(store)).values())
        if service.asked < at:
            break
    assert "done" in ends <= {"done", "the key service failed: OSError"}
