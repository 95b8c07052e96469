"""Answers of people are never lost: such a turn can be cancelled or fail, and only discard() drops it."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from cast import Gate, Steps
from scripted import Scripted, calls, remembered
from test_cancel_everywhere import SOON, Yielding

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.errors import SessionBusy, TurnFailed
from midturn.journal import order as ordering
from midturn.sessions.session import Session
from midturn.turns.session_options import Options


def team(*steps):
    """A factory of a writer and a person who has to be content; all writers share one model."""
    model = Scripted(Steps(*steps))

    def build():
        writer = AssistantAgent("writer", model)
        user = UserProxyAgent("user", input_func=midturn.human)
        return RoundRobinGroupChat([writer, user], termination_condition=TextMentionTermination("ACCEPT"))

    return build


async def answers(session, turn=1):
    """Return what people have answered in a turn, in order."""
    return [decision.answer for decision in (await session.turn(turn)).decisions]


def heard(result):
    """Return what the person in the team has said."""
    return [message.content for message in result.messages if message.source == "user" and message.type != "UserInput"]


async def cancelled_in(session, gate, how, *args):
    """Answer, and cancel that while the model works on it."""
    token = CancellationToken()
    task = asyncio.create_task(session.answer(*args, cancellation_token=token))
    await gate.reached.wait()
    if how == "task":
        task.cancel()
    else:
        token.cancel()
    await asyncio.wait({task}, timeout=SOON)
    assert task.cancelled()


async def cancelled_after(steps, work):
    """Cancel work after some steps of the event loop; return whether that came before its end."""
    task = asyncio.create_task(work)
    for _ in range(steps):
        await asyncio.sleep(0)
    if task.done():
        return False
    task.cancel()
    await asyncio.wait({task}, timeout=SOON)
    assert task.cancelled()
    return True


async def left_by_its_consumer(session, gate, *args):
    """Answer with a stream, and go away while the model works on it."""
    stream = session.answer_stream(*args)

    async def consume():
        async for _ in stream:
            pass

    task = asyncio.create_task(consume())
    await gate.reached.wait()
    task.cancel()
    await asyncio.wait({task}, timeout=SOON)
    await stream.aclose()


@pytest.mark.parametrize("how", ["task", "token", "stream"])
async def test_a_cancelled_answer_leaves_a_turn_that_the_next_run_finishes_first(store, how):
    gate = Gate()
    build = team(remembered, gate)
    case = store.session("case", build)
    assert (await case.run(task="write")).waiting
    if how == "stream":
        await left_by_its_consumer(case, gate, "shorter")
    else:
        await cancelled_in(case, gate, how, "shorter")
    assert (await store.info("case")).status == "interrupted"
    assert await answers(case) == ["shorter"]
    with pytest.raises(SessionBusy, match="waits for an answer"):  # finishing it led to the next question
        await store.session("case", build).run(task="another")
    done = await case.answer("ACCEPT")
    assert done.waiting is None
    assert [text for text in heard(done) if text in ("shorter", "ACCEPT")] == ["shorter", "ACCEPT"]
    assert await answers(case) == ["shorter", "ACCEPT"]


async def test_a_cancelled_resume_of_an_answered_turn_keeps_the_answers(store):
    gate = Gate()
    build = team(remembered, gate)
    await store.session("case", build).run(task="write")
    await store.session("case").answer("shorter")
    task = asyncio.create_task(store.session("case", build).resume())
    await gate.reached.wait()
    task.cancel()
    await asyncio.wait({task}, timeout=SOON)
    assert (await store.info("case")).status == "interrupted"
    assert (await store.session("case", build).resume()).waiting
    assert await answers(store.session("case")) == ["shorter"]


async def test_a_failed_turn_that_was_answered_is_tried_again_before_the_next_task(store):
    build = team(remembered, RuntimeError("503"), RuntimeError("503 again"))
    case = store.session("case", build)
    await case.run(task="write")
    with pytest.raises(TurnFailed, match=r"resume\(\) tries turn 1 again, discard\(\) gives it up") as failed:
        await case.answer("shorter")
    assert "another task" not in str(failed.value)
    assert (await store.info("case")).status == "failed"
    with pytest.raises(TurnFailed, match="Your task was not accepted"):
        await case.run(task="another")
    again = await case.resume()
    assert again.waiting
    assert "shorter" in heard(again)
    assert (await case.answer("ACCEPT")).waiting is None


async def test_discarding_is_the_way_to_drop_answers(store):
    build = team(remembered, RuntimeError("503"))
    case = store.session("case", build)
    await case.run(task="write")
    with pytest.raises(TurnFailed):
        await case.answer("shorter")
    assert await case.discard(by="ann")
    result = await case.run(task="another")
    assert (result.turn, result.waiting.kind) == (2, "human")
    assert await answers(case) == ["shorter", "discard"]


async def test_a_state_is_not_saved_over_an_answered_turn(memory):
    live = team(remembered, RuntimeError("503"))()
    case = memory.session("case", live)
    await case.run(task="write")
    with pytest.raises(TurnFailed, match="503"):
        await case.answer("shorter")
    with pytest.raises(TurnFailed, match="is not finished"):
        await case.save()


TWO_REFUNDS = calls(("refund", '{"order": "A1"}'), ("refund", '{"order": "B2"}'))


@midturn.tool(effect="idempotent", approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"{order} is refunded"


def clerk(*steps):
    """A factory of a clerk who wants to refund two orders at once; the first has to be approved before it fails."""
    model = Scripted(Steps(TWO_REFUNDS, *steps))
    return lambda: AssistantAgent("clerk", model, tools=[refund])


async def test_a_turn_that_still_has_a_question_goes_back_to_waiting_when_it_is_cancelled(memory, monkeypatch):
    """Cancelled at every step of the answer to the first of two questions; the second can be answered in each case."""
    monkeypatch.setattr(ordering, "PATIENCE", 5)
    store = Yielding(memory.store)
    ends = set()
    for steps in range(10_000):
        build, name = clerk(), f"case {steps}"
        case = Session(store, name, build, AutoGen())
        first, second = (await case.run(task="refund")).waiting.questions
        if not await cancelled_after(steps, case.answer("approve", question=first.id)):
            break
        head = await memory.store.head(name)
        assert (head.status, head.owner) == ("waiting", None)
        other = Session(store, name, build, AutoGen(), Options(busy="raise"))
        left = [question.id for question in (await other.waiting()).questions]
        ends.add(len(left))
        assert left in ([first.id, second.id], [second.id])
        for question in left:
            done = await other.answer("approve", question=question)
        assert done.waiting is None
        assert await answers(other) == ["approve", "approve"]
    assert steps > 20
    assert ends == {1, 2}


async def test_a_failed_turn_that_still_has_a_question_waits_for_its_answer(store):
    made = []

    @midturn.tool(approval=True)
    async def refund(order: str) -> str:
        """Refund an order."""
        made.append(order)
        if len(made) == 1:
            raise SystemExit  # the turn fails
        return f"{order} is refunded"

    model = Scripted(Steps(TWO_REFUNDS))
    case = store.session("case", lambda: AssistantAgent("clerk", model, tools=[refund]))
    first, second = (await case.run(task="refund")).waiting.questions
    with pytest.raises(TurnFailed, match=r"answer\(\) continues turn 1 with the next answer"):
        await case.answer("approve", question=first.id)
    assert [question.id for question in (await case.waiting()).questions] == [second.id]
    waits = (await case.answer("approve", question=second.id)).waiting  # the first call is in doubt now
    assert waits.kind == "doubt"
    assert (await case.answer("retry")).waiting is None
    assert sorted(made) == ["A1", "A1", "B2"]


async def test_an_answer_can_be_cancelled_at_every_step_and_is_recorded_or_not_given(memory, monkeypatch):
    monkeypatch.setattr(ordering, "PATIENCE", 5)
    store = Yielding(memory.store)
    ends = set()
    for steps in range(10_000):
        build, name = team(), f"case {steps}"
        case = Session(store, name, build, AutoGen())
        await case.run(task="write")
        if not await cancelled_after(steps, case.answer("ACCEPT")):
            break
        head = await memory.store.head(name)
        assert head.owner is None
        ends.add(head.status)
        other = Session(store, name, build, AutoGen(), Options(busy="raise"))
        if head.status == "waiting":
            assert await answers(other) == []
            await other.answer("ACCEPT")
        assert (await other.run(task="more")).turn == 2
        assert await answers(other) == ["ACCEPT"]
        assert heard(await other.resume())[-1:] != ["ACCEPT"]
        assert "ACCEPT" in [message.content for message in (await other.turn(1)).messages]
    assert steps > 20
    assert ends == {"waiting", "running", "idle"}


async def test_what_somebody_typed_in_a_turn_that_was_replaced_is_noted(store):
    """An input_func of the user's own is asked in the process itself, so its turn is given up with the process."""

    def typing():
        writer = AssistantAgent("writer", model)
        return RoundRobinGroupChat([writer, UserProxyAgent("user", input_func=lambda _: "shorter")], max_turns=3)

    model = Scripted(Steps(remembered, RuntimeError("503")))
    case = store.session("case", typing)
    with pytest.raises(TurnFailed):
        await case.run(task="write")
    result = await case.run(task="another")
    assert result.turn == 2
    [note] = result.notes
    assert 'after the answer "shorter"' in note
