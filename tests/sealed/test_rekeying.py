"""Keys are exchanged without a gap: nothing is lost, and the old key can be dropped."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE

import pytest
from records import clerk, good
from tools.servers.shared import STORES, store_url

import midturn
from midturn.record.head import Write
from midturn.record.rows import Progress, encode_record
from midturn.stores.registry import open_store
from midturn.stores.sealed.keys import new_key
from midturn.stores.sealed.store import Sealed

OLD, NEW = new_key("2026-05"), new_key("2026-11")
BEFORE, BETWEEN, AFTER = (midturn.Keys.parse(text) for text in (OLD, f"{NEW},{OLD}", NEW))
LONG_RUN = bool(os.environ.get("MIDTURN_LONG"))


async def everything(store, session):
    """All of a session that a reader finds."""
    case = store.session(session, clerk)
    live = clerk()
    await store.load(session, live)
    return [turn async for turn in case.history()], await live.save_state()


async def keys_of(store):
    return dict((await store.key_counts()).sessions)


@pytest.mark.parametrize("deep", [False, True], ids=["wrapped", "deep"])
@pytest.mark.parametrize("kind", STORES)
async def test_after_a_rekeying_the_old_key_can_be_dropped(kind, deep, tmp_path):
    inner = await open_store(store_url(kind, tmp_path / "store"))
    for name, one in (await good()).items():
        await one.write(Sealed(inner, keys=BEFORE), name)
    before = {name: await everything(await midturn.open(store=inner, keys=BEFORE), name) for name in await good()}
    store = await midturn.open(store=inner, keys=BETWEEN)
    assert await keys_of(store) == {"2026-05": 3}
    report = await store.rekey(deep=deep, by="ann", why="once a year")
    assert (sorted(report.rekeyed), report.key, report.skipped) == (sorted(before), "2026-11", [])
    assert await keys_of(store) == {"2026-11": 3}
    assert (await store.rekey()).current == 3
    last = await midturn.open(store=inner, keys=AFTER)
    for name, (turns, state) in before.items():
        found, found_state = await everything(last, name)
        assert [turn.messages for turn in found] == [turn.messages for turn in turns]
        assert found_state == state
        entry = [entry async for entry in last.audit(name)][-1]
        assert (entry.what, entry.by, entry.why) == ("rekey", "ann", "once a year")
        assert entry.details["arguments"]["to"] == "2026-11"
    assert (await last.session("answered", clerk).resume()).messages
    await last.aclose()


async def test_a_session_that_is_used_moves_by_itself(tmp_path):
    url = f"sqlite:///{tmp_path}/x.db"
    async with midturn.open(url, keys=BEFORE) as store:
        await store.session("used", clerk).run(task="hello")
        await store.session("unused", clerk).run(task="hello")
    async with midturn.open(url, keys=BETWEEN) as store:
        await store.session("used", clerk).run(task="hello again")
        assert await keys_of(store) == {"2026-11": 1, "2026-05": 1}
    async with midturn.open(url, keys=AFTER) as store:
        await store.session("used", clerk).run(task="hello again")
        with pytest.raises(midturn.WrongKey, match=r"'unused'.*sealed with key '2026-05'.*2026-11"):
            await store.session("unused", clerk).run(task="hello again")
        assert {info.id: bool(info.problem) async for info in store.sessions()} == {"used": False, "unused": True}
        assert (await store.rekey(["unused"])).skipped[0].reason == "unreadable"


async def test_sessions_that_were_never_sealed_are_refused_then_sealed(tmp_path):
    url = f"sqlite:///{tmp_path}/x.db"
    async with midturn.open(url) as store:
        for name, one in (await good()).items():
            await one.write(store.store, name)
        before = {name: await everything(store, name) for name in await good()}
    async with midturn.open(url, keys=AFTER) as store:
        with pytest.raises(midturn.Tampered, match="'rests': it is not sealed"):
            await store.session("rests", clerk).run(task="hello")
        assert (await store.rekey()).skipped[0].reason == "plain"
    async with midturn.open(url, keys=AFTER, allow_plain=True) as store:
        await store.session("rests", clerk).run(task="look again", key="k9")
        await store.session("new", clerk).run(task="hello")
        assert ((await store.key_counts()).plain, await keys_of(store)) == (3, {"2026-11": 1})
        assert len((await store.rekey(deep=True)).rekeyed) == 4
    async with midturn.open(url, keys=AFTER) as store:
        for name, (turns, _) in before.items():
            assert [turn.messages for turn in (await everything(store, name))[0]][: len(turns)] == [
                turn.messages for turn in turns
            ]
        result = await store.session("rests", clerk).run(task="look again", key="k9")
        assert result.recorded
    async with midturn.open(url) as store:
        with pytest.raises(midturn.WrongKey, match="set MIDTURN_KEYS"):
            await store.info("rests")


async def test_a_session_that_a_worker_holds_stays_and_is_named(tmp_path):
    async with midturn.open(f"sqlite:///{tmp_path}/x.db", keys=BEFORE) as store:
        data = encode_record(Progress(turn=1, open="running"))
        write = Write(session="held", seq=0, epoch=1, status="running", owner="me", lease=60.0, token="t", data=data)
        await store.store.write(write)
    async with midturn.open(f"sqlite:///{tmp_path}/x.db", keys=BETWEEN) as store:
        assert (await store.rekey(["held"])).skipped[0].reason == "held"


@pytest.mark.parametrize("deep", [False, True], ids=["wrapped", "deep"])
async def test_a_rekeying_that_is_killed_again_and_again_is_finished_by_the_next(deep, tmp_path, record_property):
    many, kills = (10_000 if LONG_RUN else 120), 4
    if deep:
        many //= 4
    file = tmp_path / "keys.txt"
    url = f"sqlite:///{tmp_path}/x.db"
    one = (await good())["rests"]
    async with midturn.open(url, keys=BEFORE) as store:
        for number in range(many):
            await one.write(store.store, f"case-{number:05}")
        expected = [turn.messages for turn in (await everything(store, "case-00000"))[0]]
    file.write_text(f"{NEW}\n{OLD}\n")
    file.chmod(0o600)
    words = [sys.executable, "-m", "midturn", "rekey", "--all", "--store", url, *(["--deep"] if deep else [])]
    environment = os.environ | {"MIDTURN_KEYS_FILE": str(file)}
    moved = []
    for round_ in range(1, kills + 1):
        process = await asyncio.create_subprocess_exec(*words, env=environment, stdout=DEVNULL, stderr=DEVNULL)
        async with asyncio.timeout(200), midturn.open(url, keys=BETWEEN) as store:
            while (await keys_of(store)).get("2026-11", 0) < round_ * many // (kills + 1):
                pass  # counting takes a while
            process.kill()
            await process.wait()
            moved.append((await keys_of(store)).get("2026-11", 0))
    last = await asyncio.create_subprocess_exec(*words, env=environment, stdout=DEVNULL, stderr=PIPE)
    _, errors = await last.communicate()
    assert last.returncode == 0, errors
    async with midturn.open(url, keys=AFTER) as store:
        assert await keys_of(store) == {"2026-11": many}
        for number in range(0, many, max(many // 50, 1)):
            turns, _ = await everything(store, f"case-{number:05}")
            assert [turn.messages for turn in turns] == expected
    record_property("figures", f"{many:,} sessions, {kills} kills, on the new key after each: {moved}")
    assert moved[0] < many  # else nothing was interrupted
