"""Stores with one fault each, for test_suite_catches.py."""

from faulty_stores import deleting, forgetting, handles, listing, racing, reading, removing, writing
from faulty_stores.kept import MUTANTS, Kept

__all__ = [
    "MUTANTS",
    "Kept",
    "deleting",
    "forgetting",
    "handles",
    "listing",
    "racing",
    "reading",
    "removing",
    "writing",
]
