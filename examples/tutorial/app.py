"""The agent of the tutorial for the command line: ``midturn chat app:support case-45``."""

from autogen_agentchat.agents import AssistantAgent

import midturn
from midturn.demo.model import SYSTEM_MESSAGE
from midturn.demo.scripted_model import ScriptedChatCompletionClient


def build() -> AssistantAgent:
    """Answers by rule and needs neither a key nor a model; put your own model client here."""
    return AssistantAgent("support_agent", ScriptedChatCompletionClient(), system_message=SYSTEM_MESSAGE)


support = midturn.Blueprint("support", build)
