"""F21: what somebody who can write the database, and has no keys, tries with whole heads and with what is deleted."""

import asyncio
from dataclasses import replace

import pytest
from forger import KEYS, forged
from records import clerk

import midturn
from midturn.maintenance.copying import copy
from midturn.record.head import Kind, Write
from midturn.record.rows import Progress, encode_record
from midturn.stores.sealed.store import Sealed

pytestmark = pytest.mark.fault("F21")


@pytest.mark.parametrize("data", ["kept", "empty", "plain"])
async def test_a_session_that_was_only_marked_as_deleted_is_not_taken_for_deleted(data):
    async with forged() as (forger, reopened):
        store = await reopened()
        await store.session("case-42", clerk).run(task="hello")

        def forge(head):
            words = {"kept": head.data, "empty": b"", "plain": b'{"v":1}'}[data]
            return replace(head, status="deleted", owner=None, expires=0.0, token="", labels={}, data=words)

        forger.forge_head = forge
        for used in (store, await reopened()):
            for attempt in (
                used.info("case-42"),
                used.session("case-42", clerk).run(task="hello"),
                used.session("case-42", clerk, reuse=True).run(task="hello"),
            ):
                with pytest.raises(midturn.Tampered, match="case-42"):
                    await attempt
        forger.forge_head = lambda head: head
        assert (await store.info("case-42")).turns == 1


async def test_a_deletion_that_was_edited_is_noticed():
    async with forged() as (forger, reopened):
        store = await reopened()
        await store.session("case-42", clerk).run(task="hello")
        await store.delete("case-42", by="ann")
        for change in ({"labels": {"by": "bob"}}, {"owner": "bob"}, {"token": "bob"}, {"status": "idle"}):
            forger.forge_head = lambda head, change=change: replace(head, **change)
            with pytest.raises(midturn.Tampered):
                await (await reopened()).info("case-42")


async def test_a_deletion_is_not_copied_if_it_is_forged():
    async with forged() as (forger, reopened), midturn.open("memory://", keys=KEYS) as target:
        store = await reopened()
        await store.session("case-42", clerk).run(task="hello")
        forger.forge_head = lambda head: replace(head, status="deleted", owner=None, expires=0.0)
        with pytest.raises(midturn.Tampered):
            await copy(store.store, target.store, "case-42", on_write=lambda size: None)


async def test_the_times_of_a_session_with_one_write_are_bound():
    async with forged() as (forger, _):
        await first_write(forger)
        for change in (
            {"created": -3_600.0},
            {"updated": -3_600.0, "expires": -3_600.0},
            {"created": -3_600.0, "updated": -3_600.0, "expires": -3_600.0},
        ):

            def forge(head, change=change):
                return replace(head, **{name: getattr(head, name) + by for name, by in change.items()})

            forger.forge_head = forge
            assert (await Sealed(forger, keys=KEYS).heads())[0].problem is not None, change


async def first_write(store):
    """The one write of a session whose worker died, in a new process that knows nothing of the store's clock."""
    data = encode_record(Progress(turn=1, open="running"))
    write = Write(session="case-42", seq=0, epoch=1, status="running", owner="me", lease=60.0, token="t", data=data)
    await Sealed(store, keys=KEYS).write(write)


async def test_an_older_head_is_noticed_by_a_process_that_knows_the_session():
    async with forged() as (forger, reopened):
        store, other = await reopened(), await reopened()
        await store.session("case-42", clerk).run(task="hello")
        older = await forger.inner.head("case-42")
        await other.info("case-42")
        await store.session("case-42", clerk).run(task="hello again")
        assert (await other.info("case-42")).turns == 2
        forger.forge_head = lambda head: replace(older, now=head.now)
        with pytest.raises(midturn.Tampered, match="older than its rows"):
            await other.info("case-42")


@pytest.mark.parametrize("writes", range(1, 5))
async def test_nobody_takes_rows_in_plain_while_a_session_is_only_half_sealed(writes, monkeypatch):
    async with forged() as (forger, reopened):
        async with midturn.open(store=forger) as plain:
            for number in range(3):
                await plain.session("case-42", clerk).run(task=f"hello {number}")
        monkeypatch.setattr("midturn.stores.sealed.store.MOST_ROWS", 4)
        made = 0
        write = forger.inner.write

        async def stopping(each):
            nonlocal made
            made += 1
            if made > writes + 1:  # the first one is the decision to rekey
                raise midturn.StoreUnavailable("off")
            return await write(each)

        monkeypatch.setattr(forger.inner, "write", stopping)
        async with midturn.open(store=forger, keys=KEYS, allow_plain=True) as moving:
            with pytest.raises(midturn.StoreUnavailable):
                await moving.rekey(["case-42"], deep=True)
        monkeypatch.undo()
        forger.forge_rows = in_plain(b"hello 1", b"HELLO 1")
        strict = await reopened()
        for attempt in (strict.info("case-42"), strict.session("case-42", clerk).run(task="and again")):
            with pytest.raises(midturn.Tampered, match="sealed"):
                await attempt
        assert (await strict.key_counts()).plain == 1
        assert (await strict.rekey()).skipped[0].reason == "plain"
        forger.forge_rows = lambda rows: rows
        monkeypatch.setattr("midturn.lease.ledger.is_dead", lambda owner: True)  # the process of the first call
        async with midturn.open(store=forger, keys=KEYS, allow_plain=True) as moving:
            assert (await moving.rekey(["case-42"], deep=True)).rekeyed == ["case-42"]
        assert (await strict.session("case-42", clerk).run(task="and again")).messages


def in_plain(before, after):
    def forge(rows):
        return [replace(row, data=row.data.replace(before, after)) for row in rows]

    return forge


async def test_reading_keys_twice_at_once_is_no_forgery():
    async with forged() as (forger, reopened):
        store = await reopened()
        for number in range(3):
            await store.session("case-42", clerk).run(task="hello", key=f"k{number}")
        rows = forger.inner.rows

        async def slowly(session, kind, **limits):
            found = await rows(session, kind, **limits)
            await asyncio.sleep(0)
            return found

        forger.inner.rows = slowly
        again = (await reopened()).store
        [first, *_] = await store.store.rows("case-42", Kind.KEY)
        one = {"start": first.n, "stop": first.n + 1}
        found = await asyncio.gather(*(again.rows("case-42", Kind.KEY, **one) for _ in range(3)))
        assert found == [[first]] * 3
