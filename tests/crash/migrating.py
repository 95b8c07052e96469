"""The app whose sessions are migrated by processes that are killed."""

import os
import random
import signal
import threading
from itertools import count

import midturn

KILL_AT = int(os.environ.get("KILL_AT", "0"))
"""The number of the session at which this process is killed, of those that it migrates; 0 for none."""
MORE = 20
"""The number of sessions that it may still begin until then."""

_number = count(1)


def build():
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.replay import ReplayChatCompletionClient

    return AssistantAgent("clerk", ReplayChatCompletionClient(["Noted."] * 9))


old = midturn.Blueprint("desk", build)
support = midturn.Blueprint("desk", build, version=3)


@support.migration(1, 2)
def forget_cards(state):
    number = next(_number)
    if number == KILL_AT:  # soon, wherever it is then
        threading.Timer(random.uniform(0, 0.01), os.kill, (os.getpid(), signal.SIGKILL)).start()
    while KILL_AT and number >= KILL_AT + MORE:
        signal.pause()
    return state.redact(r"\d{4}-\d{4}", "[card]")


@support.migration(2, 3)
def shorten(state):
    return state.map_messages(lambda message: message)
