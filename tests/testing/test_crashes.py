"""Crashes at every point: what is the same afterwards is found to be the same, and what is not is found out."""

import asyncio
import itertools
import random
import sqlite3
from contextlib import closing

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_ext.models.replay import ReplayChatCompletionClient

import midturn
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


async def test_a_state_that_differs_is_a_difference_although_the_messages_are_the_same():
    ages = itertools.count()

    class Aging(AssistantAgent):
        def __init__(self):
            super().__init__("clerk", ScriptedModel({"": "Done."}))
            self.age = next(ages)

        async def save_state(self):
            return {**await super().save_state(), "age": self.age}

        async def load_state(self, state):
            self.age = state.pop("age")
            await super().load_state(state)

    report = await every_crash(Aging, "Go.")
    assert report.crashes[0].differences == ("state.age is 1, and without a crash 0",)
