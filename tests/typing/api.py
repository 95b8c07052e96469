# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""The public API as type checkers see it. `make check` reads this file, and nothing runs it.

Both checkers also report an ignore that is not needed: each one below proves that a wrong call is rejected.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import assert_type

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskRunner
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.ui import Console
from autogen_core.models import ChatCompletionClient, RequestUsage
from autogen_core.tools import FunctionTool

import midturn
from midturn.testing import ScriptedModel

Event = BaseAgentEvent | BaseChatMessage


@midturn.tool
async def refund(order: str) -> str:
    return order


@midturn.tool(effect="idempotent", approval=True)
async def pay(amount: float) -> str:
    return midturn.call_key() + str(amount)


async def compare(
    case: midturn.Session[Event, midturn.TurnResult], other: midturn.Session[Event, midturn.TurnResult]
) -> None:
    found = await case.diff(6, other.at(3))
    assert_type(found, midturn.StateDiff)
    assert_type(found.conversations[0].messages, tuple[midturn.MessageChange, ...])
    await case.diff("6", 7)  # type: ignore[arg-type]


look = midturn.tool(FunctionTool(refund, description="Look."))
assert_type(look, FunctionTool)
model: ChatCompletionClient = ScriptedModel({"": "Done."})


def build() -> RoundRobinGroupChat:
    return RoundRobinGroupChat([AssistantAgent("clerk", model, tools=[refund, pay])])


async def build_async() -> AssistantAgent:
    return AssistantAgent("clerk", model)


def what_runs(store: midturn.OpenStore, agent: AssistantAgent, runner: TaskRunner) -> None:
    store.session("x", build)
    store.session("x", build_async)
    store.session("x", lambda: AssistantAgent("clerk", model))
    store.session("x", agent)
    store.session("x", runner)
    store.session("x", midturn.Blueprint("support", build, version=2))

    def redact(text: str, where: midturn.Where) -> str:
        return text if where.kind == "task" else ""

    async def redact_later(text: str, where: midturn.Where) -> str:
        return text + where.agent + where.tool

    midturn.Blueprint("support", build, redact=redact)
    midturn.Blueprint("support", build, redact=redact_later)
    midturn.Blueprint("support", build, redact=lambda text: text)  # type: ignore[arg-type,misc]
    store.session("x")
    store.session("x", 5)  # type: ignore[arg-type]
    store.session("x", "clerk")  # type: ignore[arg-type]
    store.session("x", lambda: 5)  # type: ignore[arg-type,return-value]
    store.session("x", what_runs)  # type: ignore[arg-type]
    store.session("x", busy="never")  # type: ignore[arg-type]
    midturn.Blueprint("support", lambda: 5)  # type: ignore[arg-type,return-value]


async def what_comes_back() -> None:
    store = await midturn.open("memory://")
    case = store.session("case-42", build)
    await Console(case.run_stream(task="Hello."))
    result = await case.run(task="Hello.")
    assert_type(result.usage, RequestUsage)
    assert_type(result.recorded, bool)
    if result.waiting is not None:
        assert_type(result.waiting.agent, str)
    async for turn in case.history(last=5):
        assert_type(turn.messages, Sequence[Event])
        assert_type(turn.usage, RequestUsage)
        assert_type(turn.started, datetime)
    found = await case.open_turn()
    if found is not None:
        assert_type(found.task, Sequence[Event] | None)
        assert_type([question.kind == "human" for question in found.questions], list[bool])
    run = await case.start_say("Hello.", key="m-1")
    async for event in run.events(after=2):
        assert_type(event.event, Event)

    async def change(state: midturn.State) -> midturn.State:
        return state.correct("A17", "A71")

    assert_type(await case.edit(change, by="ann"), int)
    assert_type(await case.edit(lambda state: state.drop_message("A17")), int)
    assert_type(await case.rewind(1, by="ann", why="typo", discard=True), int)
    await case.edit(lambda state: 5)  # type: ignore[arg-type,return-value]
    assert_type((await (await case.fork("case-42-b", labels={"try": "2"})).run(task="Hello.")).usage, RequestUsage)
    assert_type(await store.lineage("case-42"), midturn.Lineage)
    async for entry in store.audit(since=timedelta(days=2)):
        assert_type(entry, midturn.AuditEntry)
        assert_type(entry.by, str | None)
    info = await store.info("case-42")
    assert_type(info.updated, datetime)
    await store.aclose()
