"""Run AutoGen's own tests plain and through sessions, and compare the outcomes with the list of known differences."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LOCK, KNOWN = ROOT / "requirements-compat.lock", Path(__file__).with_name("differences.txt")
BUILD = ROOT / "build" / "compat"
CHECKED = ("as is",)
"""The modes whose differences are listed."""
OTHERS = (
    'durability="turn"',
    "new session",
    "rebuilt",
    "dying before each commit",
    "dying after every call",
    "replayed",
)


def fetch(version: str) -> Path:
    """Fetch the sources of a version of AutoGen by their hash; return the folder of its tests."""
    folder = BUILD / f"autogen_agentchat-{version}"
    if not folder.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        pinned = BUILD / "requirements.txt"
        entries = LOCK.read_text().replace("\\\n", " ").splitlines()
        pinned.write_text("".join(f"{line}\n" for line in entries if f"=={version} " in line))
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        command = [*pip, "--no-build-isolation", "--require-hashes", "-d", str(BUILD), "-r", str(pinned)]
        subprocess.run(command, check=True)
        with tarfile.open(BUILD / f"{folder.name}.tar.gz") as archive:
            archive.extractall(BUILD, filter="data")
    return folder


def run(folder: Path, mode: str) -> dict[str, Any]:
    """Run the tests in a mode; return their outcomes, and the number of deaths."""
    report = BUILD / "report.json"
    report.unlink(missing_ok=True)
    environment = {"MIDTURN_COMPAT": mode, "MIDTURN_COMPAT_REPORT": str(report), "PYTHONPATH": str(ROOT / "tools")}
    options = ["-q", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", "-W", "ignore", "--tb=short"]
    command = [sys.executable, "-m", "pytest", *options, "-p", "compat.plugin", "tests"]
    name = "".join(letter if letter.isalnum() else "-" for letter in mode)
    with (BUILD / f"{name}.log").open("w") as log:
        subprocess.run(command, cwd=folder, env=os.environ | environment, stdout=log, check=False)
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def known_differences() -> set[tuple[str, str]]:
    """Read the list of tests that pass plain and not through sessions, each with its mode."""
    lines = [line for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")]
    pairs = [line.partition(" — ")[0].rpartition(" ") for line in lines]
    return {(mode, test) for mode, _, test in pairs}


def main() -> int:
    """Run the modes, print a table, and compare."""
    parser = argparse.ArgumentParser(prog="python -m tools.compat", description=__doc__)
    parser.add_argument("--version", default="0.7.5", help="the version of AutoGen whose tests run")
    parser.add_argument("--all", action="store_true", help="also run the modes whose differences are not listed yet")
    options = parser.parse_args()
    folder = fetch(options.version)
    passed = {name for name, outcome in run(folder, "plain")["outcomes"].items() if outcome == "passed"}
    print(f"{'plain':26} {len(passed):4} passed")
    known, wrong = known_differences(), list[str]()
    for mode in (*CHECKED, *(OTHERS if options.all else ())):
        found = run(folder, mode)
        lost = {name for name in passed if found["outcomes"].get(name) != "passed"}
        print(f"{mode:26} {len(passed - lost):4} passed, {len(lost)} not, {found['deaths']} deaths")
        if mode in CHECKED:
            listed = {name for each, name in known if each == mode}
            wrong += [f"{mode} {name}: fails, and is not listed" for name in sorted(lost - listed)]
            wrong += [f"{mode} {name}: is listed, and does not fail" for name in sorted(listed - lost)]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
