"""The case of the picture of the page. Usage: ``python -m tools.page_case begin|resume URL``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import SystemMessage

import midturn
from midturn.demo.model import FACT, SYSTEM_MESSAGE, model_client
from midturn.testing import ScriptedModel, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogen_core.models import ChatCompletionClient, LLMMessage

    from midturn.testing.scripted_model import Reply

BEGINS = "begin" in sys.argv


@midturn.tool(effect="read")
async def lookup(order: str) -> str:
    """Look an order up."""
    return f"Order {order}: paid with 40.00 EUR, delivered on 12 November, one item missing."


@midturn.tool(effect="read")
async def account(customer: str) -> str:
    """Look up where a customer's money goes."""
    if BEGINS:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{customer}: NL12 BANK 0123 4567 89"


@midturn.tool(approval=True)
async def pay(iban: str, amount: float, memo: str) -> str:
    """Pay an amount in EUR."""
    return f"paid {amount:.2f} EUR to {iban}: {memo}"


def agent(local: ChatCompletionClient) -> AssistantAgent:
    """Return an agent that talks with the demo's model. Small models cannot call tools: a script does."""

    async def reply(messages: Sequence[LLMMessage]) -> Reply:
        said = str(messages[-1].content)
        if "refund" in said.lower() and "Order" not in said:
            return ToolCall("lookup", {"order": "A1"})
        if "one item missing" in said:
            return ToolCall("account", {"customer": "M. Jansen"})
        if "NL12" in said:
            memo = "Refund for order A1: one item of three was missing."
            return ToolCall("pay", {"iban": "NL12 BANK 0123 4567 89", "amount": 40.0, "memo": memo})
        told = [SystemMessage(content=SYSTEM_MESSAGE), *messages]
        return str((await local.create(told)).content).strip()

    return AssistantAgent(
        "support_agent", ScriptedModel(reply), tools=[lookup, account, pay], max_tool_iterations=4, system_message=None
    )


async def main() -> int:
    """Run the case until its worker dies, or until it waits for a person."""
    async with model_client() as local, midturn.open(sys.argv[2], lease=3) as store:
        support = midturn.Blueprint("support", lambda: agent(local), version=2)
        case = store.session("case-42", support, labels={"team": "refunds"})
        if BEGINS:
            await store.session("case-41", support, labels={"team": "refunds"}).run(task=FACT)
            for task in (FACT, "An item of my order A1 was missing. Please refund it."):
                await case.run(task=task)
            return 1
        result = await case.resume()
        return 0 if result is not None and result.waiting is not None else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
