"""The page on moving to Agent Framework prints what it says; test_export.py continues what is exported."""

import ast
import re
import sys
from pathlib import Path

import midturn

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "how-to" / "move-to-agent-framework.md"
sys.path.insert(0, str(HERE.with_name("autogen")))

[RUN] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
[PRINTED] = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)


def build():
    from autogen_agentchat.teams import RoundRobinGroupChat
    from kinds import assistant

    return RoundRobinGroupChat([assistant("triage"), assistant("clerk")], max_turns=2)


async def test_the_page_prints_what_is_exported_and_left_out(capsys):
    async with midturn.open("memory://") as store:
        await store.session("case-42", build).run(task="My parcel is lost.")
        names = {"midturn": midturn, "store": store}
        await eval(compile(RUN, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        assert capsys.readouterr().out == PRINTED
        exported = names["exported"].json()
        assert exported["agents"]["clerk"]["type"] == "session"
        responses = await midturn.export(store, "case-42", to="responses")
        assert any(item["content"].startswith("triage: ") for item in responses.agents["clerk"])
