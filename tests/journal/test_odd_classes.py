"""Every client, workbench, memory and executor that AutoGen accepts is recorded, however odd its class is."""

import copy
import dataclasses
import functools
from collections import UserList
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from autogen_agentchat.agents import ApprovalResponse, AssistantAgent, BaseChatAgent, CodeExecutorAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.memory import ListMemory, Memory, MemoryContent, MemoryQueryResult, UpdateContextResult
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import ChatCompletionClient, FunctionExecutionResultMessage, UserMessage
from autogen_core.tools import FunctionTool, StaticStreamWorkbench, TextResultContent, ToolResult, Workbench
from desk import Killed
from pydantic import BaseModel, ConfigDict
from scripted import Scripted, calls, remembered

import midturn
from midturn.autogen.parts.proxy import is_proxy, proxy_class
from midturn.record.head import Kind
from midturn.record.rows import CallRow, decode_record


class Client(Scripted):
    def __init__(self, log):
        super().__init__(self._reply)
        self.log = log

    def _reply(self, messages):
        self.log.append(len(messages))
        if self.log.count(len(messages)) == 1 and len(messages) == 4:
            raise Killed
        return calls(("look", "{}")) if len(messages) == 2 else remembered(messages)


class Bench(Workbench):
    def __init__(self, log):
        self.log = log

    async def list_tools(self):
        return [{"name": "look", "description": "look", "parameters": {"type": "object", "properties": {}}}]

    async def call_tool(self, name, arguments=None, cancellation_token=None, call_id=None):
        self.log.append(name)
        return ToolResult(name=name, result=[TextResultContent(content=f"seen {len(self.log)}")], is_error=False)

    async def start(self): ...
    async def stop(self): ...
    async def reset(self): ...
    async def save_state(self):
        return {}

    async def load_state(self, state): ...


class Notes(Memory):
    def __init__(self, log):
        self.log = log

    async def update_context(self, model_context):
        self.log.append("update_context")
        return UpdateContextResult(memories=await self.query(""))

    async def query(self, query, cancellation_token=None, **kwargs):
        return MemoryQueryResult(results=[MemoryContent(content=f"note {len(self.log)}", mime_type="text/plain")])

    async def add(self, content, cancellation_token=None): ...
    async def clear(self): ...
    async def close(self): ...


class Shell(CodeExecutor):
    def __init__(self, log):
        self.log = log

    async def execute_code_blocks(self, code_blocks, cancellation_token):
        self.log.append(code_blocks[0].code)
        return CodeResult(exit_code=0, output=f"ran {len(self.log)}")

    async def start(self): ...
    async def stop(self): ...
    async def restart(self): ...


class Deadly(Scripted):
    """Calls a tool, and dies when it is asked again for the first time."""

    def __init__(self, died):
        super().__init__(self._reply)
        self.died = died

    def _reply(self, messages):
        if isinstance(messages[-1], FunctionExecutionResultMessage) or self.died is None:
            return self._die(messages)
        return calls(("look", "{}"))

    def _die(self, messages):
        if not self.died:
            self.died.append(True)
            raise Killed
        return remembered(messages)


async def look() -> str:
    return "looked"


def build_client(odd, died):
    tools = [FunctionTool(midturn.tool(effect="read")(look), name="look", description="look")]
    return AssistantAgent("ann", odd, tools=tools, reflect_on_tool_use=True)


def build_bench(odd, died):
    return AssistantAgent("ann", Deadly(died), workbench=odd, reflect_on_tool_use=True)


def build_memory(odd, died):
    tools = [FunctionTool(midturn.tool(effect="read")(look), name="look", description="look")]
    return AssistantAgent("ann", Deadly(died), tools=tools, memory=[odd], reflect_on_tool_use=True)


async def approve(request):
    return ApprovalResponse(approved=True, reason="yes")


class Second(Scripted):
    def __init__(self, died):
        super().__init__(lambda messages: Deadly._die(self, messages))
        self.died = died


def build_executor(odd, died):
    return RoundRobinGroupChat(
        [CodeExecutorAgent("coder", odd, approval_func=approve), AssistantAgent("ann", Second(died))],
        max_turns=2,
    )


KINDS = {
    "client": (Client, build_client, ("create", "create_stream", "model_info", "_reply"), [2, 4, 4]),
    "workbench": (Bench, build_bench, ("list_tools", "call_tool"), ["look"]),
    "memory": (Notes, build_memory, ("update_context", "query"), ["update_context"]),
    "executor": (Shell, build_executor, ("execute_code_blocks",), ["print(1)\n"]),
}


def methods(real, names):
    """Return methods that forward to ``inner``."""
    found = {}
    for name in names:
        if name == "model_info":
            found[name] = property(lambda self: self.inner.model_info)
        elif name.startswith("_"):
            continue
        else:
            found[name] = functools.partialmethod(
                lambda self, name, /, *a, **o: getattr(self.inner, name)(*a, **o), name
            )
    return found


def init(self, inner):
    self.inner = inner


class Registered(type):
    """A metaclass that wants to know where its classes are used, and lets nobody make a subclass."""

    def __new__(mcs, name, bases, names, *, where=None):
        if where is None:
            raise TypeError("say where")
        return super().__new__(mcs, name, bases, names)

    def __init__(cls, name, bases, names, *, where=None):
        super().__init__(name, bases, names)


class Regional:
    def __init_subclass__(cls, *, region, **options):
        super().__init_subclass__(**options)


def a_forwarding_wrapper(real, names):
    return type("Forwarding", (), {"__init__": init, **methods(real, names)})(real)


def one_with_slots(real, names):
    return type("Slots", (), {"__slots__": ("inner",), "__init__": init, **methods(real, names)})(real)


def a_frozen_dataclass(real, names):
    cls = type("Frozen", (), {"__annotations__": {"inner": Any}, **methods(real, names)})
    return dataclasses.dataclass(frozen=True, slots=True)(cls)(real)


def a_pydantic_model(real, names):
    config = ConfigDict(frozen=True, arbitrary_types_allowed=True, extra="forbid")
    body = {"__annotations__": {"inner": Any}, "__module__": __name__, "model_config": config}
    return type("Model", (BaseModel,), {**body, **methods(real, names)})(inner=real)


def one_whose_subclasses_need_arguments(real, names):
    class Eu(Regional, region="eu"):
        __init__ = init

    for name, method in methods(real, names).items():
        setattr(Eu, name, method)
    return Eu(real)


def one_of_a_metaclass(real, names):
    return Registered("Odd", (), {"__init__": init, **methods(real, names)}, where="here")(real)


def one_that_allows_no_subclass(real, names):
    def forbid(cls, **_):
        raise TypeError("final")

    body = {"__init_subclass__": classmethod(forbid), "__init__": init}
    return type("Final", (), {**body, **methods(real, names)})(real)


def a_wrapper_that_forwards_whatever_it_is_asked_for(real, names):
    class Wrapper:
        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            return getattr(self._inner, name)

    return Wrapper(real)


def a_wrapper_that_says_it_is_the_real_class(real, names):
    class Wrapper:
        __class__ = property(lambda self: type(real))

        def __getattribute__(self, name):
            return type(real) if name == "__class__" else getattr(real, name)

    return Wrapper()


def a_dict(real, names):
    class Keyed(dict):
        pass

    for name, method in methods(real, names).items():
        setattr(Keyed, name, method)
    made = Keyed(region="eu")
    made.inner = real
    return made


def a_namespace(real, names):
    return SimpleNamespace(**{name: getattr(real, name) for name in names})


def a_mock(real, names):
    made = MagicMock()
    for name in names:
        found = getattr(real, name)
        is_call = name not in ("model_info", "create_stream")
        setattr(made, name, AsyncMock(side_effect=found) if is_call else found)
    return made


def a_mock_of_the_class(real, names):
    made = MagicMock(spec=type(real))
    for name in names:
        found = getattr(real, name)
        is_call = name not in ("model_info", "create_stream")
        setattr(made, name, AsyncMock(side_effect=found) if is_call else found)
    return made


def a_subclass_with_slots(real, names):
    cls = type("Slots", (type(real),), {"__slots__": ("more",)})
    return cls(real.log)


def a_frozen_subclass(real, names):
    def forbid(self, name, value):
        if name in vars(self):
            raise AttributeError("frozen")
        object.__setattr__(self, name, value)

    return type("Frozen", (type(real),), {"__setattr__": forbid})(real.log)


def a_subclass_whose_subclasses_need_arguments(real, names):
    cls = type("Eu", (Regional, type(real)), {}, region="eu")
    return cls(real.log)


ODD = (
    a_forwarding_wrapper,
    one_with_slots,
    a_frozen_dataclass,
    a_pydantic_model,
    one_whose_subclasses_need_arguments,
    one_of_a_metaclass,
    one_that_allows_no_subclass,
    a_wrapper_that_forwards_whatever_it_is_asked_for,
    a_wrapper_that_says_it_is_the_real_class,
    a_dict,
    a_namespace,
    a_mock,
    a_mock_of_the_class,
    a_subclass_with_slots,
    a_frozen_subclass,
    a_subclass_whose_subclasses_need_arguments,
)

TASK = "```python\nprint(1)\n```"


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.__name__)
@pytest.mark.parametrize("kind", KINDS)
async def test_calls_of_odd_classes_are_recorded_and_repeated_by_nobody(memory, kind, odd):
    cls, build, names, expected = KINDS[kind]
    log, died = [], []
    factory = lambda: build(odd(cls(log), names), died)  # noqa: E731 - short
    with pytest.raises(Killed):
        await memory.session("case", factory).run(task=TASK)
    result = await memory.session("case", factory).resume()
    assert log == expected
    # Plain AutoGen says the same with a plain object.
    plain = await build(cls([*log[:0], *([4] if kind == "client" else [])]), [True]).run(task=TASK)
    assert [m.to_text() for m in result.messages] == [m.to_text() for m in plain.messages]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.__name__)
async def test_the_stream_of_a_client_of_an_odd_class_is_recorded(memory, odd):
    log = []
    tool = FunctionTool(midturn.tool(effect="read")(look), name="look", description="look")

    def build():
        client = odd(Client(log), KINDS["client"][2])
        return AssistantAgent("ann", client, tools=[tool], reflect_on_tool_use=True, model_client_stream=True)

    with pytest.raises(Killed):
        await memory.session("case", build).run(task="go")
    chunks = [event async for event in memory.session("case", build).resume_stream()]
    assert log == [2, 4, 4]
    assert "".join(each.content for each in chunks if isinstance(each, ModelClientStreamingChunkEvent))


class Own(Client):
    """A client with methods of its own, which an agent of one's own calls."""

    made = 0

    def __init__(self, log):
        super().__init__(log)
        self._secret = "key"
        type(self).made += 1

    async def ask(self, messages):
        return (await self.create(messages)).content

    @property
    def temperature(self):
        return 0.5

    def another(self):
        return type(self)(self.log)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    def __len__(self):
        return 7


class FrozenOwn(Own):
    """The same, of a class whose methods need the real object."""

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    async def _ask(self, messages):
        object.__setattr__(self, "asked", True)
        return (await super().create(messages)).content


class Asking(BaseChatAgent):
    produced_message_types = (TextMessage,)

    def __init__(self, client, use):
        super().__init__("asking", "asks")
        self.gateway = client
        self._use = use

    async def on_messages(self, messages, cancellation_token):
        said = await self._use(self.gateway, [message.to_model_message() for message in messages])
        return Response(chat_message=TextMessage(content=str(said), source=self.name))

    async def on_reset(self, cancellation_token): ...


async def by_a_method_of_its_own(client, messages):
    return await client.ask(messages)


async def by_what_it_returns_when_it_is_entered(client, messages):
    async with client as entered:
        return (await entered.create(messages)).content


PASSED = {
    "create": (Client, {"messages": [UserMessage(content="go", source="user")]}),
    "call_tool": (Bench, {"name": "look", "arguments": {}}),
    "query": (Notes, {"query": "all"}),
    "update_context": (Notes, {"model_context": UnboundedChatCompletionContext()}),
    "add": (Notes, {"content": MemoryContent(content="x", mime_type="text/plain")}),
    "execute_code_blocks": (Shell, {"code_blocks": [CodeBlock("1", "python")], "cancellation_token": None}),
}


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("name", PASSED)
async def test_a_recorded_call_gets_its_arguments_as_the_agent_passes_them(memory, name, by_name):
    cls, options = PASSED[name]
    got = []

    class Listening(cls):
        pass

    async def listen(self, *args, **options):
        got.append((args, options))
        return await getattr(super(Listening, self), name)(*args, **options)

    setattr(Listening, name, listen)

    async def use(called, _):
        return await (getattr(called, name)(**options) if by_name else getattr(called, name)(*options.values()))

    await memory.session("case", lambda: Asking(Listening([]), use)).run(task="go")
    assert got == [((), options) if by_name else (tuple(options.values()), {})]


@pytest.mark.parametrize("cls", [Own, FrozenOwn])
@pytest.mark.parametrize("use", [by_a_method_of_its_own, by_what_it_returns_when_it_is_entered])
async def test_a_call_that_a_client_makes_itself_is_recorded(memory, cls, use):
    log, died = [], []

    def build():
        return RoundRobinGroupChat([Asking(cls(log), use), AssistantAgent("bob", Second(died))], max_turns=2)

    with pytest.raises(Killed):
        await memory.session("case", build).run(task="go")
    await memory.session("case", build).resume()
    assert log == [1]


async def test_a_stand_in_looks_like_the_real_object(memory):
    client, seen = Own([]), {}
    before = Own.made

    async def use(stand_in, messages):
        seen["proxy"] = is_proxy(stand_in)
        assert isinstance(stand_in, Own)
        assert isinstance(stand_in, ChatCompletionClient)
        assert isinstance(client, type(stand_in))
        assert stand_in.__class__ is Own
        assert stand_in == client
        assert client == stand_in
        assert {stand_in, client} == {client}
        assert repr(stand_in) == repr(client)
        assert vars(stand_in) is vars(client)
        assert (stand_in._secret, stand_in.temperature, len(stand_in)) == ("key", 0.5, 7)
        assert (type(stand_in).__name__, type(stand_in).made) == ("Own", before)
        assert type(type(stand_in)(client.log)) is Own
        assert type(stand_in.another()) is Own
        assert type(copy.copy(stand_in)) is Own
        assert dir(stand_in) == dir(client)
        assert not hasattr(stand_in, "nothing")
        stand_in.added = stand_in
        assert client.added is client
        del stand_in.added
        assert not hasattr(client, "added")
        match stand_in:
            case ChatCompletionClient(temperature=0.5):
                return "matched"

    result = await memory.session("case", lambda: Asking(client, use)).run(task="go")
    assert (result.messages[-1].content, seen) == ("matched", {"proxy": True})


async def test_a_plain_mock_in_an_attribute_of_ones_own_is_left_alone(memory):
    """It has every method, so nobody knows what it stands for."""

    async def use(mock, messages):
        return is_proxy(mock)

    result = await memory.session("case", lambda: Asking(MagicMock(), use)).run(task="go")
    assert result.messages[-1].content == "False"


class McpSession:
    """Calls tools, as the session of an MCP server does, and is no workbench."""

    async def list_tools(self): ...
    async def call_tool(self, name, arguments=None): ...


async def test_what_calls_tools_and_may_be_no_workbench_is_told_of_once(memory):
    async def use(session, messages):
        return is_proxy(session)

    case = memory.session("case", lambda: Asking(McpSession(), use))
    with pytest.warns(midturn.NotRecorded, match="gateway is a McpSession"):
        result = await case.run(task="go")
    assert result.messages[-1].content == "False"
    await memory.session("another", lambda: Asking(McpSession(), use)).run(task="go")  # pytest fails on a warning


class Traced:
    """A wrapper for tracing, of anything."""

    def __init__(self, inner):
        self.inner = inner


class TracedBench(Traced):
    async def list_tools(self):
        return await self.inner.list_tools()

    async def call_tool(self, *args, **options):
        return await self.inner.call_tool(*args, **options)

    async def start(self): ...
    async def stop(self): ...


class TracedMemory(Traced):
    async def update_context(self, model_context):
        return await self.inner.update_context(model_context)

    async def query(self, query, **options):
        return await self.inner.query(query, **options)


async def test_the_declarations_of_tools_in_a_wrapped_workbench_hold(memory):
    done = []

    @midturn.tool(approval=True)
    async def look() -> str:
        """Look."""
        done.append(True)
        return "looked"

    def build():
        bench = TracedBench(StaticStreamWorkbench([FunctionTool(look, description="look")]))
        return AssistantAgent("ann", Deadly([True]), workbench=bench, reflect_on_tool_use=True)

    assert (await memory.session("case", build).run(task="go")).waiting.tool == "look"
    assert done == []
    await memory.session("case", build).answer("approve")
    assert done == [True]


async def test_what_is_in_a_wrapped_memory_is_kept(memory):
    def build():
        return AssistantAgent("ann", Scripted(), memory=[TracedMemory(ListMemory("notes"))])

    agent = build()
    case = memory.session("case", agent)
    await case.run(task="one")
    await agent._memory[0].inner.add(MemoryContent(content="email", mime_type="text/plain"))
    await case.run(task="two")
    other = build()
    await memory.session("case", other).run(task="three")
    assert [each.content for each in other._memory[0].inner.content] == ["email"]


async def test_two_agents_that_share_an_odd_client_call_it_under_their_own_paths(memory):
    log = []

    def build():
        client = one_with_slots(Own(log), KINDS["client"][2])
        return RoundRobinGroupChat([AssistantAgent(name, client) for name in ("ann", "bob")], max_turns=2)

    await memory.session("case", build).run(task="go")
    rows = [decode_record(CallRow, row.data, "a call") for row in await memory.store.rows("case", Kind.CALL)]
    assert {row.path for row in rows} == {"participants/ann/model_client", "participants/bob/model_client"}


async def test_workbenches_may_be_in_any_sequence(memory):
    log, died = [], []

    class Benches(UserList):
        pass

    def build():
        return AssistantAgent("ann", Deadly(died), workbench=Benches([Bench(log)]), reflect_on_tool_use=True)

    agent = build()
    with pytest.raises(Killed):
        await memory.session("case", build).run(task="go")
    await memory.session("case", agent).resume()
    assert log == ["look"]
    assert type(agent._workbench) is Benches


async def test_a_memory_may_return_nothing_and_a_tool_something_like_a_result(memory):
    died = []

    class Silent:
        async def update_context(self, model_context): ...

    class Result:
        is_error = False

        def to_text(self):
            return "seen"

    class Loose(Bench):
        async def call_tool(self, *args, **options):
            await super().call_tool(*args, **options)
            return Result()

    log = []

    def build():
        bench = TracedBench(Loose(log))
        return AssistantAgent("ann", Deadly(died), workbench=bench, memory=[Silent()], reflect_on_tool_use=True)

    with pytest.raises(Killed):
        await memory.session("case", build).run(task="go")
    result = await memory.session("case", build).resume()
    assert log == ["look"]
    assert result.messages[2].content[0].content == "seen"


def test_no_class_of_autogen_needs_the_real_object_in_its_methods():
    for cls in (ChatCompletionClient, CodeExecutor, Memory, Workbench, StaticStreamWorkbench, ListMemory):
        assert proxy_class(cls, {}).midturn_rebinds is None
