"""The state of an agent or a team as migrations see it."""

from leftoff.autogen.view.fill import fill
from leftoff.autogen.view.places import FRESH
from leftoff.autogen.view.state import State
from leftoff.autogen.view.tools import mentions

__all__ = ["FRESH", "State", "fill", "mentions"]
