"""leftoff: durable AutoGen agents and teams. Stop anywhere, pick up where you left off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leftoff.blueprint import Blueprint
from leftoff.calling import call_key, human, transaction
from leftoff.drift import Change, Drift
from leftoff.effects import Call, tool
from leftoff.errors import (
    Conflict,
    Drifted,
    InDoubt,
    LeaseLost,
    LeftoffError,
    MigrationFailed,
    MissingExtra,
    MissingMigration,
    NotKept,
    OutcomeUnknown,
    ReplayDiverged,
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
from leftoff.questions import Question, Waiting
from leftoff.replaying import Replay
from leftoff.session import Session

if TYPE_CHECKING:
    from leftoff.autogen import State, TurnResult, replayed

__version__ = "0.1.0"

__all__ = [
    "Blueprint",
    "Call",
    "Change",
    "Checkpoint",
    "Conflict",
    "Drift",
    "Drifted",
    "InDoubt",
    "LeaseLost",
    "LeftoffError",
    "MigrationFailed",
    "MissingExtra",
    "MissingMigration",
    "NotKept",
    "OpenStore",
    "OutcomeUnknown",
    "Question",
    "Replay",
    "ReplayDiverged",
    "Session",
    "SessionBusy",
    "SessionDeleted",
    "SessionInfo",
    "State",
    "StateInvalid",
    "StoreFull",
    "StoreUnavailable",
    "Turn",
    "TurnFailed",
    "TurnResult",
    "UnknownVersion",
    "Waiting",
    "call_key",
    "human",
    "open",
    "replayed",
    "tool",
    "transaction",
]


def __getattr__(name: str) -> Any:
    if name in ("State", "TurnResult", "replayed"):
        from leftoff import autogen

        return getattr(autogen, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
