"""One agent or team of every kind, each a factory without arguments, and what to compare of their runs."""

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.models import FunctionExecutionResultMessage
from scripted import Scripted, calls, digest, remembered

TASKS = [
    "The customer prefers email.",
    "Which channel does the customer prefer? Answer in one sentence and give your reason.",
    "Also SMS for urgent updates.",
    "And now?",
    "Sum it up.",
]


def assistant(name="assistant", answer=remembered, **options):
    return AssistantAgent(name, Scripted(answer), **options)


async def lookup(order: str) -> str:
    """Look an order up."""
    return f"order {order} is on its way"


def weigh(parcel: str) -> str:
    """Weigh a parcel."""
    return f"{len(parcel)} kg"


def _use_tools(messages):
    if isinstance(messages[-1], FunctionExecutionResultMessage):
        return remembered(messages)
    about = digest(messages)
    return calls(("lookup", f'{{"order": "{about}"}}'), ("weigh", f'{{"parcel": "{about}"}}'))


def assistant_with_tools():
    return assistant(answer=_use_tools, tools=[lookup, weigh], max_tool_iterations=3)


def assistant_that_summarises_tools():
    return assistant(answer=_use_tools, tools=[lookup, weigh])


def assistant_streaming():
    return assistant(model_client_stream=True)


def assistant_streaming_with_tools():
    return assistant(answer=_use_tools, tools=[lookup, weigh], reflect_on_tool_use=True, model_client_stream=True)


def assistant_with_a_window():
    return assistant(model_context=BufferedChatCompletionContext(buffer_size=3))


def round_robin():
    return RoundRobinGroupChat([assistant("ann"), assistant("bob"), assistant("cid")], max_turns=2)


def round_robin_with_a_termination():
    agents = [assistant("ann"), assistant_streaming_with_tools()]
    return RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(4) | TextMentionTermination("STOP"))


def select(messages):
    return ["ann", "bob", "cid"][int(digest(messages), 16) % 3]


def selector():
    agents = [assistant("ann"), assistant("bob"), assistant("cid")]
    return SelectorGroupChat(agents, Scripted(select), max_turns=3, allow_repeated_speaker=True)


def _hand_over(target):
    def answer(messages):
        if int(digest(messages), 16) % 2:
            return calls((f"transfer_to_{target}", "{}"))
        return remembered(messages)

    return answer


def swarm():
    ann = assistant("ann", _hand_over("bob"), handoffs=["bob"])
    bob = assistant("bob", _hand_over("ann"), handoffs=["ann"])
    return Swarm([ann, bob], termination_condition=MaxMessageTermination(6))


def _diamond(**options):
    first, left, right, last = (assistant(name) for name in ("first", "left", "right", "last"))
    builder = DiGraphBuilder()
    for node in (first, left, right, last):
        builder.add_node(node)
    builder.add_edge(first, left).add_edge(first, right).add_edge(left, last).add_edge(right, last)
    return GraphFlow(builder.get_participants(), builder.build(), **options)


def graph_flow():
    return _diamond()


def graph_flow_stopped_midway():
    return _diamond(max_turns=2)


def nested():
    inner = RoundRobinGroupChat([assistant("ann"), assistant("bob")], max_turns=3, name="inner")
    return RoundRobinGroupChat([assistant("lead"), inner], max_turns=3, name="outer")


def nestedselector():
    inner = SelectorGroupChat(
        [assistant("ann"), assistant("bob"), assistant("cid")],
        Scripted(select),
        max_turns=2,
        allow_repeated_speaker=True,
        name="inner",
    )
    return RoundRobinGroupChat([inner, assistant("lead")], max_turns=2, name="outer")


KINDS = {
    factory.__name__: factory
    for factory in (
        assistant,
        assistant_with_tools,
        assistant_that_summarises_tools,
        assistant_streaming,
        assistant_streaming_with_tools,
        assistant_with_a_window,
        round_robin,
        round_robin_with_a_termination,
        selector,
        swarm,
        graph_flow,
        graph_flow_stopped_midway,
        nested,
        nestedselector,
    )
}


FLEETING = ("id", "created_at", "full_message_id")


def transcript(result):
    """Return what was said and why it stopped, without ids and times."""
    messages = [
        message if isinstance(message, dict) else message.model_dump(mode="json") | {"type": message.type}
        for message in result.messages
    ]
    return {"messages": anonymous(messages), "stop_reason": result.stop_reason}


def anonymous(value):
    """JSON, or AutoGen's messages as JSON, without the ids and times of messages."""
    if hasattr(value, "dump"):
        value = value.dump()
    if isinstance(value, dict):
        message = "created_at" in value
        return {key: anonymous(item) for key, item in value.items() if not (message and key in FLEETING)}
    if isinstance(value, list | tuple):
        return [anonymous(item) for item in value]
    return value
