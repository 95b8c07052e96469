"""A turn that waits for people rests in its process as it stands: its next answer continues it without a replay."""

import asyncio
import gc

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import TextMentionTermination, TimeoutTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from cast import Gate, Steps
from scripted import Scripted, calls, remembered

import midturn
from midturn.journal import journal as journals


class Speaker(AssistantAgent):
    """An assistant that notes how often it speaks, also when its turn runs again."""

    spoken = 0

    async def on_messages_stream(self, messages, cancellation_token):
        Speaker.spoken += 1
        async for item in super().on_messages_stream(messages, cancellation_token):
            yield item


@pytest.fixture(autouse=True)
def nobody_has_spoken():
    Speaker.spoken = 0


def talk(*, model=None, ends=None):
    """A factory of a writer and a person."""

    def build():
        user = UserProxyAgent("user", input_func=midturn.human)
        writer = Speaker("writer", Scripted(remembered) if model is None else model)
        return RoundRobinGroupChat([writer, user], termination_condition=ends or TextMentionTermination("DONE"))

    return build


def said(messages):
    return [(message.source, message.to_text()) for message in messages if message.type != "UserInputRequestedEvent"]


async def test_an_answer_continues_the_turn_and_runs_nothing_again(store):
    case = store.session("case", talk())
    assert (await case.run(task="hi")).waiting
    for number in range(5):
        waits = await case.answer(f"answer {number}")
        assert waits.waiting
    assert Speaker.spoken == 6
    result = await case.answer("DONE")
    assert Speaker.spoken == 6
    other = store.session("other", talk())
    await other.run(task="hi")
    for answer in [*(f"answer {number}" for number in range(5)), "DONE"]:
        replayed = await store.session("other", talk()).answer(answer)
    assert Speaker.spoken > 12  # each of those answers has run the turn again
    assert said(result.messages) == said(replayed.messages)
    assert (await case.at(1).state()) is not None
    mine, others = await case.turn(1), await other.turn(1)
    assert [(each.agent, each.kind) for each in mine.calls] == [(each.agent, each.kind) for each in others.calls]
    assert [each.answer for each in mine.decisions] == [each.answer for each in others.decisions]
    assert mine.attempts == others.attempts == 7


async def test_an_answer_of_another_object_makes_the_turn_run_again(store):
    case, other = store.session("case", talk()), store.session("case", talk())
    await case.run(task="hi")
    await other.answer("from elsewhere")
    assert Speaker.spoken == 3
    result = await case.answer("DONE")
    assert Speaker.spoken == 5  # the rest of `case` is of an older time
    assert [text for source, text in said(result.messages) if source == "user"] == ["hi", "from elsewhere", "DONE"]


async def test_a_stream_of_an_answer_has_the_earlier_events_marked_as_such(store):
    case = store.session("case", talk())
    await case.run(task="hi")
    kept = [item async for item in case.answer_stream("one")]
    assert Speaker.spoken == 2
    assert (await store.session("case", talk()).resume()).waiting
    other = store.session("other", talk())
    await other.run(task="hi")
    again = [item async for item in store.session("other", talk()).answer_stream("one")]
    assert [midturn.replayed(item) for item in kept[:-1]] == [midturn.replayed(item) for item in again[:-1]]
    assert said(kept[:-1]) == said(again[:-1])


async def test_a_cancelled_continuation_keeps_the_answer(memory):
    gate = Gate()
    case = memory.session("case", talk(model=Scripted(Steps("first", gate, "third"))))
    await case.run(task="hi")
    token = CancellationToken()
    task = asyncio.create_task(case.answer("keep me", cancellation_token=token))
    await gate.reached.wait()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.open()
    result = await case.resume()
    assert ("user", "keep me") in said(result.messages)


async def test_a_session_that_nobody_uses_any_more_ends_its_rest(memory):
    before = asyncio.all_tasks()
    case = memory.session("case", talk())
    await case.run(task="hi")
    assert asyncio.all_tasks() != before
    del case
    gc.collect()
    while left := asyncio.all_tasks() - before:
        await asyncio.wait(left, timeout=10)
    assert (await memory.session("case", talk()).answer("DONE")).stop_reason


async def test_closing_the_store_ends_a_rest():
    before = asyncio.all_tasks()
    async with midturn.open("memory://") as store:
        case = store.session("case", talk())
        await case.run(task="hi")
    assert asyncio.all_tasks() == before
    assert case.id == "case"


async def test_discarding_a_turn_ends_its_rest(memory):
    before = asyncio.all_tasks()
    case = memory.session("case", talk())
    await case.run(task="hi")
    await case.discard()
    assert asyncio.all_tasks() == before
    assert (await case.run(task="hello")).waiting


async def test_a_rewind_that_gives_a_turn_up_ends_its_rest(memory):
    before = asyncio.all_tasks()
    case = memory.session("case", talk())
    assert await case.reset() == 1
    await case.run(task="hi")
    assert await case.rewind(1, discard=True) == 3
    assert asyncio.all_tasks() == before
    assert (await case.run(task="hello")).waiting


async def test_the_time_for_which_a_turn_rests_does_not_count_for_it(memory, monkeypatch):
    rest = 0.0
    clock = journals.time.monotonic

    class Time:
        @staticmethod
        def monotonic():
            return clock() + rest

    monkeypatch.setattr(journals, "time", Time)
    case = memory.session("case", talk(ends=TimeoutTermination(3600)))
    await case.run(task="hi")
    rest = 86_400.0
    assert (await case.answer("one day later")).waiting
    monkeypatch.undo()
    assert Speaker.spoken == 2


async def test_what_a_caller_does_to_a_question_changes_no_call(memory):
    sent = []

    @midturn.tool(approval=True)
    def send(to: list[str]) -> str:
        """Send it."""
        sent.append(to)
        return "sent"

    def build():
        return AssistantAgent("clerk", Scripted(Steps(calls(("send", '{"to": ["ann"]}')), "done")), tools=[send])

    case = memory.session("case", build)
    waiting = (await case.run(task="send it")).waiting
    waiting.arguments["to"].append("eve")
    waits = await case.resume()
    waits.waiting.arguments["to"].append("eve")
    await case.answer("approve")
    assert sent == [["ann"]]
    assert [dict(each.arguments) for each in (await case.turn(1)).decisions] == [{"to": ["ann"]}]


async def test_two_open_questions_are_answered_one_by_one(memory):
    sent = []

    @midturn.tool(approval=True)
    def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        return f"sent to {to}"

    asks = 0

    def answer(messages):
        nonlocal asks
        asks += 1
        return calls(("send", '{"to": "ann"}'), ("send", '{"to": "bob"}')) if asks == 1 else "done"

    case = memory.session("case", lambda: AssistantAgent("clerk", Scripted(answer), tools=[send]))
    first, second = (await case.run(task="send both")).waiting.questions
    waits = await case.answer("approve", question=second.id)
    assert [each.id for each in waits.waiting.questions] == [first.id]
    result = await case.answer("deny: not him", question=first.id)
    assert (result.waiting, asks) == (None, 1)
    assert sent == [second.arguments["to"]]


async def test_a_part_that_rests_with_one_session_can_run_with_another(memory):
    expert = AssistantAgent("expert", Scripted(remembered))

    def build():
        writer = Speaker("writer", Scripted(remembered), tools=[AgentTool(expert)])
        return RoundRobinGroupChat(
            [writer, UserProxyAgent("user", input_func=midturn.human)],
            termination_condition=TextMentionTermination("DONE"),
        )

    one, two = memory.session("one", build), memory.session("two", build)
    await one.run(task="hi")
    assert (await expert.run(task="a word in between")).messages
    await two.run(task="hi")
    assert Speaker.spoken == 2
    assert (await one.answer("DONE")).stop_reason
    assert (await two.answer("DONE")).stop_reason


async def test_a_run_that_moved_while_it_rested_runs_again(memory):
    gave_up, timers = asyncio.Event(), []

    class Impatient(UserProxyAgent):
        """Waits for a person until its timer ends."""

        async def on_messages_stream(self, messages, cancellation_token):
            try:
                async with asyncio.timeout(None) as timer:
                    timers.append(timer)
                    async for item in super().on_messages_stream(messages, cancellation_token):
                        yield item
            except TimeoutError:
                gave_up.set()
                raise

    def build():
        return RoundRobinGroupChat(
            [Speaker("writer", Scripted(remembered)), Impatient("user", input_func=midturn.human)],
            termination_condition=TextMentionTermination("DONE"),
        )

    case = memory.session("case", build)
    assert (await case.run(task="hi")).waiting
    timers[0].reschedule(asyncio.get_running_loop().time())
    await gave_up.wait()
    result = await case.answer("DONE")
    assert Speaker.spoken == 2
    assert ("user", "DONE") in said(result.messages)
