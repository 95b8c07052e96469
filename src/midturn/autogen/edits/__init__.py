"""The state of an agent or a team as migrations see it."""

from midturn.autogen.edits.fill import fill
from midturn.autogen.edits.places import FRESH
from midturn.autogen.edits.state import State
from midturn.autogen.edits.tools import mentions

__all__ = ["FRESH", "State", "fill", "mentions"]
