"""The server on docs/how-to/stream-to-a-front-end.md runs, and prints what the page says."""

import ast
import json
import re
import shlex
from pathlib import Path

import httpx
import pytest

import midturn
from midturn.testing import ScriptedModel, ToolCall

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "stream-to-a-front-end.md"
CODE = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
CONSOLES = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
QUESTION = re.compile(r'"questions":\[\{"id":"(\w+)"')
"""A question has another id in each session."""
CALL = re.compile(r"^\$ curl (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def build():
    from autogen_agentchat.agents import AssistantAgent

    @midturn.tool(approval=True)
    async def refund(amount: float) -> str:
        """Refund an amount."""
        return f"refunded {amount}"

    script = {"Where is my order?": "It is on its way.", "refund it": ToolCall("refund", {"amount": 40.0})}
    return AssistantAgent("helper", ScriptedModel(script), tools=[refund])


@pytest.fixture
async def client(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"support": build, "__name__": "page"}
    for block in CODE:
        exec(compile(ast.parse(block), str(PAGE), "exec"), names)
    app = names["app"]
    async with (
        app.router.lifespan_context(app) as state,
        httpx.AsyncClient(transport=httpx.ASGITransport(_with(app, state)), base_url="http://localhost:8000") as made,
    ):
        yield made


def _with(app, state):
    """Give the state of the lifespan to each request, as a server does."""

    async def call(scope, receive, send):
        await app({**scope, "state": dict(state)}, receive, send)

    return call


async def test_the_server_answers_what_the_page_says(client):
    calls = [call for console in CONSOLES for call in CALL.findall(console)]
    assert len(calls) == 8
    ids = {}
    for words, expected in calls:
        for shown, now in ids.items():
            words = words.replace(shown, now)  # noqa: PLW2901 - the page goes on with the id that it shows
        url, *options = shlex.split(words)
        given = dict(zip(options[::2], options[1::2], strict=True))
        if "--json" in given:
            answer = await client.post(f"http://{url}", json=json.loads(given["--json"]))
        else:
            headers = dict([given["-H"].split(": ")]) if "-H" in given else {}
            answer = await client.get(f"http://{url}", headers=headers)
        assert answer.status_code == 200
        found = answer.text.strip()
        if asked := QUESTION.search(found):
            ids[shown := QUESTION.search(expected)[1]] = asked[1]
            found = found.replace(asked[1], shown)
        assert found == expected.strip()
