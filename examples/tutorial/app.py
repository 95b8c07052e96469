"""The agent of the tutorial for the command line: ``midturn chat app:support case-45``."""

from autogen_agentchat.agents import AssistantAgent

import midturn
from midturn.demo.model import SYSTEM_MESSAGE
from midturn.demo.scripted_model import ScriptedChatCompletionClient


def build() -> AssistantAgent:
    """Return an agent that answers by rule and needs no key. Put your own model client here."""
    return AssistantAgent("support_agent", ScriptedChatCompletionClient(), system_message=SYSTEM_MESSAGE)


support = midturn.Blueprint("support", build)
