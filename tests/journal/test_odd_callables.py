"""People are asked by functions of any kind: partials, methods and callable objects, async or not."""

import functools

import pytest
from autogen_agentchat.agents import ApprovalResponse, AssistantAgent, CodeExecutorAgent, UserProxyAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from desk import Killed
from test_odd_classes import TASK, Second, Shell

import midturn


class Desk:
    def __init__(self, log):
        self.log = log

    def ask(self, prompt, *_):
        self.log.append(prompt)
        return "yes"

    async def ask_async(self, prompt, token=None):
        return self.ask(prompt)

    def approve(self, request):
        self.log.append(request.code)
        return ApprovalResponse(approved=True, reason="fine")

    async def approve_async(self, request):
        return self.approve(request)


class Called:
    def __init__(self, method):
        self.method = method

    def __call__(self, *args):
        return self.method(*args)


class CalledAsync(Called):
    async def __call__(self, *args):
        return await self.method(*args)


SHAPES = {
    "method": getattr,
    "async method": lambda desk, name: getattr(desk, f"{name}_async"),
    "partial": lambda desk, name: functools.partial(getattr(desk, name)),
    "async partial": lambda desk, name: functools.partial(getattr(desk, f"{name}_async")),
    "object": lambda desk, name: Called(getattr(desk, name)),
    "async object": lambda desk, name: CalledAsync(getattr(desk, f"{name}_async")),
}


@pytest.mark.parametrize("name", ["ask", "approve"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_person_is_asked_once_by_a_function_of_any_kind(memory, shape, name):
    log, died, ran = [], [], []

    def build():
        function = SHAPES[shape](Desk(log), name)
        if name == "ask":
            first = UserProxyAgent("user", input_func=function)
        else:
            first = CodeExecutorAgent("coder", Shell(ran), approval_func=function)
        return RoundRobinGroupChat([first, AssistantAgent("bob", Second(died))], max_turns=2)

    with pytest.raises(Killed):
        await memory.session("case", build).run(task=TASK)
    await memory.session("case", build).resume()
    assert len(log) == 1
    assert len(ran) == (name == "approve")


async def test_a_partial_of_human_waits_for_an_answer(memory):
    build = lambda: UserProxyAgent("user", input_func=functools.partial(midturn.human))  # noqa: E731 - short
    assert (await memory.session("case", build).run(task="go")).waiting
    assert (await memory.session("case", build).answer("yes")).messages[-1].content == "yes"
