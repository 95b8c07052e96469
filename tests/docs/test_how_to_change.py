"""The how-to pages with one script each run from top to bottom, and do what they say."""

import ast
import inspect
import re
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import midturn

HERE = Path(__file__).parent
PAGES = HERE.parents[1] / "docs" / "how-to"
sys.path.insert(0, str(HERE.with_name("autogen")))

BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


@pytest.fixture
async def page(tmp_path, capsys):
    """Run the blocks of a page in one namespace; what it prints must be what the page says it prints."""
    async with midturn.open(f"sqlite:///{tmp_path / 'support.db'}") as store:

        async def run(name, **names):
            from autogen_agentchat.agents import AssistantAgent
            from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat

            names |= {
                "midturn": midturn,
                "store": store,
                "AssistantAgent": AssistantAgent,
                "RoundRobinGroupChat": RoundRobinGroupChat,
                "SelectorGroupChat": SelectorGroupChat,
            }
            for kind, block in BLOCK.findall((PAGES / name).read_text()):
                if kind == "text":
                    assert capsys.readouterr().out.strip() == block.strip()
                    continue
                found = eval(compile(block, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
                if inspect.isawaitable(found):
                    await found
            return names

        yield run


def model(answer):
    from scripted import Scripted

    return Scripted(answer)


def channel(messages):
    """An answer from what was said, and from nothing else."""
    told = any("prefers email" in str(message.content) for message in messages)
    return "The customer prefers email." if told else "I do not know."


async def test_a_prompt(page, caplog):
    names = await page("change-a-prompt.md", model=model(channel))
    assert names["result"].messages[-1].content == "The customer prefers email."
    assert caplog.text.count("prompt of support_agent changed") == 1
    turns = [turn async for turn in names["store"].session("case-42").history()]
    assert [turn.version for turn in turns] == [1, 1, 1, 2]


async def test_a_tool(page):
    from scripted import calls

    def answer(messages):
        if not any(message.type == "FunctionExecutionResultMessage" for message in messages):
            return calls(("refund", '{"order": "A1"}'))
        return "I have refunded A1."

    client = model(answer)
    names = await page("rename-a-tool.md", model=client)
    assert names["result"].messages[-1].content == "I have refunded A1."
    shown = str(client.seen[-1])
    assert "pay_back" in shown
    assert "name='refund'" not in shown


async def test_finding_and_comparing(page):
    names = await page("find-and-compare.md", model=model(lambda _: "Noted."))
    assert not await names["case"].diff(2, 2)


async def test_agents(page):
    seen = []

    def answer(messages):
        seen.append(messages)
        return channel(messages)

    names = await page("add-an-agent.md", model=model(answer), selector=model(lambda _: "clerk"))
    assert len(seen) == 2 + 3 + 1
    assert "prefers email" in str(seen[4]), "the auditor was told"
    assert "triage" not in str([message for messages in seen[2:] for message in messages])
    turns = [turn async for turn in names["store"].session("case-42").history()]
    assert [turn.version for turn in turns] == [1, 2, 3]
    assert [turn.drift[0] for turn in turns[1:]] == ["migrated from version 1 to 2", "migrated from version 2 to 3"]


def orders(messages):
    """The last order that anybody has named."""
    named = re.findall(r"A[0-9]+", " ".join(str(message.content) for message in messages))
    return f"Your order is {named[-1]}."


async def test_a_correction(page):
    names = await page("correct-a-case.md", model=model(orders), timedelta=timedelta)
    assert (await names["store"].info("case-42")).status == "deleted"


async def test_another_way(page):
    names = await page("try-another-way.md", model=model(orders))
    assert [turn.number async for turn in names["case"].history()] == [1, 2]
