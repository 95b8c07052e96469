"""The cast of the tests of sessions: agents with a scripted model, and what they should have said."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from kinds import transcript
from scripted import Scripted, remembered

import midturn
from midturn.record.head import Write


class Steps:
    """Answers one after the other: a text, an error to raise, a function of the messages; then the usual ones."""

    def __init__(self, *steps):
        self._left = list(steps)

    def __call__(self, messages):
        step = self._left.pop(0) if self._left else remembered
        if isinstance(step, BaseException):
            raise step
        return step(messages) if callable(step) else step


class Gate:
    """A step that waits until it is opened; ``reached`` is set when somebody waits."""

    def __init__(self):
        self.reached = asyncio.Event()
        self._open = asyncio.Event()

    def open(self):
        self._open.set()

    async def __call__(self, messages):
        self.reached.set()
        await self._open.wait()
        return remembered(messages)


def agents(*steps, **options):
    """A factory of assistants that share one model, and the model."""
    model = Scripted(Steps(*steps))
    return (lambda: AssistantAgent("assistant", model, **options)), model


def panel():
    """A writer whose words come in chunks, and a human who has to be content."""
    writer = AssistantAgent("writer", Scripted(remembered), model_client_stream=True)
    user = UserProxyAgent("user", input_func=midturn.human)
    return RoundRobinGroupChat([writer, user], termination_condition=TextMentionTermination("ACCEPT"))


def said(result):
    return result.messages[-1].content


def plain(event):
    """An event without its ids and times, and without the mark of a repeated one."""
    dropped = ("id", "created_at", "request_id", "full_message_id", "metadata")
    return {key: value for key, value in event.dump().items() if key not in dropped}


async def seen(run, after=0):
    """The events of a run from a number on."""
    return [(event.number, plain(event.event)) async for event in run.events(after=after)]


async def uninterrupted(factory, *tasks):
    """Return what plain AutoGen says to these tasks, one after the other."""
    live = factory()
    return [transcript(await live.run(task=task)) for task in tasks]


async def expected(*tasks):
    """Return what the usual assistant says last to these tasks."""
    return (await uninterrupted(agents()[0], *tasks))[-1]["messages"][-1]["content"]


async def numbers(session):
    """The turns of a session and how they ended."""
    return [(turn.number, turn.status) async for turn in session.history()]


async def crash(store, factory, *, task, key=None):
    """Leave a turn as a worker leaves it whose process is killed: begun, and nobody there."""
    gate = Gate()
    session = store.session("case", agents(gate)[0])
    running = asyncio.create_task(session.run(task=task, key=key))
    await gate.reached.wait()
    head = await store.store.head("case")
    await store.store.write(
        Write(session="case", seq=head.seq, epoch=head.epoch + 1, status="running", token="gone", data=head.data)
    )
    gate.open()
    with pytest.raises(midturn.LeaseLost):
        await running
