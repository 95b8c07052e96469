"""The proof that a store keeps its contract, shipped for the stores of others.

Needs pytest, pytest-asyncio and hypothesis. :class:`StoreConformance` is a class of tests, :class:`StoreMachine` drives
a store at random against a plain model; both are told only how the store is opened.
"""

import pytest

pytest.register_assert_rewrite(
    "midturn.testing.concurrency",
    "midturn.testing.handles",
    "midturn.testing.reads",
    "midturn.testing.state_machine",
    "midturn.testing.writes",
)

from midturn.testing.conformance import StoreConformance  # noqa: E402 - rewritten only if imported afterwards
from midturn.testing.samples import a_row, a_write  # noqa: E402
from midturn.testing.state_machine import StoreMachine  # noqa: E402
from midturn.testing.subject import Subject  # noqa: E402

__all__ = ["StoreConformance", "StoreMachine", "Subject", "a_row", "a_write"]
