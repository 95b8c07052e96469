"""Thousands of sessions are migrated while the process is killed, and migrated back: each once, bit for bit."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tools.many import multiply
from tools.servers import shared

import midturn

HERE = Path(__file__).parent
LONG = bool(os.environ.get("MIDTURN_LONG"))
MANY = 10_000 if LONG else 150
KILLS = 4 if LONG else 2
JOBS = 4
PATIENCE = 1800 if LONG else 240
"""Seconds that no run takes."""

pytestmark = [pytest.mark.fault("F34"), pytest.mark.timeout(3600 if LONG else 300)]


def command(*words, **env):
    """A command of midturn in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", "from midturn.cli import main; main()", *words],
        cwd=HERE,
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def score(process):
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err.decode()
    return json.loads(out)


async def checkpoints(store):
    return {info.id: info.checkpoint async for info in store.sessions()}


def killed_half_way(url, at):
    """Start it, and have it killed when it has begun to change so many sessions."""
    process = command("migrate", "migrating:support", "--store", url, "--jobs", f"{JOBS}", "--json", KILL_AT=f"{at}")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL, err.decode()


async def trees(store, number):
    return {id_: json.dumps(await store.session(id_).at(number).tree()) for id_ in await checkpoints(store)}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_each_session_is_migrated_once_though_the_run_is_killed(tmp_path, kind, figures):
    sys.path.insert(0, str(HERE))
    from migrating import old

    url = shared.store_url(kind, tmp_path / "store.db")
    async with midturn.open(url) as store:
        await store.session("case-0", old).run(task="This is case-0, my card is 1234-5678.")
        await multiply(store.store, "case-0", [f"case-{i}" for i in range(1, MANY)])
        before = await trees(store, 1)
        for _ in range(KILLS):
            await asyncio.to_thread(killed_half_way, url, MANY // (KILLS + 1))
        half = list((await checkpoints(store)).values()).count(2)
        assert 0 < half < MANY
        began = time.monotonic()
        rest = score(command("migrate", "migrating:support", "--store", url, "--jobs", f"{JOBS}", "--json"))
        took = time.monotonic() - began
        assert (rest["failed"], rest["busy"], rest["changed"] + rest["unchanged"]) == (0, 0, MANY)
        # The server may still have been busy with the last writes of the dead process when the others were counted.
        assert half <= rest["unchanged"] <= half + JOBS
        assert set((await checkpoints(store)).values()) == {2}, "each is migrated once"
        assert await trees(store, 1) == before, "the originals are as they were"
        after = await trees(store, 2)
        for id_, tree in after.items():
            assert f"This is {id_}, my card is [card]." in tree
            assert "1234-5678" not in tree
        undone = score(command("rollback", "desk-v3", "--store", url, "--json"))
        assert (undone["changed"], undone["failed"]) == (MANY, 0)
        assert await trees(store, 3) == before, "bit for bit"
        stored = await store.session(f"case-{MANY - 1}").at(3).read()
        assert (stored.row.version, stored.row.origin) == (1, "rollback")
        assert (await store.session("case-7", old).run(task="And?")).turn == 4
    figures(store=kind, sessions=MANY, kills=KILLS, before_the_last_run=half, rest_s=round(took, 1))
