"""One agent or team of each kind whose raw state is kept in ``autogen/``, and what it is told.

Runs with every AutoGen since 0.4.9 and without midturn: ``make_autogen.py`` builds these to write the files,
``test_autogen.py`` builds them again to read the files.
"""

from dataclasses import dataclass, field

from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import MagenticOneGroupChat, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from pydantic import BaseModel
from scripted import Scripted

FACT = "The customer prefers email."
QUESTION = "Which channel does the customer prefer?"


class Channel(BaseModel):
    name: str
    urgent: bool


@dataclass
class Cast:
    """The models of the built agents; what each of them says next, and all that they were asked."""

    lines: dict[str, list]
    models: dict[str, Scripted] = field(default_factory=dict)

    def model(self, name):
        """A model that says its lines, and then its name."""
        lines = iter(self.lines.get(name, ()))
        self.models[name] = Scripted(lambda messages: next(lines, f"{name} has heard it"))
        return self.models[name]

    def agent(self, name, **options):
        return AssistantAgent(name, self.model(name), description=f"{name} of support", **options)

    @property
    def asked(self):
        """Every request that was made, as a list of messages."""
        return [request for model in self.models.values() for request in model.seen]


def calls(name, arguments, thought=None):
    """Return the answer of a model that calls a tool."""
    call = FunctionCall(id=f"call_{name}", name=name, arguments=arguments)
    usage = RequestUsage(prompt_tokens=7, completion_tokens=3)
    return CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False, thought=thought)


async def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} is on its way"


def assistant(cast):
    return cast.agent("ann", tools=[look_up])


def structured(cast):
    return cast.agent("ann", output_content_type=Channel)


def structured_team(cast):
    from autogen_agentchat.messages import StructuredMessage

    agents = [cast.agent("ann", output_content_type=Channel), cast.agent("bob")]
    return RoundRobinGroupChat(agents, max_turns=1, custom_message_types=[StructuredMessage[Channel]])


def round_robin(cast):
    return RoundRobinGroupChat([cast.agent("ann", tools=[look_up]), cast.agent("bob")], max_turns=1)


def selector(cast):
    return SelectorGroupChat([cast.agent("ann"), cast.agent("bob")], cast.model("chooser"), max_turns=2)


def swarm(cast):
    agents = [cast.agent("ann", handoffs=["bob"]), cast.agent("bob", handoffs=["ann"])]
    return Swarm(agents, termination_condition=MaxMessageTermination(5))


def magentic_one(cast):
    return MagenticOneGroupChat([cast.agent("ann"), cast.agent("bob")], cast.model("orchestrator"))


def graph(cast):
    from autogen_agentchat.teams import DiGraphBuilder, GraphFlow

    ann, bob, cid = cast.agent("ann"), cast.agent("bob"), cast.agent("cid")
    builder = DiGraphBuilder()
    builder.add_node(ann).add_node(bob).add_node(cid).add_edge(ann, bob).add_edge(ann, cid)
    return GraphFlow(builder.get_participants(), builder.build())


def society(cast):
    inner = RoundRobinGroupChat([cast.agent("bob")], max_turns=1)
    return RoundRobinGroupChat([cast.agent("ann"), SocietyOfMindAgent("cid", inner, cast.model("cid"))], max_turns=2)


def nested(cast):
    inner = RoundRobinGroupChat([cast.agent("bob"), cast.agent("cid")], name="inner", max_turns=1)
    return RoundRobinGroupChat([cast.agent("ann"), inner], name="outer", max_turns=2)


def user_proxy(cast):
    user = UserProxyAgent("user", input_func=lambda prompt: "By email, as I said.")
    return RoundRobinGroupChat([cast.agent("ann"), user], max_turns=2)


KINDS = {
    build.__name__: build
    for build in (
        assistant,
        structured,
        structured_team,
        round_robin,
        selector,
        swarm,
        magentic_one,
        graph,
        society,
        nested,
        user_proxy,
    )
}

CHANNEL = '{"name":"email","urgent":false}'
ORDER = calls("look_up", '{"order": "A1"}', thought="The order tells.")
LEDGER = (
    '{{"is_request_satisfied": {{"reason": "r", "answer": {done}}}, "is_in_loop": {{"reason": "r", "answer": false}},'
    ' "is_progress_being_made": {{"reason": "r", "answer": true}}, "next_speaker": {{"reason": "r", "answer": "bob"}},'
    ' "instruction_or_question": {{"reason": "r", "answer": "Look."}}}}'
)
TASK_OF_ITS_OWN = [
    "It is known how to reach them.",
    "Ask bob.",
    LEDGER.format(done="false"),
    LEDGER.format(done="true"),
]

BEFORE = {
    "assistant": {"ann": [ORDER, "I know."]},
    "structured": {"ann": [CHANNEL, CHANNEL]},
    "structured_team": {"ann": [CHANNEL]},
    "round_robin": {"ann": [ORDER]},
    "selector": {"chooser": ["ann", "bob", "ann", "bob"]},
    "swarm": {"ann": [calls("transfer_to_bob", "{}")]},
    "magentic_one": {"orchestrator": [*TASK_OF_ITS_OWN, "Done."]},
}
"""The models' answers before the state is saved."""

AFTER = BEFORE | {"assistant": {"ann": [ORDER]}, "round_robin": {}, "swarm": {}}
"""The models' answers in the turn after that."""

TASKS = {"assistant": [FACT, "Thank you."]}
"""The task before; by default, the fact."""
