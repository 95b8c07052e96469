"""F1: workers are killed with SIGKILL, at random moments and at every named point."""

import os
import time
from collections import Counter
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pytest
from accounts import check_lines, lines_of, made

LONG = os.environ.get("MIDTURN_LONG") == "1"
KILLS = 25
ROUNDS = 10 * ["solo", "solo", "solo", "desk"] if LONG else ["solo", "solo", "desk"]
"""The kinds that are killed so often, each in a session of its own, because none continues for ever."""
LATEST = 8
"""The calls after which a worker is killed at the latest; a turn has about as many."""
PATIENCE = 120
"""Seconds that no call takes."""

pytestmark = pytest.mark.timeout(7200 if LONG else 300)


def test_nothing_is_lost_or_done_twice_over_many_kills(workers, kind, url, tmp_path, *, rng, read, figures):
    total = Counter()
    for number, agent in enumerate(ROUNDS):
        ledger = tmp_path / f"ledger {number}"
        # A lease of an hour: a worker that waited for the lease of a dead one to expire would hang.
        request = {"url": url, "session": f"case {number}", "agent": agent, "ledger": str(ledger), "lease": 3600.0}
        total += kill_again_and_again(workers, request | {"delay": 0.002, "settles": True}, rng, read)
    assert total["kills"] == KILLS * len(ROUNDS)
    assert total["crashed"] + total["waiting"] >= total["kills"] // 10, "many kills were to hit an open turn"
    assert total["settled"], "no kill hit a call of an unsafe tool"
    assert total["in_flight"], "no kill hit a call that may be repeated"
    figures(store=kind, **total, lost=0, repeats=0, unsafe_repeats=0)


def kill_again_and_again(workers, request, rng, read):
    """Kill workers that run turns with tools, and see what they leave; the figures."""
    acknowledged, accepted, complete, count = {}, 0, {}, Counter()
    number, steps = 0, []
    for _ in range(KILLS):
        fresh = [task(i) for i in range(number, number + 60)]
        before = made(lines_of(request["ledger"]))
        worker = workers(**request, steps=steps + fresh)
        found = worker.wait_for("found")
        assert found["turn"] >= max(accepted, len(acknowledged)), "an accepted input was lost"
        accepted = found["turn"]
        count += Counter(crashed=found["status"] == "running", waiting=found["status"] == "waiting")
        for call in map(tuple, found["complete"]):
            assert complete.setdefault(call, before[call]) == before[call] > 0, "a completed call was repeated"
        if rng.random() < 0.5:  # otherwise it may be killed before it has done anything that the last one had not
            worker.wait_for("done")
        # Often at once: a call has been made then, and is not recorded yet.
        wait_for_calls(request["ledger"], before.total() + rng.randrange(LATEST), rng.random() ** 3 * 0.01)
        worker.kill()
        assert not worker.ended, "it was to be killed under load"
        assert not worker.all("error"), worker.all("error")
        acknowledge(acknowledged, worker)
        count["settled"] += len(worker.all("settled"))
        step = (steps + fresh)[len(worker.all("done"))]  # the one that it was killed in
        if "run" in step:
            number = int(step["run"].split()[1]) + 1
        again = [step] if "run" in step else []
        steps = rng.choice([again, [{"resume": True}, *again], [{"resume": True}], [*again, *again], []])

    last = workers(**request, steps=[*steps, {"resume": True}, task(number)])
    last.rest()
    assert last.ended
    assert not last.all("error"), last.all("error")
    acknowledge(acknowledged, last)
    turns, state = read(request["url"], request["session"])
    assert accepted <= len(turns)
    check(turns, state, acknowledged)
    lines = lines_of(request["ledger"])
    times = made(lines)
    for call, before in complete.items():
        assert times[call] == before, "a completed call was repeated"
    check_lines(lines)
    deliveries = [{"run": turn.task[0]["content"], "key": turn.key} for turn in turns]
    again = workers(**request, steps=deliveries)
    again.rest()
    texts = {said["step"]["key"]: said["texts"] for said in again.all("done")}
    assert len(texts) == len(turns)
    assert acknowledged.items() <= texts.items(), "an acknowledged turn was lost"
    assert lines_of(request["ledger"]) == lines, "a finished turn ran again"

    # The same without any kill: it comes to the same, and makes the same calls.
    calm = request | {"url": "memory://", "ledger": f"{request['ledger']} of the whole", "delay": 0.0}
    whole = workers(**calm, steps=deliveries)
    whole.rest()
    assert [said["texts"] for said in whole.all("done")] == list(texts.values())
    once = made(lines_of(calm["ledger"]))
    assert set(once.values()) == {1}
    assert once.keys() == times.keys(), "a call is missing, or one too many"
    return count + Counter(
        kills=KILLS, turns=len(turns), acknowledged=len(acknowledged), calls=len(once), in_flight=(times - once).total()
    )


def wait_for_calls(ledger, count, longer):
    """Until so many calls were made, and a little longer.

    A time alone would not do: on a busy machine, a worker has not even begun when others have done much.
    """
    path, until = Path(ledger), time.monotonic() + PATIENCE
    while count and not (path.exists() and path.read_bytes().count(b"\n") >= count):
        assert time.monotonic() < until, f"call {count} is not made"
        time.sleep(0.0005)
    time.sleep(longer)


def task(number):
    return {"run": f"errands {number}", "key": f"key {number}"}


def acknowledge(acknowledged, worker):
    """Take down what a worker has told of turns; one that it told twice must be the same."""
    for said in worker.all("done"):
        if "run" in said["step"]:
            key, texts = said["step"]["key"], said["texts"]
            assert acknowledged.setdefault(key, texts) == texts


def check(turns, state, acknowledged):
    """See that all is there, once and in order."""
    assert [turn.number for turn in turns] == list(range(1, len(turns) + 1))
    assert {turn.status for turn in turns} == {"done"}, "an accepted input was not finished"
    assert {turn.notes for turn in turns} == {()}, "a turn was not finished as it had begun"
    keys = [turn.key for turn in turns]
    assert len(set(keys)) == len(keys), "a key has two turns"
    assert acknowledged.keys() <= set(keys), "an acknowledged turn was lost"
    assert [turn.task[0]["content"].split()[1] for turn in turns] == [key.split()[1] for key in keys]
    if "agent_states" in state:
        remembered = state["agent_states"]["RoundRobinGroupChatManager"]["message_thread"]
        said = [message["id"] for turn in turns for message in turn.messages]
        assert [message["id"] for message in remembered] == said


STEPS = [{"run": task, "key": task} for task in ("first", "bad", "second")]
EVERYWHERE = ["write", "model", "capture", "fit", "load", "prepare"]
"""Not with servers, which take longer: between two requests all stores are the same, and those are points already."""
POINTS = {
    "file": ["os.write", "os.fsync", "os.ftruncate", "os.replace", "os.rename", "os.link", "os.unlink", "os.mkdir"],
    "sqlite": ["commit"],
    "postgres": ["request"],
    "redis": ["request"],
}


def before_and_after(names):
    """The points of these names."""
    points = [f"{name}.{when}" for name in names for when in ("before", "after")]
    return [*points, "os.write.half"] if "os.write" in names else points


@pytest.mark.parametrize(
    ("kind", "agent"),
    [
        *product(("file", "sqlite"), ("assistant", "counter", "team")),
        ("postgres", "assistant"),
        ("redis", "assistant"),
    ],
)
def test_a_worker_killed_at_any_point_leaves_what_the_next_one_finishes(
    workers, kind, place, url, agent, *, rng, read, figures
):
    whole = workers(url=url, session="whole", agent=agent, steps=STEPS)
    whole.rest()
    assert whole.ended
    expected = uninterrupted(read(url, "whole"))
    assert [turn["status"] for turn in expected[0]] == ["done", "failed", "done"]
    strikes = Counter()
    inside = POINTS[kind] if agent == "assistant" else []
    points = before_and_after(inside if "request" in inside else EVERYWHERE + inside)
    for point in points:
        for n in range(1, 1000):
            # Each in a store of its own, so that also its making is interrupted.
            new = place(f"{point}-{n}")
            request = {"url": new, "session": "case", "agent": agent, "lease": 3600.0}
            fault = {"point": point, "n": n}
            style = rng.choice(["again", "resume", "killed again"])
            told = follow(workers(**request, steps=STEPS, fault=fault), STEPS)
            strikes[point] += len(told) < len(STEPS)
            passed = len(told) == len(STEPS)
            if not passed and style == "killed again":
                left = STEPS[len(told) :]
                told += follow(workers(**request, steps=left, fault={"point": rng.choice(points), "n": 1}), left)
            if len(told) < len(STEPS):
                first = [{"resume": True}] if style == "resume" else []
                worker = workers(**request, steps=first + STEPS[len(told) :])
                worker.rest()
                assert worker.ended, (fault, style)
            assert uninterrupted(read(new, "case")) == expected, (fault, style)
            if passed:
                break
    if "write.before" in points:
        calls = {"assistant": 2, "counter": 0, "team": 4}[agent]  # those of models, which are recorded
        assert strikes["write.before"] == strikes["write.after"] == 6 + calls
        assert strikes["model.before"] == (5 if agent == "team" else 3)
    assert sum(strikes[f"{point}.before"] for point in inside) >= 6 * bool(inside)
    figures(store=kind, agent=agent, kills=strikes.total(), points=len(+strikes))


def test_a_worker_killed_at_any_point_of_a_deletion_leaves_all_or_nothing(workers, kind, url, *, read, figures):
    strikes, outcomes = Counter(), Counter()
    for point in before_and_after(POINTS[kind]):
        for n in range(1, 1000):
            request = {"url": url, "session": f"{point} {n}", "lease": 3600.0}
            workers(**request, steps=STEPS).rest()
            before = read(url, request["session"])
            worker = workers(**request, steps=[{"act": "delete"}], fault={"point": point, "n": n, "from": "steps"})
            worker.rest()
            strikes[point] += not worker.ended
            after = workers(**request)
            status = after.wait_for("found")["status"]
            after.rest()
            outcomes[status] += 1
            if status != "deleted":
                assert not worker.all("done"), "the deletion was acknowledged"
                assert read(url, request["session"]) == before
            workers(**request, steps=[{"act": "delete"}]).rest()
            late = workers(**request, steps=[STEPS[0]])
            late.rest()
            assert [said["kind"] for said in late.all("error")] == ["SessionDeleted"]
            if worker.ended:
                break
    assert sum(strikes.values()) >= 2
    assert outcomes["deleted"]
    assert outcomes["failed"] + outcomes["idle"], "every kill came too late"
    figures(store=kind, kills=strikes.total(), **outcomes)


def follow(worker, steps):
    """The steps of which the worker has told the end, until it was killed."""
    said = [said["step"] for said in worker.rest() if said["is"] in ("done", "error")]
    assert said == steps[: len(said)]
    assert worker.ended or worker.heard[-1]["is"] == "struck", worker.heard[-3:]
    return said


def uninterrupted(reading):
    """Return what does not differ between two runs."""
    turns, state = reading
    return [same(asdict(turn) | {"session": "", "started": 0, "ended": 0, "attempts": 0}) for turn in turns], same(
        state
    )


def same(value):
    if isinstance(value, dict):
        return {key: same(item) for key, item in value.items() if key not in ("id", "created_at")}
    return [same(item) for item in value] if isinstance(value, list | tuple) else value


def test_a_worker_killed_while_sqlite_copies_its_log_into_the_file_loses_nothing(workers, tmp_path, read):
    path = tmp_path / "store.db"
    request = {"url": f"sqlite:///{path}", "session": "case"}
    # So few that SQLite has copied nothing by itself.
    steps = [{"run": f"{i} {'x' * 5000}", "key": f"{i}"} for i in range(12)]
    worker = workers(**request, steps=steps, listens=True)
    while len(worker.all("done")) < len(steps):
        worker.wait_for("done")
    worker.kill()
    log = path.with_name("store.db-wal").read_bytes()
    page = int.from_bytes(log[8:12], "big")
    frames = [log[at : at + 24 + page] for at in range(32, len(log), 24 + page)]
    first = [frame[24:] for frame in frames if int.from_bytes(frame[:4], "big") == 1][-1]
    # The first page is the first that is copied, and it tells how many there will be. The worker died after that.
    assert path.stat().st_size < int.from_bytes(first[28:32], "big") * page
    with path.open("r+b") as file:
        file.write(first)
    turns, _ = read(request["url"], "case")
    assert [turn.status for turn in turns] == ["done"] * len(steps)
