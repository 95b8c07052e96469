"""Change a captured state in migrations: :class:`State` has a verb for each change."""

from midturn.autogen.edits.defaults import fill
from midturn.autogen.edits.outline import outline
from midturn.autogen.edits.state import State
from midturn.autogen.edits.tools import mentions
from midturn.autogen.edits.tree import FRESH

__all__ = ["FRESH", "State", "fill", "mentions", "outline"]
