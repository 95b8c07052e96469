"""F1 inside a turn: every kind of agent and team, killed at every point of a turn, in every store.

With MIDTURN_LONG=1 all of that; otherwise every point in every store, and every kind at several points in all stores.
"""

import asyncio
import json
import os
from collections import Counter
from dataclasses import asdict
from itertools import product

import pytest
from accounts import check_lines, completed, decided, lines_of, made, named
from durable_cast import CAST, ERRANDS
from generated_parts import timeless
from tools.servers import shared

import midturn
from midturn.sessions.reader import SessionReader

LONG = os.environ.get("MIDTURN_LONG") == "1"

pytestmark = pytest.mark.timeout(3600 if LONG else 300)

TOOLS = ("look", "note", "pay")
MODEL = [f"{point} {n}" for point in ("model.before", "model.after", "record.model.before") for n in (1, 2)]
"""Killed while the first or the second answer is awaited, when it is there, and before it is recorded."""
ANNOUNCED = ["record.model.after 1", "record.model.after 2"]
"""Points at which the wish of the model is known, and no part of it has begun."""
INSIDE = [f"{tool}.{when}" for tool in TOOLS for when in ("before", "after")]
"""Before and after the tool's effect, in the tool."""
AFTER = [f"record.{tool}.{when}" for tool in TOOLS for when in ("before", "after")]
"""The tool has returned, and that is recorded or not."""
COMMIT = ["checkpoint.before", "checkpoint.after"]
WAITING = ["suspend.before", "suspend.after", "waiting", "answer.before", "answer.after"]
"""The turn waits for somebody, or continues when somebody has answered."""
POINTS = [*MODEL, *ANNOUNCED, *INSIDE, *AFTER, *COMMIT, *WAITING]


def cells(cast):
    """The stores and points in which a kind of agent or team is killed."""
    if LONG:
        return list(product(shared.DURABLE, POINTS))
    found = []
    step = len(CAST) // 2
    for number, store in enumerate(shared.DURABLE):
        first = list(CAST).index(cast) - 5 * number
        found += [(store, point) for point in POINTS[first % step :: step]]
    # All is recorded then, so that both branches are answered at once, whoever was quicker before.
    return [*found, ("file", "checkpoint.before")] if cast == "graph" else found


def test_the_part_of_the_matrix_that_always_runs_covers_it():
    found = {(store, cast, point) for cast in CAST for store, point in cells(cast)}
    assert {(store, point) for store, _, point in found} == set(product(shared.DURABLE, POINTS))
    assert {(store, cast) for store, cast, _ in found} == set(product(shared.DURABLE, CAST))
    for cast in CAST:
        assert len({point for _, each, point in found if each == cast}) >= 5


MORNING = {"run": "Good morning.", "key": "morning"}
TASK = {"run": f"Please run the {ERRANDS}.", "key": "task", "arm": True}
RESUME = {"resume": True, "arm": True}


@pytest.mark.parametrize("cast", CAST)
def test_a_turn_killed_at_any_point_is_finished_as_if_nothing_had_happened(workers, cast, stores, tmp_path, figures):
    whole = Play(workers, cast, stores("file"), "whole", tmp_path)
    assert whole.attempt({})
    assert not whole.doubts
    once = whole.made()
    assert set(once.values()) == {1}, "its calls cannot be told apart"
    expected = whole.outcome()
    count, again = Counter(), Counter()
    for number, (store, point) in enumerate(cells(cast)):
        play = Play(workers, cast, stores(store), f"{store} {point}", tmp_path)
        faults = [fault(point)]
        if point in WAITING and cast != "human":
            faults.insert(0, fault("pay.after"))  # then somebody is asked whether that took effect
        for each in faults:
            assert not play.attempt(each, resume=number % 2), f"it was not killed in {store} at {point}"
            play.check_dead()
        assert play.attempt({}, resume=number % 2)
        assert play.outcome() == expected, f"killed in {store} at {point}"
        play.check(once)
        count += Counter(cells=1, kills=len(faults), doubts=play.doubts)
        again += Counter(what for what, _ in (play.made() - once).elements())
    figures(kind=cast, **count, lost=0, repeats=0, again_because_in_flight=dict(again))


def fault(point):
    name, _, n = point.partition(" ")
    return {"point": name, "n": int(n or 1), "from": "arm"}


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """The URL of the one store of each kind; each attempt has a session of its own."""
    where = tmp_path_factory.mktemp("matrix")
    return lambda store: shared.store_url(store, where / store)


class Play:
    """A turn of a session, attempted by one worker after the other; whatever they ask is answered by the facts."""

    def __init__(self, workers, cast, url, name, where):
        self._workers = workers
        self._request = {"url": url, "session": f"{cast} {name}", "agent": cast, "ledger": str(where / name)}
        self._attempts = 0
        self._complete = {}
        """The calls that were recorded when a worker died, and how often they had been made by then."""
        self.doubts = 0

    def lines(self):
        """Return what all workers really did."""
        return lines_of(self._request["ledger"])

    def made(self):
        """Count how often each call was really made."""
        return made(self.lines())

    def attempt(self, fault, *, resume=False):
        """Let a worker try, which may be killed; whether it came to the turn's end."""
        steps = [RESUME if resume else TASK] if self._attempts else [MORNING, TASK]
        self._attempts += 1
        worker = self._workers(**self._request, lease=3600.0, listens=True, fault=fault)
        if all(self._take(worker, step) for step in steps):
            worker.finish()
            return True
        assert worker.heard[-1]["is"] == "struck", worker.heard[-3:]
        return False

    def _take(self, worker, step):
        while step is not None:
            worker.tell(step)
            while (said := worker.hear()) is not None and said["is"] != "done":
                assert said["is"] != "error", said
            if said is None:
                return False
            step = self._answer(said["asked"][0]) if said["asked"] else None
        return True

    def _answer(self, question):
        """Answer as somebody who can look at what was really done."""
        if question["kind"] == "human":
            text = "Thank you."
        elif question["kind"] == "approval":
            text = "approve"
        else:
            self.doubts += 1
            assert ("tool", named(question["tool"], question["arguments"])) not in self._complete, "that is no doubt"
            text = decided(question, self.lines())
        return {"answer": text, "question": question["id"]}

    def check_dead(self):
        """See what a worker left: all that is recorded was done, and never since it was recorded."""
        turns, _, complete = self._read()
        assert [turn.key for turn in turns] == [MORNING["key"], TASK["key"]], "it was killed before it was accepted"
        times = self.made()
        for call in complete:
            assert 1 <= times[call] <= self._attempts
            assert self._complete.setdefault(call, times[call]) == times[call], "a completed call was repeated"

    def check(self, once):
        """See that the turn made the calls that it makes when nothing happens to it, and each as often as it may."""
        times = self.made()
        assert times.keys() == once.keys()
        for call, before in self._complete.items():
            assert times[call] == before, "a completed call was repeated"
        check_lines(self.lines())

    def outcome(self):
        """Return the outcome of the session, without ids and times and its own name."""
        turns, state, complete = self._read()
        told = [asdict(turn) | {"session": "", "started": 0, "ended": 0} for turn in turns]
        for turn in told:  # whether a call took effect is asked only where something has happened
            turn["decisions"] = [made | {"at": 0} for made in turn["decisions"] if made["kind"] != "doubt"]
            turn["attempts"] = 0
        found = timeless([told, state])
        if self._request["agent"] != "graph":
            return found
        # Who of two that work side by side is quicker is open. Whoever it was, it stays so.
        used = [message.get("models_usage") for message in turns[-1].messages]
        said = [("model", usage["prompt_tokens"]) for usage in used if usage]
        assert said == [call for call in complete if call in said], "not in the order in which they were complete"
        return in_any_order(found)

    def _read(self):
        """The turns, the last state, and the completed calls of the last turn, as a new reader finds them."""

        async def reading():
            async with midturn.open(self._request["url"]) as store:
                case = store.session(self._request["session"])
                turns = [turn async for turn in SessionReader(store.store, case.id).history()]
                checkpoint = case.at(max(turn.number for turn in turns if turn.status == "done"))
                state = [await checkpoint.state(), await checkpoint.beside()]
                return turns, state, await completed(store.store, self._request["session"])

        return asyncio.run(reading())


def in_any_order(value):
    if isinstance(value, dict):
        return {key: in_any_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted(map(in_any_order, value), key=lambda item: json.dumps(item, sort_keys=True))
    return value
