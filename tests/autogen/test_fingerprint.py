"""The fingerprint of every kind of agent and team: complete, without secrets and conversation, the same everywhere."""

import asyncio
import json
import os
import subprocess
import sys
from functools import partial
from typing import Literal

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, SocietyOfMindAgent, UserProxyAgent
from autogen_agentchat.base import Handoff, TerminationCondition
from autogen_agentchat.conditions import (
    FunctionalTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    TextMentionTermination,
    TimeoutTermination,
    TokenUsageTermination,
)
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_core import SingleThreadedAgentRuntime
from autogen_core.memory import ListMemory
from autogen_core.model_context import BufferedChatCompletionContext, HeadAndTailChatCompletionContext
from autogen_core.tools import BaseTool, FunctionTool, StaticWorkbench, ToolOverride
from autogen_ext.models.replay import ReplayChatCompletionClient
from fuzz_kinds import FUZZED
from gap_parts import Cart, Shop, content
from kinds import assistant, lookup, round_robin, weigh
from pydantic import BaseModel
from scripted import Scripted

import midturn
from midturn.autogen.fingerprint import secrets
from midturn.autogen.fingerprint.fingerprint import fingerprint
from midturn.autogen.parts.walk import settle, walk
from midturn.record import codec
from midturn.versions.drift import Drift, compare, digest

SK = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


async def taken(live):
    """The fingerprint of something, which is JSON and the same when it is taken again."""
    found = await fingerprint(await settle(live))
    codec.check(found)
    assert found == await fingerprint(await settle(live))
    assert " at 0x" not in json.dumps(found)
    assert compare(found, found) == Drift()
    return found


async def agent_of(live, path=""):
    return (await taken(live))["agents"][path]


async def team_of(live, path=""):
    return (await taken(live))["teams"][path]


class Report(BaseModel):
    text: str
    score: int


class Offer(BaseChatMessage):
    price: int

    def to_text(self):
        return ""

    to_model_text = to_model_message = to_text


# Agents


async def test_an_assistant_with_everything():
    agent = AssistantAgent(
        "ann",
        Scripted(),
        description="It helps.",
        system_message="Be kind.",
        tools=[lookup],
        handoffs=["bob", Handoff(target="cid", name="give", description="Give it.", message="Given.")],
        model_context=BufferedChatCompletionContext(buffer_size=3),
        memory=[ListMemory(memory_contents=[content("nine")])],
        output_content_type=Report,
        max_tool_iterations=4,
        tool_call_summary_formatter=lambda call, result: "x",
    )
    found = await agent_of(agent)
    assert found["name"] == "ann"
    assert found["class"] == "AssistantAgent"
    assert found["description"] == "It helps."
    assert found["prompt"] == ["Be kind."]
    assert found["model"] == {"class": "Scripted", "family": "unknown"}
    assert found["tools"]["lookup"]["description"] == "Look an order up."
    assert list(found["tools"]["lookup"]["parameters"]["properties"]) == ["order"]
    assert found["handoffs"]["transfer_to_bob"]["target"] == "bob"
    assert found["handoffs"]["give"] == {"target": "cid", "description": "Give it.", "message": "Given."}
    assert found["context"] == {"class": "BufferedChatCompletionContext", "buffer_size": 3}
    assert found["memory"] == ["ListMemory"]
    assert found["output"] == {"name": "StructuredMessage[Report]", "schema": Report.model_json_schema()}
    assert found["settings"]["max_tool_iterations"] == 4
    assert found["settings"]["reflect_on_tool_use"] is True
    assert found["settings"]["tool_call_summary_formatter"].endswith("<lambda>")


async def test_what_is_absent_is_left_out():
    found = await agent_of(AssistantAgent("ann", Scripted(), system_message=None))
    assert set(found) == {"name", "class", "description", "model", "context", "settings"}


async def test_tools_are_as_the_model_sees_them():
    bench = StaticWorkbench(
        [FunctionTool(lookup, "Look."), FunctionTool(weigh, "Weigh.")],
        tool_overrides={"lookup": ToolOverride(name="find", description="Find.")},
    )
    found = await agent_of(AssistantAgent("ann", Scripted(), workbench=[bench]))
    assert {name: tool["description"] for name, tool in found["tools"].items()} == {"find": "Find.", "weigh": "Weigh."}
    assert "name" not in found["tools"]["find"]


async def test_a_workbench_that_would_have_to_be_started_is_told_by_its_class():
    class Remote(Shop):
        async def list_tools(self):
            raise AssertionError("nobody asks it")

    class Changing(StaticWorkbench):
        list_tools = Remote.list_tools

    found = await agent_of(
        AssistantAgent("ann", Scripted(), workbench=[Remote(), Changing([FunctionTool(lookup, "")])])
    )
    assert found["workbenches"] == ["Remote", "Changing"]
    assert "tools" not in found


async def test_a_tool_whose_parameters_hold_themselves():
    class Node(BaseModel):
        value: int
        children: list["Node"]

    def plant(tree: Node) -> str:
        """Plant it."""
        return ""

    found = await agent_of(AssistantAgent("ann", Scripted(), tools=[plant]))
    assert found["tools"]["plant"]["parameters"]["properties"]["tree"]


async def test_a_tool_whose_schema_raises_does_not_hide_the_others():
    class Broken(BaseTool):
        def __init__(self):
            super().__init__(Report, Report, "broken", "")

        @property
        def schema(self):
            raise RuntimeError

        async def run(self, args, cancellation_token):
            pass

    found = await agent_of(AssistantAgent("ann", Scripted(), tools=[Broken(), lookup]))
    assert found["tools"]["broken"] == {}
    assert found["tools"]["lookup"]["parameters"]


def built(name):
    return FUZZED[name][0]()


async def test_agents_of_every_kind():
    society = await taken(built("society"))
    assert society["agents"][""]["prompt"][0] == SocietyOfMindAgent.DEFAULT_INSTRUCTION
    assert society["teams"]["team"]["participants"] == ["ann", "bob"]
    assert set(society["agents"]) == {"", "team/participants/ann", "team/participants/bob"}

    filtered = await taken(built("message_filter"))
    assert filtered["agents"][""]["settings"] == {"filter": {"per_source": [{"source": "user"}]}}
    assert filtered["agents"]["wrapped_agent"]["name"] == "wrapped"

    coder = await agent_of(built("code_executor"))
    assert coder["settings"]["code_executor"] == ["Executor"]
    assert coder["settings"]["approval_func"] == "code_executor.<locals>.<lambda>"
    assert coder["settings"]["supported_languages"]

    human = await agent_of(UserProxyAgent("human", input_func=midturn.human))
    assert human["settings"] == {"input_func": midturn.human.__qualname__}
    assert (await agent_of(built("user_proxy"), "participants/human"))["settings"] == {"input_func": "Typist"}

    inside = await taken(built("agent_tool"))
    [path] = set(inside["agents"]) - {""}
    assert inside["agents"][path]["name"] == "helper"
    inside = await taken(built("team_tool"))
    [path] = inside["teams"]
    assert {f"{path}/participants/ann", f"{path}/participants/bea"} < set(inside["agents"])


async def test_an_agent_of_openai():
    agents = pytest.importorskip("autogen_ext.agents.openai")
    hosted = {"type": "mcp", "server_label": "x", "server_url": "https://x", "headers": {"Authorization": "opensesame"}}
    agent = agents.OpenAIAgent("openai", "answers", object(), "some-model", "Answer.", tools=[hosted], temperature=0.5)
    found = await agent_of(agent)
    assert found["model"] == {"class": "object", "name": "some-model"}
    assert found["prompt"] == ["Answer."]
    assert found["tools"] == {"mcp": {}}
    assert found["settings"]["temperature"] == 0.5


class Mine(BaseChatAgent):
    """An agent of a user's own."""

    produced_message_types = (TextMessage,)

    def __init__(self, name="mine"):
        super().__init__(name, "Mine.")
        self.model_client = ReplayChatCompletionClient(["x"])
        self._system_message = "Be mine."
        self._tools = [FunctionTool(lookup, "Look.")]
        self._memory = ["not a memory"]
        self._workbench = None
        self._handoffs = 3
        self._sources = []

    async def on_messages(self, messages, cancellation_token):
        raise NotImplementedError

    async def on_reset(self, cancellation_token):
        pass


async def test_an_agent_of_a_users_own():
    mine = Mine()
    found = await agent_of(mine)
    assert found["class"] == "Mine"
    assert found["model"] == {"class": "ReplayChatCompletionClient", "family": "unknown"}
    assert found["prompt"] == ["Be mine."]
    assert found["tools"]["lookup"]["description"] == "Look."
    assert "settings" not in found
    mine._sources.append("something that it heard")
    assert found == await agent_of(mine)


async def test_what_raises_does_not_break_it():
    class Broken(Mine):
        @property
        def description(self):
            raise RuntimeError

    class Client(Scripted):
        broken = False

        @property
        def model_info(self):
            if self.broken:
                raise RuntimeError
            return super().model_info

    found = await agent_of(Broken())
    assert "description" not in found
    assert found["name"] == "mine"
    client = Client()
    agent = AssistantAgent("ann", client)
    client.broken = True
    assert (await agent_of(agent))["model"] == {"class": "Client"}


async def test_odd_values_become_json():
    agent = AssistantAgent("ann", Scripted(), system_message="half \ud800", description="\0")
    agent._max_tool_iterations = 2**70
    agent._tool_call_summary_format = float("nan")
    agent._model_client_stream = {3, 1, 2}
    agent._reflect_on_tool_use = {("a", 1): object(), 1: partial(Cart().add)}
    found = await agent_of(agent)
    assert found["prompt"] == ["half \\ud800"]
    assert found["settings"]["tool_call_summary_format"] == "nan"
    assert found["settings"]["model_client_stream"] == [1, 2, 3]
    assert found["settings"]["reflect_on_tool_use"]["1"] == "UntoldCart.add"


# Teams


async def test_a_round_robin():
    def enough(messages):
        return True

    class Own(TerminationCondition):
        terminated = False

        def __init__(self):
            self.count = 0

        async def __call__(self, messages):
            pass

        async def reset(self):
            pass

    stop = (MaxMessageTermination(4) | TextMentionTermination("STOP", sources=["ann"])) & FunctionalTermination(enough)
    team = RoundRobinGroupChat(
        [assistant("ann"), assistant("bob")],
        termination_condition=stop | Own() | TimeoutTermination(2.5) | SourceMatchTermination(["bob"]),
        max_turns=7,
        emit_team_events=True,
        custom_message_types=[Offer],
    )
    found = await team_of(team)
    assert found["class"] == "RoundRobinGroupChat"
    assert found["participants"] == ["ann", "bob"]
    assert found["settings"].pop("message_types") == {"Offer": Offer.model_json_schema()}
    assert found["settings"] == {"max_turns": 7, "emit_team_events": True}
    assert found["termination"] == (
        "((((MaxMessageTermination(max_messages=4) | "
        'TextMentionTermination(termination_text="STOP", sources=["ann"])) & '
        "FunctionalTermination(func=test_a_round_robin.<locals>.enough)) | Own()) | "
        'TimeoutTermination(timeout_seconds=2.5)) | SourceMatchTermination(sources=["bob"])'
    )


async def test_a_selector():
    def choose(messages):
        return None

    team = SelectorGroupChat(
        [assistant("ann"), assistant("bob")],
        ReplayChatCompletionClient(["ann"]),
        selector_prompt="Who of {participants}?",
        selector_func=choose,
        candidate_func=lambda messages: ["ann"],
        allow_repeated_speaker=True,
        max_selector_attempts=2,
        model_context=HeadAndTailChatCompletionContext(head_size=1, tail_size=2),
    )
    found = await team_of(team)
    assert found["prompt"] == ["Who of {participants}?"]
    assert found["model"]["class"] == "ReplayChatCompletionClient"
    assert found["settings"] == {
        "selector_func": "test_a_selector.<locals>.choose",
        "candidate_func": "test_a_selector.<locals>.<lambda>",
        "allow_repeated_speaker": True,
        "max_selector_attempts": 2,
        "context": {"class": "HeadAndTailChatCompletionContext", "head_size": 1, "tail_size": 2},
    }


async def test_a_graph():
    first, left, right, last = (assistant(name) for name in ("first", "left", "right", "last"))
    builder = DiGraphBuilder()
    for node in (first, left, right):
        builder.add_node(node)
    builder.add_node(last, activation="any")
    builder.add_edge(first, left, condition="YES").add_edge(first, right, condition=lambda message: True)
    builder.add_edge(left, last, activation_group="one", activation_condition="any")
    builder.add_edge(right, last).set_entry_point(first)
    found = await team_of(GraphFlow(builder.get_participants(), builder.build()))
    assert found["graph"] == {
        "start": "first",
        "nodes": {
            "first": {
                "activation": "all",
                "edges": [
                    {"to": "left", "if": "YES", "activation": "all"},
                    {"to": "right", "if_function": "test_a_graph.<locals>.<lambda>", "activation": "all"},
                ],
            },
            "left": {"activation": "all", "edges": [{"to": "last", "group": "one", "activation": "any"}]},
            "right": {"activation": "all", "edges": [{"to": "last", "activation": "all"}]},
            "last": {"activation": "any", "edges": []},
        },
    }


async def test_the_other_teams():
    found = await team_of(MagenticOneGroupChat([assistant("ann")], Scripted(), max_stalls=5, final_answer_prompt="So?"))
    assert found["prompt"] == ["So?"]
    assert found["model"]["class"] == "Scripted"
    assert found["settings"] == {"max_turns": 20, "max_stalls": 5}
    assert (await team_of(Swarm([assistant("ann"), assistant("bob")])))["class"] == "Swarm"
    nested = await taken(built("nested"))
    assert set(nested["teams"]) == {"", "participants/inner"}
    assert nested["teams"][""]["participants"] == ["lead", "inner"]
    assert "participants/inner/participants/ann" in nested["agents"]


async def test_answers_of_agents_are_described_once():
    agents = [AssistantAgent("ann", Scripted(), output_content_type=Report), assistant("bob")]
    inner = RoundRobinGroupChat(agents, name="inner")
    team = RoundRobinGroupChat([inner, assistant("lead")])
    before = await fingerprint(walk(team))
    found = await taken(team)
    assert before == found
    assert all("message_types" not in each.get("settings", {}) for each in found["teams"].values())


async def test_a_runtime_has_none():
    found = await taken(SingleThreadedAgentRuntime())
    assert (found["agents"], found["teams"]) == ({}, {})
    assert await fingerprint([]) == found
    assert set(found["versions"]) == {"autogen", "midturn"}


# The same before and after, here and there


@pytest.mark.parametrize("name", FUZZED)
async def test_nothing_of_a_conversation_is_in_it(name):
    build, use = FUZZED[name]
    live = build()
    before = await taken(live)
    await use(live)
    assert await taken(live) == before
    if hasattr(live, "reset"):
        await live.reset()
        assert await taken(live) == before
    other = await taken(build())
    assert other == before
    assert digest(other) == digest(before)


@pytest.mark.parametrize("name", ["assistant_with_tools", "everything", "user_proxy", "code_executor", "magentic"])
async def test_nothing_of_midturns_own_is_in_it(name):
    live = built(name)
    before = await taken(live)
    async with midturn.open("memory://") as store:
        await store.session("case", live).run(task="Go.")
        assert await taken(live) == before


def here(names):
    """The fingerprints of these kinds, in this process."""
    return {name: asyncio.run(taken(built(name))) for name in names}


STABLE = [
    "assistant_with_tools",
    "everything",
    "selector",
    "swarm",
    "graph_flow",
    "magentic",
    "team_tool",
    "structured",
]


def test_it_is_the_same_in_every_process():
    said = [
        subprocess.run(
            [sys.executable, __file__, *STABLE],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert json.loads(said[0]) == here(STABLE)


# Secrets


async def test_a_secret_is_found_in_a_termination_whatever_its_signs(monkeypatch):
    monkeypatch.setenv("BANK_KEY", secret := 'say "hush"\n\\ now')
    found = await team_of(RoundRobinGroupChat([assistant()], termination_condition=TextMentionTermination(secret)))
    assert found["termination"] == 'TextMentionTermination(termination_text="***")'


@pytest.mark.parametrize("secret", ["open-sesame", "hush-hush-hush"])
async def test_secrets_are_nowhere_and_make_no_difference(monkeypatch, secret):
    models = pytest.importorskip("autogen_ext.models.openai")
    monkeypatch.setenv("BANK_KEY", secret)
    client = models.OpenAIChatCompletionClient(
        model="gpt-4o",
        api_key=secret,
        base_url=f"https://ann:{secret}@example.com/v1",
        default_headers={"Authorization": f"Bearer {secret}"},
    )

    def pay(amount: int = 3) -> str:
        return ""

    def build(word):
        agents = [
            AssistantAgent(
                "ann",
                client,
                description=f"Knows {word}.",
                system_message=f"The key is {word}, and {SK}.",
                tools=[FunctionTool(pay, f"Pay with {word}.")],
                handoffs=[Handoff(target="bob", message=word)],
            ),
            assistant("bob"),
        ]
        stop = TextMentionTermination(word)
        return SelectorGroupChat(agents, client, selector_prompt=f"{word}!", termination_condition=stop)

    with monkeypatch.context() as context:
        context.delenv("BANK_KEY")
        without = await taken(build("***"))
    found = await taken(build(secret))
    assert secret not in json.dumps(found)
    assert SK not in json.dumps(found)
    assert "example.com" not in json.dumps(found)
    assert found["agents"]["participants/ann"]["model"] == {"class": "OpenAIChatCompletionClient", "name": "gpt-4o"}
    assert found == without


async def test_the_environment_never_changes_the_structure(monkeypatch):
    def pay(clerk_agent: str = "clerk_agent", default: str = "x") -> str:
        return ""

    class Clerk(BaseModel):
        """Of clerk_agent."""

        clerk_agent: str = "clerk_agent"
        description: Literal["clerk_agent"]

    def build():
        clerk = AssistantAgent(
            "clerk_agent",
            Scripted(),
            description="I am clerk_agent.",
            system_message="You are clerk_agent.",
            tools=[FunctionTool(pay, "As clerk_agent.", name="clerk_agent_pays")],
            handoffs=[
                Handoff(target="clerk_agent", name="clerk_agent", description="Give.", message="To clerk_agent.")
            ],
            output_content_type=Clerk,
        )
        builder = DiGraphBuilder().add_node(clerk).add_node(bob := assistant("bob"))
        builder.add_edge(clerk, bob, condition="clerk_agent").set_entry_point(clerk)
        stop = SourceMatchTermination(["clerk_agent"]) | TextMentionTermination("clerk_agent", ["clerk_agent"])
        return GraphFlow(builder.get_participants(), builder.build(), termination_condition=stop)

    elsewhere = await taken(build())
    monkeypatch.setenv("KEYNAME", "clerk_agent")
    found = await taken(build())
    team, agent = found["teams"][""], found["agents"]["participants/clerk_agent"]
    assert team["participants"] == ["clerk_agent", "bob"]
    assert team["graph"]["start"] == "clerk_agent"
    assert team["graph"]["nodes"]["clerk_agent"]["edges"] == [{"to": "bob", "if": "***", "activation": "all"}]
    assert team["termination"] == (
        'SourceMatchTermination(sources=["clerk_agent"]) | '
        'TextMentionTermination(termination_text="***", sources=["clerk_agent"])'
    )
    assert agent["name"] == "clerk_agent"
    assert (agent["description"], agent["prompt"]) == ("I am ***.", ["You are ***."])
    assert agent["handoffs"]["clerk_agent"]["target"] == "clerk_agent"
    assert agent["handoffs"]["clerk_agent"]["message"] == "To ***."
    tool = agent["tools"]["clerk_agent_pays"]
    assert tool["description"] == "As ***."
    assert tool["parameters"]["properties"]["clerk_agent"]["default"] == "***"
    assert tool["parameters"]["properties"]["default"]["type"] == "string"
    schema = agent["output"]["schema"]
    assert schema["description"] == "Of ***."
    assert schema["properties"]["clerk_agent"]["default"] == "***"
    assert schema["properties"]["description"]["const"] == "clerk_agent"
    monkeypatch.setenv("KEYNAME", "string")  # no word of a schema is taken for it
    monkeypatch.setattr(secrets, "SHORTEST", 4)
    monkeypatch.setenv("OTHER_KEY", "clerk_other")
    assert await taken(build()) == elsewhere


async def test_limits_are_no_secrets():
    stop = TokenUsageTermination(max_total_token=1_000_000_000)
    found = await team_of(RoundRobinGroupChat([assistant()], termination_condition=stop))
    assert found["termination"] == "TokenUsageTermination(max_total_token=1000000000)"


async def test_keys_that_are_the_same_as_json_are_all_there():
    agent = AssistantAgent("ann", Scripted())
    agent._reflect_on_tool_use = {1: "a", "1": "b"}
    assert (await agent_of(agent))["settings"]["reflect_on_tool_use"] == {"1": "a", "1#2": "b"}


async def test_a_cache_around_a_client_is_looked_through():
    from autogen_ext.models.cache import ChatCompletionCache

    found = await agent_of(AssistantAgent("ann", ChatCompletionCache(Scripted())))
    assert found["model"]["class"] == "Scripted"


async def test_what_changes_is_told():
    before = await taken(round_robin())
    team = RoundRobinGroupChat([assistant("ann"), assistant("bob", system_message="Be brief."), assistant("cid")])
    drift = compare(before, await taken(team))
    assert drift.texts == ["max_turns of team RoundRobinGroupChat removed", "prompt of bob changed"]


if __name__ == "__main__":
    print(json.dumps(here(sys.argv[1:]), sort_keys=True))
