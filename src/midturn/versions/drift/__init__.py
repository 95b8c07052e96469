"""Drift: how agents and teams have changed since a checkpoint was written, and the code that migrates it."""

from midturn.versions.drift.changes import MORE, Change, Drift, more, variable
from midturn.versions.drift.comparison import compare, digest, migration_code

__all__ = ["MORE", "Change", "Drift", "compare", "digest", "migration_code", "more", "variable"]
