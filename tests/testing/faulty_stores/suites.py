"""The suite for each faulty store. Not collected by its name: test_suite_catches.py runs it in a process of its own."""

from contextlib import asynccontextmanager

from faulty_stores import MUTANTS, Kept
from midturn.testing import StoreConformance


def proof(name, kind, caught_by=()):
    """The whole suite for a store, or only those of its tests that must find the fault."""

    @asynccontextmanager
    async def open_store(self, where):
        store = kind(where)
        try:
            yield store
        finally:
            await Kept.close(store)

    members = {"open_store": open_store, "__module__": __name__}
    if caught_by:
        members |= {test: None for test in dir(StoreConformance) if test.startswith("test_") and test not in caught_by}
    return type(f"Test{name}", (StoreConformance,), members)


TestKept = proof("Kept", Kept)
globals().update({f"Test{name}": proof(name, *entry) for name, entry in MUTANTS.items()})
