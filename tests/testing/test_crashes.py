"""Crashes at every point: what is the same afterwards is found to be the same, and what is not is found out."""

import asyncio
import itertools
import random
import re
import sqlite3
from contextlib import closing

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.messages import StopMessage
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_core.tools import BaseTool
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel

import midturn
from midturn.sessions import opening
from midturn.stores import registry
from midturn.testing import ScriptedModel, ToolCall, every_crash

pytestmark = pytest.mark.usefixtures("nothing_left")

SCRIPT = {"refunded": "Done.", "Refund": ToolCall("refund", {"order": "A1"}), "?": "I have refunded A1."}


def clerk(tool, script=SCRIPT, **options):
    return AssistantAgent("clerk", ScriptedModel(script), tools=[tool], reflect_on_tool_use=True, **options)


def refunding(effect, ledger, **options):
    """A tool that is paid for by a service that knows its keys."""

    @midturn.tool(effect=effect, **options)
    async def refund(order: str) -> str:
        """Give the money back."""
        ledger.setdefault(midturn.call_key(), order)
        return f"refunded {order}"

    return refund


def points(report):
    return [str(crash.point) for crash in report.crashes]


def wrong(report):
    return {str(crash.point): list(crash.differences) for crash in report.crashes if crash.differences}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_that_survives_is_crashed_before_and_after_each_write(stream):
    ledger = {}
    report = await every_crash(
        lambda: clerk(refunding("idempotent", ledger), model_client_stream=stream),
        "Refund A1.",
        "What have you done?",
        effects=lambda: list(ledger.values()),
        reset=ledger.clear,
    )
    assert report.same, report
    writes = ["task", "model", "refund", 'model", nth=2', "commit", 'task", nth=2', 'model", nth=3', 'commit", nth=2']
    writes = [write if "nth" in write else f'{write}"' for write in writes]
    assert points(report) == ["None", *(f'{when}="{write}' for write in writes for when in ("before", "after"))]
    calls = {(call.agent, call.kind, call.name, call.arguments): times for call, times in report.repeated.items()}
    assert calls == {("clerk", "model", None, ""): 3, ("clerk", "tool", "refund", '{"order":"A1"}'): 1}
    [again] = [crash for crash in report.crashes if str(crash.point) == 'before="refund"']
    assert [call.name for call in again.repeated] == ["refund"]


async def test_people_are_answered_by_a_function():
    ledger, asked = {}, []

    def team():
        user = UserProxyAgent("user", input_func=midturn.human)
        agent = clerk(refunding("unsafe", ledger, approval=True))
        return RoundRobinGroupChat([user, agent], termination_condition=MaxMessageTermination(3))

    async def answer(question):
        await asyncio.sleep(0)
        asked.append(question.kind)
        if question.kind == "doubt":
            return "done: refunded A1" if ledger else "retry"
        return "Refund A1." if question.kind == "human" else "approve"

    report = await every_crash(
        team, "Good morning.", answer=answer, effects=lambda: list(ledger.values()), reset=ledger.clear
    )
    assert report.same, report
    assert {"human", "approval", "doubt"} == set(asked)
    assert {'before="question"', 'after="answer"', 'before="answer", nth=2', 'after="start of refund"'} < {
        *points(report)
    }


async def test_a_team_with_a_selector_is_the_same_after_every_crash():
    def team():
        members = [
            AssistantAgent(name, ScriptedModel({"": f"{name} agrees."}), description="An agent.")
            for name in ("ann", "bob", "cy")
        ]
        selector = ScriptedModel(lambda messages: "bob" if "ann agrees" in str(messages) else "ann")
        return SelectorGroupChat(members, selector, termination_condition=TextMentionTermination("bob agrees"))

    report = await every_crash(team, "Do you agree?")
    assert report.same, report
    assert {'before="model", nth=4', 'after="model", nth=4'} < {*points(report)}


async def test_a_transactional_tool_is_exactly_once(tmp_path):
    url = f"sqlite:///{tmp_path / 'bookings.db'}"

    @midturn.tool(effect="transactional")
    async def refund(order: str) -> str:
        """Book it."""
        await midturn.transaction().execute("INSERT INTO bookings VALUES (?)", (order,))
        return f"refunded {order}"

    async with midturn.open(url):  # makes the file, readable by its owner only
        pass
    with closing(sqlite3.connect(tmp_path / "bookings.db", isolation_level=None)) as bookings:
        bookings.execute("CREATE TABLE bookings (id TEXT)")
        report = await every_crash(
            lambda: clerk(refund),
            "Refund A1.",
            effects=lambda: bookings.execute("SELECT id FROM bookings").fetchall(),
            reset=lambda: bookings.execute("DELETE FROM bookings"),
            url=url,
        )
    assert report.same, report
    assert {'before="refund"', 'after="refund"'} < {*points(report)}


async def test_a_blueprint_and_an_async_factory_are_built_each_time():
    built = []

    async def build():
        await asyncio.sleep(0)
        built.append(1)
        return AssistantAgent("clerk", ScriptedModel({"": "Done."}))

    report = await every_crash(midturn.Blueprint("support", build), "Go.")
    assert report.same, report
    assert len(built) >= 2 + 2 * (len(report.crashes) - 3)


# What has to be found out.


async def test_an_agent_that_is_not_deterministic_differs_without_a_crash():
    report = await every_crash(
        lambda: AssistantAgent("clerk", ScriptedModel(lambda _: f"{random.random()}")),
        "Go.",
    )
    assert not report.same
    first, *others = report.crashes
    assert (first.point, first.same) == (None, False)
    [difference, *_] = first.differences
    assert difference.startswith("turn 1.messages[1].content is '0.")
    assert "without a crash '0." in difference
    assert any(crash.same is False for crash in others)
    assert "\nwithout a crash\n    turn 1.messages[1].content" in str(report)


async def test_a_model_that_counts_its_own_calls_differs_after_a_crash():
    def build():
        return RoundRobinGroupChat(
            [AssistantAgent("clerk", ReplayChatCompletionClient(["One.", "Two.", "Three."]))], max_turns=3
        )

    report = await every_crash(build, "Go.")
    assert report.crashes[0].same
    assert wrong(report)['after="model"'][0] == "turn 1.messages[2].content is 'One.', and without a crash 'Two.'"
    assert 'after="commit"' not in wrong(report)


async def test_a_tool_that_keeps_its_state_in_the_process_differs_after_a_crash():
    def build():
        numbers = itertools.count(1)

        @midturn.tool(effect="read")
        def number() -> str:
            """Take a number."""
            return f"number {next(numbers)}"

        def script(messages):
            took = str(messages).count("FunctionExecutionResult(")
            return ToolCall("number") if took < 2 else f"Done: {messages[-1].content[0].content}."

        return AssistantAgent("clerk", ScriptedModel(script), tools=[number], max_tool_iterations=3)

    report = await every_crash(build, "Take two.")
    assert report.crashes[0].same
    later = ('after="number"', 'before="model", nth=2', 'after="model", nth=2', 'before="number", nth=2')
    assert list(wrong(report)) == list(later)
    assert "number 1" in wrong(report)['after="number"'][0]
    assert "without a crash" in wrong(report)['after="number"'][0]


async def test_a_tool_whose_effect_is_not_idempotent_although_it_says_so_differs_in_its_effects():
    paid = []

    @midturn.tool(effect="idempotent")
    async def refund(order: str) -> str:
        """Give the money back, whatever the key is."""
        paid.append(order)
        return f"refunded {order}"

    report = await every_crash(lambda: clerk(refund), "Refund A1.", effects=lambda: paid, reset=paid.clear)
    assert wrong(report) == {'before="refund"': ["effects is ['A1', 'A1'], and without a crash ['A1']"]}


@pytest.mark.parametrize("answer", [None, lambda question: None])
async def test_an_unsafe_tool_in_doubt_that_nobody_answers_for_is_a_difference(answer):
    report = await every_crash(lambda: clerk(refunding("unsafe", {})), "Refund A1.", answer=answer)
    assert list(wrong(report)) == ['after="model"', 'before="refund"']
    asked = 'asks people: refund({"order":"A1"}) was interrupted. Did it take effect?'
    assert all(differences[0].startswith(asked) for differences in wrong(report).values())
    assert str(report).count(asked) == 2
    assert str(report).count("Answer it (answer=), or declare what the tool does to the world.") == 2


async def test_a_wrong_answer_to_a_call_in_doubt_is_found_out_by_the_effects():
    ledger = {}
    report = await every_crash(
        lambda: clerk(refunding("unsafe", ledger)),
        "Refund A1.",
        answer=lambda _: "done: refunded A1",
        effects=lambda: list(ledger.values()),
        reset=ledger.clear,
    )
    assert wrong(report) == {'after="model"': ["effects is [], and without a crash ['A1']"]}


async def test_what_a_crashed_run_raises_is_a_difference():
    built = itertools.count()

    def build():
        if next(built) == 3:  # the third run crashes, and this is the agent that would continue it
            raise RuntimeError("no more agents")
        return AssistantAgent("clerk", ScriptedModel({"": "Done."}))

    report = await every_crash(build, "Go.")
    assert wrong(report) == {'before="task"': ["raises RuntimeError: no more agents"]}


async def test_what_the_first_run_raises_is_raised():
    with pytest.raises(midturn.TurnFailed, match="has no answer to 'Go'"):
        await every_crash(lambda: AssistantAgent("clerk", ScriptedModel({"x": "y"})), "Go")


async def test_a_live_agent_no_task_and_nobody_to_answer_are_errors():
    agent = AssistantAgent("clerk", ScriptedModel({"": "Done."}))
    with pytest.raises(midturn.InvalidArgument, match="builds a new agent or team each time"):
        await every_crash(agent, "Go.")
    with pytest.raises(midturn.InvalidArgument, match="at least one"):
        await every_crash(lambda: agent)
    with pytest.raises(midturn.InvalidArgument, match=r"nobody answers 'May refund\("):
        await every_crash(lambda: clerk(refunding("unsafe", {}, approval=True)), "Refund A1.")


def keeping(value):
    """A class of agents whose own state has what this returns for the number of the agent."""
    ages = itertools.count()

    class Aging(AssistantAgent):
        def __init__(self):
            super().__init__("clerk", ScriptedModel({"": "Done."}))
            self.kept = value(next(ages))

        async def save_state(self):
            return {**await super().save_state(), **self.kept}

        async def load_state(self, state):
            known = ("type", "version", "llm_context")
            self.kept = {name: item for name, item in state.items() if name not in known}
            await super().load_state({name: state[name] for name in known})

    return Aging


@pytest.mark.parametrize(
    ("value", "difference"),
    [
        (lambda age: {"age": age}, "state.age is 1, and without a crash 0"),
        (lambda age: {"id": age}, "state.id is 1, and without a crash 0"),
        (lambda age: {"deep": {"list": [0, age]}}, "state.deep.list[1] is 1, and without a crash 0"),
        (lambda age: {"list": [0] * age}, "state.list is [0], and without a crash []"),
        (lambda age: {"deep": {f"age {age}": 0}}, "state.deep is {'age 1': 0}, and without a crash {'age 0': 0}"),
        (
            lambda age: {"text": f"{age}" * 300},
            f"state.text is '{'1' * 199}…, and without a crash '{'0' * 199}…",
        ),
    ],
)
async def test_a_state_that_differs_is_a_difference_although_the_messages_are_the_same(value, difference):
    report = await every_crash(keeping(value), "Go.")
    assert report.crashes[0].differences == (difference,)


async def test_the_outcomes_are_compared_with_that_of_the_first_run():
    def value(number):
        return {"second": number == 1}

    report = await every_crash(keeping(value), "Go.")
    assert report.crashes[0].differences == ("state.second is True, and without a crash False",)
    assert {crash.same for crash in report.crashes[1:]} == {True}
    assert str(report).count("without a crash\n") == 1
    assert str(report).startswith(f"{len(report.crashes)} runs, 1 of them not as the uninterrupted one\n")
    assert str(report).endswith("x: clerk: model")


async def test_a_difference_in_what_autogen_forgets_or_in_the_reason_of_the_end_is_found_out():
    ages = itertools.count()

    class Nothing(BaseModel):
        pass

    class Counter(BaseTool[Nothing, str]):
        """A tool that nobody calls, with a state that AutoGen does not save."""

        def __init__(self):
            super().__init__(Nothing, str, "count", "Count.")
            self.age = next(ages)

        async def run(self, args, cancellation_token):
            return ""

        async def save_state_json(self):
            return {"age": self.age}

        async def load_state_json(self, state):
            self.age = state["age"]

    report = await every_crash(lambda: clerk(Counter(), {"": "Done."}), "Go.")
    assert report.crashes[0].differences[0].startswith("beside.")
    assert report.crashes[0].differences[0].endswith(".age is 1, and without a crash 0")

    class Whim(MaxMessageTermination):
        def __init__(self):
            super().__init__(2)
            self.age = next(ages)

        async def __call__(self, messages):
            found = await super().__call__(messages)
            return found and StopMessage(content=f"reason {self.age}", source="whim")

    def team():
        return RoundRobinGroupChat(
            [AssistantAgent("clerk", ScriptedModel({"": "Done."}))], termination_condition=Whim()
        )

    report = await every_crash(team, "Go.")
    assert re.fullmatch(r"turn 1.stop_reason is 'reason \d+', .*", report.crashes[0].differences[0])


async def test_functions_can_be_async_and_the_same_store_can_be_used_twice_with_a_lease(tmp_path):
    ledger = {}

    async def effects():
        await asyncio.sleep(0)
        return list(ledger.values())

    async def reset():
        await asyncio.sleep(0)
        ledger.clear()

    for _ in range(2):
        report = await every_crash(
            lambda: clerk(refunding("idempotent", ledger)),
            "Refund A1.",
            effects=effects,
            reset=reset,
            url=f"sqlite:///{tmp_path / 'cases.db'}?lease=60",
        )
        assert report.same, report
        assert len(report.crashes) == 11


async def test_of_several_questions_each_gets_its_answer():
    ledger = {}
    script = {"refunded": "Done.", "": [ToolCall("refund", {"order": "A1"}), ToolCall("refund", {"order": "B2"})]}
    report = await every_crash(
        lambda: clerk(refunding("idempotent", ledger, approval=True), script),
        "Refund both.",
        answer=lambda question: "approve" if question.arguments == {"order": "A1"} else "deny: not this one",
        effects=lambda: sorted(ledger.values()),
        reset=ledger.clear,
    )
    assert report.same, report
    assert list(ledger.values()) == ["A1"]


async def test_the_store_is_closed(monkeypatch):
    opened = []

    async def open_store(url):
        opened.append(await registry.open_store(url))
        return opened[-1]

    monkeypatch.setattr(opening, "open_store", open_store)
    await every_crash(lambda: AssistantAgent("clerk", ScriptedModel({"": "Done."})), "Go.")
    with pytest.raises(midturn.StoreUnavailable, match="closed"):
        await opened[0].counts()
