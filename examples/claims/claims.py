"""A claims team: one agent takes the claim, one checks the policy, and one pays if a human approves.

python claims.py run                work on the claim until it is closed or waits for a human
python claims.py approve [AMOUNT]   approve the payout, optionally with another amount, and continue
python claims.py deny [REASON]      deny the payout, and continue
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import bank
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from model import model_client

import midturn

CLAIM = "claim-1207"
TASK = "claim-1207 has come in. Please settle it."
CLAIMS = {"claim-1207": "A burst pipe at the insured address, damage 1200 EUR, policy P-88."}
POLICIES = {"P-88": "Household contents: water damage up to 5000 EUR."}
WAITS = 3  # the exit code if the claim waits for a human

# 1. The tools. Their effect on the world decides what happens to a call that a crash interrupted.


@midturn.tool(effect="read")  # it may be called again
async def look_up_claim(claim: str) -> str:
    """Return what the customer has reported."""
    return CLAIMS.get(claim, "There is no such claim.")


@midturn.tool(effect="read")
async def look_up_policy(policy: str) -> str:
    """Return what a policy covers."""
    return POLICIES.get(policy, "There is no such policy.")


@midturn.tool(effect="idempotent")  # it may be called again with the same key
async def reserve(claim: str, amount: int) -> str:
    """Set an amount in EUR aside for a claim."""
    return bank.reserve(claim, amount, key=midturn.call_key())


def paid(call: midturn.CallInDoubt) -> str | None:
    """Ask the bank about an interrupted payout. Return its receipt, or None if it was not made."""
    return bank.find(reference=call.key)


@midturn.tool(effect="unsafe", approval=True, reconcile=paid)  # called once, after a human has approved
async def pay_out(claim: str, amount: int) -> str:
    """Pay an amount in EUR to the customer."""
    return bank.pay(claim, amount, reference=midturn.call_key())


# 2. The team. It does not know about midturn.


def build() -> RoundRobinGroupChat:
    intake = agent("intake", [look_up_claim], "Look the claim up and say what it is about.")
    policy = agent("policy", [look_up_policy, reserve], "Look up whether the policy covers it; if so, reserve it.")
    payout = agent("payout", [pay_out], "Pay out what was reserved, and close the claim.")
    return RoundRobinGroupChat([intake, policy, payout], max_turns=3)


def agent(name: str, tools: list[Callable[..., Any]], system_message: str) -> AssistantAgent:
    return AssistantAgent(
        name, model_client(name), tools=[*tools], system_message=system_message, max_tool_iterations=4
    )


# 3. A worker. The same key means the same turn: it is started, continued, or its recorded result is returned.


async def work() -> int:
    waits = False
    async with midturn.open() as store:
        async for item in store.session(CLAIM, build).run_stream(task=TASK, key=CLAIM):
            if not isinstance(item, midturn.TurnResult):
                show(item)
                continue
            waits = bool(item.waiting)
            if item.waiting:
                print(f"It waits: {item.waiting.question}\nNo process needs to run now. To continue: claims.py approve")
            else:
                print(f"It is done: {item.messages[-1].to_text()}")
    print("The bank has made {1} payout(s), and has {0} reservation(s).".format(*bank.books()))
    return WAITS if waits else 0


def show(event: Any) -> None:
    match event:
        case ToolCallRequestEvent():
            text = ", ".join(f"{call.name}({call.arguments})" for call in event.content)
        case ToolCallExecutionEvent():
            text = ", ".join(f"-> {result.content}" for result in event.content)
        case _:
            text = event.to_text()
    print(f"{'recorded' if midturn.replayed(event) else 'now':>8}  {event.source:<6}  {text}", flush=True)


# 4. A human. To answer, they need neither this machine nor the team nor its models.


async def answer(text: str, **changed: int) -> None:
    async with midturn.open() as store:
        await store.session(CLAIM).answer(text, arguments=changed or None)


def main(command: str = "", *words: str) -> int:
    match command, words:
        case "run", []:
            pass
        case "approve", []:
            asyncio.run(answer("approve"))
        case "approve", [amount] if amount.isdecimal():
            asyncio.run(answer("approve", amount=int(amount)))
        case "deny", _:
            asyncio.run(answer(f"deny: {' '.join(words)}"))
        case _:
            sys.exit(__doc__)
    return asyncio.run(work())


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except midturn.MidturnError as error:
        sys.exit(str(error))
