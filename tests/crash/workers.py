"""The workers of the crash tests, run as a script: imports AutoGen once, then forks a worker for each request.

Each byte from the test asks for a worker and brings one end of a socket. Over that, the worker and its test talk in
lines of JSON: first the test says what is to be done, then the worker says what happens.
"""

import asyncio
import errno
import gc
import json
import logging
import os
import random
import signal
import socket
import sqlite3
import sys
import tempfile
import time
import traceback
import uuid
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict

from accounts import CODE, completed, decided, lines_of
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage, UserMessage
from durable_cast import DURABLE, blueprint

import midturn
import midturn.autogen.adapter
import midturn.lease.ledger
import midturn.stores.files.store
import midturn.stores.postgres.store
import midturn.stores.redis.store
import midturn.stores.sqlite.store
from midturn.record.head import Kind
from midturn.record.rows import CallRow, decode_record
from midturn.stores.postgres.pool import Pool
from midturn.stores.redis.server import Server
from midturn.stores.wrapper import innermost

real_write = os.write
REPEATED = ("write", "pwrite", "fsync", "fdatasync", "ftruncate", "rename", "replace", "link", "unlink", "mkdir")
"""Functions of ``os`` through which the stores may change files."""


class Channel:
    """The line to the test."""

    def __init__(self, end):
        self._socket = end
        self._lines = end.makefile("rb")

    def say(self, what, **more):
        self._socket.sendall(json.dumps({"is": what, "at": time.monotonic(), **more}).encode() + b"\n")

    def hear(self):
        """Return the test's next line; ``None`` after the last one."""
        line = self._lines.readline()
        return json.loads(line) if line else None


class Faults:
    """A trouble: ``{"point": "write.before", "n": 3}`` kills at the third write; ``"how": "stop"`` only stops.

    ``"from": "steps"`` leaves out what comes before the first step, ``"from": "arm"`` all before a step that says so.
    """

    def __init__(self, channel, fault):
        self._channel = channel
        self.point = fault.get("point")
        self._n = fault.get("n", 1)
        self._how = signal.SIGSTOP if fault.get("how") == "stop" else signal.SIGKILL
        self.since = fault.get("from")
        self.armed = self.since is None
        self._starving = False

    def pass_by(self, point):
        """Come to a point."""
        if self.strikes(point):
            self.strike()

    def strikes(self, point):
        """Return whether this is the time."""
        if point != self.point or not self.armed:
            return False
        self._n -= 1
        return self._n == 0

    def strike(self):
        self._channel.say("struck", point=self.point)
        os.kill(os.getpid(), self._how)

    def around(self, point, function):
        def wrapped(*args, **kwargs):
            self.pass_by(f"{point}.before")
            result = function(*args, **kwargs)
            self.pass_by(f"{point}.after")
            return result

        return wrapped

    def around_async(self, point, function):
        async def wrapped(*args, **kwargs):
            self.pass_by(f"{point}.before")
            result = await function(*args, **kwargs)
            self.pass_by(f"{point}.after")
            return result

        return wrapped

    def starve(self, space):
        """Let nothing be written any more, as on a full disk, or let it again."""
        self._starving = not space

    def install(self):
        """Put the points everywhere but around the store's own ``write``, which is there once it is open."""
        for name in REPEATED:
            setattr(os, name, self.around(f"os.{name}", getattr(os, name)))
        whole = os.write

        def write(file, data):
            if self.strikes("os.write.half"):
                real_write(file, data[: len(data) // 2])
                self.strike()
            if self._starving:
                real_write(file, data[: len(data) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return whole(file, data)

        os.write = write
        faults, connect = self, sqlite3.connect

        class Connection(sqlite3.Connection):
            def execute(self, sql, *args):
                if sql.startswith("BEGIN"):
                    (pages,) = super().execute("PRAGMA page_count").fetchone()
                    super().execute(f"PRAGMA max_page_count = {pages if faults._starving else 10**9}").fetchall()
                if sql != "COMMIT":
                    return super().execute(sql, *args)
                return faults.around("commit", super().execute)(sql, *args)

        sqlite3.connect = lambda *args, **kwargs: connect(*args, factory=Connection, **kwargs)
        # Before a request nothing has been sent, after it the server has answered and the worker has not heard.
        Pool.use = self.around_async("request", Pool.use)
        Server.run = self.around_async("request", Server.run)
        autogen = midturn.autogen.adapter.AutoGen
        autogen.capture = self.around_async("capture", autogen.capture)
        autogen.fit = self.around_async("fit", autogen.fit)
        autogen.load = self.around_async("load", autogen.load)
        autogen.prepare = self.around_async("prepare", autogen.prepare)


class Model(ChatCompletionClient):
    """Answers at once with what it sees; with a ledger, every answer is unlike any other and written down there."""

    def __init__(self, spec, faults):
        self._ledger = spec.get("ledger")
        self._delay = spec.get("delay", 0.0)
        self._gate = spec.get("gate")
        self._faults = faults

    async def create(self, messages, **_):
        self._faults.pass_by("model.before")
        asked = next(message.content for message in reversed(messages) if isinstance(message, UserMessage))
        if asked.startswith("bad"):  # it fails when the gate is open, and else at once
            await self._wait()
        text = answer(asked, len(messages), self._ledger)
        if self._delay:
            await asyncio.sleep(random.random() * self._delay)
        await self._wait()
        self._faults.pass_by("model.after")
        return CreateResult(finish_reason="stop", content=text, usage=RequestUsage(2, 1), cached=False)

    async def _wait(self):
        while self._gate and not os.path.exists(self._gate):  # noqa: ASYNC110, ASYNC240, PTH110 - set by the test
            await asyncio.sleep(0.005)

    async def create_stream(self, messages, **_):
        yield await self.create(messages)

    async def close(self):
        pass

    def actual_usage(self):
        return RequestUsage(0, 0)

    def total_usage(self):
        return RequestUsage(0, 0)

    def count_tokens(self, messages, **_):
        return len(messages)

    def remaining_tokens(self, messages, **_):
        return 1000

    @property
    def capabilities(self):
        return self.model_info

    @property
    def model_info(self):
        return ModelInfo(
            vision=False, function_calling=False, json_output=False, family="unknown", structured_output=False
        )


class Counter(BaseChatAgent):
    """An agent with a state of its own, which is not made of messages."""

    def __init__(self, spec, faults):
        super().__init__("counter", "It counts.")
        self._said = []
        self._spec = spec
        self._faults = faults

    @property
    def produced_message_types(self):
        return (TextMessage,)

    async def on_messages(self, messages, cancellation_token):
        self._faults.pass_by("model.before")
        self._said += [message.content for message in messages]
        text = answer(self._said[-1], len(self._said), self._spec.get("ledger"))
        self._faults.pass_by("model.after")
        return Response(chat_message=TextMessage(content=text, source=self.name))

    async def on_reset(self, cancellation_token):
        self._said.clear()

    async def save_state(self):
        return {"said": list(self._said), "count": len(self._said)}

    async def load_state(self, state):
        self._said = list(state["said"])


def answer(asked, size, ledger):
    """Return the answer to the ``size``-th message; a question may ask for trouble."""
    if asked.startswith("bad"):
        raise RuntimeError(f"cannot answer {asked!r}")
    text = f"{asked} -> {size}"
    if ledger:
        text += f" {uuid.uuid4().hex}"
        file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        real_write(file, f"{text}\n".encode())
        os.close(file)
    return text


def build(spec, faults):
    """The agent or team that the request names."""
    match spec.get("agent", "assistant"):
        case "assistant":
            return AssistantAgent("helper", model_client=Model(spec, faults))
        case "counter":
            return Counter(spec, faults)
        case "team":
            pair = [AssistantAgent(name, model_client=Model(spec, faults)) for name in ("ada", "bob")]
            return RoundRobinGroupChat(pair, max_turns=2)


def session_of(opened, spec, faults):
    """A new object for the session that the request names."""
    return opened.session(
        spec["session"],
        blueprint(spec, faults) if spec.get("agent") in DURABLE else lambda: build(spec, faults),
        busy=spec.get("busy", "wait"),
        timeout=spec.get("timeout", 60),
        durability=spec.get("durability", "call"),
    )


async def opened_for(spec, channel, faults, stack):
    """The open store of a request, whose writes are told and can fail."""
    opened = await stack.enter_async_context(midturn.open(spec["url"]))
    store, apply = opened.store, opened.store.write

    async def write(change):
        points = written(change)
        for point in points:
            faults.pass_by(f"{point}.before")
        head = await faults.around_async("write", apply)(change)
        for point in points:
            faults.pass_by(f"{point}.after")
        if spec.get("writes"):
            channel.say("wrote", seq=head.seq, epoch=head.epoch, owner=head.owner, points=points)
        return head

    store.write = write
    return opened


async def serve(channel, spec):
    """Do what a request asks: its ``steps``, then what the test says, until it says no more."""
    if "lease" in spec:
        midturn.lease.ledger.LEASE = spec["lease"]
    ticks = Ticks()
    faults = Faults(channel, spec.get("fault", {}))
    faults.install()

    async with AsyncExitStack() as stack:
        opened = await opened_for(spec, channel, faults, stack)
        case = session_of(opened, spec, faults)
        await look(channel, opened.store, spec["session"], spec.get("agent"))
        faults.armed = faults.armed or faults.since == "steps"
        settles = spec.get("settles") and spec["ledger"]
        for step in spec.get("steps", ()):
            await take(channel, case, step, faults, settles)
        while spec.get("listens") and (step := await asyncio.to_thread(channel.hear)) is not None:
            if "deadline" in step:
                innermost(opened.store)._deadline = step["deadline"]
                continue
            if "open again" in step:
                await stack.aclose()
                opened = await opened_for(spec, channel, faults, stack)
            if step.keys() & {"open again", "new object"}:
                case = session_of(opened, spec, faults)
            else:
                await take(channel, case, step, faults, settles)
    channel.say("end", gap=ticks.stop())


def written(change):
    """Return the name of a write: ``record.pay`` records that ``pay`` is complete."""
    points = []
    if change.status == "waiting":
        points.append("suspend")
    for row in change.rows:
        if row.kind is Kind.CHECKPOINT:
            points.append("checkpoint")
        elif row.kind is Kind.CALL:
            call = decode_record(CallRow, row.data, "a call")
            if call.stage == "started":
                points.append("start")
            elif call.stage == "done" and call.what in ("human", "approval", "doubt"):
                points.append("answer")
            elif call.stage == "done":
                name = "pay" if call.name == CODE else call.name
                points.append(f"record.{name if call.what in ('tool', 'code') else call.what}")
    return points


class Ticks:
    """The longest time for which the event loop was busy."""

    def __init__(self):
        self._gap = 0.0
        self._task = asyncio.create_task(self._tick())

    async def _tick(self):
        while True:
            since = time.monotonic()
            await asyncio.sleep(0.005)
            self._gap = max(self._gap, time.monotonic() - since - 0.005)

    def stop(self):
        self._task.cancel()
        return self._gap


async def look(channel, store, session, agent):
    """Say what is durable: the last accepted input, and whether it is still to be finished."""
    head = await store.head(session)
    rows = await store.rows(session, Kind.TURN)
    open_ = head is not None and head.status in ("running", "waiting")
    channel.say(
        "found",
        turn=rows[-1].n if rows else 0,
        status=head and head.status,
        seq=head.seq if head else 0,
        complete=await completed(store, session) if open_ and agent in DURABLE else [],
    )


async def settle(channel, case, result, ledger):
    """Return the result of a turn whose doubts are resolved from the ledger of what was really done."""
    while result is not None and result.waiting is not None:
        question = result.waiting.questions[0]
        text = decided(asdict(question), lines_of(ledger))
        channel.say("settled", decision=text.partition(":")[0])
        result = await case.answer(text, question=question.id)
    return result


async def go(case, step):
    """Return the outcome of a step that runs something."""
    if "run" in step:
        return await case.run(task=step["run"], key=step.get("key"))
    if "answer" in step:
        return await case.answer(step["answer"], question=step["question"])
    return await case.resume()


async def forked(case, to, **rest):
    """Fork the session."""
    return (await case.fork(to, **rest)).id


ACTS = {
    "delete": lambda case, **rest: case.delete(**rest),
    "rewind": lambda case, to, **rest: case.rewind(to, **rest),
    "edit": lambda case, said, instead, **rest: case.edit(lambda state: state.correct(said, instead), **rest),
    "fork": forked,
    "reset": lambda case, **rest: case.reset(**rest),
}
"""The acts of a person on a session."""


async def take(channel, case, step, faults, settles=None):
    """Take one step, and acknowledge it."""
    if "space" in step:
        faults.starve(step["space"])
        return
    faults.armed = faults.armed or "arm" in step
    try:
        if "act" in step:
            channel.say("done", was=await ACTS[step["act"]](case, **step.get("with", {})), step=step)
            return
        try:
            result = await go(case, step)
        except midturn.InDoubt:  # another turn is open
            if not settles:
                raise
            await settle(channel, case, await case.resume(), settles)
            result = await go(case, step)
        if settles:
            result = await settle(channel, case, result, settles)
    except midturn.MidturnError as error:
        channel.say("error", kind=type(error).__name__, text=str(error), step=step)
    else:
        texts = [message.to_text() for message in result.messages] if result else None
        asked = [asdict(question) for question in result.waiting.questions] if result and result.waiting else []
        if asked:
            faults.pass_by("waiting")
        channel.say("done", turn=result and result.turn, texts=texts, asked=asked, step=step)


def work(end):
    """The life of a worker."""
    channel = Channel(end)
    try:
        channel.say("begin", pid=os.getpid())
        random.seed()
        asyncio.run(serve(channel, channel.hear()))
    except BaseException:  # noqa: BLE001 - whatever it is, the test is told
        with suppress(BrokenPipeError):  # the test has gone
            channel.say("broken", text=traceback.format_exc())


class Silence:
    """A line to nobody."""

    def say(self, what, **more):
        pass


async def warm_up():
    """Have all done that is done once in a process, so that it is not done again in each worker."""
    channel, spec = Silence(), {"agent": "desk", "ledger": os.devnull}
    with tempfile.TemporaryDirectory() as folder:
        for url in ("memory://", f"file://{folder}/store", f"sqlite:///{folder}/store.db"):
            async with midturn.open(url) as store:
                for agent in (blueprint(spec, Faults(channel, {})), lambda: build({}, Faults(channel, {}))):
                    for _ in range(2):  # the second one loads what the first one has left
                        case = store.session(str(agent), agent)
                        for step in ({"run": "errands"}, {"run": "bad"}, {"resume": True}):
                            await take(channel, case, step, Faults(channel, {}))
                    await look(channel, store.store, str(agent), "desk")


def main():
    """Fork a worker for each request, until there are no more; then see that none is left behind."""
    logging.getLogger("autogen_core").setLevel(logging.CRITICAL)  # AutoGen logs what an agent raises
    logging.getLogger("midturn").setLevel(logging.ERROR)  # a store may say what it may lose
    requests = socket.socket(fileno=int(sys.argv[1]))
    children = set()
    asyncio.run(warm_up())
    gc.collect()
    gc.freeze()
    while True:
        wanted, files, _, _ = socket.recv_fds(requests, 1, 1)
        for child in list(children):
            if os.waitpid(child, os.WNOHANG)[0]:
                children.remove(child)
        if not wanted:
            break
        child = os.fork()
        if child:
            children.add(child)
            os.close(files[0])
            continue
        requests.close()
        work(socket.socket(fileno=files[0]))
        os._exit(0)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
