"""The state of an agent or a team as migrations see it."""

from midturn.autogen.edits.defaults import fill
from midturn.autogen.edits.state import State
from midturn.autogen.edits.tools import mentions
from midturn.autogen.edits.tree import FRESH

__all__ = ["FRESH", "State", "fill", "mentions"]
