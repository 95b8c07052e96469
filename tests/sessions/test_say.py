"""The user said something, whatever the session is doing."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import FunctionTool
from cast import agents, crash, expected, numbers, said
from scripted import Scripted, calls, remembered

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.errors import StoreUnavailable
from midturn.sessions.session import Session


def panel(model=None):
    """A writer and a human who has to be content."""
    writer = AssistantAgent("writer", model or Scripted(remembered))
    user = UserProxyAgent("user", input_func=midturn.human)
    return RoundRobinGroupChat([writer, user], termination_condition=TextMentionTermination("ACCEPT"))


async def test_words_are_the_task_of_a_new_turn(store):
    case = store.session("case", agents()[0])
    assert said(await case.say("one")) == await expected("one")
    assert said(await case.say("two", by="ann")) == await expected("one", "two")
    assert await numbers(case) == [(1, "done"), (2, "done")]


async def test_words_answer_the_question_of_a_human_and_say_who_answered(store):
    case = store.session("case", panel)
    asked = await case.say("write", key="m1")
    assert asked.waiting.kind == "human"
    again = await store.session("case", panel).say("shorter", key="m2", by="ann")
    assert again.turn == 1
    assert again.waiting.id != asked.waiting.id
    done = await store.session("case", panel).say("ACCEPT", key="m3", by="bob")
    assert (done.turn, done.waiting) == (1, None)
    decisions = (await case.turn(1)).decisions
    assert [(decision.answer, decision.by) for decision in decisions] == [("shorter", "ann"), ("ACCEPT", "bob")]


async def test_the_same_words_delivered_twice_count_once(store):
    first = await store.session("case", panel).say("write", key="m1")
    second = await store.session("case", panel).say("shorter", key="m2")
    for _ in range(2):  # the latest question is returned; nobody answers it
        assert (await store.session("case", panel).say("write", key="m1")).waiting == second.waiting
        assert (await store.session("case", panel).say("shorter", key="m2")).waiting == second.waiting
    done = await store.session("case", panel).say("ACCEPT", key="m3")
    for text, key in (("write", "m1"), ("shorter", "m2"), ("ACCEPT", "m3")):
        assert (await store.session("case", panel).say(text, key=key)).messages == done.messages
        assert (await (await store.session("case", panel).start_say(text, key=key)).result()).messages == done.messages
    assert first.turn == done.turn == 1
    assert await numbers(store.session("case")) == [(1, "done")]


async def test_a_key_of_an_answer_is_for_these_words_only(store):
    await store.session("case", panel).say("write", key="m1")
    await store.session("case", panel).say("shorter", key="m2")
    with pytest.raises(midturn.Conflict, match="belongs to another task"):
        await store.session("case", panel).say("ACCEPT", key="m2")


async def test_an_interrupted_turn_is_finished_first_and_its_events_come(store):
    factory = agents()[0]
    await crash(store, factory, task="one")
    items = [item async for item in store.session("case", factory).say_stream("two", key="m2")]
    texts = [item.content for item in items[:-1]]
    assert texts == ["one", await expected("one"), "two", await expected("one", "two")]
    assert items[-1].turn == 2


async def test_a_failed_turn_is_replaced_as_run_does(store):
    case = store.session("case", agents(RuntimeError("503"))[0])
    with pytest.raises(midturn.TurnFailed):
        await case.say("one")
    assert said(await case.say("two")) == await expected("two")


def pay(amount: int) -> str:
    return f"paid {amount}"


def desk():
    tool = FunctionTool(midturn.tool(approval=True)(pay), name="pay", description="")
    return AssistantAgent("clerk", Scripted(lambda _: calls(("pay", '{"amount": 3}'))), tools=[tool])


async def test_words_do_not_approve_anything(store):
    await store.session("case", desk).say("pay")
    for text in ("approve", "yes"):
        with pytest.raises(midturn.SessionBusy, match="waits for an answer to: May pay"):
            await store.session("case", desk).say(text, key=text)
    assert await numbers(store.session("case")) == [(1, "waiting")]


async def test_words_are_a_text(store):
    with pytest.raises(midturn.InvalidArgument, match="text: must be a string, not int"):
        await store.session("case", agents()[0]).say(7)


async def test_an_answer_to_a_turn_that_was_given_up_is_not_a_task_when_it_comes_again(store):
    await store.session("case", panel).say("write", key="m1")
    await store.session("case", panel).say("shorter", key="m2")
    await store.session("case").discard()
    with pytest.raises(midturn.TurnFailed, match="delivered an answer in turn 1, which has no result"):
        await store.session("case", panel).say("shorter", key="m2")
    assert (await store.session("case", panel).say("write", key="m1")).turn == 2
    with pytest.raises(midturn.TurnFailed, match="in turn 1"):
        await store.session("case", panel).say("shorter", key="m2")


async def test_a_failed_turn_is_tried_again_when_its_answer_is_delivered_again(store):
    def failing():
        return panel(Scripted(lambda messages: remembered(messages) if len(messages) < 3 else 1 / 0))

    await store.session("case", failing).say("write", key="m1")
    with pytest.raises(midturn.TurnFailed):
        await store.session("case", failing).say("shorter", key="m2")
    again = await store.session("case", panel).say("shorter", key="m2")
    assert (again.turn, again.waiting.kind) == (1, "human")
    assert len((await store.session("case").open_turn()).decisions) == 1


async def test_words_said_in_the_background_go_on_when_nobody_listens(store):
    case = store.session("case", panel)
    run = await case.start_say("write", key="m1")
    assert (await run.result()).waiting
    asked = [(item.number, item.event.type) async for item in run.events()]
    run = await case.start_say("ACCEPT", key="m2", by="ann")
    assert (run.turn, run.key) == (1, "m2")
    assert (await run.result()).waiting is None
    events = [(item.number, item.event.type) async for item in run.events()]
    assert events[: len(asked)] == asked
    assert events[len(asked) :] == [(len(asked) + 1, "TextMessage")]


class Mortal:
    """A store that a worker cannot reach any more from its ``at``-th write on, or after it."""

    def __init__(self, store, at, *, after):
        self._store, self._left, self._after = store, at, after
        self.dead = False

    async def write(self, write):
        self._left -= 1
        if self._left == 0:
            if self._after:
                await self._store.write(write)
            self.dead = True
        return await self.__getattr__("write")(write)

    def __getattr__(self, name):
        if self.dead:
            raise StoreUnavailable("the worker is dead")
        return getattr(self._store, name)


@pytest.fixture
def nobody(monkeypatch):
    """Pretend that the holder of every lease is dead."""
    monkeypatch.setattr("midturn.lease.ledger.is_dead", lambda _owner: True)


SAID = (("write", "m1"), ("shorter", "m2"), ("ACCEPT", "m3"), ("thanks ACCEPT", "m4"))


async def conversation(store, session, killed=0, at=0, *, after=False):
    """Say everything, each as often as it takes. Return whether the worker died that hears number ``killed``."""
    died = False
    for number, (text, key) in enumerate(SAID, 1):
        mortal = Mortal(store, at if number == killed else 0, after=after)
        try:
            await Session(mortal, session, panel, AutoGen()).say(text, key=key, by="ann")
        except StoreUnavailable:
            died = True
        if mortal.dead:
            await Session(store, session, panel, AutoGen()).say(text, key=key, by="ann")
    return died


@pytest.mark.usefixtures("nobody")
async def test_words_count_once_wherever_a_worker_dies(memory):
    await conversation(memory.store, "whole")
    whole = await told(memory, "whole")
    assert [turn[0] for turn in whole] == [["shorter", "ACCEPT"], []]
    deaths = 0
    for killed in range(1, len(SAID) + 1):
        for after in (False, True):
            for at in range(1, 20):
                session = f"{killed} {at} {after}"
                died = await conversation(memory.store, session, killed, at, after=after)
                assert await told(memory, session) == whole, session
                deaths += died
                if not died:
                    break
    assert deaths >= 2 * 2 * len(SAID), deaths


async def told(store, session):
    """Return what was answered and what was said in each turn."""
    turns = [turn async for turn in store.session(session).history()]
    return [
        ([decision.answer for decision in turn.decisions], [message.content for message in turn.messages])
        for turn in turns
    ]


async def test_words_of_many_deliveries_at_once_count_once(store):
    await store.session("case", panel).say("write")
    results = await asyncio.gather(*(store.session("case", panel).say("shorter", key="m2") for _ in range(5)))
    assert len({result.waiting for result in results}) == 1
    assert len((await store.session("case").open_turn()).decisions) == 1
