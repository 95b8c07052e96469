"""The examples on docs/how-to/keep-data-for-90-days.md run, and do what the page says."""

import ast
import inspect
import re
import sys
from pathlib import Path

import midturn
from midturn.stores import memory

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "how-to" / "keep-data-for-90-days.md"
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
sys.path.insert(0, str(HERE.with_name("autogen")))


async def test_the_page_runs_from_top_to_bottom(tmp_path, capsys, monkeypatch):
    from autogen_agentchat.agents import AssistantAgent
    from scripted import Scripted

    def answer(messages):
        told = any("prefers email" in str(message.content) for message in messages)
        return "The customer prefers email." if told else "I do not know."

    now = [1_700_000_000.0]

    class Clock:
        time = staticmethod(lambda: now[0])

    def let_days_pass(days):
        now[0] += days * 86_400.0

    monkeypatch.setattr(memory, "time", Clock)
    async with midturn.open("memory://") as store:
        names = {
            "midturn": midturn,
            "store": store,
            "archive": tmp_path / "archive",
            "build_team": lambda: AssistantAgent("desk", Scripted(answer)),
            "let_days_pass": let_days_pass,
        }
        for kind, block in BLOCK.findall(PAGE.read_text()):
            if kind == "text":
                assert capsys.readouterr().out == block
                continue
            found = eval(compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.isawaitable(found):
                await found
