"""Kinds of objects with a state, each built and then used until it has one. Tests mutate these states."""

from autogen_agentchat.agents import (
    ApprovalResponse,
    CodeExecutorAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    PerSourceFilter,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.conditions import (
    ExternalTermination,
    HandoffTermination,
    MaxMessageTermination,
    TextMentionTermination,
    TextMessageTermination,
    TokenUsageTermination,
)
from autogen_agentchat.messages import MultiModalMessage, StructuredMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import Image
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.model_context import HeadAndTailChatCompletionContext
from autogen_core.models import UserMessage
from gap_parts import Cart, JsonCart, KeptSketchbook, MethodsCart, Shop, TypedCart, content, noting, with_tools
from gap_teams import cyclic, lopsided_diamond, orchestrated
from gaps import Custom, handles
from generated_parts import Answer, Counter, Executor, Typist
from kinds import KINDS, TASKS, assistant, select
from PIL import Image as Picture
from scripted import Scripted, calls, digest, remembered


def image(color="teal"):
    return Image(Picture.new("RGB", (3, 2), color))


def typed_tool():
    return with_tools(tools=[TypedCart()])


def json_tool():
    return with_tools(tools=[JsonCart()])


def own_tool():
    return with_tools(tools=[MethodsCart()])


def bound_tool():
    cart = Cart()
    return with_tools(tools=[cart.add, cart.drop])


def own_workbench():
    return with_tools(workbench=[Shop()])


def own_memory():
    book = KeptSketchbook()
    book.entries += ["one", "two"]
    return assistant(memory=[book])


def agent_tool():
    return with_tools(tools=[AgentTool(noting("helper"))])


def team_tool():
    group = RoundRobinGroupChat([assistant("ann"), with_tools("bea", tools=[TypedCart()])], max_turns=2)
    return with_tools(tools=[TeamTool(group, "group", "A group.")])


def society():
    inner = RoundRobinGroupChat([assistant("ann"), assistant("bob")], max_turns=2, name="inner")
    return SocietyOfMindAgent("society", inner, Scripted())


def society_in_a_team():
    return RoundRobinGroupChat([society(), noting(), message_filter()], max_turns=3)


def message_filter():
    only_the_user = MessageFilterConfig(per_source=[PerSourceFilter(source="user")])
    return MessageFilterAgent("filter", assistant("wrapped"), only_the_user)


def _code(messages):
    return remembered(messages) if messages[-1].source == "coder" else f"```python\n{digest(messages)}\n```"


def code_executor():
    return CodeExecutorAgent(
        "coder",
        Executor(),
        model_client=Scripted(_code),
        approval_func=lambda request: ApprovalResponse(approved=True, reason="harmless"),
    )


def user_proxy():
    return RoundRobinGroupChat([assistant("ann"), UserProxyAgent("human", input_func=Typist())], max_turns=2)


class Clerk(Custom):
    """An agent of one's own, of the kind that trusts what it is given."""

    def __init__(self):
        super().__init__("clerk")
        self.files = [["first"]]

    async def reply(self, texts):
        self.files.append(texts)
        return f"{len(self.files)} files"

    async def save_state(self):
        return {"files": self.files, "open": {"last": self.files[-1][0]}}

    async def load_state(self, state):
        assert state["open"], "nothing is open"
        files = [list(file) for file in state["files"]]
        if files[-1][0] != state["open"]["last"]:
            raise RuntimeError("the last file is another one")
        self.files = files


def own_agent():
    return Clerk()


def own_agent_in_a_team():
    return SelectorGroupChat([assistant("ann"), Clerk()], Scripted(_ann_or_clerk), max_turns=2)


def _ann_or_clerk(messages):
    return ["ann", "clerk"][int(digest(messages), 16) % 2]


def pictures():
    return RoundRobinGroupChat([assistant("ann"), assistant("bob")], max_turns=1)


def _counting(messages):
    """The model is shown an image in a memory as its address."""
    return f"{len(messages)} messages"


def binary_memory():
    notes = [
        MemoryContent(content=b"\xff\x00\xfe", mime_type=MemoryMimeType.BINARY),
        MemoryContent(content=image(), mime_type=MemoryMimeType.IMAGE, metadata={"from": "camera"}),
        MemoryContent(content={"a": [1, None]}, mime_type="application/json"),
    ]
    return RoundRobinGroupChat([assistant("ann", _counting, memory=[ListMemory(memory_contents=notes)])], max_turns=1)


def memories_of_all_types():
    notes = [
        MemoryContent(content=b"\xff\x00\xfe", mime_type="application/pdf"),
        MemoryContent(content=image("red"), mime_type="image/png"),
        MemoryContent(content="plain", mime_type=MemoryMimeType.TEXT),
    ]
    return assistant("ann", _counting, memory=[ListMemory(memory_contents=notes)])


def structured():
    found = assistant("ann", lambda messages: '{"text": "yes", "sure": true}', output_content_type=Answer)
    return RoundRobinGroupChat([found, assistant("bob")], max_turns=2, custom_message_types=[StructuredMessage[Answer]])


def head_and_tail():
    return SelectorGroupChat(
        [assistant("ann"), assistant("bob"), assistant("cid")],
        Scripted(select),
        max_turns=2,
        allow_repeated_speaker=True,
        model_context=HeadAndTailChatCompletionContext(1, 2),
    )


def cyclic_graph():
    return cyclic(max_turns=2)


def any_of_two():
    return lopsided_diamond("any", max_turns=2)


def all_of_two():
    return lopsided_diamond("all", max_turns=3)


def magentic():
    return orchestrated(max_turns=2)


def _ask_the_user(messages):
    asked = sum(isinstance(message, UserMessage) and message.source == "user" for message in messages)
    return calls(("transfer_to_user", "{}")) if asked % 2 else remembered(messages)


def swarm_that_asks():
    bob = assistant("bob", lambda messages: calls(("transfer_to_ann", "{}")), handoffs=["ann"])
    ann = assistant("ann", _ask_the_user, handoffs=["user"])
    return Swarm([bob, ann], termination_condition=HandoffTermination("user") | TextMessageTermination("ann"))


def stopped_from_outside():
    stop = ExternalTermination()
    found = Swarm([assistant("ann"), assistant("bob")], termination_condition=MaxMessageTermination(3) | stop)
    handles[found] = stop
    return found


async def _stop(live):
    await live.run(task=TASKS[0])
    handles[live].set()


def counted():
    condition = (TextMentionTermination("STOP") & MaxMessageTermination(9)) | TokenUsageTermination(500)
    found = RoundRobinGroupChat([assistant("ann"), assistant("bob")], max_turns=2, termination_condition=condition)
    handles[found] = condition
    return found


async def _count(live):
    await live.run(task=TASKS[0])
    await handles[live]([TextMessage(content="STOP", source="ann"), TextMessage(content="on", source="bob")])


def everything():
    """Three levels deep."""
    shelf = AgentTool(assistant("clerk", memory=[ListMemory(memory_contents=[content("the shop opens at nine")])]))
    inner = SelectorGroupChat(
        [assistant("ann", _ask("clerk"), tools=[shelf]), noting("bob")],
        Scripted(lambda messages: ["ann", "bob"][int(digest(messages), 16) % 2]),
        max_turns=2,
        allow_repeated_speaker=True,
        name="inner",
    )
    return RoundRobinGroupChat([inner, society(), assistant("lead", tools=[Counter("count")])], name="all", max_turns=3)


def _ask(name):
    def answer(messages):
        if any(name in str(message) for message in messages[-2:]):
            return remembered(messages)
        return calls((name, '{"task": "when does the shop open?"}'))

    return answer


def turns(*tasks):
    """Use something by running it."""

    async def use(live):
        for task in tasks:
            await live.run(task=task)

    return use


def _picture():
    return MultiModalMessage(content=["look at this", image()], source="user")


SHOPPING = turns("add apples", "add pears")

FUZZED = {name: (build, turns(*TASKS[:2])) for name, build in KINDS.items()} | {
    build.__name__: (build, use)
    for build, use in (
        (noting, turns("note one", "note two")),
        (typed_tool, SHOPPING),
        (json_tool, SHOPPING),
        (own_tool, SHOPPING),
        (bound_tool, SHOPPING),
        (own_workbench, SHOPPING),
        (own_memory, turns(TASKS[0])),
        (agent_tool, turns("helper note this", "helper and that")),
        (team_tool, turns("group this", "group that")),
        (society, turns(*TASKS[:2])),
        (society_in_a_team, turns("note one")),
        (message_filter, turns(*TASKS[:2])),
        (code_executor, turns(*TASKS[:2])),
        (user_proxy, turns(*TASKS[:2])),
        (own_agent, turns(*TASKS[:2])),
        (own_agent_in_a_team, turns(*TASKS[:2])),
        (pictures, turns(_picture())),
        (binary_memory, turns(*TASKS[:2])),
        (memories_of_all_types, turns(*TASKS[:2])),
        (structured, turns(*TASKS[:2])),
        (head_and_tail, turns(*TASKS[:2])),
        (cyclic_graph, turns(TASKS[0])),
        (any_of_two, turns(TASKS[0])),
        (all_of_two, turns(TASKS[0])),
        (magentic, turns(TASKS[0])),
        (swarm_that_asks, turns(TASKS[0])),
        (stopped_from_outside, _stop),
        (counted, _count),
        (everything, turns(TASKS[0])),
    )
}
"""The function that builds each kind, and the one that uses it before its state is taken."""
