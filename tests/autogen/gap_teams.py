"""Shared by the tests of AutoGen's gaps: teams that stop midway, models that fail or refuse, restarts."""

import asyncio
import json

from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, MagenticOneGroupChat, RoundRobinGroupChat
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage
from kinds import assistant, transcript
from scripted import Scripted, remembered


def as_json(value):
    return json.loads(json.dumps(value))


async def saved(live):
    return as_json(await live.save_state())


async def uninterrupted(live, tasks):
    """Return what one instance of plain AutoGen says that is never restarted."""
    return [transcript(await live.run(task=task)) for task in tasks]


async def reloaded(build, tasks):
    """Return what plain AutoGen says when it is restarted before each turn."""
    said, state = [], None
    for task in tasks:
        live = build()
        if state is not None:
            await live.load_state(state)
        said.append(transcript(await live.run(task=task)))
        state = await saved(live)
    return said


async def restarted(store, build, tasks, session="case"):
    """Return what midturn says when it is restarted before each turn."""
    return [transcript(await store.session(session, build).run(task=task)) for task in tasks]


async def imported(store, state, session="case"):
    """Begin a session as ``midturn import`` does."""
    await store.session(session).save({"state": as_json(state)}, origin="import")


def speakers(said):
    """Return the names of those who said something, without the user."""
    return [message["source"] for message in said["messages"] if message["source"] != "user"]


def joined(turns):
    """All messages of several turns."""
    return [message for said in turns for message in said["messages"]]


class Outage:
    """Fails at some of its calls, which are counted over all the models that it answers for."""

    def __init__(self, *at, answer=remembered):
        self._at, self._answer, self.calls = at, answer, 0

    def __call__(self, messages):
        self.calls += 1
        if self.calls in self._at:
            raise RuntimeError("503: overloaded")
        return self._answer(messages)


class Gate:
    """Waits until it is opened; ``reached`` is set when somebody waits."""

    def __init__(self, answer=remembered):
        self._answer, self.reached, self._open = answer, asyncio.Event(), asyncio.Event()

    def open(self):
        self._open.set()

    async def __call__(self, messages):
        self.reached.set()
        await self._open.wait()
        return self._answer(messages)


def refusing(answer=remembered):
    """As providers do: an error unless each call of a tool is followed at once by its results, and nothing else."""

    def strict(messages):
        waiting = []
        for message in messages:
            if isinstance(message, FunctionExecutionResultMessage):
                for result in message.content:
                    if result.call_id not in waiting:
                        raise RuntimeError(f"400: the result {result.call_id} answers no call")
                    waiting.remove(result.call_id)
                continue
            if waiting:
                raise RuntimeError(f"400: the call {waiting[0]} has no result")
            if isinstance(message, AssistantMessage) and isinstance(message.content, list):
                waiting = [call.id for call in message.content]
        if waiting:
            raise RuntimeError(f"400: the call {waiting[0]} has no result")
        return answer(messages)

    return strict


async def breathe():
    """Let everything run that can run."""
    for _ in range(200):
        await asyncio.sleep(0)


def trio(order="ann bob cid", **options):
    return RoundRobinGroupChat([assistant(name) for name in order.split()], **{"max_turns": 2} | options)


def _send_back_twice(messages):
    own = sum(isinstance(message, AssistantMessage) for message in messages)
    return f"{'again' if own < 2 else 'done'}: {remembered(messages)}"


def cyclic(*, max_turns=1):
    """A writer and a reviewer who sends it back twice; then the publisher."""
    writer, reviewer, publisher = assistant("writer"), assistant("reviewer", _send_back_twice), assistant("publisher")
    builder = DiGraphBuilder()
    builder.add_node(writer).add_node(reviewer).add_node(publisher)
    builder.add_edge(writer, reviewer)
    builder.add_edge(reviewer, writer, condition="again").add_edge(reviewer, publisher, condition="done")
    builder.set_entry_point(writer)
    return GraphFlow(builder.get_participants(), builder.build(), max_turns=max_turns)


def lopsided_diamond(activation, *, max_turns=1):
    """Two ways from the first to the last, one of them longer by a step."""
    first, left, mid, right, last = (assistant(name) for name in ("first", "left", "mid", "right", "last"))
    builder = DiGraphBuilder()
    for node in (first, left, mid, right, last):
        builder.add_node(node)
    builder.add_edge(first, left).add_edge(first, right).add_edge(left, mid)
    builder.add_edge(mid, last, activation_condition=activation).add_edge(right, last, activation_condition=activation)
    return GraphFlow(builder.get_participants(), builder.build(), max_turns=max_turns)


def ledger(messages, *, satisfied_after=10):
    """Answer the orchestrator's question who is next; planning and the final answer are texts."""
    if "next_speaker" not in str(messages[-1].content):
        return f"planned or answered: {remembered(messages)}"
    entries = {
        "is_request_satisfied": len(messages) > satisfied_after,
        "is_in_loop": False,
        "is_progress_being_made": True,
        "next_speaker": ["ann", "bob"][len(messages) // 2 % 2],
        "instruction_or_question": f"go on: {remembered(messages)}",
    }
    return json.dumps({name: {"answer": answer, "reason": "so it is"} for name, answer in entries.items()})


def orchestrated(model=None, **options):
    return MagenticOneGroupChat([assistant("ann"), assistant("bob")], model or Scripted(ledger), **options)
