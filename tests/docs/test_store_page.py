"""The store on docs/how-to/write-a-store.md passes the suite as the page shows it, and is opened both ways."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import midturn
from midturn.stores import registry

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "how-to" / "write-a-store.md"
sys.path.insert(0, str(HERE.with_name("autogen")))

STORE, PROOF, DIRECTLY, BY_SCHEME, PRINTED = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(), re.DOTALL)


async def run(block, names):
    found = eval(compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.isawaitable(found):
        await found


def channel(messages):
    """An answer from what was said, and from nothing else."""
    told = any("prefers email" in str(message.content) for message in messages)
    return "The customer prefers email." if told else "I do not know."


async def test_the_store_is_used_as_the_page_says(monkeypatch, capsys):
    from kinds import assistant

    monkeypatch.setattr(registry, "_openers", dict(registry._openers))
    names = {"midturn": midturn, "build_team": lambda: assistant(answer=channel)}
    for block in (STORE, DIRECTLY, BY_SCHEME):
        await run(block, names)
    assert capsys.readouterr().out == PRINTED


QUICK = """
from hypothesis import settings

settings.register_profile("quick", max_examples=20, deadline=None)
settings.load_profile("quick")
"""
"""A machine of a hundred examples says no more of this store, and takes twenty seconds."""


def test_the_proof_passes_as_the_page_shows_it(tmp_path):
    (tmp_path / "my_store.py").write_text(STORE)
    (tmp_path / "test_my_store.py").write_text(PROOF)
    (tmp_path / "conftest.py").write_text(QUICK)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d{2} passed", done.stdout)
