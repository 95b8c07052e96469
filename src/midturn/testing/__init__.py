"""Tests of agents, teams, tools and stores, for users.

For agents: :class:`ScriptedModel` answers from the messages, :func:`every_crash` runs an agent or a team with a crash
at every point, :func:`crash_at` crashes at one, and :func:`tool_call` calls a tool without a session.

For stores: :class:`StoreConformance` is a class of tests that prove that a store keeps its contract.
:class:`StoreMachine` makes random calls to a store and compares it with a plain model. Both only need to know how to
open the store. They need pytest, pytest-asyncio and hypothesis.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midturn.testing.conformance import StoreConformance as StoreConformance
    from midturn.testing.crashes import Crash as Crash
    from midturn.testing.crashes import CrashReport as CrashReport
    from midturn.testing.crashes import RepeatedCall as RepeatedCall
    from midturn.testing.crashes import every_crash as every_crash
    from midturn.testing.crashing_store import Crashed as Crashed
    from midturn.testing.crashing_store import CrashPoint as CrashPoint
    from midturn.testing.crashing_store import crash_at as crash_at
    from midturn.testing.samples import a_removal as a_removal
    from midturn.testing.samples import a_row as a_row
    from midturn.testing.samples import a_write as a_write
    from midturn.testing.scripted_model import ScriptedModel as ScriptedModel
    from midturn.testing.scripted_model import ToolCall as ToolCall
    from midturn.testing.state_machine import StoreMachine as StoreMachine
    from midturn.testing.subject import Subject as Subject
    from midturn.testing.tool_calls import tool_call as tool_call

# Each module is imported on first use: the tests of agents need no pytest, and those of stores no AutoGen.
_MODULES = {
    "crashes": "Crash CrashReport RepeatedCall every_crash",
    "crashing_store": "CrashPoint Crashed crash_at",
    "scripted_model": "ScriptedModel ToolCall",
    "tool_calls": "tool_call",
}
_SUITE = {
    "conformance": "StoreConformance",
    "samples": "a_removal a_row a_write",
    "state_machine": "StoreMachine",
    "subject": "Subject",
}
_REWRITTEN = ("concurrency", "handles", "reads", "state_machine", "writes")
"""Modules of the suite with asserts, which pytest rewrites only if they are registered before they are imported."""
_MODULE_OF = {name: module for module, names in (_MODULES | _SUITE).items() for name in names.split()}
__all__ = list(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULE_OF[name]
    if module in _SUITE:
        import pytest

        pytest.register_assert_rewrite(*(f"{__name__}.{each}" for each in _REWRITTEN))
    found = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(_MODULE_OF)
