"""midturn: durable AutoGen agents and teams. Kill it mid-turn, and any other process finishes the turn."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midturn.autogen.adapter import State as State
    from midturn.autogen.adapter import Turn as Turn
    from midturn.autogen.adapter import TurnResult as TurnResult
    from midturn.autogen.adapter import replayed as replayed
    from midturn.errors import Conflict as Conflict
    from midturn.errors import Drifted as Drifted
    from midturn.errors import HistoryLost as HistoryLost
    from midturn.errors import InDoubt as InDoubt
    from midturn.errors import InvalidArgument as InvalidArgument
    from midturn.errors import LeaseLost as LeaseLost
    from midturn.errors import MidturnError as MidturnError
    from midturn.errors import MigrationFailed as MigrationFailed
    from midturn.errors import MissingExtra as MissingExtra
    from midturn.errors import MissingMigration as MissingMigration
    from midturn.errors import NotFound as NotFound
    from midturn.errors import NotKept as NotKept
    from midturn.errors import NotRecorded as NotRecorded
    from midturn.errors import OutcomeUnknown as OutcomeUnknown
    from midturn.errors import RedactionFailed as RedactionFailed
    from midturn.errors import ReplayDiverged as ReplayDiverged
    from midturn.errors import SessionBusy as SessionBusy
    from midturn.errors import SessionDeleted as SessionDeleted
    from midturn.errors import StateInvalid as StateInvalid
    from midturn.errors import StoreFull as StoreFull
    from midturn.errors import StoreUnavailable as StoreUnavailable
    from midturn.errors import Tampered as Tampered
    from midturn.errors import TurnFailed as TurnFailed
    from midturn.errors import TurnTimeout as TurnTimeout
    from midturn.errors import UnknownVersion as UnknownVersion
    from midturn.errors import WrongKey as WrongKey
    from midturn.history.audit import AuditEntry as AuditEntry
    from midturn.history.calls import Call as Call
    from midturn.history.checkpoints import Checkpoint as Checkpoint
    from midturn.history.diff import AgentChange as AgentChange
    from midturn.history.diff import CheckpointName as CheckpointName
    from midturn.history.diff import ConversationChange as ConversationChange
    from midturn.history.diff import MessageChange as MessageChange
    from midturn.history.diff import StateDiff as StateDiff
    from midturn.history.diff import TurnChange as TurnChange
    from midturn.history.diff import ValueChange as ValueChange
    from midturn.history.lineage import Lineage as Lineage
    from midturn.history.lineage import Relative as Relative
    from midturn.history.session_info import Deletion as Deletion
    from midturn.history.session_info import Fork as Fork
    from midturn.history.session_info import SessionInfo as SessionInfo
    from midturn.maintenance.compacting import Compacted as Compacted
    from midturn.maintenance.pruning import PruneReport as PruneReport
    from midturn.maintenance.pruning import Skipped as Skipped
    from midturn.maintenance.rekeying import KeyCounts as KeyCounts
    from midturn.maintenance.rekeying import NotRekeyed as NotRekeyed
    from midturn.maintenance.rekeying import RekeyReport as RekeyReport
    from midturn.questions import Decision as Decision
    from midturn.questions import Question as Question
    from midturn.questions import Waiting as Waiting
    from midturn.redaction import Where as Where
    from midturn.serve.app import asgi as asgi
    from midturn.serve.principals import Principal as Principal
    from midturn.serve.principals import SessionName as SessionName
    from midturn.sessions.export import Export as Export
    from midturn.sessions.export import export as export
    from midturn.sessions.opening import OpenStore as OpenStore
    from midturn.sessions.opening import open as open
    from midturn.sessions.runs import Run as Run
    from midturn.sessions.runs import RunEvent as RunEvent
    from midturn.sessions.session import Session as Session
    from midturn.stores.registry import register_store as register_store
    from midturn.stores.sealed.keys import Keys as Keys
    from midturn.stores.sealed.keys import KeyService as KeyService
    from midturn.tools import CallInDoubt as CallInDoubt
    from midturn.tools import call_key as call_key
    from midturn.tools import human as human
    from midturn.tools import tool as tool
    from midturn.tools import transaction as transaction
    from midturn.turns.replay import Replay as Replay
    from midturn.versions.blueprint import Blueprint as Blueprint
    from midturn.versions.drift import Change as Change
    from midturn.versions.drift import Drift as Drift

__version__ = "0.1.0"

# Each module is imported on first use: a program that only catches an error or marks a tool does not wait for the rest.
_MODULES = {
    "autogen.adapter": "State Turn TurnResult replayed",
    "errors": (
        "Conflict Drifted HistoryLost InDoubt InvalidArgument LeaseLost MidturnError MigrationFailed MissingExtra "
        "MissingMigration NotFound NotKept NotRecorded OutcomeUnknown RedactionFailed ReplayDiverged SessionBusy "
        "SessionDeleted StateInvalid StoreFull StoreUnavailable Tampered TurnFailed TurnTimeout UnknownVersion WrongKey"
    ),
    "history.audit": "AuditEntry",
    "history.calls": "Call",
    "history.checkpoints": "Checkpoint",
    "history.diff": "AgentChange CheckpointName ConversationChange MessageChange StateDiff TurnChange ValueChange",
    "history.lineage": "Lineage Relative",
    "history.session_info": "Deletion Fork SessionInfo",
    "maintenance.compacting": "Compacted",
    "maintenance.pruning": "PruneReport Skipped",
    "maintenance.rekeying": "KeyCounts NotRekeyed RekeyReport",
    "questions": "Decision Question Waiting",
    "redaction": "Where",
    "serve.app": "asgi",
    "serve.principals": "Principal SessionName",
    "sessions.export": "Export export",
    "sessions.opening": "OpenStore open",
    "sessions.runs": "Run RunEvent",
    "sessions.session": "Session",
    "stores.registry": "register_store",
    "stores.sealed.keys": "KeyService Keys",
    "tools": "CallInDoubt call_key human tool transaction",
    "turns.replay": "Replay",
    "versions.blueprint": "Blueprint",
    "versions.drift": "Change Drift",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = list(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"midturn.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    # Without the imports of this module, and without submodules that happen to be loaded.
    return sorted([*_MODULE_OF, "__version__"])
