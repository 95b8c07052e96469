"""Uses one store from where it was not opened: a forked child, another thread, another event loop."""

import asyncio
import faulthandler
import json
import os
import signal
import threading
from functools import partial

from autogen_agentchat.agents import AssistantAgent

import midturn
from midturn.testing import ScriptedModel

PATIENCE = 200
"""Seconds after which a session is busy, or something hangs. Nothing takes so long when all is well."""


def build():
    return AssistantAgent("helper", model_client=ScriptedModel(lambda ms: f"{len(ms)}", delay=0.001))


async def attempt(work):
    """Return the outcome: a result, or a typed error. Any other error is a bug, and is raised."""
    try:
        return await work
    except midturn.MidturnError as error:
        return type(error).__name__


async def turns(case, count, name):
    done = []
    for i in range(count):
        result = await attempt(case.run(task=f"{name} {i}"))
        done.append(result if isinstance(result, str) else result.turn)
    return done


async def history(store, session):
    found = [turn async for turn in store.session(session).history()]
    numbers = [turn.number for turn in found]
    return {
        "numbers": numbers,
        "statuses": sorted({turn.status for turn in found}),
        "replies": [turn.messages[-1].content for turn in found if turn.status == "done"],
    }


async def fork(url):
    """A child keeps using what its parent opened, and so does the parent."""
    async with midturn.open(url) as store:
        case = store.session("case", build)
        await case.run(task="before")
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            # The parent's event loop cannot run in the child, so it brings its own.
            signal.alarm(PATIENCE)

            def use():
                async def work():
                    old = [await attempt(case.run(task="in the child"))]
                    old += [await attempt(store.session("other", build).run(task="in the child"))]
                    old += [await attempt(store.delete("case"))]
                    await attempt(store.store.close())
                    async with midturn.open(url) as own:
                        new = await turns(own.session("case", build), 1, "child")
                    return {"old": [r if isinstance(r, str) else "ran" for r in old], "new": new}

                with asyncio.Runner() as runner:
                    asyncio.events._set_running_loop(None)
                    os.write(write, json.dumps(runner.run(work())).encode())

            use()
            os._exit(0)
        os.close(write)
        said = await asyncio.to_thread(os.read, read, 10_000)
        await asyncio.to_thread(os.waitpid, child, 0)
        mine = await turns(case, 2, "parent")
        return {"child": json.loads(said), "parent": mine, "history": await history(store, "case")}


def in_thread(work):
    """Run it in a thread with an event loop of its own; how it ended."""
    outcome = {}

    def run():
        try:
            outcome["result"] = asyncio.run(work())
        except BaseException as error:  # noqa: BLE001 - told below
            outcome["result"] = f"{type(error).__name__}: {error}"

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


async def threads(url, shared):
    """Two threads with a loop each use one store at once; with ``shared`` also one and the same session object."""
    async with midturn.open(url) as store:
        case = store.session("case", build, timeout=2)
        own = partial(store.session, "case", build, timeout=PATIENCE)
        running = [
            in_thread(
                lambda name=name: turns(case if shared else store.session("case", build, timeout=PATIENCE), 10, name)
            )
            for name in "ab"
        ]
        for thread, _ in running:
            await asyncio.to_thread(thread.join)
        mine = await turns(own(), 1, "main")
        found = await history(store, "case")
        return {"threads": [outcome["result"] for _, outcome in running], "main": mine, "history": found}


async def main(what, url):
    match what:
        case "fork":
            return await fork(url)
        case "threads":
            return await threads(url, shared=False)
        case "shared":
            return await threads(url, shared=True)


def loops(url):
    """One store and one session, used by one event loop after the other."""
    store = midturn.open(url)
    asyncio.run(store.__aenter__())
    case = store.session("case", build)
    done = [asyncio.run(turns(case, 2, f"loop {i}")) for i in range(3)]
    found = asyncio.run(history(store, "case"))
    asyncio.run(store.__aexit__(None, None, None))
    return {"done": done, "history": found}


def share(what, url):
    """Return the outcome in a process of its own."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)  # a hang is told as one, with where it is
    return loops(url) if what == "loops" else asyncio.run(main(what, url))
