"""A session that runs inside a tool of another session has a journal of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool
from desk import A1, B2, Desk, Killed, results
from scripted import Scripted, calls

import midturn
from midturn.record.head import Kind
from midturn.record.rows import CallRow, decode_record


def asking(inner, *, effect="idempotent", task="please", keyed=True):
    """Make a clerk that has one tool: it runs a turn of another session."""

    @midturn.tool(effect=effect)
    async def ask() -> str:
        result = await inner().run(task=task, key=midturn.call_key() if keyed else None)
        return "waiting" if result.waiting else " ".join(results(result))

    answer = lambda messages: calls(("ask", "{}")) if len(messages) < 3 else "done"  # noqa: E731 - short
    tool = FunctionTool(ask, name="ask", description="ask")
    return lambda: AssistantAgent("clerk", Scripted(answer), tools=[tool], max_tool_iterations=3)


@pytest.fixture(params=["the same store", "another store"])
async def stores(request, tmp_path):
    async with midturn.open(f"sqlite:///{tmp_path}/outer.db") as outer:
        if request.param == "the same store":
            yield outer, outer
        else:
            async with midturn.open(f"file://{tmp_path}/inner") as inner:
                yield outer, inner


async def names(store, session):
    """Return what is recorded of the calls of a session: their kinds and names."""
    rows = [decode_record(CallRow, row.data, "a call") for row in await store.store.rows(session, Kind.CALL)]
    return [(row.what, row.name) for row in rows if row.stage == "done"]


async def test_the_calls_of_an_inner_session_are_in_its_own_journal_and_the_outer_turn_has_one_call(stores):
    outer, inner = stores
    desk = Desk([A1], [B2])
    result = await outer.session("outer", asking(lambda: inner.session("inner", desk))).run(task="go")
    assert results(result) == ["refund of A1 is done refund of B2 is done"]
    model, tool = ("model", ""), ("tool", "refund")
    assert await names(inner, "inner") == [model, tool, model, tool, model]
    assert await names(outer, "outer") == [model, ("tool", "ask"), model]
    assert len(set(desk.keys)) == 2, "each call of the inner turn has a key of its own"


async def test_an_inner_turn_that_was_interrupted_continues_from_its_record(stores):
    outer, inner = stores
    desk = Desk([A1], [B2], effects={"refund": midturn.tool(effect="idempotent")})
    what = asking(lambda: inner.session("inner", desk))
    fail = desk._answer

    def dies(messages):
        if len(desk.done) == 2 and desk.fail is None:
            desk.fail = "nothing"
            raise Killed
        return fail(messages)

    desk._answer = dies
    with pytest.raises(Killed):
        await outer.session("outer", what).run(task="go", key="1")
    assert desk.done == [("refund", "A1"), ("refund", "B2")]
    result = await outer.session("outer", what).run(task="go", key="1")
    assert results(result) == ["refund of A1 is done refund of B2 is done"]
    assert desk.done == [("refund", "A1"), ("refund", "B2")]
    assert set(desk.asked.values()) == {1}, "no answer of a model is paid for twice"


async def test_an_inner_turn_that_was_done_is_not_run_again(stores):
    outer, inner = stores
    desk = Desk([A1])
    die = [True]

    @midturn.tool(effect="idempotent")
    async def ask() -> str:
        found = results(await inner.session("inner", desk).run(task="please", key=midturn.call_key()))
        if die:
            die.clear()
            raise Killed
        return found[0]

    answer = lambda messages: calls(("ask", "{}")) if len(messages) < 3 else "done"  # noqa: E731 - short
    build = lambda: AssistantAgent("clerk", Scripted(answer), tools=[ask], max_tool_iterations=3)  # noqa: E731 - short
    with pytest.raises(Killed):
        await outer.session("outer", build).run(task="go")
    assert results(await outer.session("outer", build).resume()) == ["refund of A1 is done"]
    assert desk.done == [("refund", "A1")]


async def test_an_inner_turn_may_wait_for_people(stores):
    outer, inner = stores
    desk = Desk([A1], effects={"refund": midturn.tool(approval=True)})
    result = await outer.session("outer", asking(lambda: inner.session("inner", desk))).run(task="go")
    assert (results(result), desk.done) == (["waiting"], [])
    assert (await inner.session("inner", desk).answer("approve")).messages
    assert desk.done == [("refund", "A1")]


async def test_an_inner_call_in_doubt_is_a_question_of_the_inner_session(stores):
    outer, inner = stores
    desk = Desk([A1])
    desk.fail = "refund"
    what = asking(lambda: inner.session("inner", desk))
    with pytest.raises(Killed):
        await outer.session("outer", what).run(task="go")
    assert results(await outer.session("outer", what).resume()) == ["waiting"]
    assert (await inner.session("inner", desk).resume()).waiting.tool == "refund"
    assert desk.done == [("refund", "A1")]


async def test_a_session_inside_a_tool_of_a_session_inside_a_tool(memory):
    desk = Desk([A1])
    middle = asking(lambda: memory.session("inner", desk))
    outer = asking(lambda: memory.session("middle", middle))
    assert results(await memory.session("outer", outer).run(task="go")) == ["refund of A1 is done"]
    assert await names(memory, "inner") == [("model", ""), ("tool", "refund"), ("model", "")]
    assert await names(memory, "middle") == [("model", ""), ("tool", "ask"), ("model", "")]
    assert await names(memory, "outer") == [("model", ""), ("tool", "ask"), ("model", "")]


async def test_an_inner_session_without_a_journal_rejects_an_unsafe_tool(memory):
    what = asking(lambda: memory.session("inner", Desk([A1]), durability="turn"))
    result = await memory.session("outer", what).run(task="go")
    assert "is unsafe" in results(result)[0]


async def test_a_tool_of_an_outer_session_without_a_journal_may_run_a_session_with_one(memory):
    desk = Desk([A1])
    what = asking(lambda: memory.session("inner", desk), effect="read")
    await memory.session("outer", what, durability="turn").run(task="go")
    assert await names(memory, "inner") == [("model", ""), ("tool", "refund"), ("model", "")]
    assert len(await memory.store.rows("outer", Kind.CALL)) == 0


WORKER = """
import asyncio, os, sys
sys.path[:0] = {paths!r}
from autogen_core.tools import FunctionTool
from desk import A1, B2, Desk
from test_inner_sessions import asking
import midturn

async def main():
    async with midturn.open(sys.argv[1]) as store:
        desk = Desk([A1], [B2], effects={{"refund": midturn.tool(effect="idempotent")}})
        real = desk._tool

        def tool(name):
            work = real(name)
            async def noted(order: str) -> str:
                with open(sys.argv[2], "a") as done:
                    print(order, file=done)
                if order == "B2" and sys.argv[3] == "die":
                    os.kill(os.getpid(), 9)
                return await work(order)
            return midturn.tool(effect="idempotent")(noted)

        desk._tool = tool
        what = asking(lambda: store.session("inner", desk))
        result = await store.session("outer", what, timeout=60).run(task="go", key="1")
        print(result.messages[-1].content)

asyncio.run(main())
"""


def test_a_process_that_is_killed_in_an_inner_turn_is_continued_by_another(tmp_path):
    script, done = tmp_path / "worker.py", tmp_path / "done"
    script.write_text(WORKER.format(paths=[*sys.path[:4], str(Path(__file__).parent)]))
    run = [sys.executable, str(script), f"sqlite:///{tmp_path}/case.db", str(done)]
    assert subprocess.run([*run, "die"], check=False, env=os.environ).returncode == -signal.SIGKILL
    again = subprocess.run([*run, "live"], check=False, env=os.environ, capture_output=True, text=True)
    assert again.stdout.strip() == "done", again.stderr
    assert done.read_text().split() == ["A1", "B2", "B2"], "only the call that was under way is made again"
