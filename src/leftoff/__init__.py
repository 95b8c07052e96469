"""leftoff: durable AutoGen agents and teams. Stop anywhere, pick up where you left off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leftoff.blueprint import Blueprint
from leftoff.errors import (
    Conflict,
    Drifted,
    LeaseLost,
    LeftoffError,
    MissingExtra,
    MissingMigration,
    NotKept,
    OutcomeUnknown,
    SessionBusy,
    SessionDeleted,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
    TurnFailed,
    UnknownVersion,
)
from leftoff.history import Checkpoint, Turn
from leftoff.opening import OpenStore, SessionInfo, open
from leftoff.session import Session

if TYPE_CHECKING:
    from leftoff.autogen import TurnResult

__version__ = "0.1.0"

__all__ = [
    "Blueprint",
    "Checkpoint",
    "Conflict",
    "Drifted",
    "LeaseLost",
    "LeftoffError",
    "MissingExtra",
    "MissingMigration",
    "NotKept",
    "OpenStore",
    "OutcomeUnknown",
    "Session",
    "SessionBusy",
    "SessionDeleted",
    "SessionInfo",
    "StateInvalid",
    "StoreFull",
    "StoreUnavailable",
    "Turn",
    "TurnFailed",
    "TurnResult",
    "UnknownVersion",
    "open",
]


def __getattr__(name: str) -> Any:
    if name == "TurnResult":
        from leftoff.autogen import TurnResult

        return TurnResult
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
