"""Texts come in at doors, where they are redacted before they are recorded. Agents get what is recorded."""

import json

import pytest
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, TextMessage
from desks import (
    HIDDEN,
    Counting,
    Killed,
    Talker,
    Watching,
    answer,
    blueprint,
    build,
    card,
    proxy_team,
    redact,
    redact_later,
    team,
    with_memory,
)
from stored_text import everything

import midturn
from midturn.testing import ToolCall, every_crash


async def test_no_text_is_stored_before_it_is_redacted(store):
    case = store.session("case", blueprint())
    result = await case.run(f"My order with {card(0)}")
    assert card(0)[:4] not in await everything(store, "case")
    assert [message.to_text() for message in result.messages if isinstance(message, TextMessage)] == [
        f"My order with {HIDDEN}",
        f"It was paid with {HIDDEN}.",
    ]


async def test_an_async_function_redacts_as_well(store):
    await store.session("case", blueprint(function=redact_later)).run(f"My order with {card(0)}")
    assert card(0)[:4] not in await everything(store, "case")


async def test_the_function_learns_where_a_text_comes_from(store):
    function = Watching()
    await store.session("case", blueprint(function=function)).run(f"My order with {card(0)}")
    assert function.where(card(0)) == {("task", "", "")}
    assert function.where(card(1)) == {("model", "clerk", "look")}
    assert function.where(card(2)) == {("tool", "clerk", "look")}
    assert function.where(card(3)) == function.where(card(4)) == {("model", "clerk", "")}


async def test_a_tool_gets_the_arguments_that_are_recorded(store):
    given = []

    async def look(order: str) -> str:
        given.append(order)
        return "nothing was paid"

    script = {"My order": ToolCall("look", {"order": card(1)}), "": "Done."}
    await store.session("case", blueprint(lambda: build(script, [look]))).run("My order")
    assert given == [HIDDEN]
    [_, call, _] = (await store.session("case").turn(1)).calls
    assert json.loads(call.arguments) == {"order": HIDDEN}


async def test_a_function_can_leave_the_arguments_of_a_tool_whole(store):
    given = []

    async def charge(number: str) -> str:
        given.append(number)
        return "charged"

    def function(text, where):
        return text if where.tool == "charge" else redact(text, where)

    script = {"pay": ToolCall("charge", {"number": card(1)}), "": "Done."}
    await store.session("case", blueprint(lambda: build(script, [charge]), function)).run("pay")
    assert given == [card(1)]


async def test_numbers_and_keys_in_arguments_are_redacted_as_texts(store):
    given = []

    async def charge(cards: dict) -> str:
        given.append(cards)
        return "charged"

    def function(text, where):
        return text.replace("4929", "[n]")

    script = {"pay": ToolCall("charge", {"cards": {"4929-A": 4929, "plain": [1, True, None]}}), "": "Done."}
    await store.session("case", blueprint(lambda: build(script, [charge]), function)).run("pay")
    assert given == [{"[n]-A": "[n]", "plain": [1, True, None]}]


async def test_a_text_that_is_json_stays_json(store):
    case = store.session("case", blueprint(lambda: build({"": json.dumps({"card": card(1), "paid": [2]})}, [])))
    result = await case.run("hello")
    assert json.loads(result.messages[-1].content) == {"card": HIDDEN, "paid": [2]}


async def test_a_streamed_answer_comes_in_one_piece_when_it_is_redacted(store):
    case = store.session("case", blueprint())
    events = [event async for event in case.run_stream("hello")]
    assert [event.content for event in events if isinstance(event, ModelClientStreamingChunkEvent)] == [
        f"I know {HIDDEN}."
    ]


@pytest.mark.parametrize("factory", [build, team, with_memory])
async def test_live_and_restored_agents_are_the_same(store, factory):
    """The second turn of one session object has the live agents, that of the other has restored ones."""
    case = store.session("live", blueprint(factory))
    await case.run(f"My order with {card(0)}")
    await case.run(f"hello {card(0)}")
    await store.session("restored", blueprint(factory)).run(f"My order with {card(0)}")
    await store.session("restored", blueprint(factory)).run(f"hello {card(0)}")
    one, other = [await store.session(name).at(2).state() for name in ("live", "restored")]
    assert timeless(one) == timeless(other)
    assert card(0)[:4] not in str(one) + str(await store.session("live").at(2).beside())


def timeless(value):
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in ("id", "created_at")}
    return [timeless(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("factory", [build, team, with_memory, Talker])
async def test_a_crash_at_any_call_makes_no_difference(url, factory):
    desk = blueprint(factory, effects={"look": "read"} if factory is not Talker else None)
    report = await every_crash(desk, f"My order with {card(0)}", f"hello {card(1)}", url=url)
    assert report.same, report


def approving():
    script = {"pay": ToolCall("look", {"order": card(1)}), "": "Done."}
    return blueprint(lambda: build(script), effects={"look": midturn.tool(approval=True)})


@pytest.mark.parametrize("made", [approving, lambda: blueprint(proxy_team)])
async def test_a_crash_around_a_question_makes_no_difference(url, made):
    def answer(question):
        assert card(0)[:4] not in str(question)
        return {"approval": "approve", "doubt": "retry", "human": f"It is {card(2)}"}[question.kind]

    report = await every_crash(made(), f"pay {card(0)}", answer=answer, url=url)
    assert report.same, report


async def test_a_recorded_text_is_final_although_the_function_changes_its_mind(url):
    """See that what was recorded is not given to the function again."""
    case_function = Counting()
    async with midturn.open(url) as store:
        case = store.session("case", blueprint(function=case_function))
        result = await case.run(f"My order with {card(0)}")
        texts = [message.to_text() for message in result.messages]
        again = store.session("case", blueprint(function=case_function))
        turn = await again.turn(1)
        assert [message.to_text() for message in turn.messages] == texts
        assert (await again.replay(1)).same
        state = json.dumps(await again.at(1).state())
        await again.run("hello")
        later = await again.at(2).state()
        assert (
            later["llm_context"]["messages"][: len(json.loads(state)["llm_context"]["messages"])]
            == (json.loads(state)["llm_context"]["messages"])
        )


async def test_a_turn_that_is_continued_does_not_redact_its_record_again(store):
    """The tool dies in the first attempt. The second has the task and the model's answer as they were recorded."""
    function, broken = Counting(), [True]

    async def look(order: str) -> str:
        if broken:
            broken.clear()
            raise Killed
        return f"{order} was paid"

    case = store.session("case", blueprint(lambda: build(tools=[look]), function, effects={"look": "read"}))
    with pytest.raises(Killed):
        await case.run(f"My order with {card(0)}")
    task, asked = [(await case.open_turn()).task[0].content, (await case.open_turn()).calls[0].result]
    result = await store.session(
        "case", blueprint(lambda: build(tools=[look]), function, effects={"look": "read"})
    ).resume()
    assert result.messages[0].content == task == f"My order with {HIDDEN}~1"
    assert "~2" in str(asked)
    assert "~2" in result.messages[1].to_text()


async def test_a_replay_has_the_redacted_messages(store):
    case = store.session("case", blueprint(team))
    await case.run(f"My order with {card(0)}")
    replayed = await case.replay(1)
    assert replayed.same, replayed.differences
    assert card(0)[:4] not in str(replayed.messages)


async def test_a_background_run_and_its_followers_have_the_redacted_messages(store):
    run = await store.session("case", blueprint(Talker)).start(f"My order with {card(0)}", key="k")
    own = [event.event.to_text() async for event in run.events()]
    await run.result()
    store._runs._finished.clear()  # as in another process
    followed = await store.session("case", blueprint(Talker)).follow(1)
    others = [event.event.to_text() async for event in followed.events()]
    assert own == others
    assert card(0)[:4] not in str(own)


async def test_what_a_user_says_is_redacted_as_a_task_or_as_an_answer(store):
    function = Watching()
    case = store.session("case", blueprint(proxy_team, function))
    asked = await case.say(f"hello {card(0)}")
    assert asked.waiting.question == f"Is it {HIDDEN}?"
    result = await case.say(f"It is {card(1)}", by="ann")
    assert result.messages[-1].content == f"It is {HIDDEN}"
    assert function.where(card(0)) == {("task", "", "")}
    assert function.where(card(1)) == {("task", "", ""), ("human", "person", "")}
    assert card(0)[:4] not in await everything(store, "case")


async def test_an_input_function_of_the_program_is_a_door_as_well(store):
    from autogen_agentchat.agents import UserProxyAgent

    case = store.session("case", blueprint(lambda: UserProxyAgent("person", input_func=lambda _: f"It is {card(1)}")))
    result = await case.run("hello")
    assert result.messages[-1].content == f"It is {HIDDEN}"
    assert card(1)[:4] not in await everything(store, "case")


async def test_what_is_approved_is_what_runs(store):
    """A person sees the recorded arguments. The arguments that the person gives are redacted before the tool runs."""
    given = []

    async def charge(number: str, note: str) -> str:
        given.append((number, note))
        return "charged"

    script = {"pay": ToolCall("charge", {"number": card(1), "note": "-"}), "": "Done."}
    options = {"effects": {"charge": midturn.tool(approval=True)}}
    case = store.session("case", blueprint(lambda: build(script, [charge]), **options))
    asked = await case.run("pay")
    assert asked.waiting.arguments == {"number": HIDDEN, "note": "-"}
    await case.answer("approve", arguments={"note": f"by {card(2)}"}, by="ann")
    assert given == [(HIDDEN, f"by {HIDDEN}")]
    [decision] = (await case.turn(1)).decisions
    assert decision.changed == {"note": f"by {HIDDEN}"}
    assert card(0)[:4] not in await everything(store, "case")


@pytest.mark.parametrize(("said", "kept"), [("deny: it is {}", "deny: it is {}"), ("Deny", "Deny")])
async def test_the_reason_of_a_denial_is_redacted_and_the_word_is_not(store, said, kept):
    script = {"pay": ToolCall("look", {"order": "A1"}), "": "Done."}
    options = {"effects": {"look": midturn.tool(approval=True)}}
    case = store.session("case", blueprint(lambda: build(script), **options))
    await case.run("pay")
    await case.answer(said.format(card(1)))
    [decision] = (await case.turn(1)).decisions
    assert decision.answer == kept.format(HIDDEN)


async def test_a_call_in_doubt_is_shown_as_it_was_recorded_and_its_result_is_redacted(store):
    async def charge(number: str) -> str:
        raise Killed

    script = {"pay": ToolCall("charge", {"number": card(1)}), "": "Done."}
    case = store.session("case", blueprint(lambda: build(script, [charge])))
    with pytest.raises(Killed):
        await case.run("pay")
    asked = await case.resume()
    assert asked.waiting.kind == "doubt"
    assert asked.waiting.arguments == {"number": HIDDEN}
    result = await case.answer(f"done: charged {card(2)}")
    assert f"charged {HIDDEN}" in str(result.messages)
    assert card(0)[:4] not in await everything(store, "case")


async def test_the_key_of_a_call_is_the_same_in_each_attempt(store):
    keys = []

    async def charge(number: str) -> str:
        keys.append(midturn.call_key())
        if len(keys) == 1:
            raise Killed
        return "charged"

    script = {"pay": ToolCall("charge", {"number": card(1)}), "": "Done."}
    case = store.session("case", blueprint(lambda: build(script, [charge]), effects={"charge": "idempotent"}))
    with pytest.raises(Killed):
        await case.run("pay")
    await case.resume()
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_a_key_is_delivered_once_and_another_task_with_it_is_a_conflict(store):
    case = store.session("case", blueprint())
    first = await case.run(f"hello {card(0)}", key="mail")
    assert (await case.run(f"hello {card(0)}", key="mail")).turn == first.turn
    with pytest.raises(midturn.Conflict):
        await case.run(f"good bye {card(0)}", key="mail")


async def test_an_answer_without_a_record_is_redacted_as_well(store):
    case = store.session("case", blueprint(effects={"look": "read"}), durability="turn")
    result = await case.run(f"My order with {card(0)}")
    assert result.messages[-1].content == f"It was paid with {HIDDEN}."
    assert card(0)[:4] not in await everything(store, "case")


async def test_the_probabilities_of_tokens_are_left_out(store):
    from autogen_core.models import ChatCompletionTokenLogprob

    logprobs = [ChatCompletionTokenLogprob(token="4929", logprob=-0.1)]
    reply = answer("hello").model_copy(update={"logprobs": logprobs})
    await store.session("case", blueprint(lambda: build({"": reply}))).run("hello")
    assert "4929" not in await everything(store, "case")


async def test_a_structured_answer_is_redacted_and_still_a_message_of_its_type(store):
    from autogen_agentchat.agents import AssistantAgent
    from pydantic import BaseModel

    from midturn.testing import ScriptedModel

    class Paid(BaseModel):
        card: str
        amount: int

    def factory():
        model = ScriptedModel({"": json.dumps({"card": card(1), "amount": 40})})
        return AssistantAgent("clerk", model, output_content_type=Paid)

    result = await store.session("case", blueprint(factory)).run(f"hello {card(0)}")
    assert result.messages[-1].content == Paid(card=HIDDEN, amount=40)
    assert card(0)[:4] not in await everything(store, "case")


async def test_the_text_beside_a_picture_is_redacted_and_the_picture_stays(store):
    from autogen_agentchat.messages import MultiModalMessage
    from autogen_core import Image
    from PIL import Image as Picture

    picture = Image.from_pil(Picture.new("RGB", (2, 2), "red"))
    task = MultiModalMessage(content=[f"my card {card(0)}", picture], source="user", metadata={"card-no": card(1)})
    result = await store.session("case", blueprint()).run(task)
    words, seen = result.messages[0].content
    assert (words, seen.to_base64()) == (f"my card {HIDDEN}", picture.to_base64())
    assert result.messages[0].metadata == {"card-no": HIDDEN}
    assert card(0)[:4] not in await everything(store, "case")


async def test_agents_inside_a_tool_are_redacted_as_well(url):
    from autogen_agentchat.tools import AgentTool

    def factory():
        inner = AgentTool(build({"": f"I know {card(5)}."}, [], "inner", model_client_stream=False))
        return build(
            {"I know": f"Done with {card(6)}.", "": ToolCall("inner", {"task": f"Ask for {card(1)}"})}, [inner]
        )

    async with midturn.open(url) as store:
        case = store.session("case", blueprint(factory))
        events = [event async for event in case.run_stream(f"hello {card(0)}")]
        assert events[-1].messages[-1].content == f"Done with {HIDDEN}."
        assert card(0)[:4] not in str(events) + await everything(store, "case")
        assert (await case.replay(1)).same
    report = await every_crash(blueprint(factory), f"hello {card(0)}", url=url)
    assert report.same, report


async def test_executed_code_is_redacted(store):
    from autogen_agentchat.agents import ApprovalResponse, CodeExecutorAgent
    from autogen_core.code_executor import CodeExecutor, CodeResult

    ran, yes = [], ApprovalResponse(approved=True, reason="-")

    class Executor(CodeExecutor):
        async def execute_code_blocks(self, code_blocks, cancellation_token):
            ran.extend(block.code for block in code_blocks)
            return CodeResult(exit_code=0, output=f"printed {card(3)}")

        async def start(self):
            pass

        async def stop(self):
            pass

        async def restart(self):
            pass

    function = Watching()
    case = store.session(
        "case", blueprint(lambda: CodeExecutorAgent("coder", Executor(), approval_func=lambda _: yes), function)
    )
    result = await case.run(f"```python\nprint('{card(0)}')\n```")
    assert f"printed {HIDDEN}" in result.messages[-1].content
    assert [code.strip() for code in ran] == [f"print('{HIDDEN}')"]
    assert function.where("printed 4929") == {("tool", "coder", "execute_code_blocks")}
    assert card(0)[:4] not in await everything(store, "case")
