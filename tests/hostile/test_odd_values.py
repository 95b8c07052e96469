"""Values that AutoGen accepts and JSON cannot represent come back as they were, on every store."""

import datetime as dt
import enum
import json
import math
from collections import OrderedDict
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import StructuredMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.memory import ListMemory, Memory, MemoryContent, MemoryQueryResult, UpdateContextResult
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import CreateResult, FunctionExecutionResultMessage, RequestUsage, SystemMessage
from autogen_core.tools import FunctionTool
from pydantic import BaseModel

import midturn
from midturn.cli.output import dump_json
from midturn.errors import StateInvalid
from midturn.record.codec import difference
from midturn.record.odd import ODD, restored, stored
from midturn.testing import ScriptedModel

TIME = dt.datetime(2026, 5, 1, 12, 30, 0, 5, tzinfo=dt.timezone(dt.timedelta(hours=2)))


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    __slots__ = ()


ODD_VALUES = {
    "big": 2**64,
    "negative": -(2**200),
    "digits": 10**4300,
    "nan": math.nan,
    "inf": math.inf,
    "minus": -math.inf,
    "half": "a\ud800b",
    "long half": "\udfff" + "x" * 100,
    "bytes": b"\xff\0",
    "time": TIME,
    "naive": dt.datetime(2026, 5, 1),  # noqa: DTZ001 - without a zone
    "date": dt.date(2026, 5, 1),
    "clock": dt.time(12, 30),
    "span": dt.timedelta(days=-1, microseconds=3),
    "uuid": UUID(int=7),
    "decimal": Decimal("1.50"),
    "tuple": (1, (2, b"x"), {"$odd": "int 0x1", "$": 1}),
    "set": {1, "a", 2**70},
    "frozenset": frozenset({1}),
    "keys": {1: "a", None: "b", ("x", 2): ["c", math.inf], "\ud800": 1, "$": 2, "plain": {"$log": {"$$": b""}}},
    "in a list": [1, [math.nan, {"a": 2**64}]],
    "like a form": {"$odd": "int 0x10"},
    "like another": [{"$odd": ["tuple", 1]}, {"$$odd": {"$odd": "uuid x"}}],
    "numbers": {"a": 1, "b": math.inf},
}


def same(one, other):
    """Return whether two values are equal, of the same types, with NaN as equal to itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or (one != one and other != other)  # noqa: PLR0124 - NaN


@pytest.mark.parametrize("name", [name for name in ODD_VALUES if name != "tuple"])  # AutoGen makes lists of tuples
async def test_a_state_of_ones_own_comes_back_as_it_was(urls, keeper, name):
    state = {"good": 1, "a": ODD_VALUES[name], "deep": {"b": [ODD_VALUES[name]]}}
    for url in urls.values():
        async with midturn.open(url) as store:
            await store.save("case", keeper(state))
            found = keeper()
            await store.load("case", found)
            assert same(found.state, state)
            await store.session("case", keeper).run(task="hi")
            again = keeper()
            await store.load("case", again)
            assert same(again.state, state)


def test_what_is_of_a_subclass_is_stored_as_what_it_is_based_on():
    value = {"a": Color.RED, "b": Level.HIGH, "c": Name("ann"), "d": OrderedDict(x=(Color.RED,))}
    assert stored(value, "$") == {"a": "red", "b": 3, "c": "ann", "d": {"x": {ODD: ["tuple", "red"]}}}
    assert type(stored(Name("ann"), "$")) is str


@pytest.mark.parametrize(
    "bad", [object(), [object()], {"a": (1, {object()})}, {object(): 1}, {1: object()}], ids=range(5)
)
def test_an_object_is_stored_in_no_form(bad):
    with pytest.raises(StateInvalid):
        stored(bad, "$")


@pytest.mark.parametrize(
    "damaged",
    [
        *("", "int", "int x", "float 1", "text \\", "bytes !", "datetime x", "uuid 1", "nothing x", "decimal x"),
        *([], [1], ["dict", 1], ["dict", [], 1], ["nothing"], ["set", []], 7, None, {}, True),
    ],
    ids=repr,
)
def test_a_damaged_form_is_a_typed_error(damaged):
    with pytest.raises(StateInvalid, match="form"):
        restored(damaged, "$", lambda item: item)


def test_nan_is_no_difference():
    assert difference({"a": [math.nan]}, {"a": [float("nan")]}) is None
    assert difference({"a": math.nan}, {"a": 1.0}) == "$.a"


class Measured(BaseModel):
    count: int
    value: float
    note: str = ""


def said(content):
    return CreateResult(
        finish_reason="stop", content=content, usage=RequestUsage(prompt_tokens=1, completion_tokens=1), cached=False
    )


@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "NaN"])
@pytest.mark.parametrize("team", [False, True])
async def test_a_structured_answer_is_kept(urls, value, team):
    answer = f'{{"count": {2**80}, "value": {value}}}'

    def build():
        agent = AssistantAgent("ann", ScriptedModel(lambda _: said(answer)), output_content_type=Measured)
        return RoundRobinGroupChat([agent], max_turns=1) if team else agent

    for url in urls.values():
        async with midturn.open(url) as store:
            live = await store.session("case", build).run(task="measure", key="1")
            again = await store.session("case", build).run(task="measure", key="1")
            for result in (live, again):
                message = result.messages[-1]
                assert isinstance(message, StructuredMessage)
                assert message.content.count == 2**80
                assert same(message.content.value, float(value))
            assert (await store.session("case", build).run(task="again")).turn == 2
            assert (await store.session("case", build).replay(1)).differences == []


async def test_half_a_character_of_a_tool_and_of_a_model_is_kept(urls):
    async def look() -> str:
        return "seen \ud800"

    def answer(messages):
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return "told \udc00"
        return calls("look", "{}")

    def build():
        tool = FunctionTool(look, name="look", description="look")
        return AssistantAgent("ann", ScriptedModel(answer), tools=[tool], reflect_on_tool_use=True)

    for url in urls.values():
        async with midturn.open(url) as store:
            live = await store.session("case", build).run(task="go", key="1")
            again = await store.session("case", build).run(task="go", key="1")
            for result in (live, again):
                assert result.messages[2].content[0].content == "seen \ud800"
                assert result.messages[-1].content == "told \udc00"
            assert (await store.session("case", build).run(task="again")).turn == 2
            assert (await store.session("case", build).replay(1)).differences == []


def calls(name, arguments):
    return CreateResult(
        finish_reason="function_calls",
        content=[FunctionCall(id="1", name=name, arguments=arguments)],
        usage=RequestUsage(prompt_tokens=1, completion_tokens=1),
        cached=False,
    )


async def test_odd_arguments_reach_a_tool_and_the_record(urls):
    got = []

    async def pay(amount: float, order: Any, note: str) -> str:
        got.append((amount, order, note))
        return f"{order}"

    def answer(messages):
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return "done"
        return calls("pay", f'{{"amount": Infinity, "order": {2**70}, "note": "\\ud800"}}')

    def build():
        tool = FunctionTool(midturn.tool(approval=True)(pay), name="pay", description="pay")
        return AssistantAgent("ann", ScriptedModel(answer), tools=[tool], reflect_on_tool_use=True)

    for url in urls.values():
        async with midturn.open(url) as store:
            waiting = (await store.session("case", build).run(task="go")).waiting
            assert "\\ud800" in waiting.question
            result = await store.session("case", build).answer("approve")
            assert result.messages[-1].content == "done"
    assert got == [(math.inf, 2**70, "\ud800")] * len(urls)


METADATA = {key: value for key, value in ODD_VALUES.items() if key != "digits"}


class Remote(Memory):
    """A memory elsewhere, whose metadata has whatever its database returns."""

    def __init__(self, log):
        self.log = log

    async def update_context(self, model_context):
        found = await self.query("")
        await model_context.add_message(SystemMessage(content="remembered"))
        return UpdateContextResult(memories=found)

    async def query(self, query, cancellation_token=None, **kwargs):
        self.log.append("query")
        return MemoryQueryResult(
            results=[
                MemoryContent(content="email", mime_type="text/plain", metadata=dict(METADATA)),
                MemoryContent(content={"x": TIME}, mime_type="application/json"),
                MemoryContent(content=b"\xff", mime_type="application/octet-stream", metadata={"n": None}),
            ]
        )

    async def add(self, content, cancellation_token=None): ...
    async def clear(self): ...
    async def close(self): ...


@pytest.mark.filterwarnings("ignore::midturn.errors.NotKept")
@pytest.mark.parametrize("team", [False, True])
async def test_the_metadata_of_a_memory_is_kept(urls, team):
    for url in urls.values():
        log, fails = [], [True]

        def answer(messages, fails=fails):
            if fails:
                fails.clear()
                raise RuntimeError("503")
            return "told"

        def build(log=log, answer=answer):
            agent = AssistantAgent("ann", ScriptedModel(answer), memory=[Remote(log)])
            return RoundRobinGroupChat([agent], max_turns=1) if team else agent

        async with midturn.open(url) as store:
            with pytest.raises(midturn.TurnFailed):
                await store.session("case", build).run(task="go", key="1")
            resumed = await store.session("case", build).resume()
            again = await store.session("case", build).run(task="go", key="1")
            assert log == ["query"]
            for result in (resumed, again):
                text, item, data = result.messages[1].content
                assert same(text.metadata, METADATA)
                assert (item.content, data.content) == ({"x": TIME}, b"\xff")
            assert (await store.session("case", build).run(task="again")).turn == 2


async def test_the_metadata_of_a_list_memory_is_kept(urls):
    def build():
        content = MemoryContent(content="email", mime_type="text/plain", metadata=dict(METADATA))
        return AssistantAgent("ann", ScriptedModel(lambda _: "told"), memory=[ListMemory("notes", [content])])

    def empty():
        return AssistantAgent("ann", ScriptedModel(lambda _: "told"), memory=[ListMemory("notes")])

    for url in urls.values():
        async with midturn.open(url) as store:
            await store.session("case", build).run(task="go")
            agent = empty()
            await store.session("case", agent).run(task="again")
            assert same(agent._memory[0].content[0].metadata, METADATA)


async def test_a_context_with_half_a_character_is_kept(urls):
    def build():
        context = UnboundedChatCompletionContext()
        return AssistantAgent("ann", ScriptedModel(lambda _: "half \ud800"), model_context=context)

    for url in urls.values():
        async with midturn.open(url) as store:
            for _ in range(3):
                await store.session("case", build).run(task="go")
            state = await store.session("case").at(3).state()
            assert [each["content"] for each in state["llm_context"]["messages"]] == ["go", "half \ud800"] * 3


def test_the_command_line_prints_the_stored_form():
    odd = {"a": (1, b"x"), "b": 2**70}
    assert json.loads(dump_json(odd)) == {"a": [1, {ODD: "bytes eA=="}], "b": 2**70}
    assert json.loads(dump_json({"a": math.inf})) == {"a": {ODD: "float inf"}}
    assert json.loads(dump_json({("x",): 1})) == {ODD: ["dict", {ODD: ["tuple", "x"]}, 1]}
