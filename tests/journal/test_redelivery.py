"""Promise 3: a key that is delivered again repeats no call of its earlier delivery, whatever came in between."""

import asyncio
import json
import os
import random
from collections import Counter

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import FunctionExecutionResultMessage, UserMessage
from autogen_core.tools import FunctionTool, StaticStreamWorkbench
from desk import A1, B2, Desk, Killed, results
from scripted import Scripted, calls
from tools.servers.shared import STORES, store_url

import midturn
from midturn.errors import ReplayDiverged, TurnFailed
from midturn.record.head import Kind
from midturn.turns.runner import MOST_NOTES

pytestmark = pytest.mark.fault("F26")


@pytest.fixture(params=STORES)
async def store(request, tmp_path):
    async with midturn.open(store_url(request.param, tmp_path / "store")) as store:
        yield store


class OwnDesk(Desk):
    """A desk whose script begins again with every task, whatever other turns there were."""

    def _answer(self, messages):
        last = max(i for i, message in enumerate(messages) if isinstance(message, UserMessage))
        return super()._answer(messages[last:])


def desk_of(effect="unsafe", *script, **options):
    return OwnDesk(*script or ([A1],), effects={"refund": midturn.tool(effect=effect, **options)})


async def another_turn(store, key="k2"):
    """Run a turn of another key that calls no tool."""
    return await store.session("case", OwnDesk()).run(task="two", key=key)


async def deliver(store, desk, how):
    """Deliver k1, which refunds and then does not come to its end."""
    desk.model_error_at = desk.asked.total() + 2
    if how == "cancelled":
        desk.model_error_at, token = 0, asyncio.Event()

        async def wait(messages, real=desk._answer):
            answer = real(messages)
            if desk.done:
                token.set()
                await asyncio.Event().wait()
            return answer

        desk._answer = wait
        running = asyncio.create_task(store.session("case", desk).run(task="one", key="k1"))
        await token.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        del desk._answer
    else:
        with pytest.raises(TurnFailed):
            await store.session("case", desk).run(task="one", key="k1")
    if how == "discarded":
        assert await store.session("case").discard()


@pytest.mark.parametrize("effect", ["unsafe", "idempotent"])
@pytest.mark.parametrize("how", ["failed", "cancelled", "discarded"])
async def test_a_key_that_is_delivered_again_after_another_turn_repeats_nothing(store, how, effect):
    desk = desk_of(effect)
    await deliver(store, desk, how)
    assert desk.done == [("refund", "A1")]
    await store.session("case", desk).run(task="two", key="k2")
    assert desk.done == [("refund", "A1")] * 2, "another key is another turn"
    asked = desk.asked.total()
    result = await store.session("case", desk).run(task="one", key="k1")
    assert desk.done == [("refund", "A1")] * 2
    assert results(result) == ["refund of A1 is done"]
    assert desk.asked.total() == asked + 1, "the model's first answer is served, too"
    again = await store.session("case", desk).run(task="one", key="k1")
    assert again.messages[-1].content == result.messages[-1].content
    turn = await store.session("case").turn(result.turn)
    assert "k1" in turn.notes[0]
    assert [call.attempt for call in turn.calls] == [0, 0, 1]
    assert (await store.session("case", desk).replay(result.turn)).same


@pytest.mark.parametrize("effect", ["unsafe", "idempotent"])
async def test_a_key_is_delivered_again_and_again_until_its_turn_ends(memory, effect):
    desk = desk_of(effect, [A1], [B2])
    for number, asked in enumerate([2, 2, 1]):  # the model's answers so far are served
        desk.model_error_at = desk.asked.total() + asked
        with pytest.raises(TurnFailed):
            await memory.session("case", desk).run(task="one", key="k1")
        desk.model_error_at = 0
        await another_turn(memory, f"other {number}")
    result = await memory.session("case", desk).run(task="one", key="k1")
    assert desk.done == [("refund", "A1"), ("refund", "B2")]
    assert len(set(desk.keys)) == 2
    assert results(result) == ["refund of A1 is done", "refund of B2 is done"]


async def test_the_same_call_of_the_same_key_has_the_same_key_in_the_world(memory):
    desk = desk_of("idempotent")
    for _ in range(2):
        desk.fail = "refund"
        running = memory.session("case", desk)
        with pytest.raises(Killed):
            await running.run(task="one", key="k1")
        await memory.session("case").discard()
        await another_turn(memory)
    await memory.session("case", desk).run(task="one", key="k1")
    assert desk.done == [("refund", "A1")] * 3
    assert len(set(desk.keys)) == 1


async def test_what_was_in_doubt_stays_in_doubt(memory):
    desk = desk_of()
    desk.fail = "refund"
    with pytest.raises(Killed):
        await memory.session("case", desk).run(task="one", key="k1")
    await memory.session("case").discard()
    await another_turn(memory)
    result = await memory.session("case", desk).run(task="one", key="k1")
    assert (result.waiting.kind, result.waiting.tool) == ("doubt", "refund")
    assert desk.done == [("refund", "A1")]
    done = await memory.session("case", desk).answer("done: refund 17")
    assert results(done) == ["refund 17"]
    assert desk.done == [("refund", "A1")]


async def test_an_approval_of_an_earlier_delivery_is_not_asked_for_again(memory):
    desk = desk_of("unsafe", approval=True)
    await memory.session("case", desk).run(task="one", key="k1")
    desk.model_error_at = 2
    with pytest.raises(TurnFailed):
        await memory.session("case", desk).answer("approve")
    await another_turn(memory)
    result = await memory.session("case", desk).run(task="one", key="k1")
    assert result.waiting is None
    assert desk.done == [("refund", "A1")]


async def test_a_question_that_nobody_answered_is_asked_again(memory):
    desk = desk_of("unsafe", approval=True)
    first = await memory.session("case", desk).run(task="one", key="k1")
    await memory.session("case").discard()
    await another_turn(memory)
    again = await memory.session("case", desk).run(task="one", key="k1")
    assert again.waiting.question == first.waiting.question
    assert len((await memory.session("case").waiting()).questions) == 1
    assert results(await memory.session("case", desk).answer("approve")) == ["refund of A1 is done"]
    assert desk.done == [("refund", "A1")]


async def test_calls_that_were_removed_from_the_journal_still_count_for_their_key(memory):
    desk = desk_of()
    await deliver(memory, desk, "failed")
    other = memory.session("case", OwnDesk(), journals=0)
    for number in range(3):
        await other.run(task="two", key=f"other {number}")
    assert not await memory.store.rows("case", Kind.CALL, start=0, stop=2)
    await memory.session("case", desk, journals=0).run(task="one", key="k1")
    assert desk.done == [("refund", "A1")]


async def test_a_state_that_is_saved_by_hand_forgets_no_calls_of_a_key(memory):
    desk = desk_of()
    await deliver(memory, desk, "failed")
    await memory.save("case", Desk()())
    await memory.session("case", desk).run(task="one", key="k1")
    assert desk.done == [("refund", "A1")]


async def test_a_second_delivery_that_a_crash_interrupts_is_finished_by_the_next_process(memory):
    desk = desk_of("unsafe", [A1], [B2])
    await deliver(memory, desk, "failed")
    await another_turn(memory)
    desk.fail = "refund"
    with pytest.raises(Killed):
        await memory.session("case", desk).run(task="one", key="k1")
    assert desk.done == [("refund", "A1"), ("refund", "B2")]
    waiting = (await memory.session("case", desk).resume()).waiting
    assert waiting.arguments == {"order": "B2"}
    result = await memory.session("case", desk).answer("done: refund 17")
    assert results(result) == ["refund of A1 is done", "refund 17"]


async def test_changed_code_that_no_longer_knows_of_the_refund_is_rejected(memory):
    desk = desk_of()
    await deliver(memory, desk, "failed")
    await another_turn(memory)

    def build():
        agent = desk()
        agent._workbench = [StaticStreamWorkbench([])]
        return agent

    with pytest.raises(ReplayDiverged, match="refund"):
        await memory.session("case", build).run(task="one", key="k1")
    assert desk.done == [("refund", "A1")]


async def test_a_key_that_another_agent_gets_the_second_time_is_rejected_each_time(memory):
    """Another turn has moved the team on, so its next speaker would refund once more."""
    done, failing = [], True

    def build():
        async def refund(order: str) -> str:
            done.append(order)
            return "done"

        def agent(name):
            def answer(messages):
                if not isinstance(messages[-1], FunctionExecutionResultMessage):
                    return calls(("refund", json.dumps({"order": name})))
                if failing:
                    raise RuntimeError("503")
                return "refunded"

            tool = FunctionTool(refund, name="refund", description="Refund.")
            return AssistantAgent(name, Scripted(answer), tools=[tool], max_tool_iterations=2)

        return RoundRobinGroupChat([agent("ann"), agent("bob")], max_turns=1)

    case = memory.session("case", build)
    with pytest.raises(TurnFailed):
        await case.run(task="one", key="k1")
    failing = False
    await case.run(task="two", key="k2")
    assert done == ["ann"] * 2
    for _ in range(3):
        with pytest.raises(ReplayDiverged, match=r'a key again, after refund\(\{"order":"ann"\}\); the conversation'):
            await case.run(task="one", key="k1")
    assert done == ["ann"] * 2


@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_a_turn_after_one_that_acted_and_failed_says_so(store, how):
    desk = desk_of("unsafe", [A1, ("look", {"order": "A1"})])
    await deliver(store, desk, how)
    result = await store.session("case", Desk()).run(task="two")
    assert len(result.notes) == 1
    assert "turn 1" in result.notes[0]
    assert 'refund({"order":"A1"})' in result.notes[0]
    turns = [turn async for turn in store.session("case").history()]
    assert [list(turn.notes) for turn in turns] == [[], list(result.notes)]
    third = await store.session("case", Desk()).run(task="three")
    assert third.notes == ()


async def test_the_first_turn_that_succeeds_says_what_all_failed_turns_before_it_did(memory):
    await deliver(memory, desk_of(), "failed")
    silent = OwnDesk()
    for number in range(2):  # the model stays away, and these turns do nothing
        silent.model_error_at = silent.asked.total() + 1
        with pytest.raises(TurnFailed):
            await memory.session("case", silent).run(task=f"other {number}")
    await deliver_another(memory, desk_of("unsafe", [B2]))
    result = await memory.session("case", OwnDesk()).run(task="two")
    assert [note.partition(" failed after ")[::2] for note in result.notes] == [
        ("turn 1", 'refund({"order":"A1"}); the agents of this turn do not know of that'),
        ("turn 4", 'refund({"order":"B2"}); the agents of this turn do not know of that'),
    ]
    assert (await memory.session("case", OwnDesk()).run(task="three")).notes == ()


async def deliver_another(store, desk):
    """Run a turn without a key that acts and fails."""
    desk.model_error_at = 2
    with pytest.raises(TurnFailed):
        await store.session("case", desk).run(task="another")


async def test_a_key_that_is_delivered_again_has_no_note_of_its_own_earlier_turn(memory):
    desk = desk_of()
    await deliver(memory, desk, "failed")
    other = desk_of("unsafe", [B2])
    other.model_error_at = 2
    with pytest.raises(TurnFailed):
        await memory.session("case", other).run(task="two", key="k2")
    desk.model_error_at = 0
    result = await memory.session("case", desk).run(task="one", key="k1")
    assert [note.split(" ")[:2] for note in result.notes] == [["turn", "2"], ["key", "'k1'"]]


async def test_the_notes_about_failed_turns_do_not_grow_without_end(memory):
    for _ in range(MOST_NOTES + 3):
        await deliver_another(memory, desk_of())
    notes = (await memory.session("case", OwnDesk()).run(task="two")).notes
    assert [note.split(" ")[:2] for note in notes] == [
        ["earlier", "turns"],
        *(["turn", f"{n}"] for n in range(4, MOST_NOTES + 4)),
    ]


async def test_a_turn_after_one_that_only_read_and_failed_has_no_note(memory):
    desk = Desk([("look", {"order": "A1"})], effects={"look": midturn.tool(effect="read")})
    desk.model_error_at = 2
    with pytest.raises(TurnFailed):
        await memory.session("case", desk).run(task="one")
    assert (await memory.session("case", Desk()).run(task="two")).notes == ()


class Teller:
    """An agent that refunds the order of its task; the model fails after the refund while ``failing`` is true."""

    def __init__(self, effect):
        self.effect = effect
        self.done = Counter()
        self.failing = False

    def __call__(self):
        async def refund(order: str) -> str:
            self.done[order] += 1
            return "done"

        tool = FunctionTool(midturn.tool(effect=self.effect)(refund), name="refund", description="Refund.")
        return AssistantAgent("clerk", Scripted(self._answer), tools=[tool], max_tool_iterations=5)

    def _answer(self, messages):
        if isinstance(messages[-1], UserMessage):
            return calls(("refund", json.dumps({"order": messages[-1].content})))
        if self.failing:
            raise RuntimeError("503")
        return "refunded"


@pytest.mark.parametrize("effect", ["unsafe", "idempotent"])
async def test_an_at_least_once_queue_repeats_no_effect(store, effect, record_property):
    """F26: deliveries in any order, of which many fail or are discarded, until each key has its result."""
    mails = 200 if os.environ.get("MIDTURN_LONG") else 8
    seed = random.randrange(2**32)
    chance, teller = random.Random(seed), Teller(effect)
    queue = [f"mail-{number}" for number in range(mails)]
    deliveries = discarded = 0
    while queue:
        mail = queue.pop(chance.randrange(len(queue)))
        teller.failing = chance.random() < 0.6
        deliveries += 1
        try:
            await store.session("case", teller).run(task=mail, key=mail)
        except TurnFailed:
            queue.append(mail)
            if chance.random() < 0.3:
                discarded += await store.session("case").discard()
    repeated = [order for order, times in teller.done.items() if times > 1]
    line = f"{mails} mails, {deliveries} deliveries, {discarded} discarded, {len(repeated)} effects repeated"
    record_property("figures", line)
    assert (repeated, len(teller.done)) == ([], mails), f"seed {seed}: {line}"
    for mail in teller.done:
        await store.session("case", teller).run(task=mail, key=mail)
    assert teller.done.total() == mails, f"seed {seed}"
