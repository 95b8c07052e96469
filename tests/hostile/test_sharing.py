"""F25: a store used by a forked child, by two threads, by two event loops: correct or a typed error, never a hang."""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path

import midturn

sys.path.insert(0, str(Path(__file__).parent))

import sharing

FORKS = multiprocessing.get_context("forkserver")  # from one that has AutoGen imported
FORKS.set_forkserver_preload(["sharing", "midturn.autogen.adapter"])


def share(what, url):
    with ProcessPoolExecutor(1, mp_context=FORKS) as process:
        said = process.submit(sharing.share, what, url).result()
    history = said["history"]
    assert history["numbers"] == list(range(1, len(history["numbers"]) + 1))
    assert history["statuses"] == ["done"]
    # Each reply tells how long the conversation was, so a lost or doubled message shows.
    assert history["replies"] == [f"{2 * turn}" for turn in history["numbers"]]
    return said


def is_typed(outcome):
    return isinstance(outcome, int) or issubclass(getattr(midturn, outcome), midturn.MidturnError)


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
