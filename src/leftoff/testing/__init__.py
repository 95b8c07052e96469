"""The proof that a store keeps its contract, shipped for the stores of others.

Needs pytest, pytest-asyncio and hypothesis. :class:`StoreConformance` is a class of tests, :class:`StoreMachine` drives
a store at random against a plain model; both are told only how the store is opened.
"""

import pytest

pytest.register_assert_rewrite(
    "leftoff.testing.deleting",
    "leftoff.testing.handles",
    "leftoff.testing.listing",
    "leftoff.testing.machine",
    "leftoff.testing.pruning",
    "leftoff.testing.racing",
    "leftoff.testing.reading",
    "leftoff.testing.writing",
)

from leftoff.testing.conformance import StoreConformance  # noqa: E402 - rewritten only if imported afterwards
from leftoff.testing.machine import StoreMachine  # noqa: E402
from leftoff.testing.samples import a_row, a_write  # noqa: E402
from leftoff.testing.subject import Subject  # noqa: E402

__all__ = ["StoreConformance", "StoreMachine", "Subject", "a_row", "a_write"]
