"""F34: a session that is deleted while somebody reads or runs it is deleted, and never looks damaged."""

import asyncio
import os
from collections import Counter
from contextlib import suppress

import pytest
from records import clerk, good
from tools.servers.shared import STORES, store_url

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.maintenance.copying import copy
from midturn.maintenance.migrating import MigrationRun, RollbackRun
from midturn.record.head import Kind
from midturn.sessions.session import Session
from midturn.stores.registry import open_store
from midturn.stores.wrapper import StoreWrapper, wrap

pytestmark = [pytest.mark.fault("F34"), pytest.mark.filterwarnings("ignore::midturn.errors.NotKept")]


class Interrupting(StoreWrapper):
    """A store in which somebody does something to a session before the read with a number."""

    def __init__(self, inner):
        super().__init__(inner)
        self.left, self.act = None, None

    async def head(self, session):
        await self._count()
        return await self.inner.head(session)

    async def rows(self, session, kind, *, start=0, stop=None):
        await self._count()
        return await self.inner.rows(session, kind, start=start, stop=stop)

    async def _count(self):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                await self.act()


@pytest.fixture(params=STORES)
async def interrupting(request, tmp_path):
    return wrap(Interrupting, await open_store(store_url(request.param, tmp_path / "store")))


async def everything(generator):
    return [item async for item in generator]


def migration(store):
    blueprint = midturn.Blueprint("desk", clerk, version=2)
    blueprint.migration(1, 2)(lambda state: state)
    return MigrationRun(store, blueprint, AutoGen(), run="r", adopt=True)


READERS = {
    "history": ("rests", lambda case, store, name: everything(case.history())),
    "turn": ("rests", lambda case, store, name: case.turn(3)),
    "open_turn": ("waits", lambda case, store, name: case.open_turn()),
    "waiting": ("waits", lambda case, store, name: case.waiting()),
    "at": ("rests", lambda case, store, name: case.at(3).state()),
    "replay": ("rests", lambda case, store, name: case.replay(3)),
    "fork": ("rests", lambda case, store, name: case.fork(f"{name} fork", at=3)),
    "fork of the latest": ("rests", lambda case, store, name: case.fork(f"{name} fork")),
    "rewind": ("rests", lambda case, store, name: case.rewind(3)),
    "rewind of a turn that waits": ("waits", lambda case, store, name: case.rewind(1, discard=True)),
    "edit": ("rests", lambda case, store, name: case.edit(lambda state: state)),
    "run": ("rests", lambda case, store, name: case.run(task="look once more")),
    "run with a known key": ("rests", lambda case, store, name: case.run(task="look again", key="k4")),
    "resume": ("answered", lambda case, store, name: case.resume()),
    "answer": ("waits", lambda case, store, name: case.answer("approve")),
    "answer without an agent": ("waits", lambda case, store, name: store.session(name).answer("approve")),
    "load": ("rests", lambda case, store, name: store.load(name, clerk())),
}


@pytest.mark.parametrize("reader", READERS)
async def test_a_session_that_is_deleted_between_two_reads_is_deleted(interrupting, reader):
    which, read = READERS[reader]
    subject = (await good())[which]
    outcomes = []
    async with midturn.open(store=interrupting) as store:
        for number in range(100):
            name = f"{number} {which}"
            await subject.write(interrupting, name)
            interrupting.left, interrupting.act = number, lambda name=name: interrupting.inner.delete(name)
            try:
                await read(store.session(name, clerk), store, name)
            except midturn.SessionDeleted:
                outcomes.append("deleted")
            else:
                outcomes.append("done")
            if interrupting.left is not None:  # it reads less often than that
                break
            assert (await interrupting.head(name)).status == "deleted"
            assert [await interrupting.rows(name, kind) for kind in Kind] == [[]] * len(Kind)
    assert "deleted" in outcomes
    assert outcomes[-1] == "done"


async def test_a_worker_whose_session_is_deleted_while_it_looks_for_its_last_turn_has_lost_no_history(interrupting):
    async with midturn.open(store=interrupting) as store:
        for number in range(20):
            live, name = store.session(f"case {number}", clerk), f"case {number}"
            await live.run(task="look")
            # Another worker, so this one looks whether the history still has what it wrote.
            await Session(interrupting.inner, name, clerk, AutoGen()).run(task="look again")
            interrupting.left, interrupting.act = number, lambda name=name: interrupting.inner.delete(name)
            with suppress(midturn.SessionDeleted):
                await live.resume()
            if interrupting.left is not None:
                assert number > 1, "it looks for nothing"
                break


@pytest.mark.parametrize("how", ["migrate", "roll back", "copy"])
async def test_maintenance_beside_a_deletion_ends_in_one_of_two_ways(interrupting, how):
    subject = (await good())["rests"]
    outcomes = []
    async with midturn.open(store=interrupting), midturn.open("memory://") as elsewhere:
        for number in range(100):
            name = f"{number} case"
            await subject.write(interrupting, name)
            work = {
                "migrate": migration(interrupting),
                "roll back": RollbackRun(interrupting, run="r"),
                "copy": lambda name: copy(interrupting, elsewhere.store, name, on_write=lambda _: None),
            }[how]
            if how == "roll back":
                assert (await migration(interrupting)(name)).became == "changed"
            interrupting.left, interrupting.act = number, lambda name=name: interrupting.inner.delete(name)
            result = await work(name)
            outcomes.append(result if how == "copy" else (result.became, result.reason))
            if interrupting.left is not None:
                break
            assert (await interrupting.head(name)).status == "deleted"
            if outcomes[-1] == "deletion":
                assert (await elsewhere.store.head(name)).status == "deleted"
    done, deleted = ("copied", "deletion") if how == "copy" else (("changed", ""), ("unchanged", "was deleted"))
    assert set(outcomes) == {done, deleted}
    assert outcomes[-1] == done


async def test_a_copy_of_a_session_that_is_deleted_meanwhile_leaves_no_half(interrupting, monkeypatch):
    monkeypatch.setattr("midturn.maintenance.copying.CHUNK", 500)  # so that there are many writes
    subject = (await good())["rests"]
    results = set()
    async with midturn.open(store=interrupting), midturn.open("memory://") as elsewhere:
        for number in range(0, 30, 2):
            name = f"{number} case"
            await subject.write(interrupting, name)
            interrupting.left, interrupting.act = number, lambda name=name: interrupting.inner.delete(name)
            results.add(await copy(interrupting, elsewhere.store, name, on_write=lambda _: None))
            there = await elsewhere.store.head(name)
            assert there.status == "deleted" or there.data == subject.head.data
    assert "deletion" in results


@pytest.mark.parametrize("reader", ["open_turn", "waiting", "answer", "resume"])
async def test_calls_that_another_worker_removes_meanwhile_are_not_missed(interrupting, reader):
    """With ``journals=0`` a turn removes its calls when it ends."""
    which, read = READERS[reader]
    subject = (await good())[which]
    async with midturn.open(store=interrupting) as store:

        async def finish():
            other = store.session(name, clerk, journals=0)
            await (other.resume() if which == "answered" else other.answer("approve"))

        for number in range(100):
            name = f"{number} {which}"
            await subject.write(interrupting, name)
            interrupting.left, interrupting.act = number, finish
            with suppress(midturn.Conflict):  # the question is answered already
                await read(store.session(name, clerk), store, name)
            if interrupting.left is not None:
                break
            assert (await store.info(name)).status == "idle"
        assert number > 2


@pytest.mark.parametrize("kind", STORES)
async def test_whoever_runs_beside_whoever_deletes_is_told_that_it_is_deleted(kind, tmp_path, record_property):
    subject = (await good())["rests"]
    times, ends = 200 if os.environ.get("MIDTURN_LONG") else 10, Counter()
    # The last one: the migration was faster, and the worker is still of the version before it.
    allowed = (midturn.SessionDeleted, midturn.LeaseLost, midturn.SessionBusy, midturn.Conflict, midturn.UnknownVersion)
    async with midturn.open(store_url(kind, tmp_path / "store")) as store, midturn.open("memory://") as elsewhere:

        async def race(name):
            case = store.session(name, midturn.Blueprint("desk", clerk))
            work = {
                "run": case.run(task="look once more"),
                "history": everything(store.session(name).history()),
                "turn": store.session(name).turn(3),
                "at": store.session(name).at(3).state(),
                "copy": copy(store.store, elsewhere.store, name, on_write=lambda _: None),
                "migrate": migration(store.store)(name),
                "roll back": RollbackRun(store.store, run="r")(name),
                "delete": store.delete(name),
            }
            return dict(zip(work, await asyncio.gather(*work.values(), return_exceptions=True), strict=True))

        for number in range(times):
            name = f"case {number}"
            await subject.write(store.store, name)
            found = await race(name)
            assert found.pop("delete") is True
            failed = {who: result for who, result in found.items() if isinstance(result, BaseException)}
            assert {who: result for who, result in failed.items() if not isinstance(result, allowed)} == {}
            for maintenance in ("migrate", "roll back"):
                assert found[maintenance].became in ("changed", "unchanged", "busy", "open")
            assert (await store.info(name)).status == "deleted"
            assert [await store.store.rows(name, each) for each in Kind] == [[]] * len(Kind)
            ends.update(type(each).__name__ if each in failed.values() else "done" for each in found.values())
    record_property("figures", f"{kind}: {times} deletions, each beside 7 others: {dict(ends.most_common())}, 0 halves")
