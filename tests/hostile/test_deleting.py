"""F23: what was deleted stays deleted, and leaves nothing behind."""

import asyncio

import pytest

import midturn

CANARY = "canary-4711"


async def test_a_turn_that_runs_while_its_session_is_deleted_is_refused(url, keeper):
    started, go = asyncio.Event(), asyncio.Event()

    def build():
        agent = keeper()
        answer = agent.on_messages

        async def on_messages(messages, cancellation_token):
            if messages[-1].content == "slow":
                started.set()
                await go.wait()
            return await answer(messages, cancellation_token)

        agent.on_messages = on_messages
        return agent

    async with midturn.open(url) as store:
        case = store.session("case", build)
        await case.run(task="first")
        late = asyncio.create_task(case.run(task="slow", key="k"))
        await started.wait()
        assert await store.delete("case")
        go.set()
        with pytest.raises(midturn.SessionDeleted, match="case"):
            await late
        attempts = {
            "the session that ran": lambda: case.run(task="again"),
            "with its key": lambda: case.run(task="slow", key="k"),
            "another session object": lambda: store.session("case", build).run(task="again"),
            "resume": lambda: store.session("case", build).resume(),
            "save": lambda: store.save("case", keeper({"a": 1})),
            "load": lambda: store.load("case", keeper()),
            "import": lambda: store.session("case").save({"state": {}}, origin="import"),
            "history": lambda: anext(store.session("case").history()),
            "at": lambda: store.session("case").at(1).state(),
        }
        for attempt in attempts.values():
            with pytest.raises(midturn.SessionDeleted):
                await attempt()
        assert not await store.delete("case"), "deleted twice"
        assert not await case.delete()
        assert [info.id async for info in store.sessions()] == []
        (info,) = [info async for info in store.sessions(status="deleted")]
        assert (info.id, info.turns, info.labels) == ("case", 0, {})


async def test_the_space_of_a_deleted_session_is_returned(kept_url, keeper, tmp_path):
    text = f"{CANARY} " * 20_000
    async with midturn.open(kept_url) as store:
        await store.session("small", keeper).run(task="stays")
    empty = size(tmp_path)
    async with midturn.open(kept_url) as store:
        case = store.session("case", keeper, labels={"secret": CANARY})
        for i in range(20):
            await case.run(task=f"{i} {text}")
        await store.session("small", keeper).run(task="stays, too")
    full = size(tmp_path)
    assert full - empty > 20 * len(text)
    async with midturn.open(kept_url) as store:
        assert await store.delete("case")
        assert size(tmp_path) - empty < len(text), "while the store is still open"
    assert size(tmp_path) - empty < len(text)
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or CANARY.encode() not in path.read_bytes()
    async with midturn.open(kept_url) as store:
        with pytest.raises(midturn.SessionDeleted):
            await store.session("case", keeper).run(task="again")
        assert (await store.session("small", keeper).run(task="continue")).turn == 3


def size(root):
    # -shm is a shared-memory index of fixed size, there only while the store is open.
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
