"""The suite is usable by others: it needs no AutoGen, and a store is proved in a few lines."""

import subprocess
import sys

THIRD_PARTY = """
from contextlib import asynccontextmanager

from midturn.stores.memory import MemoryStore
from midturn.testing import StoreConformance, StoreMachine, Subject


class MyStore(Subject):
    shared = False
    durable = False

    @asynccontextmanager
    async def open_store(self, where):
        yield MemoryStore()


class TestMyStore(MyStore, StoreConformance): ...


class MyMachine(MyStore, StoreMachine): ...


TestMyMachine = MyMachine.TestCase
TestMyMachine.settings = type(TestMyMachine.settings)(max_examples=3, stateful_step_count=5)
"""


def test_the_suite_is_imported_without_autogen():
    code = "import sys, midturn.testing; print([name for name in sys.modules if name.startswith('autogen')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_store_of_a_third_party_is_proved_in_twenty_lines(tmp_path):
    """Without a configuration, and without other plugins than those that the suite asks for."""
    (tmp_path / "test_mine.py").write_text(THIRD_PARTY)
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:timeout", "-p", "no:anyio"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "/dev/null",
        "--rootdir",
        str(tmp_path),
        "-q",
        *plugins,
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
    assert len(THIRD_PARTY.splitlines()) <= 26  # blank lines included
