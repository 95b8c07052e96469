"""Calls that are made in ways that a journal could get wrong."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow
from autogen_agentchat.tools import AgentTool
from autogen_core.models import CreateResult, RequestUsage, SystemMessage
from autogen_core.models._types import ChatCompletionTokenLogprob
from autogen_core.tools import FunctionTool, StaticWorkbench
from desk import A1, B2, Desk, Killed, killed, results
from gaps import Custom
from scripted import Scripted, calls, remembered
from test_calls import Flaky, Remote, failed_and_resumed, pay

import midturn
from midturn.errors import Conflict, InvalidArgument, ReplayDiverged


async def test_a_tool_that_is_not_async_knows_its_call(memory):
    keys = []

    def work(order: str) -> str:
        keys.append(midturn.call_key())
        return order

    tool = FunctionTool(work, name="pay", description="pay")
    for name in ("one", "two"):
        await memory.session(name, lambda: AssistantAgent("clerk", Scripted(pay), tools=[tool])).run(task="go")
    assert len(set(keys)) == 2


async def test_a_call_in_doubt_is_not_forgotten_when_the_code_has_changed(memory):
    desk = Desk([A1])
    desk.fail = "refund"
    await killed(memory, desk)
    other = Desk([B2], prompt="Be brief.")
    with pytest.raises(ReplayDiverged, match=r"refund\(.*A1.*nobody knows whether it took effect"):
        await memory.session("case", other).resume()
    assert other.done == []
    result = await memory.session("case", other).resume(diverged="continue")
    assert result.waiting.arguments == {"order": "B2"}, "its model had asked for it, so it may have begun"
    result = await memory.session("case", other).answer("retry", diverged="continue")
    assert results(result) == ["refund of B2 is done"]


async def test_what_is_recorded_is_not_done_again_without_a_journal_either(memory):
    desk = Desk([A1])
    desk.model_error_at = 2
    with pytest.raises(midturn.TurnFailed):
        await memory.session("case", desk).run(task="please")
    await memory.session("case", desk, durability="turn").resume()
    assert desk.done == [("refund", "A1")]


@pytest.mark.parametrize("effect", ["unsafe", "idempotent"])
async def test_a_tool_may_move_to_another_workbench(memory, effect):
    done = []

    async def work(order: str) -> str:
        done.append(order)
        return order

    model = Flaky(pay, 2)

    def build(*before):
        tool = FunctionTool(midturn.tool(effect=effect)(work), name="pay", description="pay")
        benches = [*(StaticWorkbench([]) for _ in before), StaticWorkbench([tool])]
        return lambda: AssistantAgent("clerk", Scripted(model), workbench=benches, max_tool_iterations=3)

    with pytest.raises(midturn.TurnFailed):
        await memory.session("case", build()).run(task="go")
    assert (await memory.session("case", build("another")).resume()).waiting is None
    assert done == ["A1"]


def helper(**options):
    async def work(order: str) -> str:
        helper.done.append(order)
        return f"paid {order}"

    tool = FunctionTool(midturn.tool(approval=True)(work), name="pay", description="pay")
    return AssistantAgent("helper", Scripted(pay), tools=[tool], max_tool_iterations=3, **options)


async def test_approval_cannot_be_gone_around_inside_another_tool(memory):
    helper.done = []

    def build():
        inner = helper()

        async def ask() -> str:
            return (await inner.run(task="pay")).messages[-1].content

        answer = lambda messages: calls(("ask", "{}")) if len(messages) < 3 else remembered(messages)  # noqa: E731 - short
        return AssistantAgent("clerk", Scripted(answer), tools=[ask], max_tool_iterations=3)

    for durability in ("call", "turn"):
        with pytest.raises(InvalidArgument):
            await memory.session(durability, build, durability=durability).run(task="go")
    assert helper.done == []


@pytest.mark.parametrize(("answer", "told"), [("approve", "said"), ("deny: no", "This call was not allowed: no")])
async def test_an_agent_that_is_a_tool_may_need_approval(memory, answer, told):
    def build():
        tool = AgentTool(AssistantAgent("boss", Scripted(lambda _: "said")), return_value_as_last_message=True)
        ask = lambda messages: calls(("boss", '{"task": "x"}')) if len(messages) < 3 else remembered(messages)  # noqa: E731 - short
        return AssistantAgent("clerk", Scripted(ask), tools=[tool], max_tool_iterations=3)

    what = midturn.Blueprint("clerk", build, effects={"boss": midturn.tool(approval=True)})
    assert (await memory.session("case", what).run(task="go")).waiting.tool == "boss"
    assert results(await memory.session("case", what).answer(answer)) == [told]
    assert (await memory.session("case", what).replay(1)).differences == []


async def test_a_callback_that_raises_ends_the_turn(memory):
    def reconcile(_call):
        raise ConnectionError("the bank does not answer")

    desk = Desk([A1], effects={"refund": midturn.tool(reconcile=reconcile)})
    desk.fail = "refund"
    case = await killed(memory, desk)
    with pytest.raises(midturn.TurnFailed, match="the bank does not answer"):
        await case.resume()
    assert desk.done == [("refund", "A1")]


async def test_an_answer_without_an_id_is_to_what_is_asked_when_it_comes(memory, monkeypatch):
    desk = Desk([A1], [B2], effects={"refund": midturn.tool(approval=True)})
    await memory.session("case", desk).run(task="please")
    first, second = memory.session("case", desk), memory.session("case", desk)
    write = second._runner.reopen

    async def overtaken(**options):
        if not desk.done:
            await first.answer("approve")  # and now the turn asks about the second refund
        return await write(**options)

    monkeypatch.setattr(second._runner, "reopen", overtaken)
    with pytest.raises(Conflict, match="may have been answered"):
        await second.answer("approve")
    assert desk.done == [("refund", "A1")], "nobody has approved the second one"


class Retrying(Custom):
    """An agent that asks its model again if that fails or takes too long."""

    def __init__(self, answer):
        super().__init__("retrying")
        self._model_client = Scripted(answer)

    async def on_messages(self, messages, cancellation_token):
        asked = [message.to_model_message() for message in messages]
        answer = None
        while answer is None:
            try:
                async with asyncio.timeout(600):
                    answer = (await self._model_client.create(asked)).content
            except (RuntimeError, TimeoutError):
                continue
        return Response(chat_message=TextMessage(content=answer, source=self.name))


@pytest.mark.parametrize("how", ["raises", "hangs"])
async def test_a_call_that_failed_inside_an_agent_and_was_made_again_is_not_asked_again(memory, how, pass_time):
    asked = []

    async def answer(messages):
        asked.append(None)
        if len(asked) == 1:
            if how == "raises":
                raise RuntimeError("503")
            pass_time(600)
            await asyncio.Event().wait()
        return f"answer {len(asked)}"

    from autogen_agentchat.teams import RoundRobinGroupChat

    second = Flaky(remembered, 1)

    def build():
        return RoundRobinGroupChat([Retrying(answer), AssistantAgent("clerk", Scripted(second))], max_turns=2)

    result = await failed_and_resumed(memory, build)
    assert len(asked) == 2
    assert result.messages[1].content == "answer 2"


async def test_the_order_is_kept_although_an_agent_rests_between_its_calls(memory):
    rests = {"left": 0.3, "right": 0.6}

    class Slow(Custom):
        def __init__(self, name):
            super().__init__(name)
            self._model_client = Scripted(remembered)

        async def on_messages(self, messages, cancellation_token):
            asked = [message.to_model_message() for message in messages]
            await self._model_client.create(asked)
            await asyncio.sleep(rests[self.name])
            answer = await self._model_client.create([*asked, SystemMessage(content="again")])
            return Response(chat_message=TextMessage(content=answer.content, source=self.name))

    model = Flaky(remembered, 2)

    def build():
        first, last = (AssistantAgent(name, Scripted(model)) for name in ("first", "last"))
        left, right = Slow("left"), Slow("right")
        builder = DiGraphBuilder()
        for node in (first, left, right, last):
            builder.add_node(node)
        builder.add_edge(first, right).add_edge(first, left).add_edge(left, last).add_edge(right, last)
        return GraphFlow(builder.get_participants(), builder.build())

    with pytest.raises(midturn.TurnFailed):
        await memory.session("case", build).run(task="go")
    rests |= {"left": 0.4, "right": 0.2}  # now the other one would be quicker
    result = await memory.session("case", build).resume()
    (turn,) = [turn async for turn in memory.session("case").history()]
    assert turn.notes == ()
    assert [message.source for message in result.messages][2:4] == ["left", "right"]
    assert (await memory.session("case", build).replay(1)).same


async def test_a_memory_may_put_a_summary_in_the_place_of_what_was_said(memory):
    class Summary(Remote):
        async def update_context(self, model_context):
            found = await self.query("")
            said = await model_context.get_messages()
            await model_context.clear()
            await model_context.add_message(SystemMessage(content=f"{len(said)} things were said"))
            from autogen_core.memory import UpdateContextResult

            return UpdateContextResult(memories=found)

    server, model = [], Flaky(remembered, 1)
    await failed_and_resumed(memory, lambda: AssistantAgent("clerk", Scripted(model), memory=[Summary(server)]))
    messages = (await memory.session("case").at(1).state())["llm_context"]["messages"]
    assert [message["content"] for message in messages][:1] == ["1 things were said"]
    assert len(messages) == 2


async def test_whatever_a_model_asks_for_or_says_is_told_apart(memory):
    odd = '{"order": "\\ud83d", "amount": 123456789012345678901234567890}'

    async def work(order: str, amount: int) -> str:
        return "done"

    tool = FunctionTool(work, name="pay", description="pay")

    def answer(messages):
        if len(messages) < 3:
            return calls(("pay", odd))
        logprobs = [ChatCompletionTokenLogprob(token="x", logprob=float("-inf"), top_logprobs=[], bytes=None)]
        usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
        return CreateResult(finish_reason="stop", content="x", usage=usage, cached=False, logprobs=logprobs)

    def build():
        return AssistantAgent("clerk", Scripted(answer), tools=[tool], max_tool_iterations=3)

    assert results(await memory.session("case", build).run(task="go")) == ["done"]
    assert (await memory.session("case", build).replay(1)).same


async def test_an_agent_that_two_sessions_share_cannot_run_in_both_at_once(memory):
    gate, reached = asyncio.Event(), asyncio.Event()

    async def answer(messages):
        reached.set()
        await gate.wait()
        return remembered(messages)

    shared = AssistantAgent("shared", Scripted(answer))

    def build():
        ask = lambda messages: calls(("shared", '{"task": "x"}')) if len(messages) < 3 else remembered(messages)  # noqa: E731 - short
        return AssistantAgent("clerk", Scripted(ask), tools=[AgentTool(shared)], max_tool_iterations=3)

    first = asyncio.create_task(memory.session("one", build).run(task="go"))
    await reached.wait()
    with pytest.raises(InvalidArgument, match="another running session"):
        await memory.session("two", build).run(task="go")
    gate.set()
    await first
    assert type(shared._model_client) is Scripted
    await memory.session("two", build).resume()


async def test_what_an_agent_changes_in_itself_during_a_turn_stays_changed(memory):
    backup = Scripted(remembered)

    class Switching(Retrying):
        def __init__(self):
            super().__init__(remembered)
            self._pool = [self._model_client]
            self._kept = None

        async def on_messages(self, messages, cancellation_token):
            self._kept = self._model_client
            response = await super().on_messages(messages, cancellation_token)
            self._model_client = backup
            self._pool.append(backup)
            return response

    agent = Switching()
    first = agent._model_client
    case = memory.session("case", agent)
    await case.run(task="one")
    assert agent._model_client is backup
    assert agent._kept is first
    assert agent._pool == [first, backup]
    await case.run(task="two")
    assert agent._pool == [first, backup, backup]


async def test_a_fork_is_of_the_version_of_its_checkpoint(memory):
    factory = Desk()
    await memory.session("case", midturn.Blueprint("desk", factory)).run(task="one")
    newer = memory.session("case", midturn.Blueprint("desk", factory, version=2))
    with pytest.raises(midturn.MissingMigration):
        await (await newer.fork("other", at=1)).run(task="two")


async def test_a_call_that_is_cancelled_as_it_is_recorded_holds_up_nobody(memory):
    class Hasty(Custom):
        def __init__(self):
            super().__init__("hasty")
            self._model_client = Scripted(remembered)

        async def on_messages(self, messages, cancellation_token):
            asked = [message.to_model_message() for message in messages]
            for rounds in range(12):
                task = asyncio.ensure_future(self._model_client.create(asked))
                for _ in range(rounds):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task})
            answer = await self._model_client.create(asked)
            return Response(chat_message=TextMessage(content=answer.content, source=self.name))

    async with asyncio.timeout(60):
        await memory.session("case", Hasty).run(task="one")


async def test_a_person_may_be_asked_by_another_function_when_the_turn_goes_on(memory):
    from autogen_agentchat.agents import UserProxyAgent
    from autogen_agentchat.teams import RoundRobinGroupChat

    model = Flaky(remembered, 1)

    def build(ask):
        agents = [UserProxyAgent("user", input_func=ask), AssistantAgent("clerk", Scripted(model))]
        return lambda: RoundRobinGroupChat(agents, max_turns=2)

    with pytest.raises(midturn.TurnFailed):
        await memory.session("case", build(lambda _prompt: "typed")).run(task="go")
    result = await memory.session("case", build(midturn.human)).resume()
    assert result.waiting is None
    assert "typed" in [message.to_text() for message in result.messages]


def test_death_is_no_error():
    assert not issubclass(Killed, Exception)
