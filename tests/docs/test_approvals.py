"""The page for people who decide, as a real server: it shows the whole of a question, and takes its answers."""

import asyncio
import html
import os
import re
import sys
from pathlib import Path

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from uvicorn_server import first_answer, started

import midturn
from midturn.testing import ScriptedModel, ToolCall, crash_at

APPROVALS = Path(__file__).parents[2] / "examples" / "approvals"


def build():
    """The clerk of the example, as the worker has it that began the cases."""

    @midturn.tool(approval=True)
    async def pay(iban: str, amount: float) -> str:
        """Pay an amount in EUR."""

    script = {"": ToolCall("pay", {"iban": "NL12", "amount": 40.0})}
    return AssistantAgent("clerk", ScriptedModel(script), tools=[pay], reflect_on_tool_use=True)


@pytest.fixture
async def page(tmp_path):
    """A client of a server on the store at ``page.store``."""
    url = f"sqlite:///{tmp_path / 'cases.db'}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MIDTURN_")}
    async with started(APPROVALS, "app:app", {**kept, "MIDTURN_URL": url}) as (_, client):
        await first_answer(client)
        client.store = url
        yield client


async def shown(page, case):
    """The text of a case's page, when its turn does not run."""
    for _ in range(1000):
        text = html.unescape((await page.get(f"/cases/{case}")).raise_for_status().text)
        if "http-equiv" not in text:
            return text
        await asyncio.sleep(0.05)
    pytest.fail("its turn does not end")


async def answer(page, case, text, **fields):
    question = re.search(r'name="question" value="(\w+)"', text)[1]
    sent = await page.post(f"/cases/{case}/answers", data={"question": question, "by": "ann", **fields})
    assert sent.status_code == 303
    return sent.headers["location"]


async def test_a_case_is_found_read_and_approved_with_changed_arguments(page):
    async with midturn.open(page.store) as store:
        assert (await store.session("case-42", build).run(task="Pay <b>Ann</b>.")).waiting
    assert '<a href="/cases/case-42">' in (await page.get("/")).text
    text = await shown(page, "case-42")
    assert "case-42: waiting" in text
    assert "<b>user</b>: Pay <b>Ann</b>." in text
    assert "Pay <b>Ann" not in (await page.get("/cases/case-42")).text  # it is escaped
    assert 'May pay({"iban":"NL12","amount":40.0}) be called?' in text
    wrong = await answer(page, "case-42", text, answer="approve", arguments='{"amount": "much"}')
    assert "not of type 'number'" in html.unescape((await page.get(wrong)).text)
    assert await answer(page, "case-42", text, answer="approve", arguments='{"amount": 30.0}') == "/cases/case-42"
    done = await shown(page, "case-42")
    assert "case-42: idle" in done
    assert "paid 30.0 to NL12" in done
    assert "<b>clerk</b>: It is paid." in done
    late = await answer(page, "case-42", text, answer="deny")
    assert "?problem=" in late
    async with midturn.open(page.store) as store:
        [decision] = (await store.session("case-42").turn(1)).decisions
    assert (decision.by, decision.answer, decision.changed) == ("ann", "approve", {"amount": 30.0})


async def test_a_call_is_denied_with_a_reason(page):
    async with midturn.open(page.store) as store:
        await store.session("case-43", build).run(task="Pay Bob.")
    await answer(page, "case-43", await shown(page, "case-43"), answer="deny", words="he is not ours")
    assert "This call was not allowed: he is not ours" in await shown(page, "case-43")


async def test_a_case_in_doubt_can_be_settled(page):
    async with midturn.open(page.store) as store:
        await store.session("case-44", build).run(task="Pay Cy.")
    async with crash_at(page.store, before="pay") as store:
        await store.session("case-44", build).answer("approve")
    async with midturn.open(page.store) as store:
        assert (await store.session("case-44", build).resume()).waiting.kind == "doubt"
    text = await shown(page, "case-44")
    assert "was interrupted. Did it take effect?" in text
    assert await answer(page, "case-44", text, answer="done", words="paid by hand") == "/cases/case-44"
    assert "It is paid." in await shown(page, "case-44")


@pytest.fixture
def app():
    """The module of the page."""
    sys.path.insert(0, str(APPROVALS))
    try:
        import app
    finally:
        sys.path.remove(str(APPROVALS))
        sys.modules.pop("app")
    return app


def test_what_nobody_would_see_is_an_escape_in_the_form_too(app):
    arguments = {"iban": "NL\u200b12\u202e"}
    question = midturn.Question(id="q", kind="approval", question="May ...?", agent="clerk", arguments=arguments)
    assert r"NL\u200b12\u202e" in app.form("case-46", question)


async def test_an_agent_that_asks_a_human_gets_the_words(app):
    given = app.Answer(question="q", by="ann", answer="said", words="Yes.")
    assert given.text == "Yes."
    user = UserProxyAgent("user", input_func=midturn.human)
    async with midturn.open("memory://") as store:
        case = store.session("case-45", lambda: RoundRobinGroupChat([user], max_turns=1))
        [question] = (await case.run(task="Are you there?")).waiting.questions
        assert 'name="words"' in app.form("case-45", question)
        assert (await case.answer(given.text, question=question.id)).messages[-1].content == "Yes."
