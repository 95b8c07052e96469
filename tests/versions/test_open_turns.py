"""Turns that are open while versions come and go: nothing is done twice, and no answer of a human is lost."""

import json
from contextlib import suppress

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, FunctionExecutionResultMessage, RequestUsage, UserMessage
from autogen_core.tools import FunctionTool
from scripted import Scripted

import midturn
from midturn.errors import MigrationFailed, ReplayDiverged, TurnFailed, UnknownVersion


class Desk:
    """An agent whose model follows a plan since the last task: names of tools, or ``fail``; ``done`` is shared."""

    def __init__(self, done, *tools, prompt="Be kind."):
        self.done, self.tools, self.prompt = done, tools, prompt
        self.plan = ()

    def __call__(self):
        tools = [FunctionTool(self._tool(name), name=name, description=name) for name in self.tools]
        return AssistantAgent(
            "clerk", Scripted(self._answer), tools=tools, system_message=self.prompt, max_tool_iterations=5
        )

    def follow(self, *plan):
        self.plan = plan
        return self

    def _tool(self, name):
        async def work(order: str) -> str:
            self.done.append(name)
            return f"{name} of {order}"

        return work

    def _answer(self, messages):
        last = max(i for i, message in enumerate(messages) if isinstance(message, UserMessage))
        rounds = sum(isinstance(message, FunctionExecutionResultMessage) for message in messages[last:])
        if rounds >= len(self.plan):
            return "that is all"
        if self.plan[rounds] == "fail":
            raise RuntimeError("503")
        call = FunctionCall(id=f"{len(messages)}", name=self.plan[rounds], arguments=json.dumps({"order": "A1"}))
        usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
        return CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False)


def blueprint(version, desk, *migrations, **effects):
    found = midturn.Blueprint("desk", desk, version=version, effects=effects)
    for start, migration in enumerate(migrations, start=1):
        found.migration(start, start + 1)(migration)
    return found


def same(state):
    return state


def rename(state):
    return state.rename_tool("refund", "pay_back")


async def test_what_a_newer_worker_has_gone_on_with_is_not_for_an_older_one(memory):
    done = []
    first, second = Desk(done, "look", "refund"), Desk(done, "look", "pay_back")
    old, new = blueprint(1, first, look="read"), blueprint(2, second, rename, look="read")
    await memory.session("case", old).run(task="hello")
    first.follow("look", "fail")
    with pytest.raises(TurnFailed):
        await memory.session("case", old).run(task="please")
    second.follow("look", "pay_back", "fail")
    with pytest.raises(TurnFailed):
        await memory.session("case", new).resume()
    assert done == ["look", "pay_back"]
    first.follow("look", "refund")
    with pytest.raises(UnknownVersion):
        await memory.session("case", old).resume()
    second.follow("look", "pay_back")
    assert (await memory.session("case", new).resume()).messages[-1].content == "that is all"
    assert done == ["look", "pay_back"]


@pytest.mark.parametrize("effect", ["unsafe", "idempotent", "read"])
async def test_a_prompt_that_changes_twice_repeats_nothing(memory, effect):
    done = []
    gift = midturn.tool(approval=True)

    def version(number, *plan):
        desk = Desk(done, "refund", "gift", prompt=f"As of version {number}.").follow(*plan)
        return blueprint(number, desk, *[same] * (number - 1), refund=effect, gift=gift)

    await memory.session("case", version(1)).run(task="hello")
    with pytest.raises(TurnFailed):
        await memory.session("case", version(1, "refund", "fail")).run(task="please")
    assert (await memory.session("case", version(2, "refund", "gift")).resume()).waiting
    result = await memory.session("case", version(3, "refund", "gift")).answer("approve")
    assert result.waiting is None
    assert done == ["refund", "gift"]
    assert str(result.messages).count("refund of A1") == str(result.messages).count("gift of A1")


EDITS = {
    "edit": lambda state: state.edit(lambda tree: json.loads(json.dumps(tree).replace("refund", "pay_back"))),
    "map_messages": lambda state: state.map_messages(
        lambda message: json.loads(json.dumps(message).replace("refund", "pay_back"))
    ),
    "no mention of it": same,
}


@pytest.mark.parametrize("effect", ["unsafe", "idempotent"])
@pytest.mark.parametrize("how", EDITS)
async def test_a_tool_that_is_renamed_by_hand_does_not_act_again(memory, how, effect):
    done = []
    first, second = Desk(done, "refund"), Desk(done, "pay_back")
    old = blueprint(1, first, refund=effect)
    new = blueprint(2, second, EDITS[how], pay_back=effect)
    await memory.session("case", old.__class__("desk", first.follow("refund"), effects={"refund": effect})).run(
        task="one"
    )
    done.clear()
    first.follow("refund", "fail")
    with pytest.raises(TurnFailed):
        await memory.session("case", old).run(task="two")
    second.follow("pay_back")
    with pytest.raises((MigrationFailed, ReplayDiverged), match="refund"):
        await memory.session("case", new).resume()
    assert done == ["refund"], "the money was given back twice"


def team(*names):
    def build():
        members = [
            UserProxyAgent(name, input_func=midturn.human)
            if name == "bob"
            else AssistantAgent(name, Scripted(lambda messages, name=name: f"{name} has heard {len(messages)}"))
            for name in names
        ]
        return RoundRobinGroupChat(members, max_turns=len(names))

    return build


VERBS = {
    "added": (("ann", "new", "bob"), lambda state: state.add_agent("new", after="ann")),
    "removed": (("bob",), lambda state: state.remove_agent("ann")),
    "renamed": (("zoe", "bob"), lambda state: state.rename_agent("ann", "zoe")),
    "begun anew": (("ann", "bob"), lambda state: state.reset_agent("ann")),
    "left alone": (("ann", "bob"), lambda state: state.redact("heard", "seen")),
}


@pytest.mark.parametrize("how", VERBS)
async def test_the_answer_of_a_human_is_used_or_refused(memory, how):
    names, migration = VERBS[how]
    old = midturn.Blueprint("desk", team("ann", "bob"))
    await memory.session("case", old).run(task="one")
    await memory.session("case", old).answer("well")
    assert (await memory.session("case", old).run(task="two")).waiting
    new = midturn.Blueprint("desk", team(*names), version=2)
    new.migration(1, 2)(migration)
    result = None
    with suppress(MigrationFailed, ReplayDiverged):
        result = await memory.session("case", new).answer("MY ANSWER")
    if result is not None:
        assert result.waiting is None
        assert "MY ANSWER" in str(result.messages)
    else:
        turn = [turn async for turn in memory.session("case").history()][-1]
        assert turn.status in ("waiting", "failed"), "it is still there to be continued"
