"""The state of an agent or a team as migrations see it."""

from midturn.autogen.view.fill import fill
from midturn.autogen.view.places import FRESH
from midturn.autogen.view.state import State
from midturn.autogen.view.tools import mentions

__all__ = ["FRESH", "State", "fill", "mentions"]
