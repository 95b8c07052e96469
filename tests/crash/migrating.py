"""The app whose sessions are migrated while they are killed."""

import midturn


def build():
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.replay import ReplayChatCompletionClient

    return AssistantAgent("clerk", ReplayChatCompletionClient(["Noted."] * 9))


old = midturn.Blueprint("desk", build)
support = midturn.Blueprint("desk", build, version=3)


@support.migration(1, 2)
def forget_cards(state):
    return state.redact(r"\d{4}-\d{4}", "[card]")


@support.migration(2, 3)
def shorten(state):
    return state.map_messages(lambda message: message)
