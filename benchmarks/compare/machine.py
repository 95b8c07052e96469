"""The machine and versions of a run: figures of different machines cannot be compared."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sqlite3
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.compare.talking import INSTALLED, PEERS, ROOT
from benchmarks.workload import SEED

if TYPE_CHECKING:
    from collections.abc import Iterable

ASK = """
import importlib.metadata, json
print(json.dumps({found.name: found.version for found in importlib.metadata.distributions()}))
"""


def about(servers: dict[str, str]) -> dict[str, Any]:
    """Return machine, versions, seed, commit and date."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _said("git", "rev-parse", "HEAD"),
        "seed": SEED,
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
            "system": platform.platform(),
            "disk": _disk(Path(tempfile.gettempdir())),
        },
        "versions": {
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            **servers,
            **{name: importlib.metadata.version(name) for name in _named(importlib.metadata.requires("midturn") or [])},
        },
        "peers": _peers(),
    }


def _peers() -> dict[str, str]:
    """Return the versions of the packages that the peers' environment requires."""
    if not INSTALLED.exists():
        return {}
    installed = {_plain(name): version for name, version in json.loads(_said(str(PEERS), "-c", ASK)).items()}
    wanted = (ROOT / "benchmarks" / "peers" / "requirements.in").read_text().splitlines()
    return {name: installed[name] for name in _named(wanted) if name in installed}


def _named(requirements: Iterable[str]) -> list[str]:
    """Return the packages in lines of requirements."""
    found = (re.match(r"[A-Za-z0-9][\w.-]*", line) for line in requirements)
    return sorted({_plain(match.group()) for match in found if match})


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _said(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _disk(path: Path) -> str:
    """Return the file system of a path, and its device."""
    path = path.resolve()
    parts = [part for part in psutil.disk_partitions(all=True) if path.is_relative_to(part.mountpoint)]
    if not parts:
        return "unknown"
    part = max(parts, key=lambda part: len(part.mountpoint))
    spins = Path("/sys/class/block") / Path(part.device).name / "queue" / "rotational"
    kind = {"0": ", solid state or virtual", "1": ", rotating"}[spins.read_text().strip()] if spins.exists() else ""
    return f"{part.fstype}{kind}"
