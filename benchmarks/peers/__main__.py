"""One peer in a process: ``python -m benchmarks.peers NAME run|restore --address ... --shape ...``."""

from __future__ import annotations

import importlib
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.contender import Contender, main

if TYPE_CHECKING:
    from benchmarks.workload import Shape

# No telemetry.
QUIET = {
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}


def _late(peer: str, address: str, shape: Shape, **options: Any) -> Contender:
    """Import only the packages of the chosen peer, because its memory is measured."""
    os.environ.update(QUIET)
    contender: Contender = importlib.import_module(f"benchmarks.peers.peer_{peer}").make(address, shape, **options)
    return contender


PEERS: tuple[tuple[str, str, tuple[str, ...], dict[str, dict[str, Any]]], ...] = (
    (
        "langgraph",
        "langgraph",
        ("sqlite", "postgres"),
        {
            "-sync": {"durability": "sync"},
            "-exit": {"durability": "exit"},
            "-delta": {"durability": "sync", "delta": True},
        },
    ),
    ("openai", "openai_agents", ("sqlite", "postgres", "redis"), {"": {}}),
    ("adk", "google_adk", ("sqlite", "postgres"), {"": {}}),
    ("dbos", "dbos", ("sqlite", "postgres"), {"": {}}),
)
"""The name, the module, the stores, and the variants with their options."""

CONTENDERS = {
    f"{name}-{store}{suffix}": partial(_late, peer, store=store, **options)
    for name, peer, stores, variants in PEERS
    for store in stores
    for suffix, options in variants.items()
}

if __name__ == "__main__":
    main(CONTENDERS)
