"""Every kind of call inside a turn is recorded when it is complete, and is not made again."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, CodeExecutorAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_core.code_executor import CodeExecutor, CodeResult
from autogen_core.memory import Memory, MemoryContent, MemoryMimeType, MemoryQueryResult, UpdateContextResult
from autogen_core.models import SystemMessage
from autogen_core.tools import (
    FunctionTool,
    ImageResultContent,
    StaticWorkbench,
    TextResultContent,
    ToolResult,
    Workbench,
)
from desk import results
from fuzz_kinds import image
from gaps import Custom
from kinds import assistant
from scripted import Scripted, calls, remembered

import midturn
from midturn.record.head import Kind


class Flaky:
    """A model that fails at its ``at``-th call in all, once."""

    def __init__(self, answer, at):
        self.answer, self.at, self.count = answer, at, 0

    def __call__(self, messages):
        self.count += 1
        if self.count == self.at:
            raise RuntimeError("503")
        return self.answer(messages)


async def failed_and_resumed(store, build, task="go"):
    """Run a turn that fails on the way, and finish it. The result is that of the stream, which has all messages."""
    with pytest.raises(midturn.TurnFailed):
        async for _ in store.session("case", build).run_stream(task=task):
            pass
    return await store.session("case", build).resume()


class Remote(Memory):
    """A memory that asks a server, which never says the same twice."""

    component_config_schema = None

    def __init__(self, server):
        self.server = server

    async def update_context(self, model_context):
        found = await self.query("")
        await model_context.add_message(SystemMessage(content=found.results[0].content))
        return UpdateContextResult(memories=found)

    async def query(self, query="", cancellation_token=None, **options):
        self.server.append(query)
        text = f"fact {len(self.server)} about {query!r}"
        return MemoryQueryResult(results=[MemoryContent(content=text, mime_type=MemoryMimeType.TEXT)])

    async def add(self, content, cancellation_token=None):
        self.server.append(content.content)

    async def clear(self):
        self.server.append("clear")

    async def close(self):
        pass


async def test_a_memory_is_asked_once(memory):
    server, model = [], Flaky(remembered, 1)
    result = await failed_and_resumed(memory, lambda: AssistantAgent("clerk", Scripted(model), memory=[Remote(server)]))
    assert server == [""]
    assert result.messages[1].type == "MemoryQueryEvent"
    assert result.messages[1].content[0].content == "fact 1 about ''"
    assert model.count == 2


class Librarian(Custom):
    """An agent that uses its memory by hand."""

    def __init__(self, server, model):
        super().__init__("librarian")
        self._notes = Remote(server)
        self._model_client = Scripted(model)

    async def on_messages(self, messages, cancellation_token):
        found = await self._notes.query("shelf")
        await self._notes.add(MemoryContent(content="a book", mime_type=MemoryMimeType.TEXT))
        await self._notes.clear()
        answer = await self._model_client.create([message.to_model_message() for message in messages])
        return Response(chat_message=TextMessage(content=f"{found.results[0].content} {answer.content}", source="x"))


async def test_a_memory_that_an_agent_of_ones_own_uses_is_used_once(memory):
    server = []
    model = Flaky(remembered, 1)
    result = await failed_and_resumed(memory, lambda: Librarian(server, model))
    assert server == ["shelf", "a book", "clear"]
    assert result.messages[-1].content.startswith("fact 1 about 'shelf'")


class Shell(CodeExecutor):
    """Executes nothing, and counts it."""

    component_config_schema = None

    def __init__(self, done):
        self.done = done

    async def execute_code_blocks(self, code_blocks, cancellation_token):
        self.done.append([block.code for block in code_blocks])
        return CodeResult(exit_code=0, output=f"run {len(self.done)}")

    async def start(self):
        pass

    async def stop(self):
        pass

    async def restart(self):
        pass


async def test_code_is_executed_once_and_approved_once(memory):
    from autogen_agentchat.agents import ApprovalResponse

    done, approved = [], []

    def approve(request):
        approved.append(request.code)
        return ApprovalResponse(approved=True, reason="why not")

    model = Flaky(lambda messages: "```sh\nls\n```" if len(messages) < 3 else remembered(messages), 2)
    result = await failed_and_resumed(
        memory,
        lambda: CodeExecutorAgent("coder", Shell(done), model_client=Scripted(model), approval_func=approve),
    )
    assert done == [["ls\n"]]
    assert len(approved) == 1
    assert "run 1" in str(result.messages)


@pytest.mark.filterwarnings("ignore:No approval function")
async def test_code_in_doubt_waits_unless_it_may_be_repeated(memory):
    from desk import Killed

    class Deadly(Shell):
        async def execute_code_blocks(self, code_blocks, cancellation_token):
            result = await super().execute_code_blocks(code_blocks, cancellation_token)
            if len(self.done) == 1:
                raise Killed
            return result

    def build(done):
        answer = lambda messages: "```sh\nls\n```" if len(messages) < 3 else remembered(messages)  # noqa: E731 - short
        return lambda: CodeExecutorAgent("coder", Deadly(done), model_client=Scripted(answer))

    for name, effects in (("one", {}), ("two", {"execute_code_blocks": "read"})):
        done = []
        what = midturn.Blueprint("coder", build(done), effects=effects)
        with pytest.raises(Killed):
            await memory.session(name, what).run(task="go")
        result = await memory.session(name, what).resume()
        assert len(done) == (2 if effects else 1)
        assert (result.waiting is None) == bool(effects)
        if result.waiting:
            assert (result.waiting.kind, result.waiting.tool) == ("doubt", "execute_code_blocks")
            assert (await memory.session(name, what).answer("done: a file")).waiting is None


class Server(Workbench):
    """Tools of a server, as those of MCP: what there is may change, and is asked for over the network."""

    component_config_schema = None

    def __init__(self, log):
        self.log = log

    async def list_tools(self):
        self.log.append("list")
        parameters = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
        return [{"name": "pay", "description": f"version {self.log.count('list')}", "parameters": parameters}]

    async def call_tool(self, name, arguments=None, cancellation_token=None, call_id=None):
        self.log.append(f"{name} {arguments['order']}")
        picture = ImageResultContent(content=image())
        return ToolResult(name=name, result=[TextResultContent(content=f"paid {arguments['order']}"), picture])

    async def start(self):
        pass

    async def stop(self):
        pass

    async def reset(self):
        pass

    async def save_state(self):
        return {}

    async def load_state(self, state):
        pass


def pay(messages):
    return calls(("pay", '{"order": "A1"}')) if len(messages) < 3 else remembered(messages)


async def test_the_tools_of_a_server_are_called_once_and_their_list_is_as_it_was(memory):
    log, model = [], Flaky(pay, 2)
    result = await failed_and_resumed(
        memory, lambda: AssistantAgent("clerk", Scripted(model), workbench=Server(log), max_tool_iterations=3)
    )
    assert log.count("pay A1") == 1
    assert results(result)[0].startswith("paid A1\n[Image: ")
    (turn,) = [turn async for turn in memory.session("case").history()]
    assert turn.notes == (), "the model's first request has the tools of then"
    assert model.count == 3


async def test_an_effect_of_a_servers_tool_is_declared_by_its_name(memory):
    from desk import Killed

    class Deadly(Server):
        async def call_tool(self, *args, **options):
            await super().call_tool(*args, **options)
            if self.log.count("pay A1") == 1:
                raise Killed
            return await super().call_tool(*args, **options)

    log = []
    what = midturn.Blueprint(
        "clerk",
        lambda: AssistantAgent("clerk", Scripted(pay), workbench=Deadly(log), max_tool_iterations=3),
        effects={"pay": "idempotent"},
    )
    with pytest.raises(Killed):
        await memory.session("case", what).run(task="go")
    assert (await memory.session("case", what).resume()).waiting is None
    assert log.count("pay A1") == 3


async def test_a_stream_is_recorded_with_its_chunks(memory):
    model = Flaky(pay, 2)

    async def pay_it(order: str) -> str:
        return f"paid {order}"

    tool = FunctionTool(pay_it, name="pay", description="pay")
    answered = []

    def thinking(messages):
        answered.append(len(messages))
        return model(messages)

    def build():
        return AssistantAgent(
            "clerk", Scripted(thinking), tools=[tool], max_tool_iterations=3, model_client_stream=True
        )

    await failed_and_resumed(memory, build)
    assert len(answered) == 3


async def test_the_events_of_an_interrupted_turn_are_marked_and_the_chunks_come_again(memory):
    model = Flaky(remembered, 2)

    def build():
        from autogen_agentchat.teams import RoundRobinGroupChat

        agents = [AssistantAgent(name, Scripted(model), model_client_stream=True) for name in ("ann", "bob")]
        return RoundRobinGroupChat(agents, max_turns=2)

    first = []

    async def look():
        async for event in memory.session("case", build).run_stream(task="go", key="k"):
            first.append(event)  # noqa: PERF401 - what came before the error is kept

    with pytest.raises(midturn.TurnFailed):
        await look()
    assert first
    assert not any(map(midturn.replayed, first))
    second = [event async for event in memory.session("case", build).run_stream(task="go", key="k")]
    *events, result = second
    shown = [event for event in events if midturn.replayed(event)]
    fresh = [event for event in events if not midturn.replayed(event)]
    assert [event.type for event in shown] == [event.type for event in first[: len(shown)]]
    assert len(fresh) >= 2
    assert not any(map(midturn.replayed, result.messages)), "what is kept is not marked"
    usage = [message.models_usage for message in result.messages if message.models_usage]
    assert result.usage.prompt_tokens == sum(each.prompt_tokens for each in usage)
    assert len(usage) == 2


async def test_a_tool_that_works_with_a_kept_object_leaves_it_alike_when_it_is_not_called_again(memory):
    class Till:
        def __init__(self):
            self.sums = []

        async def save_state(self):
            return {"sums": list(self.sums)}

        async def load_state(self, state):
            self.sums = list(state["sums"])

    tills = []
    model = Flaky(pay, 2)

    def build():
        till = Till()
        tills.append(till)

        async def pay_it(order: str) -> str:
            till.sums.append(order)
            return f"paid {order}"

        tool = FunctionTool(pay_it, name="pay", description="pay")
        return AssistantAgent("clerk", Scripted(model), tools=[tool], max_tool_iterations=3)

    await failed_and_resumed(memory, build)
    assert tills[-1] is not tills[0]
    assert tills[-1].sums == ["A1"]
    assert "A1" in str(await memory.session("case").at(1).beside())


async def test_a_wrapped_agent_is_left_as_it_was(memory):
    model = Scripted(remembered)
    agent = AssistantAgent("clerk", model, workbench=StaticWorkbench([]))
    before = dict(vars(agent))
    await memory.session("case", agent).run(task="go")
    assert vars(agent) == before
    assert agent._model_client is model


async def test_two_calls_at_once_on_one_store_write_together(memory):
    writes = []
    real = memory.store.write

    async def write(write):
        writes.append(write)
        await asyncio.sleep(0)
        return await real(write)

    memory.store.write = write

    def build():
        async def work(order: str) -> str:
            await asyncio.sleep(0)
            return order

        tools = [FunctionTool(work, name=name, description="") for name in ("one", "two", "three")]

        def answer(messages):
            if len(messages) > 2:
                return remembered(messages)
            return calls(*((name, '{"order": "A1"}') for name in ("one", "two", "three")))

        return AssistantAgent("clerk", Scripted(answer), tools=tools, max_tool_iterations=2)

    await memory.session("case", build).run(task="go")
    assert [sum(row.kind == Kind.CALL for row in write.rows) for write in writes] == [0, 1, 3, 1, 0]


async def test_a_method_that_a_client_was_given_by_hand_is_recorded_too(memory):
    model = Flaky(remembered, 2)
    client, asked = Scripted(), []

    async def create(messages, **options):
        asked.append(len(messages))
        return await Scripted(model).create(messages, **options)

    client.create = create

    def build():
        from autogen_agentchat.teams import RoundRobinGroupChat

        return RoundRobinGroupChat([AssistantAgent(name, client) for name in ("ann", "bob")], max_turns=2)

    await failed_and_resumed(memory, build)
    assert asked == [2, 3, 3]
    assert client.create is create


async def test_the_time_that_a_turn_took_before_it_was_interrupted_counts(memory, monkeypatch):
    from autogen_agentchat.conditions import TimeoutTermination
    from autogen_agentchat.teams import RoundRobinGroupChat

    from midturn.journal.journal import Journal

    model = Flaky(remembered, 2)

    def build():
        agents = [AssistantAgent(name, Scripted(model)) for name in ("ann", "bob")]
        return RoundRobinGroupChat(agents, termination_condition=TimeoutTermination(50), max_turns=4)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "_spent", lambda _: 60.0)
        with pytest.raises(midturn.TurnFailed):
            await memory.session("case", build).run(task="go")
    result = await memory.session("case", build).resume()
    assert "Timeout" in result.stop_reason
    assert model.count == 2, "ann's answer is from the record, and there is no time left for bob"


async def test_calls_of_a_part_that_saving_makes_anew_are_recorded(memory):
    """A given agent is saved before each turn, so that it can go back."""

    class Renewing(BaseChatAgent):
        def __init__(self):
            super().__init__("renewing", "asks somebody")
            self.inner = assistant("inner")

        @property
        def produced_message_types(self):
            return (TextMessage,)

        async def on_messages(self, messages, cancellation_token):
            said = await self.inner.on_messages(messages, cancellation_token)
            return Response(chat_message=TextMessage(content=said.chat_message.content, source=self.name))

        async def on_reset(self, cancellation_token):
            pass

        async def save_state(self):
            self.inner = assistant("inner")
            return {}

        async def load_state(self, state):
            pass

    case = memory.session("case", Renewing())
    for number in range(1, 4):
        await case.run(task=f"task {number}")
        assert len(await memory.store.rows("case", Kind.CALL)) == number
