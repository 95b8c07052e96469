"""A turn in which anything raises anything ends as plain AutoGen's run ends, and never hangs."""

import asyncio
import gc

import pytest
from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_core.code_executor import CodeExecutor
from autogen_core.memory import ListMemory, MemoryQueryResult
from autogen_core.models import FunctionExecutionResultMessage
from autogen_core.tools import FunctionTool, StaticStreamWorkbench, Workbench
from scripted import Scripted, calls

import midturn
from midturn.journal.order import Gate

pytestmark = [
    pytest.mark.fault("F27"),
    pytest.mark.filterwarnings("ignore:No approval function set for CodeExecutorAgent"),
]


class Odd(BaseException):
    """An exception of a user's own that is no Exception."""


def answer(messages):
    """Call the tool, then say what came of it."""
    last = messages[-1]
    if isinstance(last, FunctionExecutionResultMessage):
        return f"told: {last.content[0].content}"
    return calls(("pay", "{}"))


class Bench(Workbench):
    """A workbench of a user's own."""

    component_type = "workbench"

    def __init__(self, error, at):
        self._error, self._at = error, at

    async def list_tools(self):
        if self._at == "list_tools":
            raise self._error
        return [{"name": "pay", "description": "pay"}]

    async def call_tool(self, name, arguments=None, cancellation_token=None, call_id=None):
        raise self._error

    async def start(self): ...
    async def stop(self): ...
    async def reset(self): ...
    async def save_state(self):
        return {}

    async def load_state(self, state): ...


class Stream(StaticStreamWorkbench):
    """A workbench that streams."""

    def __init__(self, error):
        super().__init__([FunctionTool(pay, name="pay", description="pay")])
        self._error = error

    async def call_tool_stream(self, name, arguments=None, cancellation_token=None, call_id=None):
        yield TextMessage(content="working", source="pay")
        raise self._error


async def pay() -> str:
    return "paid"


class Memory(ListMemory):
    """A memory of a user's own."""

    def __init__(self, error):
        super().__init__()
        self._error = error

    async def update_context(self, model_context):
        raise self._error

    async def query(self, query="", *args, **options):
        return MemoryQueryResult(results=[])


class Executor(CodeExecutor):
    """An executor of a user's own."""

    def __init__(self, error):
        self._error = error

    async def execute_code_blocks(self, code_blocks, cancellation_token):
        raise self._error

    async def start(self): ...
    async def stop(self): ...
    async def restart(self): ...


class Condition(MaxMessageTermination):
    """A condition of a user's own."""

    def __init__(self, error):
        super().__init__(2)
        self._error = error

    async def __call__(self, messages):
        raise self._error


def raising(error):
    async def fail(*_):
        raise error

    return fail


def assistant(name="clerk", *, stream=False, model=answer, **options):
    settings = {"reflect_on_tool_use": True, "model_client_stream": stream} | options
    return AssistantAgent(name, Scripted(model), **settings)


def tool(function):
    return [FunctionTool(function, name="pay", description="pay")]


def async_tool(error):
    async def work() -> str:
        raise error

    return tool(work)


def sync_tool(error):
    def work() -> str:
        raise error

    return tool(work)


AGENTS = {
    "an async tool": lambda error, stream: assistant(tools=async_tool(error), stream=stream),
    "a tool in a thread": lambda error, stream: assistant(tools=sync_tool(error), stream=stream),
    "call_tool": lambda error, stream: assistant(workbench=Bench(error, "call_tool"), stream=stream),
    "call_tool_stream": lambda error, stream: assistant(workbench=Stream(error), stream=stream),
    "list_tools": lambda error, stream: assistant(workbench=Bench(error, "list_tools"), stream=stream),
    "a model": lambda error, stream: assistant(model=raising(error), stream=stream),
    "a memory": lambda error, stream: assistant(memory=[Memory(error)], stream=stream),
    "code": lambda error, stream: CodeExecutorAgent(
        "coder", Executor(error), sources=["user"], model_client_stream=stream
    ),
    "input_func": lambda error, _: UserProxyAgent("ann", input_func=raising(error)),
}
"""Agents with something in them that raises."""
IN_TEAMS = {
    "a condition": lambda error, stream: RoundRobinGroupChat(
        [assistant(stream=stream, model=lambda _: "fine")], termination_condition=Condition(error)
    ),
    "selector_func": lambda error, stream: SelectorGroupChat(
        [assistant("ann", stream=stream, model=lambda _: "fine"), assistant("bob", model=lambda _: "fine")],
        Scripted(lambda _: "ann"),
        selector_func=raising(error),
        max_turns=2,
    ),
}
"""Teams with something in them that raises."""
TASK = "```python\nprint(1)\n```"
ERRORS = {each.__name__: each for each in (RuntimeError, asyncio.CancelledError, GeneratorExit, Odd, SystemExit)}
TOOLS = ("an async tool", "a tool in a thread")
IN_A_TASK = (*TOOLS, "call_tool", "call_tool_stream")
"""Functions that plain AutoGen calls in a task whose exceptions it loses."""
CASES = [
    *((place, shape, error) for place in AGENTS for shape in ("agent", "team") for error in ERRORS),
    *((place, "team", error) for place in IN_TEAMS for error in ERRORS),
]
OTHERS = [
    ("selector_func", "team", "SystemExit"),  # AutoGen calls it in a task of its own, so that the process ends
    *((place, shape, "GeneratorExit") for place in TOOLS for shape in ("agent", "team")),  # see the last test
]


def build(place, shape, error, *, stream=False):
    if place in IN_TEAMS:
        return IN_TEAMS[place](error, stream)
    agent = AGENTS[place](error, stream)
    return agent if shape == "agent" else RoundRobinGroupChat([agent], max_turns=1)


def outcome_of_plain(place, shape, error):
    """Return what plain AutoGen does: it tells the model, it raises, or it waits for ever."""
    if place in TOOLS and error == "RuntimeError":
        return "told"
    lost = place in IN_A_TASK or (shape == "team" and error != "RuntimeError" and place not in IN_TEAMS)
    return "hangs" if lost else "raises"


@pytest.fixture(scope="module")
def frozen():
    """Leave what was there before these tests out of the garbage collection after each of them."""
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(("place", "shape", "error"), [case for case in CASES if case[2] != "SystemExit"])
async def test_plain_autogen_tells_the_model_or_raises_or_hangs(place, shape, error):
    before = asyncio.all_tasks()
    run = asyncio.create_task(build(place, shape, ERRORS[error]("boom")).run(task=TASK))
    expected = outcome_of_plain(place, shape, error)
    if expected == "hangs":
        await Gate().quiet()
        assert not run.done()
    else:
        await asyncio.wait({run})
    if expected == "told":
        assert run.result().messages[-1].content == "told: boom"
    if expected == "raises":
        assert run.cancelled() if error == "CancelledError" else "boom" in str(run.exception())
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await asyncio.gather(run, *(asyncio.all_tasks() - before), return_exceptions=True)
    del run
    gc.collect()  # so that asyncio reports the lost exceptions here, and not in another test


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("place", "shape", "error"), [case for case in CASES if case not in OTHERS])
async def test_a_turn_tells_the_model_what_plain_autogen_tells_it_and_fails_otherwise(memory, place, shape, error):
    for stream in (False, True):
        case = memory.session(f"{stream}", lambda: build(place, shape, ERRORS[error]("boom"), stream=stream))  # noqa: B023
        if outcome_of_plain(place, shape, error) == "told":
            assert (await case.run(task=TASK)).messages[-1].content == "told: boom"
            continue
        with pytest.raises(midturn.TurnFailed) as failed:
            await case.run(task=TASK)
        assert error in str(failed.value)
        info = await memory.info(f"{stream}")
        assert (info.status, info.owner) == ("failed", None)


@pytest.mark.parametrize("shape", ["agent", "team"])
@pytest.mark.parametrize("place", TOOLS)
async def test_a_tool_that_raises_what_python_closes_generators_with_fails_the_turn_too(memory, place, shape):
    with pytest.raises(midturn.TurnFailed):  # with another error, which Python makes of it
        await memory.session("case", lambda: build(place, shape, GeneratorExit("boom"))).run(task=TASK)
    gc.collect()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("shape", ["agent", "team"])
@pytest.mark.parametrize("place", [*TOOLS, "a function that hears"])
async def test_a_function_that_raises_stop_iteration_does_not_hang(memory, place, shape):
    def hear(_):
        raise StopIteration("boom")

    def made():
        if place not in TOOLS:
            agent = UserProxyAgent("ann", input_func=hear)
            return agent if shape == "agent" else RoundRobinGroupChat([agent], max_turns=1)
        return build(place, shape, StopIteration("boom"))

    case = memory.session("case", made)
    if place in TOOLS:  # as plain AutoGen does with a coroutine
        assert "raised StopIteration" in (await case.run(task=TASK)).messages[-1].content
    else:
        with pytest.raises(midturn.TurnFailed, match="raised StopIteration"):
            await case.run(task=TASK)
