"""Run AutoGen's own tests plain and through sessions, and compare the outcomes with the list of known differences."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
LOCK, KNOWN = ROOT / "requirements-compat.lock", Path(__file__).with_name("differences.txt")
OLDEST = ROOT / ".venv" / "oldest"
BUILD = ROOT / "build" / "compat"
VERSIONS = ("0.7.5", "0.7.4")
PLAIN = "plain"
MODES = (
    "as is",
    'durability="turn"',
    "new session",
    "rebuilt",
    "dying before each commit",
    "dying after every call",
    "replayed",
)
EVERY = "every mode"
"""In the list: a difference of all modes."""

TEST_LIMIT, RUN_LIMIT = 120, 1800
"""Seconds for one test, and for all tests in one mode."""


class CannotRun(Exception):
    """The tests cannot be fetched or run; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The outcomes of the tests of one version in one mode."""

    passed: set[str]
    deaths: int


def fetch(version: str) -> Path:
    """Fetch the sources of a version of AutoGen by their hash; return their folder.

    Raises:
        CannotRun: pip cannot fetch them.
    """
    folder = BUILD / f"autogen_agentchat-{version}"
    if not folder.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        pinned = BUILD / f"requirements-{version}.txt"
        entries = LOCK.read_text().replace("\\\n", " ").splitlines()
        pinned.write_text("".join(f"{line}\n" for line in entries if f"=={version} " in line))
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        command = [*pip, "--no-build-isolation", "--require-hashes", "-d", str(BUILD), "-r", str(pinned)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise CannotRun(
                f"pip cannot fetch the sources of autogen-agentchat {version}, whose tests run here. "
                f"This needs a package index:\n{done.stderr.strip()}"
            )
        with tarfile.open(BUILD / f"{folder.name}.tar.gz") as archive:
            # The first releases of Python 3.11 know no filters. pip has compared the archive with its hash.
            filters: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(BUILD, **filters)  # noqa: S202 - as above
    return folder


def run(version: str, mode: str) -> Outcomes:
    """Run the tests of a version in a mode.

    Raises:
        CannotRun: a test does not end, or there is no AutoGen of this version.
    """
    folder = fetch(version)
    name = f"{version}-{''.join(letter if letter.isalnum() else '-' for letter in mode)}"
    report, log = BUILD / f"{name}-{os.getpid()}.json", BUILD / f"{name}.log"
    paths = [str(ROOT / "tools"), *([str(OLDEST)] if version != installed("autogen-agentchat") else [])]
    environment = {
        "MIDTURN_COMPAT": mode,
        "MIDTURN_COMPAT_REPORT": str(report),
        "MIDTURN_COMPAT_VERSION": version,
        "PYTHONPATH": os.pathsep.join(paths),
    }
    options = ["-q", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", "-W", "ignore", "--tb=short"]
    limit = f"--timeout={TEST_LIMIT}"
    command = [sys.executable, "-m", "pytest", *options, limit, "-p", "compat.plugin", "tests"]
    with log.open("w") as out, suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command, cwd=folder, env=os.environ | environment, stdout=out, stderr=out, check=False, timeout=RUN_LIMIT
        )
    found: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {"hangs": "no test"}
    report.unlink(missing_ok=True)
    if "hangs" in found:
        raise CannotRun(f"{version}, {mode}: the tests stopped in {found['hangs']}; see {log}")
    passed = {test for test, outcome in found["outcomes"].items() if outcome == "passed"}
    return Outcomes(passed=passed, deaths=found["deaths"])


def known_differences() -> dict[str, set[str]]:
    """Read the list of tests that pass plain and not through sessions, by mode.

    Raises:
        CannotRun: a line of the list is not one.
    """
    known: dict[str, set[str]] = {mode: set() for mode in (EVERY, *MODES)}
    page = ""
    for line in KNOWN.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        what, _, reason = line.partition(" — ")
        mode, _, test = what.rpartition(" ")
        page = reason.rpartition("(")[2].rstrip(")")
        if mode not in known or not (page.startswith("docs/") and (ROOT / page).exists()):
            raise CannotRun(f"{KNOWN.name}: not of the form: mode test — reason (docs/page.md): {line}")
        known[mode].add(test)
    return known


def compare(mode: str, plain: set[str], passed: set[str], known: dict[str, set[str]]) -> list[str]:
    """Return what is wrong with the list for a mode, given the tests that pass plain and in the mode."""
    lost, listed, always = plain - passed, known[mode] & plain, known[EVERY] & plain
    return [
        *(f"{mode} {test}: fails, and is not listed" for test in sorted(lost - listed - always)),
        *(f"{mode} {test}: is listed, and does not need to be" for test in sorted(listed - lost | listed & always)),
        *(f"{EVERY} {test}: is listed, and passes in the mode {mode}" for test in sorted(always - lost)),
    ]


def main() -> int:
    """Run the modes, compare, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tools.compat", description=__doc__)
    parser.add_argument("--version", action="append", choices=VERSIONS, help="only this version of AutoGen")
    parser.add_argument("--mode", action="append", choices=MODES, help="only this mode")
    options = parser.parse_args()
    versions, modes = options.version or VERSIONS, options.mode or MODES
    try:
        return check(versions, modes)
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 1


def check(versions: Sequence[str], modes: Sequence[str]) -> int:
    """Run modes with versions of AutoGen, and print the figures and what is wrong with the list."""
    known, wrong, figures = known_differences(), list[str](), list[str]()
    for version in versions:
        fetch(version)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        work = {(version, mode): pool.submit(run, version, mode) for version in versions for mode in (PLAIN, *modes)}
        for version in versions:
            plain = work[version, PLAIN].result().passed
            unknown = set[str]().union(*known.values()) - plain
            wrong += [f"{version} {test}: is listed, and does not pass plain" for test in sorted(unknown)]
            for mode in modes:
                found = work[version, mode].result()
                count = len(plain & found.passed)
                figures.append(f"{version} {mode:26} {count} of {len(plain)} pass, {found.deaths} deaths")
                wrong += [f"{version} {line}" for line in compare(mode, plain, found.passed, known)]
    print(*wrong, *figures, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
