"""A human may take days to answer, while no process is alive."""

import asyncio
import gc

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat
from autogen_agentchat.tools import TeamTool
from desk import A1, B2, Desk, results
from generated_parts import timeless
from kinds import transcript
from scripted import Scripted, calls, remembered

import midturn
from midturn.errors import Conflict, InvalidArgument, SessionBusy

APPROVED = {"refund": midturn.tool(approval=True)}
READ = {name: midturn.tool(effect="read") for name in ("look", "reserve")}


def team(ask=midturn.human, **options):
    """A writer and somebody who has to be content."""
    writer = AssistantAgent("writer", Scripted(remembered))
    user = UserProxyAgent("user", input_func=ask)
    return RoundRobinGroupChat([writer, user], termination_condition=TextMentionTermination("ACCEPT"), **options)


async def test_a_turn_waits_for_a_human_and_goes_on_in_another_process(memory):
    result = await memory.session("case", team).run(task="write")
    question = result.waiting
    assert (question.kind, question.agent, question.tool) == ("human", "user", None)
    assert [message.type for message in result.messages] == ["TextMessage", "TextMessage", "UserInputRequestedEvent"]
    assert question.question == result.messages[1].content, "it is what was last said to the human"
    assert result.turn == 1
    assert result.checkpoint == 0
    assert [info.status async for info in memory.sessions()] == ["waiting"]
    again = await memory.session("case", team).answer("shorter")
    assert again.waiting.id != question.id
    done = await memory.session("case", team).answer("ACCEPT")
    assert done.waiting is None
    said = iter(["shorter", "ACCEPT"])
    plain = await team(lambda _prompt: next(said)).run(task="write")
    assert timeless(transcript(done)) == timeless(transcript(plain))


async def test_a_turn_that_waits_is_told_again_and_not_run_again(memory):
    case = memory.session("case", team)
    first = await case.run(task="write", key="k")
    again = await memory.session("case", team).run(task="write", key="k")
    resumed = await memory.session("case").resume()
    assert first.waiting == again.waiting == resumed.waiting
    with pytest.raises(SessionBusy, match="waits for an answer"):
        await memory.session("case", team).run(task="another")


async def test_an_answer_can_be_left_by_somebody_who_has_no_agents(memory):
    await memory.session("case", team).run(task="write")
    assert await memory.session("case").answer("ACCEPT") is None
    assert [info.status async for info in memory.sessions()] == ["interrupted"]
    result = await memory.session("case", team).resume()
    assert result.waiting is None
    assert result.messages[-1].content == "ACCEPT"


async def test_an_answer_to_a_question_that_is_no_longer_asked_is_an_error(memory):
    first = (await memory.session("case", team).run(task="write")).waiting
    case = memory.session("case", team)
    await case.answer("shorter", question=first.id)
    with pytest.raises(Conflict, match="no answer to question"):
        await case.answer("shorter", question=first.id)
    await case.answer("ACCEPT")
    with pytest.raises(Conflict, match="waits for no answer"):
        await case.answer("ACCEPT")


@pytest.mark.parametrize("answer", [7, None, "\ud800"])
async def test_what_is_no_text_is_no_answer(memory, answer):
    case = memory.session("case", team)
    await case.run(task="write")
    with pytest.raises(InvalidArgument, match="answer"):
        await case.answer(answer)
    assert (await case.resume()).waiting


async def test_a_human_without_a_journal_is_told_how_to_have_one(memory, caplog):
    with pytest.raises(InvalidArgument, match="durability='call'"):
        await memory.session("case", team, durability="turn").run(task="write")
    desk = Desk([A1], effects=READ | APPROVED)
    with pytest.raises(InvalidArgument, match="refund: needs a journal"):
        await memory.session("other", desk, durability="turn").run(task="please")
    assert desk.done == []
    gc.collect()
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("is_async", [True, False])
async def test_what_a_human_typed_is_never_asked_again(memory, is_async):
    typed = []

    def ask(prompt):
        typed.append(prompt)
        return "shorter" if len(typed) == 1 else "ACCEPT"

    async def ask_later(prompt, cancellation_token):
        return ask(prompt)

    fails = iter([False, True, False])

    def answer(messages):
        if next(fails, False):
            raise RuntimeError("503")
        return remembered(messages)

    def build():
        writer = AssistantAgent("writer", Scripted(answer))
        user = UserProxyAgent("user", input_func=ask_later if is_async else ask)
        return RoundRobinGroupChat([writer, user], termination_condition=TextMentionTermination("ACCEPT"))

    with pytest.raises(midturn.TurnFailed):
        await memory.session("case", build).run(task="write")
    assert len(typed) == 1
    await memory.session("case", build).resume()
    assert len(typed) == 2


async def test_a_given_team_goes_on_after_another_process_has_answered(memory):
    case = memory.session("case", team())
    assert (await case.run(task="write")).waiting
    assert (await memory.session("case", team).answer("ACCEPT")).waiting is None
    result = await case.run(task="write more")
    assert (result.turn, result.waiting.kind) == (2, "human")


async def test_a_tool_that_wants_approval_does_nothing_before_it_has_it(memory):
    desk = Desk([A1], effects=APPROVED)
    result = await memory.session("case", desk).run(task="please")
    asked = result.waiting
    assert (asked.kind, asked.tool, asked.arguments) == ("approval", "refund", {"order": "A1"})
    assert desk.done == []
    done = await memory.session("case", desk).answer("approve")
    assert results(done) == ["refund of A1 is done"]
    assert desk.done == [("refund", "A1")]


async def test_a_tool_that_was_denied_does_nothing_and_the_model_is_told_why(memory):
    desk = Desk([A1], effects=APPROVED)
    await memory.session("case", desk).run(task="please")
    done = await memory.session("case", desk).answer("deny: too much")
    assert results(done) == ["This call was not allowed: too much"]
    assert desk.done == []


async def test_the_arguments_can_be_changed(memory):
    desk = Desk([A1], effects=APPROVED)
    case = memory.session("case", desk)
    await case.run(task="please")
    done = await case.answer("approve", arguments={"order": "A2"})
    assert results(done) == ["refund of A2 is done"]
    assert desk.done == [("refund", "A2")]


@pytest.mark.parametrize(
    ("answer", "arguments"),
    [("retry", None), ("approve: yes", None), ("", None), ("approve", ["A2"]), ("deny", {"order": "A2"})],
)
async def test_what_cannot_be_answered_to_an_approval_is_refused_and_nothing_is_lost(memory, answer, arguments):
    desk = Desk([A1], effects=APPROVED)
    case = memory.session("case", desk)
    await case.run(task="please")
    with pytest.raises(InvalidArgument):
        await case.answer(answer, arguments=arguments)
    assert (await case.resume()).waiting.kind == "approval"
    assert desk.done == []


async def test_several_questions_are_answered_one_by_one_in_any_order(memory):
    desk = Desk([A1, ("look", {"order": "A1"}), B2], effects=APPROVED)
    case = memory.session("case", desk)
    result = await case.run(task="please")
    first, second = result.waiting.questions
    assert [first.arguments, second.arguments] == [{"order": "A1"}, {"order": "B2"}]
    assert desk.done == [("look", "A1")], "what needs no answer is done meanwhile"
    with pytest.raises(InvalidArgument, match="name one of these"):
        await case.answer("approve")
    result = await memory.session("case", desk).answer("approve", question=second.id)
    assert [question.id for question in result.waiting.questions] == [first.id]
    result = await memory.session("case", desk).answer("deny: no", question=first.id)
    assert results(result) == ["This call was not allowed: no", "look of A1 is done", "refund of B2 is done"]
    assert desk.done == [("look", "A1"), ("refund", "B2")]


async def test_a_callback_is_given_the_arguments_that_were_approved(memory):
    from desk import Killed

    seen = []
    desk = Desk(
        [A1], effects={"refund": midturn.tool(approval=True, reconcile=lambda call: seen.append(call) or "yes")}
    )
    case = memory.session("case", desk)
    await case.run(task="please")
    desk.fail = "refund"
    with pytest.raises(Killed):
        await case.answer("approve", arguments={"order": "A2"})
    assert results(await memory.session("case", desk).resume()) == ["yes"]
    assert seen[0].arguments == {"order": "A2"}
    assert seen[0].key == desk.keys[0]


async def test_a_tool_that_was_approved_and_then_interrupted_is_in_doubt(memory):
    from desk import Killed

    desk = Desk([A1], effects=APPROVED)
    case = memory.session("case", desk)
    await case.run(task="please")
    desk.fail = "refund"
    with pytest.raises(Killed):
        await case.answer("approve")
    result = await memory.session("case", desk).resume()
    assert result.waiting.kind == "doubt"
    done = await memory.session("case", desk).answer("done: refund 17")
    assert results(done) == ["refund 17"]
    assert desk.done == [("refund", "A1")]


async def test_parallel_branches_ask_at_the_same_time(memory):
    def build():
        first = AssistantAgent("first", Scripted(remembered))
        left, right = (UserProxyAgent(name, input_func=midturn.human) for name in ("left", "right"))
        last = AssistantAgent("last", Scripted(remembered))
        builder = DiGraphBuilder()
        for node in (first, left, right, last):
            builder.add_node(node)
        builder.add_edge(first, left).add_edge(first, right).add_edge(left, last).add_edge(right, last)
        return GraphFlow(builder.get_participants(), builder.build())

    said = {}
    for order in (("left", "right"), ("right", "left")):
        name = " ".join(order)
        result = await memory.session(name, build).run(task="go")
        asked = {question.agent: question.id for question in result.waiting.questions}
        assert set(asked) == {"left", "right"}
        for who in order:
            result = await memory.session(name, build).answer(f"{who} says yes", question=asked[who])
        assert result.waiting is None
        said[name] = [message.content for message in result.messages if message.type == "TextMessage"]
    assert said["left right"][-3:-1] == ["left says yes", "right says yes"]
    assert said["right left"][-3:-1] == ["right says yes", "left says yes"]


async def test_a_human_inside_an_agent_that_is_a_tool_can_be_asked(memory):
    def build():
        inner = RoundRobinGroupChat([UserProxyAgent("boss", input_func=midturn.human)], max_turns=1)
        tool = TeamTool(inner, name="boss", description="ask the boss", return_value_as_last_message=True)

        def answer(messages):
            return calls(("boss", '{"task": "may I?"}')) if len(messages) < 3 else remembered(messages)

        return AssistantAgent("clerk", Scripted(answer), tools=[tool], max_tool_iterations=3)

    result = await memory.session("case", build).run(task="go")
    assert result.waiting.question == "may I?"
    result = await memory.session("case", build).answer("you may")
    assert results(result) == ["you may"]


async def test_a_human_inside_a_tool_cannot_be_asked_and_the_error_says_what_to_do(memory):
    def build():
        boss = UserProxyAgent("boss", input_func=midturn.human)

        async def ask_the_boss() -> str:
            return str(await boss.run(task="may I?"))

        def answer(messages):
            return calls(("ask_the_boss", "{}")) if len(messages) < 3 else remembered(messages)

        return AssistantAgent("clerk", Scripted(answer), tools=[ask_the_boss], max_tool_iterations=3)

    with pytest.raises(InvalidArgument, match="AgentTool"):
        await memory.session("case", build).run(task="go")


async def test_the_process_may_end_while_it_waits(memory):
    case = memory.session("case", team)
    await case.run(task="write")
    head = await memory.store.head("case")
    assert (head.status, head.owner) == ("waiting", None)


async def test_no_two_turns_ask_a_question_with_the_same_id(memory):
    desk = Desk([A1], effects={"refund": midturn.tool(approval=True)})
    ids = []
    for session in ("case", "case", "other"):
        waiting = (await memory.session(session, desk).run(task="please")).waiting
        ids.append(waiting.id)
        await memory.session(session, desk).answer("approve", question=waiting.id)
    assert len(set(ids)) == 3
    again = (await memory.session("case", desk).run(task="please")).waiting
    with pytest.raises(Conflict):
        await memory.session("case", desk).answer("approve", question=ids[0])
    assert (await memory.session("case").waiting()).id == again.id


async def test_what_people_decided_is_in_the_history(memory):
    desk = Desk([A1], [B2], effects=APPROVED)
    await memory.session("case", desk).run(task="one")
    await memory.session("case", desk).answer("approve", arguments={"order": "C3"})
    await memory.session("case", desk).answer("deny: too late")
    [turn] = [turn async for turn in memory.session("case").history()]
    assert [str(decision) for decision in turn.decisions] == [
        'May refund({"order":"A1"}) be called? approve, with {"order":"C3"}',
        'May refund({"order":"B2"}) be called? deny: too late',
    ]
    first, second = turn.decisions
    assert (first.kind, first.tool, first.arguments, first.changed) == (
        "approval",
        "refund",
        {"order": "A1"},
        {"order": "C3"},
    )
    assert (second.answer, second.arguments, second.changed, second.by) == (
        "deny: too late",
        {"order": "B2"},
        None,
        None,
    )
    assert turn.started <= first.at <= second.at <= turn.ended


@pytest.mark.parametrize("arguments", [{"oder": "B2"}, {"order": "B2", "amount": 7}])
async def test_an_argument_that_the_call_does_not_have_cannot_be_changed(memory, arguments):
    desk = Desk([A1], effects=APPROVED)
    case = memory.session("case", desk)
    waiting = (await case.run(task="one")).waiting
    with pytest.raises(InvalidArgument, match=r"arguments: the call has no \w+; it has order"):
        await case.answer("approve", arguments=arguments)
    with pytest.raises(InvalidArgument, match="arguments: can only be changed together with 'approve'"):
        await case.answer("deny", arguments={"order": "B2"})
    assert await case.waiting() == waiting
    assert desk.done == []


async def test_an_approval_of_a_tool_that_is_not_there_lets_nothing_run(memory):
    desk = Desk([A1])
    what = midturn.Blueprint("desk", desk, effects={"refnd": midturn.tool(approval=True)})
    with pytest.raises(InvalidArgument, match="an effect of 'refnd', but there is no tool of that name"):
        await memory.session("case", what).run(task="one")
    assert desk.done == []


async def test_what_has_changed_since_the_first_turn_was_begun_is_told_before_an_answer_is_taken(memory, caplog):
    await memory.session("case", Desk([A1], effects=APPROVED)).run(task="one")
    changed = Desk([A1], effects=APPROVED, prompt="Never refund anything.")
    before = await memory.store.head("case")
    with pytest.raises(midturn.Drifted, match="prompt of clerk changed"):
        await memory.session("case", changed, on_drift="raise").answer("approve")
    assert (await memory.store.head("case")).seq == before.seq
    assert changed.done == []
    await memory.session("case", changed).answer("approve")
    assert caplog.text.count("prompt of clerk changed") == 1
    assert changed.done == [("refund", "A1")]
    [turn] = [turn async for turn in memory.session("case").history()]
    assert turn.drift == ["prompt of clerk changed"]
    await memory.session("case", changed, on_drift="raise").run(task="two")
