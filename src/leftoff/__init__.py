"""leftoff: durable AutoGen agents and teams. Stop anywhere, pick up where you left off."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leftoff.autogen import State as State
    from leftoff.autogen import TurnResult as TurnResult
    from leftoff.autogen import replayed as replayed
    from leftoff.blueprint import Blueprint as Blueprint
    from leftoff.calling import call_key as call_key
    from leftoff.calling import human as human
    from leftoff.calling import transaction as transaction
    from leftoff.drift import Change as Change
    from leftoff.drift import Drift as Drift
    from leftoff.effects import Call as Call
    from leftoff.effects import tool as tool
    from leftoff.errors import Conflict as Conflict
    from leftoff.errors import Drifted as Drifted
    from leftoff.errors import InDoubt as InDoubt
    from leftoff.errors import LeaseLost as LeaseLost
    from leftoff.errors import LeftoffError as LeftoffError
    from leftoff.errors import MigrationFailed as MigrationFailed
    from leftoff.errors import MissingExtra as MissingExtra
    from leftoff.errors import MissingMigration as MissingMigration
    from leftoff.errors import NotKept as NotKept
    from leftoff.errors import OutcomeUnknown as OutcomeUnknown
    from leftoff.errors import ReplayDiverged as ReplayDiverged
    from leftoff.errors import SessionBusy as SessionBusy
    from leftoff.errors import SessionDeleted as SessionDeleted
    from leftoff.errors import StateInvalid as StateInvalid
    from leftoff.errors import StoreFull as StoreFull
    from leftoff.errors import StoreUnavailable as StoreUnavailable
    from leftoff.errors import TurnFailed as TurnFailed
    from leftoff.errors import UnknownVersion as UnknownVersion
    from leftoff.history import Checkpoint as Checkpoint
    from leftoff.history import Turn as Turn
    from leftoff.opening import OpenStore as OpenStore
    from leftoff.opening import SessionInfo as SessionInfo
    from leftoff.opening import open as open
    from leftoff.questions import Question as Question
    from leftoff.questions import Waiting as Waiting
    from leftoff.replaying import Replay as Replay
    from leftoff.session import Session as Session

__version__ = "0.1.0"

# Loaded when it is first used: a program that only catches an error, or marks a tool, need not wait for the rest.
_PLACES = {
    "autogen": "State TurnResult replayed",
    "blueprint": "Blueprint",
    "calling": "call_key human transaction",
    "drift": "Change Drift",
    "effects": "Call tool",
    "errors": (
        "Conflict Drifted InDoubt LeaseLost LeftoffError MigrationFailed MissingExtra MissingMigration NotKept "
        "OutcomeUnknown ReplayDiverged SessionBusy SessionDeleted StateInvalid StoreFull StoreUnavailable TurnFailed "
        "UnknownVersion"
    ),
    "history": "Checkpoint Turn",
    "opening": "OpenStore SessionInfo open",
    "questions": "Question Waiting",
    "replaying": "Replay",
    "session": "Session",
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names.split()}
__all__ = list(_PLACE_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PLACE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"leftoff.{_PLACE_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACE_OF})
