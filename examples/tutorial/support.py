"""The agent of the tutorial. It runs on OpenAI if OPENAI_API_KEY is set, else on a small model on this machine."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from autogen_agentchat.agents import AssistantAgent

from leftoff.demo.model import SYSTEM_MESSAGE, model_client

FACT = "Remember: the customer prefers email."
SECOND_FACT = "Remember: the customer prefers email and also SMS for urgent updates."
QUESTION = "Which channel does the customer prefer?"
URGENT_QUESTION = "What about urgent updates?"


@asynccontextmanager
async def support() -> AsyncGenerator[Callable[[], AssistantAgent]]:
    """A function that builds a fresh support_agent each time it is called."""
    async with model_client() as client:
        yield lambda: AssistantAgent("support_agent", client, system_message=SYSTEM_MESSAGE)
