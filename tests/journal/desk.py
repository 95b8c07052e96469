"""A refund desk: an agent whose model follows a script of calls, and tools that write down what they do."""

import asyncio
import json
from collections import Counter

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, FunctionExecutionResultMessage, RequestUsage
from autogen_core.tools import FunctionTool
from scripted import Scripted, digest

import midturn

A1, B2 = ("refund", {"order": "A1"}), ("refund", {"order": "B2"})


class Killed(BaseException):
    """The process dies here."""


class Desk:
    """Builds the agent; ``done`` has what the tools did, ``keys`` the keys they were called with.

    ``script`` has the calls that the model asks for, round by round: ``[("refund", {"order": "A1"})]``.
    """

    def __init__(self, *script, effects=None, prompt="Be kind.", **options):
        self.script = list(script)
        self.prompt = prompt
        self.done = []
        self.keys = []
        self.asked = Counter()
        self.fail = None
        """The name of the tool that fails after its effect, as if the process had died."""
        self.error = None
        """The name of a tool that raises after its effect."""
        self.model_error_at = 0
        """The number of the model call that fails, as with a server that is busy."""
        self.options = options
        self.effects = effects or {}

    def __call__(self):
        tools = [FunctionTool(self._tool(name), name=name, description=name) for name in ("look", "reserve", "refund")]
        self.model = Scripted(self._answer)
        return AssistantAgent(
            "clerk",
            self.model,
            tools=tools,
            system_message=self.prompt,
            **{"max_tool_iterations": 5, "reflect_on_tool_use": False} | self.options,
        )

    def _tool(self, name):
        async def work(order: str) -> str:
            self.done.append((name, order))
            self.keys.append(midturn.call_key())
            if self.fail == name:
                self.fail = None
                raise Killed
            if self.error == name:
                self.error = None
                raise RuntimeError("the bank is closed")
            await asyncio.sleep(0)
            return f"{name} of {order} is done"

        if name in self.effects:
            work = self.effects[name](work)
        return work

    def _answer(self, messages):
        self.asked[digest(messages)] += 1
        if self.asked.total() == self.model_error_at:
            raise RuntimeError("503")
        rounds = sum(isinstance(message, FunctionExecutionResultMessage) for message in messages)
        users = sum(type(message).__name__ == "UserMessage" for message in messages)
        rounds -= (users - 1) * len(self.script)
        if rounds >= len(self.script):
            return f"all done, {digest(messages)}"
        return CreateResult(
            finish_reason="function_calls",
            content=[
                FunctionCall(id=f"{rounds}-{i}", name=name, arguments=json.dumps(arguments))
                for i, (name, arguments) in enumerate(self.script[rounds])
            ],
            usage=RequestUsage(prompt_tokens=7, completion_tokens=3),
            cached=False,
        )


async def killed(store, desk, *, what=None, task="please"):
    """Run a turn until the process dies; the session as the next process has it."""
    with pytest.raises(Killed):
        await store.session("case", what or desk).run(task=task)
    return store.session("case", what or desk)


def results(result):
    """Return what the tools told the model, in order."""
    return [
        each.content
        for message in result.messages
        if message.type == "ToolCallExecutionEvent"
        for each in message.content
    ]
