"""The examples on docs/how-to/seal-a-store.md run, and do what the page says."""

import ast
import asyncio
import inspect
import re
import secrets
import shlex
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from types import SimpleNamespace

from autogen_agentchat.agents import AssistantAgent

import midturn
from midturn.testing import ScriptedModel

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "seal-a-store.md"
BLOCK = re.compile(r"```(python|text|console)\n(.*?)```", re.DOTALL)


def build_agent():
    return AssistantAgent("desk", ScriptedModel({"": "Noted."}))


async def typed(line, monkeypatch, folder):
    """Type a line at a shell; return what it prints."""
    words = shlex.split(line.replace("$PWD", str(folder)))
    if words[0] == "export":
        monkeypatch.setenv(*words[1].split("=", 1))
        return ""
    assert words.pop(0) == "midturn"
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "midturn", *words, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    assert process.returncode == 0, err
    return out.decode()


async def test_the_page_runs_from_top_to_bottom(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("MIDTURN_KEYS", "MIDTURN_KEYS_FILE", "MIDTURN_KEY_SERVICE"):
        monkeypatch.delenv(name, raising=False)
    kms = midturn.Keys({"arn-1": bytes(32)})

    async def ask(what, data, context, key_id=""):
        if what == "decrypt":
            return await kms.unwrap(key_id, data, context)
        key_id, ciphertext = await kms.wrap(data, context)
        return SimpleNamespace(key_id=key_id, ciphertext=ciphertext)

    for name in ("old", "older"):
        async with midturn.open(f"sqlite:///{name}.db") as store:
            await store.session(f"case-{name}", build_agent).run(task="Hello.")
    names = {"midturn": midturn, "Path": Path, "build_agent": build_agent, "secrets": secrets, "ask": ask}
    said = ""
    for kind, block in BLOCK.findall(PAGE.read_text()):
        if kind == "text":
            assert capsys.readouterr().out == block
            continue
        if kind == "console":
            for line in block.splitlines():
                said += await typed(line, monkeypatch, tmp_path)
            continue
        found = eval(compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(found):
            await found
    assert "2027-11 (current)" in said
    assert "moved 1 to key 2027-11" in said
    assert "copied 1" in said
    async with midturn.open("sqlite:///cases.db") as store:
        assert [(info.id, info.problem) async for info in store.sessions()] == [("case-42", None), ("case-old", None)]
    async with midturn.open("sqlite:///older.db") as store:
        assert [(info.id, info.problem) async for info in store.sessions()] == [("case-older", None)]
