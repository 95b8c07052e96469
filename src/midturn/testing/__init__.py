"""Tests that prove that a store keeps its contract; users run them on stores of their own.

They need pytest, pytest-asyncio and hypothesis. :class:`StoreConformance` is a class of tests. :class:`StoreMachine`
makes random calls to a store and compares it with a plain model. Both only need to know how to open the store.
"""
# ruff: noqa: E402 - pytest rewrites the asserts of a module only if it is imported after its registration

import pytest

pytest.register_assert_rewrite(
    "midturn.testing.concurrency",
    "midturn.testing.handles",
    "midturn.testing.reads",
    "midturn.testing.state_machine",
    "midturn.testing.writes",
)

from midturn.testing.conformance import StoreConformance
from midturn.testing.samples import a_row, a_write
from midturn.testing.state_machine import StoreMachine
from midturn.testing.subject import Subject

__all__ = ["StoreConformance", "StoreMachine", "Subject", "a_row", "a_write"]
