"""The agents that the tests of serving run, by what the user says; as a module, the app of `midturn serve`.

`pay` calls a tool that needs approval, `fail` raises, `wait` waits until somebody sets `GO` or makes the file `go`,
`hang` waits for ever, and `story` is streamed word by word.
"""

import asyncio
from pathlib import Path

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat

import midturn
from midturn.testing import ScriptedModel, ToolCall

GO = asyncio.Event()
WORDS = 600


@midturn.tool(approval=True)
async def pay(iban: str, amount: float) -> str:
    """Pay an amount in EUR."""
    return f"paid {amount} to {iban}"


async def reply(messages):
    last = messages[-1]
    if last.type == "FunctionExecutionResultMessage":
        return f"Done: {last.content[-1].content}"
    said = str(last.content)
    match said.split(maxsplit=1)[0] if said else "":
        case "pay":
            return ToolCall("pay", {"iban": "NL12", "amount": 40.0})
        case "fail":
            raise ValueError("the model is out of order")
        case "wait":
            while not (GO.is_set() or Path("go").exists()):  # noqa: ASYNC240, ASYNC110 - a file is how processes speak
                await asyncio.sleep(0.01)
        case "hang":
            await asyncio.Event().wait()
        case "story":
            return " ".join(f"word{number}" for number in range(WORDS))
    return f"Noted: {said}"


def build():
    return AssistantAgent(
        "clerk", ScriptedModel(reply), tools=[pay], model_client_stream=True, reflect_on_tool_use=True
    )


def build_teller():
    """Build an agent who takes his time for a story."""
    return AssistantAgent("teller", ScriptedModel(reply, delay=1.5), model_client_stream=True)


def build_desk():
    people = UserProxyAgent("ann", input_func=midturn.human)
    return RoundRobinGroupChat([build(), people], termination_condition=MaxMessageTermination(3))


support = midturn.Blueprint("support", build)
desk = midturn.Blueprint("desk", build_desk)


def build_slow():
    return AssistantAgent("clerk", ScriptedModel(reply, delay=0.2))


slow = midturn.Blueprint("slow", build_slow)
