"""The conformance suite: one class of tests that every store passes unchanged."""

from __future__ import annotations

from midturn.testing.concurrency import Racing
from midturn.testing.handles import Lasting, Sharing
from midturn.testing.reads import Listing, Reading
from midturn.testing.writes import Deleting, Forgetting, Removing, Writing


class StoreConformance(Writing, Reading, Removing, Listing, Deleting, Forgetting, Racing, Sharing, Lasting):
    """All tests of the suite: subclass it in a test file, override ``open_store``, and run pytest.

        class TestMyStore(StoreConformance):
            @asynccontextmanager
            async def open_store(self, where):
                store = await MyStore.open(where)
                try:
                    yield store
                finally:
                    await store.close()

    Set ``shared = False`` for a store that lives in one handle only, and ``durable = False`` for one that keeps nothing
    after it is closed. Then pytest does not collect the tests of that property.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for topic, claimed in ((Sharing, cls.shared), (Lasting, cls.durable)):
            for name in vars(topic):
                if name.startswith("test_") and not claimed:
                    setattr(cls, name, None)
