"""F10, F12, F13: several workers want the same session, the same turn, or are paused while they hold it."""

import asyncio
import os
from collections import Counter
from itertools import pairwise

import pytest
from accounts import check_lines, lines_of, made

import midturn
from midturn.record.head import Kind

LONG = os.environ.get("MIDTURN_LONG") == "1"
WORKERS = 4
TURNS = 200 if LONG else 100
PAUSES = 20 if LONG else 3

pytestmark = pytest.mark.timeout(3600 if LONG else 300)


def test_workers_that_share_a_session_take_turns(workers, kind, url, tmp_path, *, read, check_history, figures):
    ledger = tmp_path / "ledger"
    request = {"url": url, "session": "case", "ledger": str(ledger), "lease": 3600.0, "writes": True, "listens": True}
    each = TURNS // WORKERS
    crew = [workers(**request) for _ in range(WORKERS)]
    for name, worker in enumerate(crew):
        worker.wait_for("found")
        for i in range(each):
            worker.tell({"run": f"task {name} {i}", "key": f"{name} {i}"})
    for worker in crew:
        worker.finish()
        assert not worker.all("error"), worker.all("error")[0]
        assert len(worker.all("done")) == each

    turns, texts, owners = check_history(crew, read(url, "case"), TURNS)
    assert Counter(ledger.read_text().splitlines()) == Counter(reply for _, reply in texts)
    handovers = sum(one != other for (_, one), (_, other) in pairwise(owners))
    assert handovers >= WORKERS, "they were to race"
    figures(store=kind, workers=WORKERS, turns=len(turns), epochs=len(set(owners)), handovers=handovers)


def test_a_turn_delivered_five_times_at_once_runs_once(workers, kind, url, tmp_path, *, read, check, figures):
    ledger = tmp_path / "ledger"
    request = {"url": url, "session": "case", "ledger": str(ledger), "lease": 3600.0, "listens": True}
    crew = [workers(**request) for _ in range(5)]
    for worker in crew:
        worker.wait_for("found")
    keys = [f"key {i}" for i in range(10)]
    results = {}
    for key in keys:
        for worker in crew:
            worker.tell({"run": f"task {key}", "key": key})
        answers = [worker.wait_for("done") for worker in crew]
        results[key] = answers[0]
        for said in answers:
            assert (said["turn"], said["texts"]) == (answers[0]["turn"], answers[0]["texts"])
    late = workers(**request)
    for key in keys:
        for worker in (late, crew[0]):
            worker.tell({"run": f"task {key}", "key": key})
            said = worker.wait_for("done")
            assert (said["turn"], said["texts"]) == (results[key]["turn"], results[key]["texts"])
    late.tell({"run": "another task", "key": keys[0]})
    assert late.wait_for("error")["kind"] == "Conflict"
    for worker in (late, *crew):
        worker.finish()
    _, texts = check(read(url, "case"), len(keys))
    assert ledger.read_text().splitlines() == [reply for _, reply in texts]
    figures(store=kind, keys=len(keys), deliveries=len(keys) * 7, runs=len(texts))


@pytest.mark.parametrize("point", ["model.before", "capture.after", "write.before"])
def test_an_owner_paused_past_its_lease_cannot_write(workers, url, tmp_path, *, read, check, point):
    for round_ in range(PAUSES):
        ledger = tmp_path / f"ledger {round_}"
        request = {"url": url, "session": f"case {round_}", "ledger": str(ledger), "writes": True, "lease": 0.3}
        # The second write is the commit, before it comes the input; no write is in flight at the other two points.
        fault = {"point": point, "n": 2 if point == "write.before" else 1, "how": "stop"}
        paused = workers(**request, fault=fault, steps=[{"run": "task 1", "key": "1"}])
        paused.wait_for("struck")
        paused.wait_until_stopped()
        heir = workers(**request, steps=[{"run": "task 2", "key": "2"}])
        heir.rest()
        assert [said["turn"] for said in heir.all("done")] == [2]
        _, texts = check(read(url, f"case {round_}"), 2)
        paused.wake()
        paused.rest()
        assert [said["kind"] for said in paused.all("error")] == ["LeaseLost"]
        last = max(said["seq"] for said in heir.all("wrote"))
        assert all(said["seq"] < min(s["seq"] for s in heir.all("wrote")) for said in paused.all("wrote"))
        assert check(read(url, f"case {round_}"), 2)[1] == texts
        after = workers(**request, steps=[{"run": "task 1", "key": "1"}, {"run": "task 2", "key": "2"}])
        assert after.wait_for("found")["seq"] == last
        after.rest()
        assert [said["texts"] for said in after.all("done")] == texts


@pytest.mark.parametrize("point", ["model.after", "look.after", "note.after", "pay.after"])
def test_an_owner_paused_inside_a_call_past_its_lease_cannot_record_it(workers, url, tmp_path, *, read, point):
    ledger = tmp_path / "ledger"
    request = {"url": url, "session": "case", "agent": "iterations", "ledger": str(ledger), "settles": True}
    request |= {"lease": 0.3, "writes": True, "steps": [{"run": "errands", "key": "1"}]}
    paused = workers(**request, fault={"point": point, "how": "stop"})
    paused.wait_for("struck")
    paused.wait_until_stopped()
    left = len(lines_of(ledger))
    heir = workers(**request)
    heir.rest()
    assert heir.ended
    assert [said["decision"] for said in heir.all("settled")] == ["done"] * (point == "pay.after")
    before, calls, lines = read(url, "case"), rows(url), lines_of(ledger)
    assert left < len(lines)
    paused.wake()
    paused.rest()
    assert paused.ended
    assert [said["kind"] for said in paused.all("error")] == ["LeaseLost"]
    first = min(said["seq"] for said in heir.all("wrote"))
    assert all(said["seq"] < first for said in paused.all("wrote"))
    assert rows(url) == calls, "a zombie recorded a call"
    assert lines_of(ledger) == lines, "a zombie continued the turn"
    assert read(url, "case") == before
    check_lines(lines)
    again = made(lines) - Counter(made(lines).keys())
    assert again.total() == (point != "pay.after"), "what it was paused in may be repeated, and nothing else"


def rows(url):
    """The recorded calls, as they are stored."""

    async def read():
        async with midturn.open(url) as store:
            return await store.store.rows("case", Kind.CALL)

    return asyncio.run(read())


def test_a_dead_owner_is_followed_at_once_however_long_its_lease(workers, url, read, check):
    request = {"url": url, "session": "case", "lease": 3600.0}
    for i in range(1, 6):
        dying = workers(**request, steps=[{"run": f"task {i}", "key": f"{i}"}], fault={"point": "model.before", "n": 1})
        dying.rest()
        assert dying.heard[-1]["is"] == "struck"
        # No patience at all: a lease that is held is an error here.
        heir = workers(**request, busy="raise", steps=[{"resume": True}])
        heir.rest()
        assert [said["turn"] for said in heir.all("done")] == [i], heir.heard
    check(read(url, "case"), 5)


def test_a_worker_that_ran_before_resumes_what_another_left(workers, url, read, check):
    request = {"url": url, "session": "case", "lease": 3600.0}
    old = workers(**request, listens=True)
    old.tell({"run": "task 1", "key": "1"})
    old.wait_for("done")
    workers(**request, steps=[{"run": "task 2", "key": "2"}], fault={"point": "model.before"}).rest()
    old.tell({"resume": True})
    assert old.wait_for("done")["turn"] == 2
    old.finish()
    check(read(url, "case"), 2)


def test_a_living_owner_is_not_followed(workers, url, read, check):
    request = {"url": url, "session": "case", "lease": 3600.0}
    steps = [{"run": "task 1", "key": "1"}]
    paused = workers(**request, steps=steps, fault={"point": "model.before", "n": 1, "how": "stop"})
    paused.wait_for("struck")
    paused.wait_until_stopped()
    other = workers(**request, busy="raise", steps=[{"run": "task 2"}, {"resume": True}, *steps])
    other.rest()
    assert [said["kind"] for said in other.all("error")] == ["SessionBusy"] * 3
    paused.wake()
    paused.rest()
    assert [said["turn"] for said in paused.all("done")] == [1]
    check(read(url, "case"), 1)
