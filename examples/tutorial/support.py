"""The agent of the tutorial. It runs on OpenAI if OPENAI_API_KEY is set, else on a small model on this machine."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from autogen_agentchat.agents import AssistantAgent

from midturn.demo.model import FACT, QUESTION, SECOND_FACT, SYSTEM_MESSAGE, URGENT_QUESTION, model_client

__all__ = ["FACT", "QUESTION", "SECOND_FACT", "URGENT_QUESTION", "support"]


@asynccontextmanager
async def support() -> AsyncGenerator[Callable[[], AssistantAgent]]:
    """Yield a function that builds a new support_agent each time."""
    async with model_client() as client:
        yield lambda: AssistantAgent("support_agent", client, system_message=SYSTEM_MESSAGE)
