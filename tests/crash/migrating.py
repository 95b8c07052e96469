"""The app whose sessions are migrated while the process is killed."""

import os
import random
import signal
from itertools import count
from threading import Timer

import midturn

numbers = count(1)
last = int(os.environ.get("KILLED_AFTER", "0"))


def build():
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.replay import ReplayChatCompletionClient

    return AssistantAgent("clerk", ReplayChatCompletionClient(["Noted."] * 9))


old = midturn.Blueprint("desk", build)
support = midturn.Blueprint("desk", build, version=3)


@support.migration(1, 2)
def forget_cards(state):
    if next(numbers) == last:  # at any moment of the next writes
        Timer(random.uniform(0, 0.02), os.kill, (os.getpid(), signal.SIGKILL)).start()
    return state.redact(r"\d{4}-\d{4}", "[card]")


@support.migration(2, 3)
def shorten(state):
    return state.map_messages(lambda message: message)
