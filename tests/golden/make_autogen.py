"""Writes the raw states of the AutoGen that is installed to ``autogen/<version>/<kind>.json``.

Run it once for each AutoGen that changes its states, in an environment that has that version, and keep what it wrote:

    pip install --no-deps --target DIR autogen-{agentchat,core,ext}==VERSION
    PYTHONPATH=DIR .venv/bin/python tests/golden/make_autogen.py

Of a version that changed one kind only, that one is enough. Ids and times are counted, so that a second run writes the
same.
"""

import asyncio
import json
import sys
import uuid
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "autogen")]

import autogen_agentchat  # noqa: E402 - it needs the path above
from autogen_agentchat import messages  # noqa: E402 - as above
from autogen_kinds import BEFORE, FACT, KINDS, TASKS, Cast  # noqa: E402 - as above


class Counted(datetime):
    """A clock that advances by a second each time that somebody looks at it."""

    seconds = count()

    @classmethod
    def now(cls, tz=None):
        return datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=next(cls.seconds), milliseconds=5)


def count_everything():
    """Have each id and time say which one it is; some versions make them, and none lets them be given."""
    numbers = count(1)
    uuid.uuid4 = lambda: uuid.UUID(int=next(numbers))
    Counted.seconds = count()
    if hasattr(messages, "datetime"):
        messages.datetime = Counted


async def state_of(kind):
    live = KINDS[kind](Cast(BEFORE.get(kind, {})))
    for task in TASKS.get(kind, [FACT]):
        await live.run(task=task)
    return await live.save_state()


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        count_everything()
        try:
            state = asyncio.run(state_of(kind))
        except (ImportError, TypeError, AttributeError, ValueError) as error:
            print(f"{kind}: not with this version: {type(error).__name__}: {error}")
            continue
        # The states of some versions have times in them, which json.dumps() alone refuses: this is what users did then.
        text = json.dumps(state, default=str, separators=(",", ":")) + "\n"
        (folder / f"{kind}.json").write_text(text, encoding="ascii")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "autogen" / autogen_agentchat.__version__)
