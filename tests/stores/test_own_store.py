"""A store that midturn does not ship runs agents like any other."""

import asyncio
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import midturn
from midturn.store import matching
from midturn.stores import registry

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "sessions"), str(TESTS / "autogen")]


class DictStore:
    """A dict with a lock. The data is the caller's, so another handle finds it again."""

    profile = "volatile"

    def __init__(self, sessions):
        self.sessions, self.lock, self.closed = sessions, asyncio.Lock(), False

    async def head(self, session):
        found = self.sessions.get(session)
        return found and replace(found[0], now=time.time())

    async def heads(self, **filters):
        found = matching((head for head, _ in self.sessions.values()), **filters)
        return [replace(head, now=time.time()) for head in found]

    async def counts(self):
        return Counter(head.status for head, _ in self.sessions.values())

    async def write(self, write):
        async with self.lock:
            old, rows = self.sessions.get(write.session, (None, {}))
            kept = {at: rows[at] for at in write.left(rows)}
            new = {(row.kind, row.n): row for row in write.rows}
            if old and old.status == "deleted":
                raise midturn.SessionDeleted.of(write.session)
            if not write.follows(old) or kept.keys() & new.keys() or len(new) < len(write.rows):
                raise midturn.Conflict.of(write.session)
            head = write.head(now=time.time(), created=old.created if old else time.time())
            self.sessions[write.session] = head, kept | new
            return head

    async def rows(self, session, kind, *, start=0, stop=None):
        _, rows = self.sessions.get(session, (None, {}))
        return [rows[at] for at in sorted(rows) if at[0] is kind and start <= at[1] and (stop is None or at[1] < stop)]

    async def delete(self, session, *, data=b""):
        async with self.lock:
            head, _ = self.sessions.get(session, (None, {}))
            if head is None or head.status == "deleted":
                return False
            self.sessions[session] = head.deleted(now=time.time(), data=data), {}
            return True

    async def forget(self, session):
        async with self.lock:
            head, _ = self.sessions.get(session, (None, {}))
            if head is not None and head.status != "deleted":
                raise midturn.Conflict.of(session)
            return self.sessions.pop(session, None) is not None

    async def close(self):
        self.closed = True


@pytest.fixture(params=["by itself", "by a scheme"])
def open_again(request, monkeypatch):
    """Open the same data anew, each time with a handle of its own."""
    monkeypatch.setattr(registry, "_openers", dict(registry._openers))
    sessions, handles = {}, []

    def handle():
        handles.append(DictStore(sessions))
        return handles[-1]

    async def opener(url):
        assert url == "drawer://top"
        return handle()

    if request.param == "by a scheme":
        midturn.register_store("drawer", opener)
        yield lambda: midturn.open("drawer://top")
    else:
        yield lambda: midturn.open(store=handle())
    assert handles
    assert all(handle.closed for handle in handles)


async def test_an_agent_runs_on_it_and_is_finished_by_another_handle(open_again):
    from cast import agents, crash, expected, numbers, said

    factory, model = agents()
    async with open_again() as store:
        await store.session("case", factory).run(task="one")
    async with open_again() as store:
        await crash(store, factory, task="two")
    async with open_again() as store:
        assert [case.status async for case in store.sessions()] == ["interrupted"]
        result = await store.session("case", factory).resume()
        assert said(result) == await expected("one", "two")
        assert await numbers(store.session("case")) == [(1, "done"), (2, "done")]
        assert [(case.id, case.turns) async for case in store.sessions(prefix="ca")] == [("case", 2)]
        assert await store.delete("case")
        assert [case.id async for case in store.sessions()] == []
    assert model.seen


async def test_its_sessions_are_pruned_and_compacted_and_their_ids_used_anew(open_again):
    from cast import agents, numbers

    async with open_again() as store:
        for name in ("case", "other"):
            for task in ("one", "two", "three"):
                await store.session(name, agents()[0]).run(task=task)
        assert (await store.session("case").compact(before=3)).turns == 2
        assert (await store.prune(prefix="o", dry_run=True)).deleted == ["other"]
        assert (await store.prune(prefix="o")).deleted == ["other"]
    async with open_again() as store:
        assert await numbers(store.session("case")) == [(3, "done")]
        await store.session("case", agents()[0]).run(task="four")
        await store.session("other", agents()[0], reuse=True).run(task="anew")
        assert await numbers(store.session("other")) == [(1, "done")]
