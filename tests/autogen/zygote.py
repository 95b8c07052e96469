"""Turns of generated agents and teams, each in a new process, forked from one that has everything imported.

As a script it forks a child for each request, which is a line of JSON from its input; the child answers with another.
"""

import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from contextlib import suppress
from copy import deepcopy

from autogen_core.tools import StaticWorkbench
from generated import Built, task_of
from generated_parts import timeless
from kinds import transcript

import midturn
import midturn.autogen.adapter
import midturn.stores.files.store
import midturn.stores.memory
import midturn.stores.sqlite.store
from midturn.autogen import private
from midturn.autogen.parts.walk import walk
from midturn.framework import Loaded


class Zygote:
    """The processes as the tests see them: ``zygote(url=..., spec=..., ops=[...])`` is what came out of the turns.

    There are two to fork from, which hash strings differently: what was in one order in a set may be in another.
    """

    def __init__(self):
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-W", "error", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONHASHSEED": seed},
            )
            for seed in ("1", "2")
        ]

    def __call__(self, *, which=0, **request):
        process = self._processes[which]
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        assert isinstance(answer, list), answer
        return answer

    def close(self):
        for process in self._processes:
            process.stdin.close()
            assert process.wait(60) == 0
            process.stdout.close()


def restarted(zygote, spec, ops, kind, **options):
    """Return the outcome of the turns if each has a process of its own, on a store of this kind."""
    with tempfile.TemporaryDirectory() as directory:
        options["url"] = {"sqlite": f"sqlite:///{directory}/store.db", "file": f"file://{directory}/store"}[kind]
        answers = [zygote(which=i % 2, spec=spec, ops=[op], **options) for i, op in enumerate(ops)]
    return [answer for process in answers for answer in process]


async def plain(request):
    """The turns by AutoGen alone, up to one that fails: after that, its instance is of no use."""
    built = Built(request["spec"])
    answers = []
    for op in request["ops"]:
        if "set" in op:
            built.set_external(op["set"])
            continue
        try:
            items = [item async for item in built.live.run_stream(task=task_of(op["run"], request["spec"]))]
        except Exception as error:  # noqa: BLE001 - midturn has to fail then, too
            return [*answers, {"error": type(error).__name__, "why": repr(error)}]
        result = items[-1]
        answers.append({"said": said(result), "state": timeless(await built.live.save_state())})
    return answers


def repeatable(spec):
    """The effects of all tools, so that they can run without a journal."""
    benches = [part.live for part in walk(Built(spec).live) if isinstance(part.live, StaticWorkbench)]
    names = ["execute_code_blocks", *(name for bench in benches for name in private.tool_names(bench))]
    return dict.fromkeys(names, "idempotent")


async def durable(request):
    """The turns by a session, one after the other on one live instance."""
    made = []

    def build():
        made.append(Built(request["spec"]))
        return made[-1].live

    answers = []
    async with midturn.open(request["url"]) as store:
        # Which of two branches is quicker depends on how long their calls take to be written, and that on the store.
        what, durability = build, "call"
        if "graph" in json.dumps(request["spec"]):
            what, durability = midturn.Blueprint("graph", build, effects=repeatable(request["spec"])), "turn"
        case = store.session("case", what, durability=durability)
        for op in request["ops"]:
            if "run" in op:
                answers.append(await turn(case, task_of(op["run"], request["spec"])))
            elif "rewind" in op:
                answers.append(await store.session("case").rewind(op["rewind"]))
            elif "compact" in op:
                with suppress(midturn.NotFound):  # there is no checkpoint yet
                    await case.compact(before=(await store.info("case")).checkpoint or 1)
            elif made:
                made[-1].set_external(op["set"])
            else:  # in a process of its own, between two that run turns
                built = Built(request["spec"])
                await store.load("case", built.live)
                built.set_external(op["set"])
                await store.save("case", built.live)
    return answers


async def turn(case, task):
    try:
        *_, result = [item async for item in case.run_stream(task=task)]
    except midturn.TurnFailed as error:
        return {"error": type(error.__cause__).__name__, "why": repr(error.__cause__)}
    checkpoint = case.at(result.checkpoint)
    return {
        "said": said(result),
        "state": timeless(await checkpoint.state()),
        "beside": timeless(await checkpoint.beside()),
    }


def said(result):
    return timeless(transcript(result))


def do_no_more_than_autogen():
    """Have midturn keep what AutoGen keeps, and restore it as AutoGen does."""
    framework = midturn.autogen.adapter.AutoGen
    capture_all = framework.capture

    async def capture(self, live):
        return {"state": (await capture_all(self, live))["state"]}

    async def fit(self, live, tree):
        return tree["state"]

    async def load(self, live, state):
        await live.load_state(deepcopy(state))  # a graph would go on to work in it
        return Loaded(captured=await self.capture(live), gained=())

    for instead in (capture, fit, load):
        assert hasattr(framework, instead.__name__), f"midturn has no {instead.__name__}() any more"
        setattr(framework, instead.__name__, instead)


def work(line):
    """The life of a child."""
    try:
        request = json.loads(line)
        if request.get("forgetful"):
            do_no_more_than_autogen()
        run = durable if "url" in request else plain
        answer = asyncio.run(run(request))
    except BaseException:  # noqa: BLE001 - whatever it is, the test is told
        answer = traceback.format_exc()
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def warm_up():
    """Have all done that is done once in a process, so that it is not done again in each child."""
    simple = {"is": "assistant"}
    tools = [{"is": "counter"}, {"is": "agent", "agent": simple}]
    agent = {"is": "assistant", "memory": 0, "tools": tools, "iterations": 3}
    team = {"is": "round_robin", "members": [agent, simple], "max_turns": 2}
    ops = [{"run": "one"}, {"run": "two"}]
    await plain({"spec": team, "ops": ops})
    with tempfile.TemporaryDirectory() as directory:
        for url in ("memory://", f"sqlite:///{directory}/store.db", f"file://{directory}/store"):
            for op in ops:
                await durable({"spec": team, "ops": [op], "url": url})


def main():
    for name in ("autogen_core", "autogen_agentchat", "asyncio"):  # they log what an agent raises
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", category=ResourceWarning)  # a failed team leaves its tasks behind
    asyncio.run(warm_up())
    gc.collect()
    gc.freeze()
    gc.disable()  # the children live for too short a time to need it
    while line := sys.stdin.readline():
        child = os.fork()
        if not child:
            work(line)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            sys.stdout.write(json.dumps(f"the child ended with {status}") + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
