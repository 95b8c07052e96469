"""Kill a process inside each write of a pruning and of a compaction: the next one finishes, and nothing is lost."""

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from tools.servers.shared import store_url

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))

from forked import run_script

import midturn
from midturn.record.rows import progress_of

pytestmark = pytest.mark.fault("F1")

HERE = Path(__file__).parent

SCRIPT = """
import asyncio, os, signal, sys
import midturn
from midturn.maintenance import compacting
from midturn.stores.wrapper import StoreWrapper

what, url, archive, at = sys.argv[1:]
compacting.REMOVALS = 1

class Dying(StoreWrapper):
    left = int(at)

    def count(self):
        Dying.left -= 1
        if not Dying.left:
            os.kill(os.getpid(), signal.SIGKILL)

    async def write(self, write):
        self.count()
        head = await super().write(write)
        self.count()
        return head

    async def delete(self, session, *, data=b""):
        self.count()
        found = await super().delete(session, data=data)
        self.count()
        return found

async def main():
    async with midturn.open(url) as opened, midturn.open(store=Dying(opened.store)) as store:
        if what == "prune":
            await store.prune(prefix="case", archive=archive)
        else:
            await store.session("case-0").compact(before=5)

asyncio.run(main())
"""


async def fill(store, sessions):
    sys.path[:0] = [str(HERE.with_name("autogen")), str(HERE.with_name("sessions"))]
    from cast import agents

    for number in range(sessions):
        factory, _ = agents()
        for task in range(6):
            text = f"task {task} with a text that is long enough to be a body of its own"
            await store.session(f"case-{number}", factory).run(task=text, key=str(task))
    return factory


async def killed(folder, what, url, archive, at):
    """Run until so many moments before or after a write; return whether that many came."""
    script = folder / "housekeeping.py"
    script.write_text(SCRIPT)
    run = partial(run_script, script, what, url, archive, at, cwd=folder, env=os.environ)
    done = await asyncio.to_thread(run)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


async def trees(case, first):
    return [await case.at(number).tree() for number in range(first, 7)]


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_a_compaction_that_is_killed_is_finished_by_the_next(tmp_path, kind):
    moments = (1, 2, 3, 4, 6, 9) if not os.environ.get("MIDTURN_LONG") else range(1, 40)
    for at in moments:
        url = store_url(kind, tmp_path / f"store-{at}")
        async with midturn.open(url) as store:
            factory = await fill(store, 1)
            case = store.session("case-0", factory)
            expected = await trees(case, 5)
            assert await killed(tmp_path, "compact", url, "-", at) or at > 9
            assert await trees(store.session("case-0"), 5) == expected
            await store.session("case-0").compact(before=5)
            progress = progress_of(await store.store.head("case-0"))
            assert (progress.first, progress.swept) == (5, progress.holes)
            assert await trees(store.session("case-0"), 5) == expected
            await store.session("case-0", factory).run(task="more")
            assert [turn.number async for turn in store.session("case-0").history()] == [5, 6, 7]


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_a_pruning_that_is_killed_is_finished_by_the_next(tmp_path, kind):
    for at in range(1, 9):
        url, archive = store_url(kind, tmp_path / f"store-{at}"), tmp_path / f"archive-{at}"
        async with midturn.open(url) as store:
            await fill(store, 2)
            expected = await trees(store.session("case-0"), 1)
            assert await killed(tmp_path, "prune", url, archive, at)
            left = [info.id async for info in store.sessions(status=["idle", "running"])]
            async with midturn.open(f"file://{archive}") as old:
                there = [info.id async for info in old.sessions()]
            assert set(left) | set(there) >= {"case-0", "case-1"}
            await store.prune(prefix="case", archive=archive)
            assert [info.id async for info in store.sessions()] == []
        async with midturn.open(f"file://{archive}") as old:
            for name in ("case-0", "case-1"):
                assert len(await trees(old.session(name), 1)) == 6
            assert await trees(old.session("case-0"), 1) == expected
