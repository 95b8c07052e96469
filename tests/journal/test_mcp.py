"""Tools of a real MCP server, through AutoGen's own workbench: recorded, declared and approved as any others."""

import asyncio
import gc
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import mcp_client
import psutil
import pytest
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams
from desk import Killed, results
from interrupting import Mortal
from mcp_client import asks_for, clerk, server
from scripted import Scripted
from test_calls import Flaky

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.errors import StoreUnavailable
from midturn.sessions.session import Session

GONE = StdioServerParams(command="/nowhere/bank")


def servers():
    """The MCP servers that this process has started."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it ends just now
            found += [child] if str(mcp_client.SERVER) in child.cmdline() else []
    return found


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
async def bench():
    """Makes workbenches, which are stopped in the end; no server is left then."""
    made = []

    def make(parameters, kind=McpWorkbench, **options):
        made.append(kind(parameters, **options))
        return made[-1]

    yield make
    for each in made:
        if each._actor is not None:
            await each.stop()
    assert servers() == []


def lines(ledger):
    return ledger.read_text(encoding="utf-8").splitlines()


async def test_what_a_server_did_is_not_done_again(memory, ledger, bench):
    build = partial(clerk, Flaky(asks_for(["pay A1", "pay B2"], ["pay A1"]), 3), bench(server(ledger)))
    with pytest.raises(midturn.TurnFailed, match="503"):
        await memory.session("case", build).run(task="go")
    result = await memory.session("case", build).resume()
    assert results(result) == ["paid A1", "paid B2", "paid A1"]
    assert sorted(lines(ledger)) == ["pay A1", "pay A1", "pay B2"]
    (turn,) = [turn async for turn in memory.session("case").history()]
    assert turn.notes == ()


async def test_what_is_recorded_needs_no_server(memory, ledger, bench):
    model = Flaky(asks_for(["pay A1"]), 0)
    mortal = Mortal(memory.store, 5)
    with pytest.raises(StoreUnavailable):
        await Session(mortal, "case", lambda: clerk(model, bench(server(ledger))), AutoGen()).run(task="go")
    assert model.count == 2, "all was called, and only the end of the turn is not recorded"

    def build():
        return clerk(model, bench(GONE))

    assert results(await memory.session("case", build).resume()) == ["paid A1"]
    assert (await memory.session("case", build).replay(1)).differences == []
    assert model.count == 2
    assert lines(ledger) == ["pay A1"]


async def test_a_process_that_dies_while_a_server_works_leaves_the_call_in_doubt(tmp_path, ledger, bench):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    path = os.pathsep.join([str(Path(mcp_client.__file__).parents[1] / "autogen"), os.environ.get("PYTHONPATH", "")])
    process = await asyncio.create_subprocess_exec(
        sys.executable, mcp_client.__file__, url, str(ledger), env={**os.environ, "PYTHONPATH": path}
    )
    assert await process.wait() == -signal.SIGKILL

    def build():
        return clerk(asks_for(["pay A1"]), bench(server(ledger)))

    async with midturn.open(url) as store:
        (question,) = (await store.session("case", build).resume()).waiting.questions
        assert (question.kind, question.tool, question.arguments) == ("doubt", "pay", {"order": "A1"})
        assert lines(ledger) == ["pay A1"]
        assert results(await store.session("case", build).answer("done: paid")) == ["paid"]
    assert lines(ledger) == ["pay A1"]


class Deadly(McpWorkbench):
    """The process dies when the server has done what it was asked for."""

    deadly = True

    async def call_tool(self, *args, **options):
        result = await super().call_tool(*args, **options)
        if self.deadly:
            raise Killed
        return result


async def test_the_effect_of_a_servers_tool_is_declared_by_its_name(memory, ledger, bench):
    workbench = bench(server(ledger), Deadly)
    for effect in ("read", "idempotent", "unsafe"):
        build = partial(clerk, asks_for([f"pay {effect}"]), workbench)
        what = midturn.Blueprint("clerk", build, effects={"pay": effect})
        workbench.deadly = True
        with pytest.raises(Killed):
            await memory.session(effect, what).run(task="go")
        workbench.deadly = False
        result = await memory.session(effect, what).resume()
        assert (result.waiting is not None) == (effect == "unsafe")
    assert lines(ledger) == ["pay read", "pay read", "pay idempotent", "pay idempotent", "pay unsafe"]


async def test_a_servers_tool_may_need_approval(memory, ledger, bench):
    ledger.with_name("here").touch()
    build = partial(clerk, asks_for(["wait here"], ["pay A1"], ["pay B2"]), bench(server(ledger)))
    what = midturn.Blueprint("clerk", build, effects={"pay": midturn.tool(approval=True)})
    result = await memory.session("case", what).run(task="go")
    assert (result.waiting.kind, result.waiting.tool) == ("approval", "pay")
    assert lines(ledger) == ["wait here"]
    await memory.session("case", what).answer("approve", arguments={"order": "C3"})
    result = await memory.session("case", what).answer("deny: enough")
    assert results(result) == ["waited for here", "paid C3", "This call was not allowed: enough"]
    assert lines(ledger) == ["wait here", "pay C3"]


async def test_a_turn_can_be_cancelled_while_a_server_works(memory, ledger, bench):
    answers = iter([asks_for(["wait here"]), asks_for(["pay A1"])])
    workbench = bench(server(ledger))
    await workbench.list_tools()
    before = asyncio.all_tasks()
    case = memory.session("case", lambda: clerk(next(answers), workbench))
    run = asyncio.create_task(case.run(task="go"))
    while not ledger.exists():  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert asyncio.all_tasks() <= before, "a task of it still runs"
    ledger.with_name("here").touch()
    assert results(await case.run(task="pay")) == ["paid A1"], "the server is there as before"


async def test_what_a_server_asks_a_model_belongs_to_its_tool(memory, ledger, bench):
    asked = Scripted(lambda _: f"answer {len(asked.seen)}")

    def build():
        return clerk(asks_for(["judge A1"]), bench(server(ledger), model_client=asked))

    case = memory.session("case", build)
    for number in (1, 2):
        assert results(await case.run(task="go")) == [f"judged A1: answer {number}"]
    assert (await memory.session("case", build).replay(2)).differences == []
    assert len(asked.seen) == 2


async def test_a_server_ends_with_the_session_that_had_it(memory, ledger):
    case = memory.session("case", lambda: clerk(asks_for(["pay A1"]), McpWorkbench(server(ledger))))
    await case.run(task="go")
    assert len(servers()) == 1
    del case
    gc.collect()
    while servers():  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(0.01)
