"""Promise 13: what a human approves is what runs. It is shown whole and recorded whole, with who and when."""

import asyncio
import json
import os
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent, UserProxyAgent
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.code_executor import CodeExecutor, CodeResult
from autogen_core.tools import FunctionTool
from desk import A1, Desk, killed
from scripted import Scripted, calls
from tools.servers.shared import STORES, store_url

import midturn
from midturn.errors import Conflict, InvalidArgument

pytestmark = pytest.mark.fault("F33")

APPROVED = {"refund": midturn.tool(approval=True)}


# The second run of `make test` is there for AutoGen, of which stores know nothing.
@pytest.fixture(params=("memory", "sqlite") if os.environ.get("MIDTURN_AUTOGEN") else STORES)
async def store(request, tmp_path):
    async with midturn.open(store_url(request.param, tmp_path / "store")) as store:
        yield store


def bank(**arguments):
    """An agent that pays once, and the arguments of its payments."""
    paid = []

    async def pay(iban: str, amount: float, memo: str = "", urgent: bool = False) -> str:
        paid.append({"iban": iban, "amount": amount, "memo": memo, "urgent": urgent})
        return "paid"

    def build():
        tool = FunctionTool(midturn.tool(approval=True)(pay), name="pay", description="Pay.")
        return AssistantAgent("cashier", Scripted(lambda _: calls(("pay", json.dumps(arguments)))), tools=[tool])

    return build, paid


async def test_a_question_shows_every_argument_however_long_the_others_are(store):
    build, paid = bank(memo="Thank you. " * 1_000, iban="ATTACKER", amount=9_999.0)
    waiting = (await store.session("case", build).run(task="go")).waiting
    assert '"iban":"ATTACKER"' in waiting.question
    assert '"amount":9999.0' in waiting.question
    assert "[11,000 characters]" in waiting.question
    assert waiting.arguments["memo"] == "Thank you. " * 1_000
    await store.session("case", build).answer("approve", by="ann@desk")
    [decision] = (await store.session("case").turn(1)).decisions
    assert decision.arguments == dict(waiting.arguments), "the record has all of it"
    assert "ATTACKER" in str(decision)
    assert paid[0]["iban"] == "ATTACKER"


async def test_a_question_shows_characters_that_nobody_would_see(memory):
    build, _ = bank(iban="NL\u200b12\u202e34", amount=1.0)
    waiting = (await memory.session("case", build).run(task="go")).waiting
    assert r"NL\u200b12\u202e34" in waiting.question
    assert waiting.arguments["iban"] == "NL\u200b12\u202e34"


async def test_what_a_human_is_asked_shows_characters_that_nobody_would_see(memory):
    def build():
        writer = AssistantAgent("writer", Scripted(lambda _: "Pay\u2066 12?"))
        return RoundRobinGroupChat([writer, UserProxyAgent("user", input_func=midturn.human)], max_turns=2)

    waiting = (await memory.session("case", build).run(task="go")).waiting
    assert (waiting.question, waiting.agent) == (r"Pay\u2066 12?", "user")


async def test_a_question_and_a_call_in_doubt_name_the_agent(memory):
    build, _ = bank(iban="NL12", amount=1.0)
    assert (await memory.session("bank", build).run(task="go")).waiting.agent == "cashier"
    seen = []
    desk = Desk([A1], effects={"refund": midturn.tool(reconcile=seen.append)})
    desk.fail = "refund"
    await (await killed(memory, desk)).resume()
    assert [call.agent for call in seen] == ["clerk"]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"amount": "forty"}, "arguments.amount"),
        ({"amount": None}, "arguments.amount"),
        ({"iban": 12, "urgent": "yes"}, "arguments.iban"),
        ({"unknown": 1}, "unknown"),
    ],
)
async def test_changed_arguments_of_a_wrong_type_do_not_use_up_the_approval(store, changed, named):
    build, paid = bank(iban="NL12", amount=40.0)
    asked = (await store.session("case", build).run(task="go")).waiting
    for session in (store.session("case", build), store.session("case")):
        with pytest.raises(InvalidArgument, match=named):
            await session.answer("approve", arguments=changed)
    assert (await store.session("case").waiting()) == asked
    await store.session("case", build).answer("approve", arguments={"amount": 30, "urgent": True})
    assert paid == [{"iban": "NL12", "amount": 30.0, "memo": "", "urgent": True}]


async def test_a_schema_fetches_nothing_and_a_bad_one_rejects_a_change(memory, monkeypatch):
    build, paid = bank(iban="NL12", amount=40.0)
    real = FunctionTool.schema.fget
    for bad in ({"$ref": "http://127.0.0.1:9/schema"}, {"type": 5}):
        properties = {"amount": bad}
        monkeypatch.setattr(
            FunctionTool, "schema", property(lambda self, p=properties: real(self) | {"parameters": {"properties": p}})
        )
        await memory.session(str(bad), build).run(task="go")
        with pytest.raises(InvalidArgument, match="schema is not valid"):
            await memory.session(str(bad)).answer("approve", arguments={"amount": 1.0})
        await memory.session(str(bad), build).answer("approve")
    assert len(paid) == 2


async def test_a_decision_has_who_and_when(store):
    before = datetime.now(UTC)
    build, _ = bank(iban="NL12", amount=40.0)
    await store.session("case", build).run(task="go")
    await store.session("case", build).answer("approve", arguments={"amount": 30.0}, by="ann@desk")
    [decision] = (await store.session("case").turn(1)).decisions
    assert (decision.kind, decision.agent, decision.by) == ("approval", "cashier", "ann@desk")
    assert before - timedelta(seconds=1) < decision.at < datetime.now(UTC) + timedelta(seconds=1)
    assert decision.changed == {"amount": 30.0}
    assert str(decision).endswith('approve, with {"amount":30.0} (ann@desk)')


async def test_giving_a_turn_up_is_a_decision_with_who_and_when(store):
    build, _ = bank(iban="NL12", amount=40.0)
    await store.session("case", build).run(task="go")
    assert await store.session("case").discard(by="ann@desk")
    [turn] = [turn async for turn in store.session("case").history()]
    [decision] = turn.decisions
    assert (decision.kind, decision.answer, decision.by) == ("discard", "discard", "ann@desk")
    assert turn.status == "cancelled"


async def test_continuing_a_turn_that_diverged_is_a_decision_with_who_and_when(memory):
    desk = Desk([A1], [("look", {"order": "A1"})])
    desk.fail = "look"
    await killed(memory, desk)
    other = Desk([("look", {"order": "A1"})], prompt="Be strict.")
    await memory.session("case", other).resume(diverged="continue", by="ann@desk")
    [decision] = (await memory.session("case").turn(1)).decisions
    assert (decision.kind, decision.answer, decision.by) == ("diverged", "continue", "ann@desk")


@pytest.mark.parametrize("by", ["", 7, "x" * 201, "\ud800"])
async def test_a_name_that_is_none_is_rejected_before_anything_is_written(memory, by):
    build, _ = bank(iban="NL12", amount=40.0)
    await memory.session("case", build).run(task="go")
    case = memory.session("case", build)
    for call in (case.answer("approve", by=by), case.discard(by=by), case.resume(by=by)):
        with pytest.raises(InvalidArgument, match="by"):
            await call
    assert (await memory.info("case")).status == "waiting"


async def test_of_two_people_who_answer_at_once_one_wins(store, record_property):
    times, won = 100 if os.environ.get("MIDTURN_LONG") else 1, Counter()
    for number in range(times):
        name, (build, paid) = f"case {number}", bank(iban="NL12", amount=40.0)
        asked = (await store.session(name, build).run(task="go")).waiting.id
        answers = [
            store.session(name, build).answer("approve", question=asked, by="ann"),
            store.session(name, build).answer("deny: no", question=asked, by="bob"),
        ]
        ends = await asyncio.gather(*answers[:: -1 if number % 2 else 1], return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == ["Conflict", "TurnResult"]
        [decision] = (await store.session(name).turn(1)).decisions
        assert len(paid) == (decision.by == "ann")
        won[decision.by] += 1
        with pytest.raises(Conflict):
            await store.session(name, build).answer("approve", question=asked)
    record_property(
        "figures", f"{times} questions, each answered by two people at once: {dict(won)} won, 0 both or none"
    )


class Shell(CodeExecutor):
    """Writes down what it is asked to run."""

    def __init__(self):
        self.ran = []

    async def execute_code_blocks(self, code_blocks, cancellation_token):
        self.ran += [block.code for block in code_blocks]
        return CodeResult(exit_code=0, output="done")

    async def start(self):
        pass

    async def stop(self):
        pass

    async def restart(self):
        pass


@pytest.mark.filterwarnings("ignore:No approval function")
async def test_code_runs_as_it_was_approved(memory):
    shell = Shell()
    what = midturn.Blueprint(
        "coder",
        lambda: CodeExecutorAgent("coder", shell),
        effects={"execute_code_blocks": midturn.tool(approval=True)},
    )
    task = TextMessage(content="```sh\nrm -rf /\n```", source="user")
    await memory.session("case", what).run(task=task)
    for wrong in ("ls", ["ls", "ls"], [1]):
        with pytest.raises(InvalidArgument, match="arguments"):
            await memory.session("case", what).answer("approve", arguments={"code": wrong})
    await memory.session("case", what).answer("approve", arguments={"code": ["ls"]})
    assert shell.ran == ["ls"]


async def test_an_answer_for_a_deleted_session_approves_nothing_in_a_new_one(store):
    """Both ask for the same call in the same turn; the answer comes from a mail that was sent long ago."""
    build, paid = bank(iban="DE1", amount=1.0)
    before = (await store.session("case", build).run(task="pay", key="k1")).waiting
    await store.session("case").delete()
    anew = store.session("case", build, reuse=True)
    now = (await anew.run(task="pay", key="k1")).waiting
    assert now.question == before.question
    with pytest.raises(Conflict):
        await anew.answer("approve", question=before.id)
    assert (await anew.waiting()).id == now.id
    assert not paid
