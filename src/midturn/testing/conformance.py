"""The proof of a store: one class of tests that every store passes unchanged."""

from __future__ import annotations

from midturn.testing.concurrency import Racing
from midturn.testing.handles import Lasting, Sharing
from midturn.testing.reads import Listing, Reading
from midturn.testing.writes import Deleting, Pruning, Writing


class StoreConformance(Writing, Reading, Pruning, Listing, Deleting, Racing, Sharing, Lasting):
    """Subclass it in a test file, say how the store is opened, and run pytest.

        class TestMyStore(StoreConformance):
            @asynccontextmanager
            async def open_store(self, where):
                store = await MyStore.open(where)
                try:
                    yield store
                finally:
                    await store.close()

    A store that only lives in one handle says ``shared = False``, one that keeps nothing ``durable = False``; the tests
    of what it does not claim are then not collected.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for topic, claimed in ((Sharing, cls.shared), (Lasting, cls.durable)):
            for name in vars(topic):
                if name.startswith("test_") and not claimed:
                    setattr(cls, name, None)
