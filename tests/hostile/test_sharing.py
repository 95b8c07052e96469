"""F25: a store used by a forked child, by two threads, by two event loops: correct or a typed error, never a hang."""

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path

import leftoff


def share(what, url):
    script = Path(__file__).with_name("sharing.py")
    done = subprocess.run([sys.executable, script, what, url], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    history = said["history"]
    assert history["numbers"] == list(range(1, len(history["numbers"]) + 1))
    assert history["statuses"] == ["done"]
    # Each reply tells how long the conversation was, so a lost or doubled message shows.
    assert history["replies"] == [f"{2 * turn}" for turn in history["numbers"]]
    return said


def is_typed(outcome):
    return isinstance(outcome, int) or issubclass(getattr(leftoff, outcome), leftoff.LeftoffError)


def test_a_forked_child_is_told_to_open_the_store_again(kept_url):
    said = share("fork", kept_url)
    assert said["child"] == {"old": ["StoreUnavailable"] * 3, "new": [2]}
    assert said["parent"] == [3, 4]


def test_threads_share_a_store(url):
    said = share("threads", url)
    assert sorted(chain(*said["threads"])) == list(range(1, 21))
    assert said["main"] == [21]


def test_threads_that_share_a_session_are_served_or_told(url):
    said = share("shared", url)
    for outcomes in said["threads"]:
        assert isinstance(outcomes, list), outcomes
        assert all(is_typed(outcome) for outcome in outcomes), outcomes
    assert isinstance(said["main"][0], int)


def test_event_loops_share_a_store_one_after_the_other(url):
    said = share("loops", url)
    assert said["done"] == [[1, 2], [3, 4], [5, 6]]
