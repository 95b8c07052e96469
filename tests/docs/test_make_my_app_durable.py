"""Each line of code in the right column of the table on docs/how-to/make-my-app-durable.md runs."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.teams import RoundRobinGroupChat

import midturn
from midturn.testing import ScriptedModel, ToolCall

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "make-my-app-durable.md"
[BLOCK] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
TABLE = PAGE.read_text().partition("| AutoGen | midturn |\n|---|---|\n")[2].partition("\n\n")[0]
CODE = re.compile(r"`([^`]*\([^`]*)`")
ROWS = 14


def look_up() -> str:
    """Look it up."""
    return "found"


async def run(code, names):
    found = eval(compile(code, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    return await found if inspect.isawaitable(found) else found


@pytest.fixture
async def names(tmp_path, monkeypatch):
    """Return what the block at the top of the page makes, and the other names in its table."""
    monkeypatch.chdir(tmp_path)
    model = ScriptedModel({"found": "Done.", "Yes.": "Done.", "Hello": ToolCall("look_up")})
    names = {"model": model, "look_up": midturn.tool(effect="read")(look_up)}
    await run(BLOCK, names)
    names |= {
        "message": names["TextMessage"](content="Hello.", source="user"),
        "UserProxyAgent": UserProxyAgent,
        "team": names["build"](),
    }
    yield names
    await names["store"].aclose()


async def test_each_line_of_the_table_runs(names, capsys):
    case = names["case"]
    rows = [row.strip("|").split(" | ") for row in TABLE.splitlines()]
    assert len(rows) == ROWS
    for _, ours in rows:
        for code in CODE.findall(ours):
            if "case.live" in code:  # needs a turn that runs, as tests/sessions/test_reset_and_live.py has it
                continue
            value = await run(f"_ = {code}" if "run = " not in code else code, names)
            stream = names["_"]
            if inspect.isasyncgen(stream) or hasattr(stream, "__anext__"):
                assert [item async for item in stream], code
            assert value is None
    assert [turn async for turn in case.history()]
    assert "Done." in capsys.readouterr().out  # Console


async def test_the_state_is_autogens_own_and_the_last_message_is_its_response(names):
    case, team = names["case"], names["team"]
    result = await case.run(task=[names["message"]])
    assert result.messages[-1].content == "Done."
    state = await case.at(1).state()
    await team.load_state(state)
    assert (await team.save_state())["agent_states"].keys() == state["agent_states"].keys()


async def test_what_a_user_says_answers_the_agent_that_stands_for_them(names):
    build = names["build"]

    def asking():
        clerk = build()._participants[0]
        user = UserProxyAgent("user", input_func=midturn.human)
        return RoundRobinGroupChat([user, clerk], max_turns=2)

    case = names["store"].session("case-43", asking)
    assert (await case.run(task="Good morning.")).waiting
    assert (await case.say("Yes.")).messages[-1].content == "Done."
