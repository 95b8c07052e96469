"""The benchmarks measure what they say."""

from benchmarks.servers import recorded, replay

from midturn.record.head import Kind
from midturn.stores.memory import MemoryStore


async def test_the_writes_of_turns_can_be_given_to_any_store():
    writes = await recorded(3)
    store = MemoryStore()
    for session in ("one", "another"):
        await replay(store, writes, session)
        assert (await store.head(session)).seq == 6
        assert len(await store.rows(session, Kind.CHECKPOINT)) == 3
