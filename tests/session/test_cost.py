"""What a turn costs while its session lives: two writes, and nothing is read or built again."""

import pytest
from cast import agents
from kinds import KINDS

from leftoff.autogen import AutoGen
from leftoff.session import Session


class Counting:
    """A store that counts the calls it passes on."""

    def __init__(self, store):
        self._store = store
        self.calls = []

    def __getattr__(self, name):
        method = getattr(self._store, name)

        def call(*args, **options):
            self.calls.append(name)
            return method(*args, **options)

        return call


@pytest.mark.parametrize("kind", ["assistant", "round_robin"])
async def test_a_turn_is_two_writes_and_reads_nothing_while_the_session_lives(store, kind):
    counting = Counting(store.store)
    session = Session(counting, "case", KINDS[kind], AutoGen())
    await session.run(task="one")
    assert counting.calls.count("write") == 2
    counting.calls.clear()
    for task in ("two", "three", "four"):
        await session.run(task=task)
    assert counting.calls == ["write"] * 6


async def test_a_factory_is_called_once_while_the_session_lives(store):
    factory, _ = agents()
    built = []
    session = store.session("case", lambda: built.append(None) or factory())
    for task in ("one", "two", "three"):
        await session.run(task=task)
    assert len(built) == 1
