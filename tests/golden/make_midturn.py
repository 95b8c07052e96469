"""Writes the stores of ``midturn/<version>/`` with the midturn that is here, and beside them what is in them.

Run it once when a version is released, as the last thing before its tag, and keep what it wrote for good:

    .venv/bin/python tests/golden/make_midturn.py

It never overwrites: the files of a version that was released are what its users have.
"""

import asyncio
import gzip
import json
import sys
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "autogen"), str(HERE.parents[1])]

from midturn_kinds import FACT, TASKS, Case, Team  # noqa: E402 - it needs the path above
from server_dumps import dump_postgres, dump_redis  # noqa: E402 - as above
from tools.servers import Postgres, Redis  # noqa: E402 - as above

import midturn  # noqa: E402 - as above
from midturn.sessions.reader import SessionReader  # noqa: E402 - as above


async def write(url):
    async with midturn.open(url) as store:
        labels = {"customer": "4711", "channel": "é-mail"}
        case = store.session("case", midturn.Blueprint("desk", Case()), labels=labels)
        for number, task in enumerate(TASKS, start=1):
            try:
                await case.run(task=task, key=f"key-{number}")
            except midturn.TurnFailed as error:
                print(f"as it should be: {str(error).splitlines()[0]}")
        team = store.session("team", Team())
        await team.run(task=FACT)
        await team.run(task="And now?")
        paid = store.session("paid", Case())
        await paid.run(task="refund the order")
        await paid.answer("approve", arguments={"order": "A2"})
        await case.fork("forked", at=2)
        await store.session("gone", Case()).run(task=FACT)
        await store.delete("gone")
        return await read(store)


async def read(store):
    """Return the content of a store as JSON."""
    found = {}
    async for info in store.sessions():
        case = store.session(info.id)
        turns = [turn async for turn in SessionReader(store.store, info.id).history()]
        waiting = await case.waiting()
        found[info.id] = {
            "info": asdict(info),
            "turns": [asdict(turn) for turn in turns],
            "tree": await case.at(info.checkpoint).tree(),
            "waiting": None if waiting is None else asdict(waiting),
        }
    return json.loads(json.dumps(found, default=datetime.isoformat))


def main(folder):
    folder.mkdir(parents=True)  # fails if it is there
    with TemporaryDirectory() as made:
        db = Path(made) / "store.db"
        expected = {"store.db.gz": asyncio.run(write(f"sqlite:///{db}"))}
        (folder / "store.db.gz").write_bytes(gzip.compress(db.read_bytes(), mtime=0))
    expected["files"] = asyncio.run(write(f"file:///{folder / 'files'}"))
    with Postgres() as server:
        expected["postgres.sql"] = asyncio.run(write(server.url))
        (folder / "postgres.sql").write_text(dump_postgres(server.url), encoding="utf-8")
    with Redis() as server:
        expected["redis.json"] = asyncio.run(write(f"{server.url}?compress=none"))  # the dump is text
        (folder / "redis.json").write_text(dump_redis(server.url), encoding="ascii")
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n", encoding="ascii")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "midturn" / version("midturn"))
