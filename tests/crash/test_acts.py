"""F1 and F34: people rewind, edit, fork, reset and delete sessions, while workers are killed and others write them."""

import asyncio
import os
from itertools import pairwise

import pytest

import midturn

LONG = os.environ.get("MIDTURN_LONG") == "1"

pytestmark = pytest.mark.timeout(3600 if LONG else 300)

ACTS = {
    "rewind": {"to": 1},
    "edit": {"said": "task 1", "instead": "task one"},
    "fork": {"to": "other"},
    "reset": {},
}
AGAIN = {"fork": ["Conflict"], "edit": ["InvalidArgument"]}
"""The errors of acts that have happened: the id is taken, and nobody said that any more."""
POINTS = ("write.before", "write.after")


async def state_of(url, session):
    """The number of the latest checkpoint, the origins of the turns, and who did what."""
    async with midturn.open(url) as store:
        try:
            info = await store.info(session)
        except midturn.NotFound:
            return 0, [], []
        turns = [turn async for turn in store.session(session).history()]
        acts = [(each.what, each.by) async for each in store.audit(session)]
        assert info.status == "idle"
        assert info.owner is None
        return info.checkpoint, [turn.origin for turn in turns], acts


@pytest.mark.fault("F1")
@pytest.mark.parametrize("act", ACTS)
def test_an_act_that_is_killed_happened_whole_or_not_at_all(workers, url, tmp_path, act):
    for point in POINTS:
        session = f"case {point}"
        to = {"to": f"other {point}"} if act == "fork" else ACTS[act]
        step = {"act": act, "with": to | {"by": "ann"}, "arm": True}
        request = {"url": url, "session": session, "ledger": str(tmp_path / "ledger"), "lease": 3600.0}
        killed = workers(
            **request, steps=[{"run": "task 1"}, {"run": "task 2"}, step], fault={"point": point, "from": "arm"}
        )
        killed.wait_for("struck")
        killed.rest()
        changed = to["to"] if act == "fork" else session
        before = (0, [], []) if act == "fork" else (2, ["run", "run"], [])
        after = (before[0] + 1, [*before[1], act], [(act, "ann")])
        assert asyncio.run(state_of(url, changed)) == (before if point == "write.before" else after)
        heir = workers(**request, steps=[{"act": act, "with": to | {"by": "ann"}}, {"run": "task 3"}])
        heir.rest()
        again = AGAIN.get(act, []) if point == "write.after" else []
        assert [said["kind"] for said in heir.all("error")] == again
        assert heir.all("done")[-1]["texts"]


@pytest.mark.fault("F34")
def test_people_and_workers_that_write_one_session_take_turns(workers, url, tmp_path):
    each = 40 if LONG else 8
    request = {"url": url, "session": "case", "ledger": str(tmp_path / "ledger"), "lease": 3600.0, "listens": True}
    first = workers(**request)
    first.tell({"run": "task 1"})
    first.wait_for("done")
    first.finish()
    crew = [workers(**request) for _ in range(3)]
    for worker in crew:
        worker.wait_for("found")
    for i in range(each):
        crew[0].tell({"run": f"task {i}", "key": f"key {i}"})
        crew[1].tell({"act": "rewind", "with": {"to": 1, "by": "ann"}})
        crew[2].tell({"act": "edit", "with": {"said": "task", "instead": f"task {i}", "by": "bob"}})
    for worker in crew:
        worker.finish()
        assert not worker.all("error"), worker.all("error")[0]
        assert len(worker.all("done")) == each

    async def check():
        async with midturn.open(url) as store:
            case = store.session("case")
            turns = [turn async for turn in case.history()]
            acts = [(entry.turn, entry.what, entry.by) async for entry in store.audit("case")]
            assert [turn.number for turn in turns] == list(range(1, 3 * each + 2))
            assert all(one < other for (one, *_), (other, *_) in pairwise(acts))
            assert sorted(acts) == [(turn.number, turn.origin, by(turn)) for turn in turns if turn.origin != "run"]
            first = await case.at(1).tree()
            for turn in turns:
                if turn.origin == "rewind":
                    assert await case.at(turn.number).tree() == first
            last = max(turn.number for turn in turns if turn.origin == "rewind")
            assert {turn.left_behind_by for turn in turns[1 : last - 1]} == ({last} if last > 2 else set())
            assert {turn.left_behind_by for turn in (turns[0], *turns[last - 1 :])} == {None}

    asyncio.run(check())
    late = workers(**request)
    late.tell({"run": "task 0", "key": "key 0"})
    assert late.wait_for("done")["texts"] == crew[0].all("done")[0]["texts"]
    late.finish()


def by(turn):
    [decision] = turn.decisions
    return decision.by
