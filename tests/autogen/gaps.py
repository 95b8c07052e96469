"""The same steps by plain AutoGen and by midturn, without and with restarts in between."""

import json
from enum import Enum
from weakref import WeakKeyDictionary

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import Image
from autogen_core.models import FunctionExecutionResultMessage, UserMessage
from kinds import assistant, transcript
from pydantic import BaseModel
from scripted import calls, remembered

import midturn

RESTART = object()
"""Among the steps: the process ends here, and another continues."""

handles = WeakKeyDictionary()
"""The part of a built object that a test wants to reach."""


async def uninterrupted(build, *steps):
    """Return what plain AutoGen says in one process."""
    return await _play(_Plain(build), [step for step in steps if step is not RESTART])


async def reloaded(build, *steps):
    """Return what plain AutoGen says when a restart is save_state(), JSON, load_state() into a new instance."""
    return await _play(_Plain(build), steps)


async def kept(build, *steps):
    """Return what a session says when a restart is a new session object for the same id."""
    async with midturn.open("memory://") as store:
        return await _play(_Session(build, store, by_hand=any(map(callable, steps))), steps)


async def saved(build, *steps):
    """Return what plain AutoGen says when a restart is store.save() and store.load() into a new instance."""
    async with midturn.open("memory://") as store:
        return await _play(_ByHand(build, store), steps)


async def _play(player, steps):
    said = []
    for step in steps:
        if step is RESTART:
            await player.restart()
        elif callable(step):
            await step(handles[player.live])
        else:
            said.append(transcript(await player.run(step)))
            for message in said[-1]["messages"]:
                message.pop("request_id", None)
    return said


class _Plain:
    def __init__(self, build):
        self.build = build
        self.live = build()

    async def run(self, task):
        return await stream_to_the_end(self.live, task)

    async def restart(self):
        state = json.loads(json.dumps(await self.live.save_state()))
        self.live = self.build()
        await self.live.load_state(state)


class _ByHand(_Plain):
    def __init__(self, build, store):
        super().__init__(build)
        self.store = store

    async def restart(self):
        await self.store.save("case", self.live)
        self.live = self.build()
        await self.store.load("case", self.live)


class _Session:
    """``by_hand`` gives the session live instances, whose parts a step can change between two turns."""

    def __init__(self, build, store, *, by_hand):
        self.build, self.store, self.by_hand = build, store, by_hand
        self.live = None
        self.open()

    def open(self):
        if self.by_hand:
            self.live = self.build()
        self.case = self.store.session("case", self.live if self.by_hand else self.build)

    async def run(self, task):
        return await stream_to_the_end(self.case, task)

    async def restart(self):
        self.open()


async def stream_to_the_end(live, task):
    """The result of a streamed run, which has the inner messages of every kind of agent."""
    items = [item async for item in live.run_stream(task=task)]
    return items[-1]


def last(said):
    """The text of the last message of the last turn."""
    return said[-1]["messages"][-1]["content"]


def types(said):
    """The types of the messages of the last turn."""
    return [message["type"] for message in said[-1]["messages"]]


def in_team(build):
    """A factory for a team in which what ``build`` builds speaks first, and somebody else after it."""

    def team():
        member = build()
        found = RoundRobinGroupChat([member, assistant("other")], max_turns=2)
        if member in handles:
            handles[found] = handles[member]
        return found

    return team


def alone_and_in_a_team(cases):
    """Every factory of a table, as it is and in a team, with ids for pytest."""
    return cases | {f"{name}_in_a_team": in_team(build) for name, build in cases.items()}


def on_request(*names):
    """Answers that call one of these tools when the last message from a user or an agent begins with its name."""

    def answer(messages):
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return remembered(messages)
        asked = [message.content for message in messages if isinstance(message, UserMessage)][-1]
        name, _, what = str(asked).partition(" ")
        return calls((name, json.dumps({"what": what, "task": what}))) if name in names else remembered(messages)

    return answer


class Custom(BaseChatAgent):
    """An agent of one's own: ``reply`` makes its answer from the texts that it was sent."""

    def __init__(self, name="custom"):
        super().__init__(name, "an agent of one's own")

    @property
    def produced_message_types(self):
        return (TextMessage,)

    async def reply(self, texts):
        return " ".join(texts)

    async def on_messages(self, messages, cancellation_token):
        text = await self.reply([message.to_text() for message in messages])
        return Response(chat_message=TextMessage(content=text, source=self.name))

    async def on_reset(self, cancellation_token):
        pass


def exact(value):
    """A value with the types of all that is in it, to be compared; images by their pixels."""
    if isinstance(value, Image):
        return (Image, value.image.mode, value.image.size, value.image.tobytes())
    if isinstance(value, BaseModel):
        return (type(value), {name: exact(getattr(value, name)) for name in type(value).model_fields})
    if isinstance(value, dict):
        return (dict, {key: exact(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return (type(value), [exact(item) for item in value])
    if isinstance(value, Enum):
        return value
    return (type(value), value)
