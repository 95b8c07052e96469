"""Reads a session while an audit hook listens, and prints what was executed, imported or started meanwhile."""

import asyncio
import json
import sys

from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.messages import TextMessage

import midturn
from midturn.testing import ScriptedModel

WATCHED = ("exec", "compile", "import", "marshal.", "pickle.", "os.", "subprocess.", "ctypes.", "socket.", "code.")
HARMLESS = ("os.listdir", "os.scandir", "os.truncate")  # what the file store itself does

events = []
listening = False


def hook(event, args):
    if listening and event.startswith(WATCHED) and event not in HARMLESS:
        events.append(f"{event} {args!r}"[:200])


class Keeper(BaseChatAgent):
    state = None

    @property
    def produced_message_types(self):
        return (TextMessage,)

    async def on_messages(self, messages, cancellation_token):
        raise NotImplementedError

    async def on_reset(self, cancellation_token):
        pass

    async def save_state(self):
        return self.state or {}

    async def load_state(self, state):
        self.state = state


def agent(kind):
    if kind == "assistant":
        return AssistantAgent("helper", model_client=ScriptedModel({"": "Noted."}))
    return Keeper("keeper", "It keeps what it is given.")


async def read(store, session, kind):
    found = []
    try:
        found.append(await store.load(session, agent(kind)))
    except midturn.StateInvalid as error:
        found.append(type(error).__name__)
    case = store.session(session)
    turns = [turn async for turn in case.history()]
    found += [len(turns), await case.at(turns[-1].number).state()]
    return found


async def main(url, kind):
    global listening  # noqa: PLW0603 - the hook cannot be given an object to look at
    sys.addaudithook(hook)
    async with midturn.open(url) as store:
        for session in ("harmless", "harmless but unfit"):  # everything that reading imports is imported by now
            await read(store, session, kind)
        listening = True
        found = await read(store, "hostile", kind)
        heard = list(events)
        exec("pass")  # the hook hears it
        listening = False
    print(json.dumps({"found": found, "events": heard, "control": events[len(heard) :]}))


asyncio.run(main(*sys.argv[1:]))
