"""What has changed in how agents and teams are built since a checkpoint was written, and what to do about it."""

from midturn.versions.drift.changes import MORE, Change, Drift, more, variable
from midturn.versions.drift.comparison import compare, digest, migration_code

__all__ = ["MORE", "Change", "Drift", "compare", "digest", "migration_code", "more", "variable"]
