"""A finished turn can be run again from its journal, without any call, to see whether today's code says the same."""

import pytest
from autogen_agentchat.agents import AssistantAgent
from desk import A1, B2, Desk
from fuzz_kinds import FUZZED
from kinds import TASKS
from scripted import Scripted, remembered
from test_every_write import INPUTS, LEFT_OUT

import midturn
from midturn.errors import InvalidArgument, NotFound
from midturn.record.head import Kind


@pytest.mark.parametrize("kind", sorted(FUZZED.keys() - LEFT_OUT))
async def test_what_every_kind_of_agent_did_is_replayed_alike_and_nothing_is_called(memory, kind, monkeypatch):
    build, _ = FUZZED[kind]
    tasks = INPUTS.get(kind, TASKS[:2])
    for task in tasks:
        await memory.session("case", build).run(task=task)
    asked, token = [], (await memory.store.head("case")).token
    monkeypatch.setattr(Scripted, "create", lambda *args, **options: asked.append(args))
    for turn in range(1, len(tasks) + 1):
        replay = await memory.session("case", build).replay(turn)
        assert replay.same, replay.differences
        assert (replay.turn, replay.notes, asked) == (turn, [], [])
    assert (await memory.store.head("case")).token == token, "nothing is written"


async def test_a_changed_prompt_is_noted_and_the_recorded_answers_are_given(memory):
    desk = Desk([A1])
    await memory.session("case", desk).run(task="please")
    replay = await memory.session("case", Desk([A1], prompt="Be brief.")).replay(1)
    assert replay.same
    assert replay.notes == ["model_client: its request has changed"] * 2


async def test_what_is_said_otherwise_is_a_difference(memory):
    def build(name="clerk"):
        return lambda: AssistantAgent(name, Scripted(remembered))

    await memory.session("case", build()).run(task="please")
    replay = await memory.session("case", build("other")).replay(1)
    assert not replay.same
    assert replay.differences == ["turn 1.messages[1].source is different"]
    assert replay.messages[1].source == "other"


async def test_a_call_that_was_not_made_then_is_a_difference_and_is_not_made(memory):
    desk = Desk([A1])
    await memory.session("case", desk).run(task="please")
    desk.done.clear()

    def with_a_memory():
        from test_calls import Remote

        agent = desk()
        agent._memory = [Remote(desk.done)]
        return agent

    replay = await memory.session("case", with_a_memory).replay(1)
    assert replay.differences == ["memory: calls update_context now, and called nothing in the recorded turn"]
    assert desk.done == []


async def test_a_call_that_is_not_made_any_more_is_a_difference(memory):
    from test_calls import Remote

    server = []

    def build(*memories):
        return lambda: AssistantAgent("clerk", Scripted(remembered), memory=list(memories) or None)

    await memory.session("case", build(Remote(server))).run(task="please")
    replay = await memory.session("case", build()).replay(1)
    assert any("memory: update_context is not called" in each for each in replay.differences)


async def test_an_error_of_todays_code_is_a_difference(memory):
    from desk import Desk

    await memory.session("case", Desk([A1])).run(task="please")

    def broken():
        agent = Desk([A1])()
        agent._tool_call_summary_formatter = None
        agent.on_messages_stream = None
        return agent

    replay = await memory.session("case", broken).replay(1)
    assert replay.differences[0].startswith("raises TypeError")


async def test_a_finished_turn_with_questions_is_replayed_with_their_answers(memory):
    desk = Desk([A1, B2], effects={"refund": midturn.tool(approval=True)})
    case = memory.session("case", desk)
    asked = (await case.run(task="please")).waiting.questions
    await case.answer("approve", question=asked[0].id)
    await case.answer("deny: no", question=asked[1].id)
    replay = await case.replay(1)
    assert replay.same, replay.differences


async def test_what_cannot_be_replayed_is_refused(memory):
    desk = Desk([A1], effects=dict.fromkeys(("look", "reserve", "refund"), midturn.tool(effect="read")))
    case = memory.session("case", desk, durability="turn")
    await case.run(task="please")
    with pytest.raises(NotFound, match="no recorded calls"):
        await case.replay(1)
    with pytest.raises(NotFound, match="session 'case' has no turn 2; the latest is 1"):
        await case.replay(2)
    with pytest.raises(InvalidArgument, match="builds"):
        await memory.session("case").replay(1)


@pytest.mark.parametrize("keep", [0, 1, 3])
async def test_only_the_journals_of_the_last_turns_are_kept(memory, keep):
    case = memory.session("case", lambda: AssistantAgent("clerk", Scripted(remembered)), journals=keep)
    for number in range(1, 12):
        await case.run(task=f"task {number}")
        kept = [row.n for row in await memory.store.rows("case", Kind.CALL)]
        assert len(kept) >= min(keep, number)
        assert len(kept) <= (2 * keep + 1 if keep else 0), number
        assert kept == list(range(number - len(kept), number))
        for turn in range(max(1, number - keep + 1), number + 1):
            assert (await case.replay(turn)).same
    with pytest.raises(NotFound, match="the calls of turn 1 were removed"):
        await case.replay(1)


async def test_fifty_journals_are_kept_if_nothing_is_said(memory):
    case = memory.session("case", lambda: AssistantAgent("clerk", Scripted(lambda _messages: "yes")))
    for number in range(1, 121):
        await case.run(task=f"{number}")
        assert min(50, number) <= len(await memory.store.rows("case", Kind.CALL)) <= 101
