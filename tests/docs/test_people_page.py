"""The code on docs/people.md runs, one block after the other, and does what the page says."""

import ast
import inspect
import re
import sys
from pathlib import Path

import midturn

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "people.md"
sys.path.insert(0, str(HERE.with_name("autogen")))


def blocks():
    """The page's Python, by its first words."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


async def run(block, names):
    """Run a block that may await."""
    code = compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found = eval(code, names)
    if inspect.isawaitable(found):
        await found


async def test_the_page_runs_from_top_to_bottom(tmp_path, capsys):
    from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
    from scripted import Scripted, calls, remembered

    refund, blueprint, reconcile, book, human, waits, answer = blocks()
    tools = {}

    def build_team():
        def reply(messages):
            if len(messages) > 2:
                return remembered(messages)
            return calls(("pay", '{"iban": "NL12", "amount": 40.0}'), ("book", '{"order": "A1", "amount": 40.0}'))

        return AssistantAgent("clerk", Scripted(reply), tools=[tools["pay"], tools["book"]], max_tool_iterations=3)

    async with midturn.open(f"sqlite:///{tmp_path / 'support.db'}") as store:
        async with store.store.transaction() as transaction:
            await transaction.execute("CREATE TABLE bookings (number TEXT, amount REAL)")
            await transaction.write(_first_write())
        names = {"midturn": midturn, "UserProxyAgent": UserProxyAgent, "build_team": build_team, "store": store}
        for block in (refund, blueprint, reconcile, book, human):
            await run(block, names)

        @midturn.tool(approval=True)
        async def pay(iban: str, amount: float) -> str:
            return f"paid {amount}"

        tools |= {"pay": pay, "book": names["book"]}
        names["case"] = store.session("case-42", names["support"])
        await run(waits, names)
        assert capsys.readouterr().out == 'May pay({"iban":"NL12","amount":40.0}) be called?\n'
        await run(answer, names)
        assert capsys.readouterr().out == 'case-42 May pay({"iban":"NL12","amount":40.0}) be called?\n'
        assert names["result"].waiting is None
        assert "paid 40.0" in str(names["result"].messages)
        assert "booked 40.0 for A1" in str(names["result"].messages)


def _first_write():
    from midturn.record.head import Write

    return Write(session="other", seq=0, epoch=1, status="idle", token="t", data=b'{"v":1}')
