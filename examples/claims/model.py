"""The models of the claims team: OpenAI's if OPENAI_API_KEY is set, else a script that needs no key."""

import os
from collections.abc import Sequence
from typing import Any

from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    FunctionExecutionResultMessage,
    LLMMessage,
)

from midturn.testing import ScriptedModel, ToolCall

SCRIPT: dict[str, list[tuple[str, dict[str, Any]] | str]] = {
    "intake": [
        ("look_up_claim", {"claim": "claim-1207"}),
        "{} Is that covered?",
    ],
    "policy": [
        ("look_up_policy", {"policy": "P-88"}),
        ("reserve", {"claim": "claim-1207", "amount": 1200}),
        "It is covered. {}",
    ],
    "payout": [
        ("pay_out", {"claim": "claim-1207", "amount": 1200}),
        "{} The claim is closed.",
    ],
}
"""The answers of each agent, call by call: a tool and its arguments, or text with {} for the last tool's result."""


def model_client(agent: str) -> ChatCompletionClient:
    """Return the model for an agent. Put your own here."""
    if os.environ.get("OPENAI_API_KEY"):
        from autogen_ext.models.openai import OpenAIChatCompletionClient

        return OpenAIChatCompletionClient(model="gpt-4o-mini", parallel_tool_calls=False)
    return Scripted(agent, delay=float(os.environ.get("MODEL_SECONDS", "0.5")))


class Scripted(ScriptedModel):
    """Answers with the next line of the script. It finds the line from the agent's earlier messages."""

    def __init__(self, agent: str, *, delay: float = 0.0) -> None:
        super().__init__(self._next, delay=delay)
        self.agent = agent

    def number(self, messages: Sequence[LLMMessage]) -> int:
        """Return the number of calls that the agent has made before this one."""
        return sum(isinstance(message, AssistantMessage) for message in messages)

    def _next(self, messages: Sequence[LLMMessage]) -> str | ToolCall:
        line, last = SCRIPT[self.agent][self.number(messages)], messages[-1]
        if isinstance(line, str):
            said = last.content[-1].content if isinstance(last, FunctionExecutionResultMessage) else ""
            return line.format(said)
        return ToolCall(*line)
