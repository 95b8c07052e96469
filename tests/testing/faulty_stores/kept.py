"""The sound store that the faults are put into."""

import threading

from midturn.stores.memory import MemoryStore

MUTANTS = {}
PLACES = {}


def mutant(*caught_by):
    """Registers a faulty store with the tests of the suite that must find its fault."""

    def register(kind):
        MUTANTS[kind.__name__] = (kind, caught_by)
        return kind

    return register


class Kept(MemoryStore):
    """A memory store that all handles on one place share and that is there again: no fault."""

    profile = "strict"
    lock = threading.Lock()

    def __init__(self, where):
        super().__init__()
        self.where = where
        self._heads, self._rows = PLACES.setdefault(where, ({}, {}))

    async def write(self, write):
        with self.lock:  # its handles may be in several threads
            return await super().write(write)

    async def close(self):
        self._closed = True
