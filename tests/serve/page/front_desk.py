"""A support desk for the tests of the page. ``uvicorn front_desk:app`` serves it on the store ``MIDTURN_URL``."""

import os
from contextlib import suppress

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat

import midturn
from midturn.testing import ScriptedModel, ToolCall

PAID = ToolCall(
    "pay",
    {
        "iban": "NL12 BANK 0123 4567 89",
        "amount": 40.0,
        "memo": "Refund for order A1, as agreed with the customer on the phone. " * 8,
    },
)


@midturn.tool(effect="read")
async def lookup(order: str) -> str:
    """Look an order up."""
    return f"order {order}: paid with 40.00 EUR, delivered on 12 November, one item missing"


@midturn.tool(approval=True)
async def pay(iban: str, amount: float, memo: str = "", urgent: bool = False) -> str:
    """Pay an amount in EUR."""
    return f"paid {amount:.2f} EUR to {iban}"


@midturn.tool
async def send_mail(to: str, subject: str) -> str:
    """Send a mail."""
    if os.environ.get("DESK_DIES"):
        os._exit(9)
    return f"sent to {to}"


SCRIPT = {
    "Please refund": ToolCall("lookup", {"order": "A1"}),
    "one item missing": PAID,
    "not allowed": "I am sorry: I may not refund this order.",
    "paid ": "Done: the money is on its way.",
    "write to me": ToolCall("send_mail", {"to": "bob@example.com", "subject": "Your claim"}),
    "sent to": "I have sent you a mail.",
    "fail": lambda: 1 / 0,
    "": "Noted: I will write to you by email.",
}


def answers(messages):
    last = messages[-1]
    parts = [last.content] if isinstance(last.content, str) else last.content
    content = " ".join(each if isinstance(each, str) else getattr(each, "content", "") for each in parts)
    found = next(reply for key, reply in SCRIPT.items() if key in content)
    return found() if callable(found) else found


def clerk():
    return AssistantAgent(
        "support_agent",
        ScriptedModel(answers, delay=float(os.environ.get("DESK_DELAY", "0"))),
        tools=[lookup, pay, send_mail],
        max_tool_iterations=4,
    )


def team():
    return RoundRobinGroupChat(
        [
            AssistantAgent("assessor", ScriptedModel({"": "Which colour would you like for the new bag?"})),
            UserProxyAgent("customer", input_func=midturn.human),
        ],
        termination_condition=MaxMessageTermination(3),
    )


support = midturn.Blueprint("support", clerk, version=2)
claims = midturn.Blueprint("claims", team, version=5)


async def ask(url, session, blueprint=support):
    """Begin a session that asks for an approval, or of the claims team, for an answer."""
    async with midturn.open(url) as store:
        case = store.session(session, blueprint, labels={"team": "claims", "country": "nl"})
        if blueprint is support:
            await case.run(task="I prefer email, please.")
        await case.run(task="Please refund order A1." if blueprint is support else "My bag was lost.")


async def fill(url):
    """Fill a store with a case of each kind."""
    async with midturn.open(url) as store:
        calm = store.session("case-41", support, labels={"team": "claims"})
        await calm.run(task="I prefer email, please.")
        await calm.run(task="I prefer email, please. " * 60)
        asks = store.session("case-17", claims)
        await asks.run(task="My bag was lost on the way to Rome.")
        failed = store.session("case-39", support)
        await failed.run(task="hello")
        with suppress(midturn.TurnFailed):
            await failed.run(task="fail")
        fork = await calm.fork("case-41-b", at=1, by="ann@desk")
        await fork.run(task="And send it to my work address.")
    await ask(url, "case-42")


if os.environ.get("MIDTURN_URL"):
    app = midturn.asgi(
        midturn.open(os.environ["MIDTURN_URL"], lease=float(os.environ.get("DESK_LEASE", "5"))),
        [] if os.environ.get("DESK_ALONE") else [support, claims],
        token=os.environ.get("DESK_TOKEN", "secret"),
        by="ann@desk",
    )
