"""Odd arguments, records and tools end a turn, or the model learns of them. None of them makes a turn hang."""

import asyncio
from dataclasses import replace
from inspect import isasyncgenfunction, iscoroutinefunction

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, CodeExecutorAgent, UserProxyAgent
from autogen_agentchat.base import Handoff, Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeExecutor, CodeResult
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.models import FunctionExecutionResultMessage
from autogen_core.tools import FunctionTool
from desk import A1, Desk, killed
from scripted import Scripted, calls
from test_raising import Bench, assistant

import midturn
from midturn.autogen.calls import guard
from midturn.autogen.calls.recorders import (
    ClientRecorder,
    CodeRecorder,
    HumanRecorder,
    MemoryRecorder,
    ToolRecorder,
)
from midturn.record.head import Kind
from midturn.stores.memory import MemoryStore
from midturn.stores.wrapper import StoreWrapper

ARGUMENTS = ("[1]", "3", '"x"', "true", '[["order", "A1"]]', "0", "[]", "null", "", "{", '{"order": 1e999}')


def asking(arguments, tool="pay"):
    """A model that calls a tool with these arguments and says what came of it."""

    def answer(messages):
        last = messages[-1]
        if isinstance(last, FunctionExecutionResultMessage):
            return f"told: {last.content[0].content}"
        return calls((tool, arguments))

    return answer


@pytest.mark.parametrize(
    ("arguments", "approval"), [*((each, False) for each in ARGUMENTS), ("[1]", True), ("{}", True)]
)
async def test_the_model_learns_that_arguments_are_no_object_as_in_plain_autogen(memory, arguments, approval):
    async def pay(order: str) -> str:
        return f"paid {order}"

    def build(function=pay):
        tools = [FunctionTool(function, name="pay", description="pay")]
        return AssistantAgent("clerk", Scripted(asking(arguments)), tools=tools, reflect_on_tool_use=True)

    plain = await build().run(task="go")
    case = memory.session("case", lambda: build(midturn.tool(approval=True)(pay) if approval else pay))
    result = await case.run(task="go")
    if result.waiting:
        result = await case.answer("approve")
    assert result.messages[-1].content == plain.messages[-1].content


@pytest.mark.fault("F27")
@pytest.mark.parametrize("arguments", ["[1]", "9" * 5000, "[" * 100_000])
async def test_what_a_handoff_cannot_read_ends_the_turn(memory, arguments):
    def build():
        model = Scripted(lambda _: calls(("transfer_to_bob", arguments)))
        return AssistantAgent("clerk", model, handoffs=[Handoff(target="bob")])

    with pytest.raises(midturn.TurnFailed):
        await memory.session("case", build).run(task="go")


class Damaged(StoreWrapper):
    """A store in which one byte of the recorded calls, or of the bodies, is another one when they are read."""

    def __init__(self, inner, old, new):
        super().__init__(inner)
        self.old, self.new = old, new
        self.hits = 0

    async def rows(self, session, kind, *, start=0, stop=None):
        found = await super().rows(session, kind, start=start, stop=stop)
        if kind not in (Kind.CALL, Kind.BODY):
            return found
        self.hits += sum(self.old in row.data for row in found)
        return [replace(row, data=row.data.replace(self.old, self.new)) for row in found]


class Notes(ListMemory):
    """A memory whose queries are recorded."""


class Runner(CodeExecutor):
    """Runs no code."""

    async def execute_code_blocks(self, code_blocks, cancellation_token):
        return CodeResult(exit_code=0, output="1")

    async def start(self): ...
    async def stop(self): ...
    async def restart(self): ...


async def say(_prompt, _token):
    return "yes"


class Late:
    """A participant's model that fails once: what was done before it is recorded, and is read again."""

    def __init__(self):
        self.failed = False

    def __call__(self, _messages):
        self.failed, before = True, self.failed
        if not before:
            raise RuntimeError("503")
        return "fine"


RECORDED = {
    "model": (lambda: assistant("ann", model=lambda _: "hello"), b"finish_reason", b"finish_reasom"),
    "tool": (lambda: assistant("ann", tools=[ok_tool()]), b"TextResultContent", b"TextResultContenu"),
    "code": (lambda: CodeExecutorAgent("ann", Runner(), sources=["user"]), b"exit_code", b"exit_codf"),
    "human": (lambda: UserProxyAgent("ann", input_func=say), b'"text"', b'"texu"'),
    "memory": (
        lambda: assistant("ann", model=lambda _: "hello", memory=[notes()]),
        b'"SystemMessage"',
        b'"SystemMessagf"',
    ),
}
"""A record, and a byte of it that becomes another."""


def ok_tool():
    async def pay() -> str:
        return "paid"

    return FunctionTool(pay, name="pay", description="pay")


def notes():
    return Notes(memory_contents=[MemoryContent(content="x", mime_type=MemoryMimeType.TEXT)])


@pytest.mark.fault("F27")
@pytest.mark.filterwarnings("ignore:No approval function set for CodeExecutorAgent")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("what", RECORDED)
async def test_a_recorded_answer_that_cannot_be_read_ends_the_turn_with_its_name(what, stream):
    build, old, new = RECORDED[what]
    late = Late()

    def team():
        agent = build()
        if isinstance(agent, AssistantAgent):
            agent._model_client_stream = stream
        return RoundRobinGroupChat([agent, assistant("bob", model=late)], max_turns=2)

    inner = MemoryStore()
    async with midturn.open(store=inner) as store:
        with pytest.raises(midturn.TurnFailed):
            await store.session("case", team).run(task="```python\nprint(1)\n```")
        damaged = Damaged(inner, old, new)
        async with midturn.open(store=damaged) as other:
            with pytest.raises(midturn.StateInvalid, match=r"cannot be read|the record is damaged"):
                await other.session("case", team).resume()
            assert damaged.hits
            assert (await other.info("case")).status == "failed"


@pytest.mark.fault("F27")
async def test_a_tool_that_raises_a_cancellation_fails_the_turn_and_the_next_attempt_repeats_nothing(memory):
    done = []

    def build():
        async def look() -> str:
            done.append("look")
            return "here"

        async def pay() -> str:
            done.append("pay")
            if done.count("pay") == 1:
                raise asyncio.CancelledError
            return "paid"

        def answer(messages):
            rounds = sum(isinstance(message, FunctionExecutionResultMessage) for message in messages)
            return [calls(("look", "{}")), calls(("pay", "{}")), "done"][rounds]

        tools = [FunctionTool(look, name="look", description=""), FunctionTool(pay, name="pay", description="")]
        return AssistantAgent("clerk", Scripted(answer), tools=tools, max_tool_iterations=3)

    case = memory.session("case", build)
    with pytest.raises(midturn.TurnFailed, match="CancelledError") as failed:
        await case.run(task="go", key="mail-1")
    assert isinstance(failed.value.__cause__, asyncio.CancelledError)
    asked = await memory.session("case", build).run(task="go", key="mail-1")
    assert asked.waiting.question == "pay({}) was interrupted. Did it take effect?"
    assert (await case.answer("retry")).messages[-1].content == "done"
    assert done == ["look", "pay", "pay"]


async def test_a_tool_that_cancels_the_token_of_the_run_fails_the_turn(memory):
    async def pay(cancellation_token: CancellationToken) -> str:
        cancellation_token.cancel()
        await asyncio.get_running_loop().create_future()

    def build():
        tools = [FunctionTool(pay, name="pay", description="pay")]
        return assistant(tools=tools)

    for name, what in (("agent", build), ("team", lambda: RoundRobinGroupChat([build()], max_turns=1))):
        with pytest.raises(midturn.TurnFailed, match="CancelledError"):
            await memory.session(name, what).run(task="go")


async def test_the_outer_model_learns_what_the_workbench_of_an_inner_agent_raises(memory):
    def build():
        inner = assistant("inner", workbench=Bench(RuntimeError("boom"), "call_tool"))
        model = Scripted(asking('{"task": "pay"}', "inner"))
        return AssistantAgent("outer", model, tools=[AgentTool(inner)], reflect_on_tool_use=True)

    result = await memory.session("case", build).run(task="go")
    assert result.messages[-1].content == "told: boom"


async def test_an_agent_may_handle_what_its_model_raises(memory):
    class Patient(AssistantAgent):
        async def on_messages_stream(self, messages, cancellation_token):
            try:
                async for item in super().on_messages_stream(messages, cancellation_token):
                    yield item
            except TimeoutError:
                yield Response(chat_message=TextMessage(content="later", source=self.name))

    def fail(_):
        raise TimeoutError

    result = await memory.session("case", lambda: Patient("clerk", Scripted(fail))).run(task="go")
    assert result.messages[-1].content == "later"


async def test_an_agent_with_a_timeout_of_its_own_for_an_inner_one_goes_on(memory):
    class Hasty(BaseChatAgent):
        produced_message_types = (TextMessage,)

        def __init__(self, inner, started):
            super().__init__("hasty", "hasty")
            self.inner, self._started = inner, started

        async def on_messages(self, messages, cancellation_token):
            token = CancellationToken()
            run = asyncio.create_task(self.inner.run(task="go", cancellation_token=token))
            await self._started.wait()
            token.cancel()
            run.cancel()
            await asyncio.wait({run})
            return Response(chat_message=TextMessage(content="continued", source=self.name))

        async def on_reset(self, cancellation_token): ...

    def build():
        started = asyncio.Event()

        async def pay() -> str:
            started.set()
            await asyncio.get_running_loop().create_future()

        return Hasty(assistant(tools=[FunctionTool(pay, name="pay", description="pay")]), started)

    result = await memory.session("case", build).run(task="go")
    assert result.messages[-1].content == "continued"


def test_ctrl_c_in_a_tool_ends_the_process_and_the_turn_is_cancelled(tmp_path):
    async def pay() -> str:
        raise KeyboardInterrupt

    async def work():
        async with midturn.open(f"sqlite:///{tmp_path}/case.db") as store:
            tools = [FunctionTool(pay, name="pay", description="pay")]
            await store.session("case", lambda: assistant(tools=tools)).run(task="go")

    async def status():
        async with midturn.open(f"sqlite:///{tmp_path}/case.db") as store:
            return (await store.info("case")).status

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work())
    assert asyncio.run(status()) == "cancelled"


def test_every_method_of_a_recorder_that_an_agent_calls_is_guarded():
    called = [
        method
        for cls in (ClientRecorder, CodeRecorder, HumanRecorder, MemoryRecorder, ToolRecorder)
        for name, method in vars(cls).items()
        if not name.startswith("_") and (iscoroutinefunction(method) or isasyncgenfunction(method))
    ]
    assert len(called) == 11
    assert all(method.__code__.co_filename == guard.__file__ for method in called)


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
async def test_what_reconcile_raises_fails_the_turn(memory, error):
    def reconcile(_):
        raise error("boom")

    desk = Desk([A1], effects={"refund": midturn.tool(reconcile=reconcile)})
    desk.fail = "refund"
    with pytest.raises(midturn.TurnFailed, match=error.__name__):
        await (await killed(memory, desk)).resume()
    assert desk.done == [("refund", "A1")]


DECLARED = {
    "unsafe": midturn.tool(),
    "read": midturn.tool(effect="read"),
    "idempotent": midturn.tool(effect="idempotent"),
    "transactional": midturn.tool(effect="transactional"),
    "reconciled": midturn.tool(reconcile=lambda _: "was done"),
    "approved": midturn.tool(approval=True),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("arguments", ["[1]", "3", '"x"', "true", '[["order", "A1"]]'])
@pytest.mark.parametrize("declared", DECLARED)
async def test_arguments_that_are_no_object_hang_no_tool_of_any_effect_and_no_resume(
    tmp_path, declared, arguments, streamed
):
    calls_of_model = []

    def build():
        @DECLARED[declared]
        async def pay(order: str) -> str:
            raise AssertionError(order)

        def answer(messages):
            calls_of_model.append(len(messages))
            if len(calls_of_model) == 2:
                raise RuntimeError("503")
            return asking(arguments)(messages)

        return AssistantAgent(
            "clerk", Scripted(answer), tools=[pay], reflect_on_tool_use=True, model_client_stream=streamed
        )

    async def plainly(order: str) -> str:
        raise AssertionError(order)

    tools = [FunctionTool(plainly, name="pay", description="pay")]
    plain = AssistantAgent("clerk", Scripted(asking(arguments)), tools=tools, reflect_on_tool_use=True)
    expected = (await plain.run(task="go")).messages[-1].content
    async with midturn.open(f"sqlite:///{tmp_path}/store.db") as store, asyncio.timeout(60):
        case = store.session("case", build)
        if declared == "approved":
            waiting = await case.run(task="go")
            assert waiting.waiting
            with pytest.raises(midturn.TurnFailed, match="503"):
                await case.answer("approve")
        else:
            with pytest.raises(midturn.TurnFailed, match="503"):
                await case.run(task="go")
        result = await store.session("case", build).resume()
    assert result.messages[-1].content == expected


@pytest.mark.parametrize("approval", [False, True])
@pytest.mark.parametrize("arguments", ["[1]", "3", '"x"', "true"])
async def test_arguments_that_are_no_object_hang_no_tool_that_runs_an_agent(memory, arguments, approval):
    def build(tool=None):
        inner = AssistantAgent("pay", Scripted(), description="pays")
        return AssistantAgent("clerk", Scripted(asking(arguments)), tools=[AgentTool(inner)], reflect_on_tool_use=True)

    plain = await build().run(task="go")
    blueprint = midturn.Blueprint("clerk", build, effects={"pay": midturn.tool(approval=True)} if approval else {})
    async with asyncio.timeout(60):
        case = memory.session("case", blueprint)
        result = await case.run(task="go")
        if result.waiting:
            result = await case.answer("approve")
    assert result.messages[-1].content == plain.messages[-1].content


@pytest.mark.parametrize("arguments", ["[1]", "3", '"x"', "true"])
async def test_arguments_that_are_no_object_hang_no_turn_without_a_journal(memory, arguments):
    def build():
        @midturn.tool(effect="idempotent")
        async def pay(order: str) -> str:
            raise AssertionError(order)

        return AssistantAgent("clerk", Scripted(asking(arguments)), tools=[pay], reflect_on_tool_use=True)

    plain = await build().run(task="go")
    async with asyncio.timeout(60):
        result = await memory.session("case", build, durability="turn").run(task="go")
    assert result.messages[-1].content == plain.messages[-1].content


async def test_a_person_gives_a_call_whose_arguments_are_no_object_the_right_ones(memory):
    @midturn.tool(approval=True)
    async def pay(order: str) -> str:
        return f"paid {order}"

    model = Scripted(asking("[1]"))
    case = memory.session("case", lambda: AssistantAgent("clerk", model, tools=[pay], reflect_on_tool_use=True))
    await case.run(task="go")
    result = await case.answer("approve", arguments={"order": "A1"})
    assert result.messages[-1].content == "told: paid A1"
