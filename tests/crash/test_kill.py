"""F1: workers are killed with SIGKILL, at random moments and at every named point."""

import time
from collections import Counter
from pathlib import Path

KILLS = 100


def test_nothing_is_lost_or_done_twice_over_a_hundred_kills(workers, url, tmp_path, rng, read, figures):
    ledger = tmp_path / "ledger"
    # A lease of an hour: a worker that waited for the lease of a dead one to expire would hang.
    request = {"url": url, "session": "case", "ledger": str(ledger), "lease": 3600.0, "delay": 0.004}
    acknowledged, accepted, crashed = {}, {}, 0
    number, steps = 0, []
    for kill in range(KILLS):
        fresh = [{"run": f"task {i}", "key": f"key {i}"} for i in range(number, number + 60)]
        worker = workers(**request, steps=steps + fresh)
        found = worker.wait_for("found")
        assert found["turn"] >= max((done["turn"] for done in acknowledged.values()), default=0)
        assert found["turn"] >= max(accepted, default=0)
        accepted[found["turn"]] = None
        crashed += found["status"] == "running"
        wanted = rng.randint(1, 4)
        while len(worker.all("done")) < wanted:
            worker.wait_for("done")
        time.sleep(rng.random() * 0.02)
        worker.kill()
        assert not worker.ended, "it was to be killed under load"
        assert not worker.all("error")
        done = [said for said in worker.all("done") if "run" in said["step"]]
        for said in done:
            earlier = acknowledged.setdefault(said["step"]["key"], said)
            assert said["texts"] == earlier["texts"]
        taken = [said["step"] for said in worker.all("done")]
        step = (steps + fresh)[len(taken)]  # the one that it was killed in
        if "run" in step:
            number = int(step["run"].split()[1]) + 1
        again = [step] if "run" in step else []
        steps = rng.choice([again, [{"resume": True}, *again], [{"resume": True}], [*again, *again], []])

    last = workers(**request, steps=[*steps, {"resume": True}, {"run": f"task {number}", "key": f"key {number}"}])
    last.rest()
    assert last.ended
    for said in last.all("done"):
        if said["turn"] and "run" in said["step"]:
            acknowledged.setdefault(said["step"]["key"], said)

    turns, state = read(url, "case")
    assert [turn.number for turn in turns] == list(range(1, len(turns) + 1))
    assert {turn.status for turn in turns} == {"done"}, "an accepted input was not finished"
    assert max(accepted) <= len(turns)
    assert all(count == 1 for count in Counter(turn.key for turn in turns).values()), "a key has two turns"
    texts = {turn.key: [message["content"] for message in turn.messages] for turn in turns}
    for key, done in acknowledged.items():
        turn = turns[done["turn"] - 1]
        assert (turn.key, texts[key]) == (key, done["texts"]), "an acknowledged turn was lost"
        assert turn.task[0]["content"] == done["step"]["run"]
    remembered = [message["content"] for message in state["llm_context"]["messages"]]
    assert remembered == [text for turn in turns for text in texts[turn.key]]
    ran = ledger.read_text().splitlines()
    latest = {line.partition(" -> ")[0]: line for line in ran}
    for turn in turns:
        task, reply = texts[turn.key]
        assert reply == latest[task], "a finished turn ran again"

    again = workers(**request, steps=[{"run": turn.task[0]["content"], "key": turn.key} for turn in turns])
    again.rest()
    assert [said["texts"] for said in again.all("done")] == [texts[turn.key] for turn in turns]
    assert ledger.read_text().splitlines() == ran
    assert crashed >= KILLS // 10, "most kills were to hit an open turn"
    figures(
        store=url.partition(":")[0],
        kills=KILLS,
        turns=len(turns),
        acknowledged=len(acknowledged),
        crashed_turns_finished=crashed,
        runs=len(ran),
    )
