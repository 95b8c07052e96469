"""A consumer who is disconnected from the events of a turn, again and again, misses none and sees none twice."""

import asyncio
import json
import os
import random
import sys
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
from storytellers import build, plain

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.sessions.session import Session

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.with_name("cli"))]

from forked import start_script  # noqa: E402 - the folder is known only now

DISCONNECTS = 200
pytestmark = pytest.mark.fault("F32")
KILLS = 60 if os.environ.get("MIDTURN_LONG") else 4


@pytest.fixture
def rng():
    seed = random.randrange(2**32)
    print("seed", seed)
    return random.Random(seed)


async def read_on(run, got, limit):
    """Read up to ``limit`` events after those that were got, and leave."""
    async with aclosing(run.events(after=len(got))) as events:
        async for item in events:
            assert item.number == len(got) + 1
            got.append(plain(item.event))
            limit -= 1
            if not limit:
                return


async def cut_off(follow, rng):
    """Follow a turn to its end and be cut off ``DISCONNECTS`` times; return what was seen."""
    got, cuts, run = [], 0, None
    while run is None or run.status != "done" or cuts < DISCONNECTS:
        with suppress(midturn.NotFound):
            run = await follow()
            if run.done and got and rng.random() < 0.5:
                got = got[: rng.randrange(len(got))]  # as if the last ones had not arrived
            await read_on(run, got, rng.choice((1, 2, 3, 10)))
            cuts += 1
        await asyncio.sleep(0)
    await read_on(run, got, 10**6)
    return got


async def test_a_consumer_of_the_same_process_misses_nothing(memory, rng):
    case = memory.session("case", build)
    run = await case.start("tell")
    consumers = [asyncio.create_task(cut_off(case.follow, rng)) for _ in range(3)]
    told = [plain(item.event) async for item in run.events()]
    assert len(told) > 50
    assert await asyncio.gather(*consumers) == [told] * 3


@pytest.mark.timeout(1200)
async def test_consumers_miss_nothing_though_the_worker_is_killed_again_and_again(tmp_path, rng):
    url = f"sqlite:///{tmp_path}/store.db"
    async with midturn.open(url) as store:

        async def follow():
            return await Session(store.store, "case", build, AutoGen()).follow()

        follower = asyncio.create_task(cut_off(follow, rng))
        got, kills = [], 0
        while not await told_by_a_worker(url, got, rng.randrange(1, 20) if kills < KILLS else 10**6):
            kills += 1
        assert kills == KILLS
        told = [plain(item.event) async for item in (await follow()).events()]
        assert got == told
        assert await follower == told


async def told_by_a_worker(url, got, limit):
    """Hear a worker tell what comes after what was got, and kill it after ``limit`` events; return whether it ended."""
    reading, writing = os.pipe()
    script, words = HERE / "storytellers.py", (url, len(got))
    worker = start_script(script, *words, cwd=HERE, env=os.environ, stdout=writing, stderr=sys.__stderr__.fileno())
    os.close(writing)
    lines = asyncio.StreamReader(limit=2**20)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(reading, "rb", 0)
    )
    while line := await lines.readline():
        if not line.endswith(b"\n"):
            break  # it died in the middle of it
        number, event = json.loads(line)
        assert number == len(got) + 1
        got.append(event)
        limit -= 1
        if not limit:
            worker.kill()
            break
    pipe.close()
    await asyncio.to_thread(worker.join)
    return worker.exitcode == 0
