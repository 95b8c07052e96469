"""Profiles of Hypothesis (MIDTURN_LONG=1: hard), tests that run with another AutoGen, and the order of tests.

It also puts the files of the tests into memory where there is enough of it.
"""

import asyncio
import gc
import os
import shutil
import signal
import tempfile
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
IN_MEMORY = Path("/dev/shm")
ENOUGH = 4 * 2**30
"""Bytes; a whole run needs a small part of it."""


def is_roomy(folder):
    """Return whether files can be put there without filling it or the memory. Programs must run there, too."""
    if not (folder.is_mount() and os.access(folder, os.W_OK)) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return min(shutil.disk_usage(folder).free, psutil.virtual_memory().available) > ENOUGH


# Waiting for a disk takes a good part of the time, and no test is about one: they kill processes, not machines.
# MIDTURN_LONG=1 and a TMPDIR of one's own leave the files on the disk.
if not os.environ.keys() & {"MIDTURN_LONG", "TMPDIR"} and is_roomy(IN_MEMORY):
    os.environ["TMPDIR"] = str(IN_MEMORY)
    tempfile.tempdir = None  # something may have asked for it before

# A shell that runs this in the background has it ignored, and so would have the processes that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

common = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=40, stateful_step_count=30, **common)
settings.register_profile("long", max_examples=1_000, stateful_step_count=50, **common)
settings.register_profile("other AutoGen", max_examples=20, stateful_step_count=30, **common)
short = "other AutoGen" if os.environ.get("MIDTURN_AUTOGEN") else "quick"
settings.load_profile("long" if os.environ.get("MIDTURN_LONG") else short)


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "fault(name): the test injects this fault. `make chaos` runs it, and prints how many passed."
    )
    if hasattr(config, "workerinput") and [Path(each).resolve() for each in config.args] == [HERE]:
        config.args[:] = turned(config.workerinput)


def turned(process):
    """Return the folders and files of the tests, for each process from another one on.

    Where nothing is compiled yet, pytest compiles each file when it is imported. So each process compiles its part
    first, and finds what the others have compiled. The order of the tests does not depend on it.
    """
    files = (
        path for path in HERE.glob("test_*.py") if not pytest_ignore_collect(path)
    )  # pytest ignores none it is given
    found = sorted(map(str, [*files, *(path for path in HERE.iterdir() if path.is_dir())]))
    start = len(found) * int(process["workerid"].removeprefix("gw")) // process["workercount"]
    return found[start:] + found[:start]


def pytest_terminal_summary(terminalreporter):
    """At the end of a long run, what its tests have left as figures, and how many tests injected which fault."""
    if not os.environ.get("MIDTURN_LONG"):
        return
    outcomes = ("passed", "failed", "error", "skipped", "xfailed")
    reports = [(outcome, report) for outcome in outcomes for report in terminalreporter.getreports(outcome)]
    named = [(outcome, report, *each) for outcome, report in reports for each in report.user_properties]
    found = [(report.nodeid, line) for _, report, name, line in named if name == "figures" and report.when == "call"]
    if found:
        terminalreporter.section("figures")
    for nodeid, line in found:
        terminalreporter.line(f"{nodeid.partition('::')[2]}\n    {line}")
    faults = defaultdict(list)
    for outcome, report, name, fault in named:
        if name == "fault" and (report.when == "call" or outcome in ("error", "skipped")):
            faults[fault].append((outcome, report.duration))
    if faults:
        terminalreporter.section("faults")
    for fault, ends in sorted(faults.items()):
        counts = ", ".join(f"{count} {outcome}" for outcome, count in Counter(each for each, _ in ends).items())
        slowest = max(seconds for _, seconds in ends)
        terminalreporter.line(f"{fault}: {len(ends)} tests, {counts}; the slowest took {slowest:.1f} s")


@pytest.fixture
async def nothing_left(caplog):
    """See that a test leaves no task running, and that asyncio had nothing to complain about."""
    before = asyncio.all_tasks()
    yield
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
                gc.collect(1)  # a turn that waits for people rests until its session is collected
                await asyncio.wait(left, timeout=1)
    assert not left
    gc.collect(1)
    await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"] == []


@pytest.fixture
def pass_time(monkeypatch):
    """Let so many seconds pass at once for the event loop: timers that end within them are due. Nobody waits."""

    def pass_by(seconds):
        loop = asyncio.get_running_loop()
        before = loop.time
        monkeypatch.setattr(loop, "time", lambda: before() + seconds)

    return pass_by


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    """Collect no garbage meanwhile: little of what is imported and collected is any."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish():
    """Leave what was imported and collected out of every later garbage collection."""
    gc.collect()
    gc.freeze()


TOGETHER = (
    "tests/autogen/test_generated",
    "tests/autogen/test_restart.py",
    "tests/testing/test_suite_catches.py",
    "tests/golden/test_midturn.py",
    "tests/stores/test_postgres.py",
    "tests/stores/test_transactions.py",
    "tests/serve/page/test_browser.py",
)
"""Files that begin with one of these share something that takes seconds to set up: they run in one process."""


FIRST = (
    "tests/test_compat.py",
    "tests/crash/",
    "tests/docs/",
    "tests/autogen/test_generated",
    "tests/testing/test_state_machine",
    "tests/journal/test_order.py",
)
"""Beginnings of the ids of long tests. A long test that begins last would keep the other processes waiting."""


def pytest_collection_modifyitems(config, items):
    """Note which fault a test injects. Begin with what takes long, if there are several processes."""
    for item in items:
        item.user_properties += [("fault", mark.args[0]) for mark in item.iter_markers("fault")]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (not item.nodeid.startswith(FIRST), item.path))


OTHER_AUTOGEN = (
    "autogen",
    "golden/test_autogen.py",
    "journal",
    *("sessions/test_instances.py", "sessions/test_tasks.py"),
    *("versions/test_drift_states.py", "versions/test_verbs_teams.py"),
)
"""Tests that also run with another AutoGen: they give its objects work, read their state, or see how they fail."""
SAME_WITH_IT = (
    "autogen/test_fuzz.py",  # our own checks of a state, of which test_exact.py and test_gaps_loading.py show the rest
    "autogen/test_generated_bites.py",  # that the tests of restarts can fail
    "autogen/test_hiding.py",  # texts
    "journal/test_order.py",  # our own order, of hundreds of shuffles
    "journal/test_redelivery.py",  # our own keys
    "journal/test_replay.py",  # reads what is stored
    "journal/test_transactions.py",  # our own stores
)
"""Tests that would show nothing new about another AutoGen."""


def pytest_ignore_collect(collection_path):
    """Leave out what would be the same with another AutoGen, where MIDTURN_AUTOGEN says that this is one."""
    if not os.environ.get("MIDTURN_AUTOGEN") or collection_path.suffix != ".py":
        return None
    path = collection_path.relative_to(HERE)
    names = {path.as_posix(), path.parts[0]}
    return None if names & set(OTHER_AUTOGEN) and not names & set(SAME_WITH_IT) else True


# Not left to `--dist loadgroup`, which has no effect with pytest 9.2: github.com/pytest-dev/pytest-xdist/issues/1386.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With several processes, the tests of a class run in one of them, and so do those of the files above."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path, *inside = nodeid.partition("[")[0].split("::")
            for begin in TOGETHER:
                if path.startswith(begin):
                    return begin
            return f"{path}::{inside[0]}" if len(inside) > 1 else nodeid

        def mark_test_complete(self, node, item_index, duration=0):
            """Forget what is done: xdist counts all that a process was ever given, again after each test."""
            done = self.registered_collections[node][item_index]
            scope = self._split_scope(done)
            unit = self.assigned_work[node][scope]
            unit[done] = True
            if all(unit.values()):
                del self.assigned_work[node][scope]
            self._reschedule(node)

    return Scheduling(config, log)
