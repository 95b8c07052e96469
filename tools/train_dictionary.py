"""Make the dictionary with which stores compress records. Usage: ``python -m tools.train_dictionary FILE``.

The samples are the records of scripted agents that talk with the texts of ``tools/dictionary/talk.txt``. Nothing that
a benchmark or a test measures is among these texts.

A dictionary that was released never changes, because records need it. A better one gets the next number.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zstandard
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core.models import UserMessage

import midturn
from midturn.record.head import Kind
from midturn.stores.compressed.store import LEVEL
from midturn.testing import ScriptedModel, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogen_core.models import LLMMessage

    from midturn.testing.scripted_model import Reply

HERE = Path(__file__).parent / "dictionary"
SIZE = 16_384
SEGMENT = 200
"""Bytes of a piece that the dictionary takes from the samples; by measurement on other texts, better than 32 to 500."""
SEED = 11
TURNS = 12
TIMES = (1.78e9, 2.1e9)
"""The samples have times of the years from 2026 to 2036, so that the dictionary is not one of this day."""
_TIME = re.compile(rb"\b1\d{9}\.\d+")
_DATE = re.compile(rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")


def texts() -> list[str]:
    """Return the texts that people and models say, one for each paragraph."""
    return [part.strip() for part in (HERE / "talk.txt").read_text().split("\n\n")]


@midturn.tool(effect="read")
async def look_up_order(order_id: str) -> str:
    """Look up an order by its number."""
    return f'{{"id": "{order_id}", "status": "shipped", "total": 129.9, "currency": "EUR"}}'


@midturn.tool(effect="idempotent")
async def refund(order_id: str, amount: float, reason: str = "") -> str:
    """Refund an order."""
    return f"Refunded {amount:.2f} EUR for order {order_id}. {reason}"


@midturn.tool(approval=True)
async def send_email(to: str, subject: str, body: str) -> str:
    """Send an email to a customer."""
    return f"sent to {to}: {subject}, {len(body)} characters"


class Talk:
    """Builds agents whose models say the texts one after the other, and call tools now and then."""

    def __init__(self, said: Iterator[str], chance: random.Random) -> None:
        self._said, self._chance = said, chance

    def model(self, calls: float = 0.0) -> ScriptedModel:
        def reply(messages: Sequence[LLMMessage]) -> Reply:
            if isinstance(messages[-1], UserMessage) and self._chance.random() < calls:
                order = f"A-{self._chance.randint(10_000, 99_999)}"
                return self._chance.choice(
                    [
                        ToolCall("look_up_order", {"order_id": order}),
                        ToolCall("refund", {"order_id": order, "amount": 40.0, "reason": next(self._said)}),
                        ToolCall(
                            "send_email", {"to": "m@example.com", "subject": "Your order", "body": next(self._said)}
                        ),
                    ]
                )
            return next(self._said)

        return ScriptedModel(reply)

    def assistant(self) -> Any:
        return AssistantAgent(
            "assistant", self.model(), description="A helpful assistant.", system_message="You are a helpful assistant."
        )

    def clerk(self) -> Any:
        tools: list[Any] = [look_up_order, refund, send_email]
        return AssistantAgent("support_agent", self.model(calls=0.7), tools=tools, max_tool_iterations=3)

    def team(self) -> Any:
        members = [AssistantAgent(name, self.model()) for name in ("planner", "researcher", "writer", "reviewer")]
        return RoundRobinGroupChat(list(members), termination_condition=MaxMessageTermination(5))

    def selector(self) -> Any:
        def choose(messages: Sequence[LLMMessage]) -> str:
            _ = messages
            return self._chance.choice(["claims_agent", "policy_agent"])

        members = [AssistantAgent(name, self.model()) for name in ("claims_agent", "policy_agent")]
        return SelectorGroupChat(list(members), ScriptedModel(choose), termination_condition=MaxMessageTermination(4))

    def swarm(self) -> Any:
        members = [AssistantAgent("triage", self.model(), handoffs=["user"]), AssistantAgent("refunds", self.model())]
        return Swarm(list(members), termination_condition=MaxMessageTermination(3))

    def proxy(self) -> Any:
        members: list[Any] = [
            AssistantAgent("assistant", self.model()),
            UserProxyAgent("user_proxy", input_func=midturn.human),
        ]
        return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(4))


KINDS = ("assistant", "assistant", "clerk", "clerk", "team", "selector", "swarm", "proxy")


async def records(said: Sequence[str], turns: int = TURNS) -> list[bytes]:
    """Return the records of sessions in which these texts are said."""
    chance = random.Random(SEED)  # noqa: S311 - not for secrets
    order = list(said)
    chance.shuffle(order)
    talk = Talk(cycle(order), chance)
    found: list[bytes] = []
    async with midturn.open("memory://") as store:
        for number, kind in enumerate(KINDS):
            name = f"case-{number}"
            case = store.session(name, midturn.Blueprint("support", getattr(talk, kind)))
            for turn in range(turns):
                result: Any = await case.run(chance.choice(order), key=f"mail-{turn}")
                while result.waiting is not None:
                    result = await case.answer("approve" if turn % 3 else "deny", by="ann@desk")
            found += [row.data for kind in Kind for row in await store.store.rows(name, kind)]
    found = [_TIME.sub(lambda _: b"%.3f" % chance.uniform(*TIMES), data) for data in found]
    return [_DATE.sub(lambda _: _date(chance.uniform(*TIMES)), data) for data in found]


def _date(time: float) -> bytes:
    return datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z").encode()


def main() -> int:
    """Write the dictionary to the file."""
    [target] = sys.argv[1:]
    samples: list[Any] = asyncio.run(records(texts()))
    made = zstandard.train_dictionary(SIZE, samples, k=SEGMENT, d=8, level=LEVEL).as_bytes()
    Path(target).write_bytes(made)
    print(f"{len(samples):,} records with {sum(map(len, samples)):,} bytes gave a dictionary of {len(made):,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
