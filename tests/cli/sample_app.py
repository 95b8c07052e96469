"""The app that the tests of the command line run: each test copies it to its folder and imports it as ``app``.

The model answers by the first word of the task. ``wait`` takes until the file ``go`` is there, ``fail`` raises,
``once`` raises until the file ``go`` is there, and a tool's name calls it. ``refund`` and ``pay`` write what they did
into the file ``done``.
"""

import asyncio
import json
from pathlib import Path

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage

import midturn

BEGUN, GO = Path("begun"), Path("go")
USAGE = RequestUsage(prompt_tokens=5, completion_tokens=2)
CALLS = {
    "tool": [("look_up", "A1")],
    "refund": [("refund", "A1")],
    "both": [("refund", "A1"), ("refund", "B2")],
    "pay": [("pay", "A1")],
    "slow": [("pay", "slow")],
}


class Model(ChatCompletionClient):
    async def create(self, messages, **options):
        asked = [message.content for message in messages if message.type == "UserMessage"]
        word = str(asked[-1]).split()[0]
        if word == "fail" or (word == "once" and not GO.exists()):  # noqa: ASYNC240 - as below
            raise ValueError("the model is [bold]out[/bold] of order")
        if word == "wait":
            BEGUN.touch()  # noqa: ASYNC240 - files are how it speaks with a test in another process
            while not GO.exists():  # noqa: ASYNC110, ASYNC240 - as above
                await asyncio.sleep(0.01)
        if word == "hostile":
            return self._result("\x1b]0;owned\x07\x1b[31mred\u202e [bold]text[/bold] :smile:")
        if word in CALLS and messages[-1].type == "UserMessage":
            calls = [
                FunctionCall(id=str(number), name=name, arguments=json.dumps({"order": order}))
                for number, (name, order) in enumerate(CALLS[word], start=1)
            ]
            return CreateResult(finish_reason="function_calls", content=calls, usage=USAGE, cached=False)
        return self._result(f"{len(asked)} said, the last: {asked[-1]}")

    async def create_stream(self, messages, **options):
        result = await self.create(messages, **options)
        if isinstance(result.content, str):
            for piece in result.content.split(" "):
                yield f"{piece} "
                await asyncio.sleep(0.01)
        yield result

    def _result(self, text):
        return CreateResult(finish_reason="stop", content=text, usage=USAGE, cached=False)

    async def close(self):
        pass

    def actual_usage(self):
        return USAGE

    def total_usage(self):
        return USAGE

    def count_tokens(self, messages, **options):
        return 1

    def remaining_tokens(self, messages, **options):
        return 1000

    @property
    def capabilities(self):
        return self.model_info

    @property
    def model_info(self):
        return ModelInfo(
            vision=False, function_calling=True, json_output=True, family="unknown", structured_output=True
        )


async def look_up(order: str) -> str:
    """Look an order up."""
    return f"{order} is on its way"


@midturn.tool(approval=True)
async def refund(order: str) -> str:
    """Pay an order back."""
    _do(f"refund {order}")
    return f"{order} is paid back"


async def pay(order: str) -> str:
    """Pay an order; a slow one takes until the file ``go`` is there."""
    _do(f"pay {order}")
    if order == "slow":
        BEGUN.touch()  # noqa: ASYNC240 - as above
        while not GO.exists():  # noqa: ASYNC110, ASYNC240 - as above
            await asyncio.sleep(0.01)
    return f"wait until {order} is paid"


def _do(what):
    with Path("done").open("a") as file:
        file.write(f"{what}\n")


def build():
    return AssistantAgent("helper", Model(), tools=[look_up])


def build_streaming():
    return AssistantAgent("helper", Model(), model_client_stream=True)


def build_team():
    agents = [AssistantAgent("first", Model()), AssistantAgent("second", Model())]
    return RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3))


def build_with_person():
    agents = [AssistantAgent("helper", Model()), UserProxyAgent("person")]
    return RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3))


def build_desk(messages=3):
    agents = [AssistantAgent("helper", Model()), UserProxyAgent("person", input_func=midturn.human)]
    return RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(messages))


def build_cashier():
    return AssistantAgent("cashier", Model(), tools=[refund, pay])


def build_bank():
    """Pays, and waits then; the file ``changed`` stands for a new version of the code, which does not pay."""
    tools = [] if Path("changed").exists() else [pay]
    agents = [AssistantAgent("cashier", Model(), tools=tools), AssistantAgent("clerk", Model())]
    return RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(5))


def build_broken():
    raise RuntimeError("no key is set")


def build_with_arguments(model):
    return AssistantAgent("helper", model)


support = midturn.Blueprint("support", build)
hasty = midturn.Blueprint("support", build, timeout=0.05)
claims = midturn.Blueprint("claims", build)
desk = midturn.Blueprint("desk", build_desk)
long_desk = midturn.Blueprint("long desk", lambda: build_desk(5))
cashier = midturn.Blueprint("cashier", build_cashier)
broken_cashier = midturn.Blueprint("cashier", build_broken)
agent = build()
number = 42
result = TaskResult(messages=[])
