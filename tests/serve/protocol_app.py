"""An app with a clerk whose refunds need approval. It runs under uvicorn, and inside a test."""

import os
from pathlib import Path

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat

import midturn
from midturn.testing import ScriptedModel, ToolCall

PAID = Path(os.environ.get("PAID", os.devnull))
"""The file that has what was paid, a line for each payment."""


@midturn.tool(approval=True)
async def refund(order: str, amount: float = 5.0) -> str:
    """Refund an order."""
    with PAID.open("a") as out:  # noqa: ASYNC230 - a line
        out.write(f"{order} {amount}\n")
    return f"refunded {order} with {amount}"


SCRIPT = {
    "both": [ToolCall("refund", {"order": "A1", "amount": 40.0}), ToolCall("refund", {"order": "B2", "amount": 7.0})],
    "refund A1": ToolCall("refund", {"order": "A1", "amount": 40.0}),
    "refunded": "Your money is on its way.",
    "not allowed": "That is not possible.",
    "": "How can I help you?",
}


def clerk():
    def answer(messages):
        last = str(messages[-1].content)
        if "boom" in last:
            raise RuntimeError("the model is gone")
        return next(reply for key, reply in SCRIPT.items() if key in last)

    model = ScriptedModel(answer, delay=float(os.environ.get("DELAY", "0")))
    return AssistantAgent("clerk", model, tools=[refund], reflect_on_tool_use=True, model_client_stream=True)


def talk():
    end = TextMentionTermination("bye")
    return RoundRobinGroupChat([clerk(), UserProxyAgent("ann", input_func=midturn.human)], termination_condition=end)


BLUEPRINTS = (midturn.Blueprint("clerk", clerk), midturn.Blueprint("talk", talk))


def app():
    """Return the app under uvicorn."""
    return midturn.asgi(midturn.open(os.environ["STORE"]), BLUEPRINTS, token="secret", by="ann@desk")
