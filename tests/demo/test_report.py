"""The output of `midturn demo --json`. The workers are stand-ins here."""

import io
import json
from types import SimpleNamespace

from autogen_agentchat.agents import AssistantAgent
from rich.console import Console

import midturn
from midturn.demo import walkthrough
from midturn.demo.scripted_model import ScriptedChatCompletionClient


def build():
    return AssistantAgent("support_agent", ScriptedChatCompletionClient())


async def test_its_json_has_the_turns_with_the_keys_of_every_command(monkeypatch):
    async def start(out, environment, command, url, *task):
        async with midturn.open(url) as store:
            case = store.session(walkthrough.CASE, build)
            if task:
                await case.run(*task)
            answer = (await case.turn((await store.info(case.id)).turns)).messages[-1].content

        async def wait():
            return -9

        return SimpleNamespace(pid=1, wait=wait, said={"event": "done", "answer": answer, "checkpoint": 1})

    async def line(worker):
        return worker.said

    monkeypatch.setenv("MIDTURN_DEMO_MODEL_KIND", "scripted")
    monkeypatch.setattr(walkthrough, "_start", start)
    monkeypatch.setattr(walkthrough, "_line", line)
    monkeypatch.setattr(walkthrough.os, "kill", lambda pid, number: None)
    out = io.StringIO()
    assert await walkthrough.run_demo(Console(file=out, width=10_000), as_json=True) == 0
    report = json.loads(out.getvalue())
    assert report["remembered"]
    assert [(turn["turn"], turn["status"], turn["attempts"]) for turn in report["history"]] == [
        (1, "done", 1),
        (2, "done", 1),
    ]


async def test_it_ends_with_the_line_that_opens_the_page_on_its_case_and_keeps_the_store(monkeypatch, tmp_path):
    async def demo(out, folder):
        out.page(f"midturn web --store sqlite:///{folder}/demo.db --session case-42")
        return SimpleNamespace(remembered=True)

    monkeypatch.setattr(walkthrough.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(walkthrough, "_demo", demo)
    out = io.StringIO()
    assert await walkthrough.run_demo(Console(file=out, width=10_000), as_json=False) == 0
    [folder] = tmp_path.iterdir()
    assert out.getvalue().splitlines()[-1] == f"midturn web --store sqlite:///{folder}/demo.db --session case-42"
