"""The agent with tools and a memory, and the team, that ran in the stores under ``midturn/``.

It must not change with midturn: these kinds, built anew, continue what old versions wrote.
"""

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.memory import ListMemory, MemoryContent
from autogen_core.models import FunctionExecutionResultMessage, SystemMessage
from scripted import Scripted, calls

import midturn

FACT = "The customer prefers email."
TASKS = [FACT, "look up the order", "fail", "thank you", "refund the order"]
QUESTION = "Which channel does the customer prefer?"


async def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} is on its way"


@midturn.tool(approval=True)
async def refund(order: str) -> str:
    """Pay an order back."""
    return f"order {order} is paid back"


def _answer(messages):
    last = [message for message in messages if not isinstance(message, SystemMessage)][-1]  # those are memories
    if isinstance(last, FunctionExecutionResultMessage):
        return f"It says: {last.content[0].content}."
    word = str(last.content).split()[0]
    if word == "fail":
        raise RuntimeError("503: overloaded")
    if word in ("look", "refund"):
        return calls(("look_up" if word == "look" else "refund", '{"order": "A1"}'))
    return f"I have heard {len(messages)} messages, and what was said last is: {last.content}"


class Case:
    """Builds the agent; ``seen`` has what its models were asked."""

    def __init__(self):
        self.seen = []

    def __call__(self):
        model = Scripted(_answer)
        model.seen = self.seen
        note = MemoryContent(content="Orders begin with a letter.", mime_type="text/plain")
        return AssistantAgent(
            "clerk",
            model,
            tools=[look_up, refund],
            memory=[ListMemory(memory_contents=[note])],
            reflect_on_tool_use=True,
        )


class Team(Case):
    """Builds the team."""

    def __call__(self):
        agents = []
        for name in ("ann", "bob", "cid"):
            model = Scripted(_answer)
            model.seen = self.seen
            agents.append(AssistantAgent(name, model))
        return RoundRobinGroupChat(agents, max_turns=2)
