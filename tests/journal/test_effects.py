"""Promise 4: what a crash leaves in doubt is settled as the tool's declared effect says."""

import json

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool, TextResultContent, ToolResult, Workbench
from desk import A1, B2, Desk, Killed, killed, results
from scripted import Scripted, calls

import midturn
from midturn.errors import Conflict, InDoubt, InvalidArgument
from midturn.testing import crash_at
from midturn.tools import marked


@pytest.mark.parametrize("effect", ["read", "idempotent"])
@pytest.mark.parametrize("how", ["decorator", "blueprint"])
async def test_what_may_be_repeated_is_repeated_with_the_same_key(memory, effect, how):
    if how == "decorator":
        desk = what = Desk([A1], effects={"refund": midturn.tool(effect=effect)})
    else:
        desk = Desk([A1])
        what = midturn.Blueprint("desk", desk, effects={"refund": effect})
    desk.fail = "refund"
    result = await (await killed(memory, desk, what=what)).resume()
    assert result.waiting is None
    assert desk.done == [("refund", "A1")] * 2
    assert desk.keys[0] == desk.keys[1]


async def test_a_blueprint_has_the_last_word_on_an_effect(memory):
    desk = Desk([A1], effects={"refund": midturn.tool(effect="read")})
    desk.fail = "refund"
    what = midturn.Blueprint("desk", desk, effects={"refund": "unsafe"})
    assert (await (await killed(memory, desk, what=what)).resume()).waiting.tool == "refund"


async def test_every_call_has_a_key_of_its_own(memory):
    desk = Desk([A1, A1, B2], [A1])
    case = memory.session("case", desk)
    await case.run(task="one")
    await case.run(task="one")
    await memory.session("another", desk).run(task="one")
    assert len(desk.keys) == len(set(desk.keys)) == 12


def test_a_key_is_for_the_inside_of_a_tool():
    with pytest.raises(LookupError, match="only inside a tool"):
        midturn.call_key()


async def test_what_is_not_declared_is_not_repeated_and_the_turn_waits_with_the_facts(memory):
    desk = Desk([A1])
    desk.fail = "refund"
    result = await (await killed(memory, desk)).resume()
    assert desk.done == [("refund", "A1")]
    (question,) = result.waiting.questions
    assert (question.kind, question.tool, question.arguments) == ("doubt", "refund", {"order": "A1"})
    assert "refund" in question.question
    assert [info.id async for info in memory.sessions(status="waiting")] == ["case"]


@pytest.mark.parametrize(
    ("answer", "times", "told"),
    [
        ("retry", 2, "refund of A1 is done"),
        ("done: refund 17", 1, "refund 17"),
        ("fail", 1, "Nobody knows whether this call took effect; a human decided to treat it as failed."),
    ],
)
async def test_a_human_settles_a_doubt(memory, answer, times, told):
    desk = Desk([A1], ["look"])
    desk.script[1] = [("look", {"order": "A1"})]
    desk.fail = "refund"
    await (await killed(memory, desk)).resume()
    result = await memory.session("case", desk).answer(answer)
    assert result.waiting is None
    assert results(result) == [told, "look of A1 is done"]
    assert desk.done.count(("refund", "A1")) == times
    assert [turn.status async for turn in memory.session("case").history()] == ["done"]


async def test_a_doubt_comes_back_if_the_retry_dies_too(memory):
    desk = Desk([A1])
    for _ in range(3):
        desk.fail = "refund"
        if not desk.done:
            case = await killed(memory, desk)
        else:
            with pytest.raises(Killed):
                await case.answer("retry")
            case = memory.session("case", desk)
        result = await case.resume()
        assert result.waiting.kind == "doubt"
    assert desk.done == [("refund", "A1")] * 3
    await case.answer("done: yes")
    assert len(desk.done) == 3


async def test_only_the_call_that_was_interrupted_is_in_doubt(memory):
    desk = Desk([("look", {"order": "A1"}), A1, ("reserve", {"order": "A1"})])
    desk.fail = "refund"
    case = await killed(memory, desk)
    done = list(desk.done)
    result = await case.resume()
    assert {question.tool for question in result.waiting.questions} <= {"look", "refund", "reserve"}
    assert "refund" in {question.tool for question in result.waiting.questions}
    assert desk.done == done


@pytest.mark.parametrize(("found", "times"), [("refund 17", 1), (None, 2)])
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_callback_settles_a_doubt(memory, found, times, is_async):
    calls = []

    def reconcile(call):
        calls.append(call)
        return found

    async def reconcile_later(call):
        return reconcile(call)

    how = midturn.tool(effect="unsafe", reconcile=reconcile_later if is_async else reconcile)
    desk = Desk([A1], effects={"refund": how})
    desk.fail = "refund"
    result = await (await killed(memory, desk)).resume()
    assert result.waiting is None
    assert len(desk.done) == times
    assert results(result) == [found or "refund of A1 is done"]
    (call,) = calls
    assert (call.session, call.turn, call.tool, call.arguments) == ("case", 1, "refund", {"order": "A1"})
    assert call.key == desk.keys[0]


async def test_another_task_is_not_accepted_while_a_call_is_in_doubt(memory):
    desk = Desk([A1])
    desk.fail = "refund"
    case = await killed(memory, desk)
    with pytest.raises(InDoubt, match="refund") as caught:
        await case.run(task="something else")
    assert (caught.value.tool, caught.value.arguments) == ("refund", {"order": "A1"})
    assert [turn.status async for turn in case.history()] == ["waiting"]
    await case.answer("done: yes", question=caught.value.question)
    desk.script.clear()
    assert (await case.run(task="something else")).turn == 2


async def test_a_turn_in_doubt_can_be_given_up(memory):
    desk = Desk([A1])
    desk.fail = "refund"
    case = await killed(memory, desk)
    assert (await case.resume()).waiting
    assert await case.discard() is True
    assert await case.discard() is False
    assert await case.resume() is None
    desk.script.clear()
    result = await case.run(task="something else")
    assert result.turn == 2
    assert [turn.status async for turn in case.history()] == ["cancelled", "done"]
    assert desk.done == [("refund", "A1")]


@pytest.mark.parametrize("answer", ["approve", "yes", "done", "done:", "retry: now", "", "fail: no"])
async def test_what_cannot_be_answered_to_a_doubt_is_refused_and_nothing_is_lost(memory, answer):
    desk = Desk([A1])
    desk.fail = "refund"
    case = await killed(memory, desk)
    await case.resume()
    with pytest.raises(InvalidArgument, match="retry"):
        await case.answer(answer)
    assert (await case.resume()).waiting.kind == "doubt"


async def test_a_tool_that_raises_has_done_what_it_did_and_is_not_called_again(memory):
    desk = Desk([A1], [B2])
    desk.error = "refund"
    desk.model_error_at = 2
    with pytest.raises(midturn.TurnFailed):
        await memory.session("case", desk).run(task="please")
    result = await memory.session("case", desk).resume()
    assert desk.done == [("refund", "A1"), ("refund", "B2")]
    assert results(result)[0] == "the bank is closed"


async def test_a_crash_before_a_tool_was_asked_for_leaves_no_doubt(memory):
    desk = Desk([A1])
    desk.model_error_at = 1
    with pytest.raises(midturn.TurnFailed):
        await memory.session("case", desk).run(task="please")
    result = await memory.session("case", desk).resume()
    assert result.waiting is None
    assert desk.done == [("refund", "A1")]


def test_an_effect_that_does_not_exist_is_refused():
    with pytest.raises(InvalidArgument, match="read, idempotent, unsafe, transactional"):
        midturn.tool(effect="harmless")
    with pytest.raises(InvalidArgument, match="read, idempotent"):
        midturn.Blueprint("desk", Desk(), effects={"refund": "safe"})
    with pytest.raises(InvalidArgument, match="must decorate a function"):
        midturn.tool()("refund")


def test_a_tool_is_marked_with_and_without_parentheses():
    @midturn.tool
    def pay() -> str:
        """Pay."""
        return "paid"

    assert pay() == "paid"
    assert marked(pay) == midturn.tool()


async def test_a_function_tool_is_marked_itself(memory):
    async def refund(order: str) -> str:
        """Refund."""
        raise AssertionError("nobody has approved it")

    def build():
        tool = midturn.tool(approval=True)(FunctionTool(refund, ""))
        return AssistantAgent("clerk", Scripted(lambda _: calls(("refund", json.dumps({"order": "A1"})))), tools=[tool])

    result = await memory.session("case", build).run(task="go")
    assert (result.waiting.kind, result.waiting.tool) == ("approval", "refund")


async def test_an_answer_to_nothing_is_an_error(memory):
    case = memory.session("case", Desk())
    with pytest.raises(Conflict, match="waits for no answer"):
        await case.answer("retry")
    await case.run(task="one")
    with pytest.raises(Conflict, match="waits for no answer"):
        await case.answer("retry")


async def test_without_a_journal_a_turn_is_run_again_whole(memory):
    desk = Desk([A1], effects=dict.fromkeys(("look", "reserve", "refund"), midturn.tool(effect="idempotent")))
    desk.model_error_at = 2
    case = memory.session("case", desk, durability="turn")
    with pytest.raises(midturn.TurnFailed):
        await case.run(task="please")
    await case.resume()
    assert desk.done == [("refund", "A1")] * 2
    assert desk.keys[0] == desk.keys[1], "what it repeats, it repeats with the same key"


async def test_without_a_journal_an_unsafe_tool_is_rejected_before_anything_runs(memory):
    desk = Desk([A1], effects=dict.fromkeys(("look", "reserve"), midturn.tool(effect="read")))
    with pytest.raises(InvalidArgument, match=r'refund: is unsafe, .* declare effect="read" or effect="idempotent"'):
        await memory.session("case", desk, durability="turn").run(task="please")
    assert (desk.done, desk.asked.total()) == ([], 0)
    await memory.session("case", desk).resume()
    assert desk.done == [("refund", "A1")], "the input was accepted, and a session with a journal runs it"


async def test_without_a_journal_an_unsafe_tool_of_a_server_is_rejected_when_it_is_called(memory):
    called = []

    class Server(Workbench):
        component_type = "workbench"

        async def list_tools(self):
            return [{"name": "pay", "description": "Pay.", "parameters": {"type": "object", "properties": {}}}]

        async def call_tool(self, name, arguments=None, cancellation_token=None, call_id=None):
            called.append(name)
            return ToolResult(name=name, result=[TextResultContent(content="paid")])

        async def start(self): ...
        async def stop(self): ...
        async def reset(self): ...
        async def save_state(self):
            return {}

        async def load_state(self, state): ...

    def build():
        return AssistantAgent("clerk", Scripted(lambda _: calls(("pay", "{}"))), workbench=Server())

    with pytest.raises(InvalidArgument, match="pay: is unsafe"):
        await memory.session("case", build, durability="turn").run(task="please")
    assert called == []
    what = midturn.Blueprint("desk", build, effects={"pay": "idempotent"})
    await memory.session("other", what, durability="turn").run(task="please")
    assert called == ["pay"]


async def test_options_that_do_not_exist_are_refused(memory):
    for options in ({"durability": "message"}, {"journals": -1}, {"journals": 1.5}):
        with pytest.raises(InvalidArgument):
            memory.session("case", Desk(), **options)
    with pytest.raises(InvalidArgument, match="diverged"):
        await memory.session("case", Desk()).resume(diverged="maybe")


async def test_a_client_that_two_agents_share_is_called_by_each_under_its_own_path(memory):
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.teams import RoundRobinGroupChat

    model = Scripted(lambda messages: "the same")

    def build():
        same = {"model_client": model, "system_message": "the same"}
        return RoundRobinGroupChat([AssistantAgent(name, **same) for name in ("ann", "bob")], max_turns=2)

    await memory.session("case", build).run(task="one")
    from midturn.record.head import Kind

    rows = await memory.store.rows("case", Kind.CALL)
    assert [path for row in rows for path in ("participants/ann", "participants/bob") if path in row.data.decode()] == [
        "participants/ann",
        "participants/bob",
    ]


class Server(Workbench):
    """A workbench whose tools only a server knows."""

    async def list_tools(self):
        return [{"name": "look", "description": "look", "parameters": {"type": "object", "properties": {}}}]

    async def call_tool(self, name, arguments=None, cancellation_token=None, call_id=None):
        raise AssertionError("nobody calls a tool that is not listed")

    async def start(self): ...
    async def stop(self): ...
    async def reset(self): ...
    async def save_state(self):
        return {}

    async def load_state(self, state): ...


async def test_a_tool_that_a_server_does_not_have_is_not_in_doubt_after_a_crash(tmp_path):
    def build():
        client = Scripted(lambda messages: calls(("invented", "{}")) if len(messages) == 2 else "sorry")
        return AssistantAgent("ann", client, workbench=Server(), reflect_on_tool_use=True)

    url = f"sqlite:///{tmp_path}/store.db"
    async with crash_at(url, after="model") as store:
        await store.session("case", build).run(task="go")
    async with midturn.open(url) as store:
        result = await store.session("case", build).resume()
    assert result.messages[-1].to_text() == "sorry"
