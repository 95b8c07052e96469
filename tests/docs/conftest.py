import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))

from forked import run_script

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def provider():
    """The environment in which a script finds the stand-in for OpenAI, and nothing of this machine's own settings."""
    with subprocess.Popen(
        [sys.executable, Path(__file__).with_name("openai_stub.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        url = server.stdout.readline().strip()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MIDTURN_", "OPENAI_"))}
        yield {**kept, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "stub"}
        server.stdin.close()


@pytest.fixture
def script(provider, tmp_path):
    """Run a Python file in a process of its own, in an empty directory that stays the same within a test."""

    def run(path, *args, **env):
        done = run_script(path, *args, cwd=tmp_path, env={**provider, **env})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
