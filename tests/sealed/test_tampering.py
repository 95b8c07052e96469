"""F21: whatever somebody without the keys does to a sealed store, it is noticed and named."""

import os
from collections import Counter
from dataclasses import replace

import pytest
from forger import KEYS, forged
from records import clerk, good, readers, users
from tools.servers.shared import STORES, store_url

import midturn
from midturn.record.head import Kind
from midturn.stores.registry import open_store
from midturn.stores.sealed.store import Sealed
from midturn.stores.wrapper import StoreWrapper

LONG_RUN = bool(os.environ.get("MIDTURN_LONG"))

pytestmark = [
    pytest.mark.fault("F21"),
    pytest.mark.timeout(7_200 if LONG_RUN else 300),
    pytest.mark.filterwarnings("ignore::midturn.errors.NotKept"),
]


class Passing(StoreWrapper):
    """Keeps the writes as they come out of the sealed store, and writes nothing."""

    async def write(self, write):
        self.seen = write
        return await super().write(write)


async def sealed_write(one, session):
    """The one write that makes a session, sealed for this id."""
    async with midturn.open("memory://") as store:
        passing = Passing(store.store)
        await one.write(Sealed(passing, keys=KEYS), session)
        return passing.seen


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def tampered(write, other, plain):
    """Every way to tamper with a sealed write, by name; ``other`` is that of another session."""
    yield "head flipped", replace(write, data=flipped(write.data, len(write.data) - 20))
    yield "head's header flipped", replace(write, data=flipped(write.data, 30))
    yield "head cut", replace(write, data=write.data[:-1])
    yield "head of another session", replace(write, data=other.data)
    yield "head in plain", replace(write, data=plain.head.data)
    yield "head's status", replace(write, status="idle" if write.status != "idle" else "failed")
    yield "head's labels", replace(write, labels={**write.labels, "desk": "8"})
    yield "head's epoch", replace(write, epoch=write.epoch + 1)
    yield "head's token", replace(write, token="another")
    yield "head's owner", replace(write, owner="somebody", lease=0.01)
    kinds = {}
    for index, row in enumerate(write.rows):
        kinds.setdefault(row.kind, []).append(index)
    for kind, indexes in kinds.items():
        for index in indexes if LONG_RUN else indexes[-1:]:
            name = f"{kind.name.lower()} {write.rows[index].n}"

            def changed(row, index=index):
                rows = [*write.rows[:index], *([row] if row else []), *write.rows[index + 1 :]]
                return replace(write, rows=tuple(rows))

            row = write.rows[index]
            yield f"{name} removed", changed(None)
            for at in (1, 5, 15, 25, len(row.data) - 1):
                yield f"{name} flipped at {at}", changed(replace(row, data=flipped(row.data, at)))
            yield f"{name} in plain", changed(replace(row, data=plain.rows[index].data))
            yield f"{name} empty", changed(replace(row, data=row.data[:11]))
            neighbour = write.rows[indexes[0] if index != indexes[0] else indexes[-1]]
            if neighbour is not row:
                yield f"{name} swapped with {neighbour.n}", changed(replace(row, data=neighbour.data))
            stranger = next((each for each in other.rows if each.kind is kind), None)
            if stranger is not None:
                yield f"{name} of another session", changed(replace(row, data=stranger.data))
            elsewhere = next(each for each in write.rows if each.kind is not kind)
            yield f"{name} of another kind", changed(replace(row, data=elsewhere.data))


async def outcomes(attempts):
    found = {}
    for name, attempt in attempts.items():
        try:
            found[name] = await attempt()
        except midturn.MidturnError as error:
            found[name] = error
    return found


SEEN = (midturn.Tampered, midturn.WrongKey)


@pytest.mark.parametrize("kind", STORES)
async def test_every_change_of_a_sealed_record_is_noticed_and_named(kind, tmp_path, record_property):
    kept = await good()
    missed, ends = {}, Counter()
    inner = await open_store(store_url(kind, tmp_path / "store"))
    async with midturn.open(store=inner, keys=KEYS) as store:
        for name, one in kept.items():
            other = await sealed_write(kept["waits" if name == "rests" else "rests"], "other")
            await one.write(store.store, f"{name} as it is")
            undamaged = await outcomes(readers(store, f"{name} as it is"))
            assert not [each for each in undamaged.values() if isinstance(each, SEEN)]
            changes = [what for what, _ in tampered(await sealed_write(one, name), other, one)]
            # What checks a record is the same on every store, so one of them gets more changes.
            every = 1 if LONG_RUN else 3 if kind == "memory" else 9
            for number, what in list(enumerate(changes))[::every]:
                session = f"{name} {number}"
                await inner.write(dict(tampered(await sealed_write(one, session), other, one))[what])
                found = await outcomes(readers(store, session))
                changed = [reader for reader in ("history", "load") if differ(found[reader], undamaged[reader])]
                async with midturn.open("memory://", keys=KEYS) as elsewhere:
                    found |= await outcomes(users(store, elsewhere, session))
                seen = [each for each in found.values() if isinstance(each, SEEN)]
                is_noticed = seen and all(session in str(each) for each in seen) and not changed
                ends["noticed" if is_noticed else "missed"] += 1
                if not is_noticed:
                    missed[f"{name}: {what}"] = changed or {key: repr(each)[:80] for key, each in found.items()}
    record_property("figures", f"{kind}: {sum(ends.values()):,} changes of sealed records, {dict(ends)}")
    assert missed == {}


def differ(result, before):
    return not isinstance(result, midturn.MidturnError) and result != before


TIMES = {
    "updated": lambda head: replace(head, updated=head.updated - 3_600),
    "created": lambda head: replace(head, created=head.created - 60),
    "expires": lambda head: replace(head, owner=head.owner, expires=head.expires + 60),
}


WORDS = {"updated": "last change", "created": "creation", "expires": "lease"}


@pytest.mark.parametrize("field", TIMES)
async def test_a_time_of_a_head_that_was_changed_is_noticed(field):
    async with forged() as (forger, reopened):
        store = await reopened()
        await store.session("case-42", clerk).run(task="hello")
        forger.forge_head = TIMES[field]
        again = await reopened()
        with pytest.raises(midturn.Tampered, match=f"{WORDS[field]} was changed"):
            await again.info("case-42")
        [info] = [info async for info in again.sessions()]
        assert "was changed" in info.problem


async def test_an_older_head_beside_newer_rows_is_noticed_by_a_new_process():
    async with forged() as (forger, reopened):
        store = await reopened()
        case = store.session("case-42", clerk)
        await case.run(task="hello")
        older = await forger.inner.head("case-42")
        await case.run(task="hello again")
        forger.forge_head = lambda head: replace(older, now=head.now)
        with pytest.raises(midturn.Tampered, match="older than its rows"):
            await (await reopened()).session("case-42", clerk).run(task="and again")


async def test_a_replaced_checkpoint_that_is_put_back_is_noticed():
    async with forged() as (forger, reopened):
        store = await reopened()
        case = store.session("case-42", clerk)
        for number in range(4):
            await case.run(task=f"hello {number}")
        older = {row.n: row for row in await forger.inner.rows("case-42", Kind.CHECKPOINT)}
        await case.compact(before=3)
        forger.forge_rows = lambda rows: [
            older[row.n] if row.kind is Kind.CHECKPOINT and row.n < 3 else row for row in rows
        ]
        with pytest.raises(midturn.Tampered, match="checkpoint 2: it is an older one"):
            await (await reopened()).session("case-42", clerk).run(task="hello again")


async def test_the_record_of_a_key_that_was_removed_or_put_back_is_noticed():
    async with forged() as (forger, reopened):
        store = await reopened()
        case = store.session("case-42", clerk)
        await case.run(task="refund it", key="k1")
        [older] = await forger.inner.rows("case-42", Kind.KEY)
        await case.discard()
        [_, newer] = await forger.inner.rows("case-42", Kind.KEY)  # it has the calls that were made
        for gone in ({newer.n}, {older.n, newer.n}):
            forger.forge_rows = lambda rows, gone=gone: [
                row for row in rows if row.kind is not Kind.KEY or row.n not in gone
            ]
            with pytest.raises(midturn.Tampered, match="one was removed or replaced"):
                await (await reopened()).session("case-42", clerk).run(task="refund it", key="k1")
        forger.forge_rows = lambda rows: rows
        assert (await (await reopened()).session("case-42", clerk).run(task="refund it", key="k1")).waiting
