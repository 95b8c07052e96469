"""What a turn costs while its session lives: two writes and one for each call, and nothing is read or built again."""

import pytest
from cast import agents
from kinds import KINDS

from midturn.autogen.adapter import AutoGen
from midturn.sessions.session import Session
from midturn.turns.session_options import Options


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


@pytest.mark.parametrize(
    ("kind", "durability", "writes"),
    [
        ("assistant", "turn", 2),
        ("assistant", "call", 3),
        ("round_robin", "turn", 2),
        ("round_robin", "call", 4),
    ],
)
async def test_a_turn_is_two_writes_and_one_for_each_call_and_reads_nothing(store, kind, durability, writes):
    counting = Counting(store.store)
    session = Session(counting, "case", KINDS[kind], AutoGen(), Options(durability=durability))
    await session.run(task="one")
    assert counting.calls.count("write") == writes
    counting.calls.clear()
    for task in ("two", "three", "four"):
        await session.run(task=task)
    assert counting.calls == ["write"] * 3 * writes


async def test_a_factory_is_called_once_while_the_session_lives(store):
    factory, _ = agents()
    built = []
    session = store.session("case", lambda: built.append(None) or factory())
    for task in ("one", "two", "three"):
        await session.run(task=task)
    assert len(built) == 1
