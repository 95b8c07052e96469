import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))


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
        done = subprocess.run(
            [sys.executable, path, *args],
            cwd=tmp_path,
            env={**provider, **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
