"""The examples on docs/how-to/redact-what-is-stored.md run, and do what the page says."""

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import get_args

import midturn
from midturn.redaction import Spoken
from midturn.testing import ScriptedModel, ToolCall

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "how-to" / "redact-what-is-stored.md"
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
sys.path.insert(0, str(HERE.with_name("redaction")))


async def test_the_page_runs_from_top_to_bottom(capsys):
    from autogen_agentchat.agents import AssistantAgent
    from stored_text import everything

    def build_desk(refund):
        def answer(messages):
            said = re.search(r"card-\w+", str(messages[-1].content))
            return ToolCall("refund", {"card": said[0]})

        return lambda: AssistantAgent("desk", ScriptedModel(answer), tools=[refund], reflect_on_tool_use=False)

    async with midturn.open("memory://") as store:
        names = {
            "midturn": midturn,
            "store": store,
            "build_team": lambda: AssistantAgent("desk", ScriptedModel(lambda said: f"Noted: {said[-1].content}")),
            "build_desk": build_desk,
            "paid_back": [],
            "KEY": b"of the page",
        }
        for kind, block in BLOCK.findall(PAGE.read_text()):
            if kind == "text":
                assert capsys.readouterr().out == block
                continue
            found = eval(compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.isawaitable(found):
                await found
        assert names["all_but_refunds"]("a@b.org", midturn.Where(kind="model", tool="refund")) == "a@b.org"
        assert names["all_but_refunds"]("a@b.org", midturn.Where(kind="task")) == "[email]"
        for session in ("case-1", "case-2"):
            stored = await everything(store, session)
            assert "4929" not in stored
            assert "ann@" not in stored


def test_the_page_lists_all_kinds_of_texts():
    kinds = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert tuple(kinds) == get_args(Spoken)
