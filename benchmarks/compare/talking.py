"""Start the processes of the contenders, read their output, and end them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".venv" / "peers" / "bin" / "python"
INSTALLED = ROOT / ".venv" / "peers" / ".installed"
"""A file that exists when the peers' environment is complete."""
OURS = {"midturn": "benchmarks.ours", "json": "benchmarks.ours", "floor": "benchmarks.floors"}
"""The modules of contenders that run in the project's environment."""


class ContenderFailed(RuntimeError):
    """A process ended with an error; the message ends with its output."""


class Overtime(ContenderFailed):
    """A process was ended because it took too long."""


class Unable(ContenderFailed):
    """A contender reports that it cannot do something, and why."""


def is_ours(contender: str) -> bool:
    return _maker(contender) in OURS


def _maker(contender: str) -> str:
    return contender.partition("-")[0]


def command(contender: str, work: str, address: str, shape: str, *words: str | int) -> list[str]:
    """Return the command line of a process."""
    python = sys.executable if is_ours(contender) else str(PEERS)
    module = OURS.get(_maker(contender), "benchmarks.peers")
    return [python, "-m", module, contender, work, "--address", address, "--shape", shape, *map(str, words)]


def talk(line: Sequence[str], seconds: float, heard: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
    """Run a process to its end and return its last report. ``heard`` gets the number of turns so far.

    Raises:
        Overtime: the process did not end within this number of seconds.
        Unable: the contender reports that it cannot do this.
        ContenderFailed: the process ended with an error.
    """
    facts: dict[str, Any] = {}
    turn = 0
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(line, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, stderr=errors, text=True)
        timer = Timer(seconds, process.kill)
        timer.start()
        assert process.stdout
        try:
            for word in process.stdout:
                facts = json.loads(word)
                if list(facts) == ["turn"]:
                    turn = facts["turn"]
                    heard(turn)
            code = process.wait()
            overtime = not timer.is_alive()
        finally:  # also if this process is interrupted
            timer.cancel()
            process.kill()
            process.stdout.close()
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    if "unable" in facts:
        raise Unable(facts["unable"])
    if code and overtime:
        raise Overtime(f"ended after {seconds:.0f} s, at turn {turn:,}")
    if code:
        raise ContenderFailed(f"{' '.join(line[2:5])} ended with {code}:\n{said[-2000:].rstrip()}")
    return facts


def _environment() -> dict[str, str]:
    """Return this process's environment with the midturn of this tree, and with the contenders' telemetry off."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MIDTURN_", "PG", "OTEL_"))}
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return kept | {"PYTHONHASHSEED": "0", "PYTHONPATH": path}
