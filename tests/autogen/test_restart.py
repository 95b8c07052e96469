"""Agents and teams go on in new processes as if nothing had happened."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kinds import KINDS, TASKS, anonymous, transcript

import midturn

WORKER = Path(__file__).with_name("restart_worker.py")

PROCESSES = [(0, 2), (2, 3), (3, 4), (4, 5)]
"""The turns that each process runs."""


# The second run of `make test` is there for AutoGen, of which stores know nothing.
STORES = ["sqlite"] if os.environ.get("MIDTURN_AUTOGEN") else ["sqlite", "file"]


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """By kind of store, the URL of one that several processes used, one after the other, and what each said."""
    urls = {kind: f"{kind}:///{tmp_path_factory.mktemp('restart')}/store" for kind in STORES}
    said = []
    for first, stop in PROCESSES:
        done = subprocess.run(
            [sys.executable, "-W", "error", WORKER, str(first), str(stop), *urls.values()],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        said.append(json.loads(done.stdout))
    return {kind: (url, list(each)) for (kind, url), *each in zip(urls.items(), *said, strict=True)}


@pytest.fixture(params=STORES)
def restarted(request, processes):
    """The URL of a store that several processes used, one after the other, and what each said."""
    return processes[request.param]


@pytest.fixture(params=KINDS)
async def kind(request):
    return request.param


@pytest.fixture
async def uninterrupted(kind):
    """The same turns by plain AutoGen in one process: what was said, and the state after each turn."""
    live = KINDS[kind]()
    turns = []
    for task in TASKS:
        said = transcript(await live.run(task=task))
        turns.append((said, anonymous(json.loads(json.dumps(await live.save_state())))))
    return turns


async def test_each_turn_in_a_new_process_says_what_an_uninterrupted_run_says(kind, restarted, uninterrupted):
    said = []
    for process in restarted[1]:
        assert isinstance(process[kind], list), process[kind]
        said += process[kind]
    assert said == [turn for turn, _ in uninterrupted]


async def test_the_final_state_is_that_of_an_uninterrupted_run(kind, restarted, uninterrupted):
    async with midturn.open(restarted[0]) as store:
        state = await store.session(kind).at(len(TASKS)).state()
    assert anonymous(state) == uninterrupted[-1][1]


async def test_plain_autogen_goes_on_from_the_exported_state(kind, restarted):
    async with midturn.open(restarted[0]) as store:
        state = await store.session(kind).at(len(TASKS)).state()
    live = KINDS[kind]()
    await live.load_state(state)
    assert json.loads(json.dumps(await live.save_state())) == state


async def test_the_history_has_every_turn_with_its_task_and_its_messages(kind, restarted, uninterrupted):
    async with midturn.open(restarted[0]) as store:
        turns = [turn async for turn in store.session(kind).history()]
    assert [turn.number for turn in turns] == [1, 2, 3, 4, 5]
    assert {turn.status for turn in turns} == {"done"}
    assert [turn.task[0].content for turn in turns] == TASKS
    assert [{"messages": anonymous(turn.messages), "stop_reason": turn.stop_reason} for turn in turns] == [
        said for said, _ in uninterrupted
    ]


async def test_every_checkpoint_is_the_state_after_its_turn(kind, restarted, uninterrupted):
    async with midturn.open(restarted[0]) as store:
        session = store.session(kind)
        states = [anonymous(await session.at(turn).state()) for turn in range(1, len(TASKS) + 1)]
    assert states == [state for _, state in uninterrupted]
