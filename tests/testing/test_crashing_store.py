"""A crash at one point: nothing is written after it, and another process continues."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent

import midturn
from midturn.record.head import Kind, Row
from midturn.record.rows import CallRow, encode_record
from midturn.stores.memory import MemoryStore
from midturn.stores.sealed.keys import new_key
from midturn.stores.wrapper import wrap
from midturn.testing import Crashed, ScriptedModel, ToolCall, a_row, a_write, crash_at
from midturn.testing.crashing_store import CrashingStore

pytestmark = pytest.mark.usefixtures("nothing_left")


def build():
    @midturn.tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    script = {"seen": "Done.", "": ToolCall("look")}
    return AssistantAgent("clerk", ScriptedModel(script), tools=[look], reflect_on_tool_use=True)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'cases.db'}"


@pytest.mark.parametrize(
    ("point", "calls", "status"),
    [
        ({"before": "task"}, None, None),
        ({"after": "task"}, 0, "interrupted"),
        ({"before": "look"}, 1, "interrupted"),
        ({"after": "look"}, 2, "interrupted"),
        ({"before": "model", "nth": 2}, 2, "interrupted"),
        ({"before": "commit"}, 3, "interrupted"),
        ({"after": "commit"}, 3, "idle"),
    ],
    ids=str,
)
async def test_the_store_has_what_was_written_before_the_crash_and_another_process_continues(url, point, calls, status):
    async with crash_at(url, **point) as store:
        await store.session("case", build).run(task="Go.", key="k")
        pytest.fail("it has not crashed")
    async with midturn.open(url) as store:
        if status is None:
            with pytest.raises(midturn.NotFound):
                await store.info("case")
        else:
            assert (await store.info("case")).status == status
            assert len((await store.session("case").turn(1)).calls) == calls
        case = store.session("case", build, busy="raise")
        assert (await case.run(task="Go.", key="k")).messages[-1].content == "Done."


async def test_after_the_crash_the_process_can_do_nothing_more(url):
    async with crash_at(url, after="task") as store:
        case = store.session("case", build)
        with pytest.raises(Crashed, match='crashed at after="task"'):
            await case.run(task="Go.")
        for call in (
            lambda: case.run(task="Go."),
            case.discard,
            case.delete,
            lambda: store.info("case"),
            store.counts,
            lambda: anext(store.sessions()),
            lambda: anext(case.history()),
        ):
            with pytest.raises(Crashed):
                await call()
    async with midturn.open(url) as store:
        assert (await store.info("case")).status == "interrupted"


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.head("case"),
        lambda store: store.heads(),
        lambda store: store.counts(),
        lambda store: store.rows("case", Kind.TURN),
        lambda store: store.write(a_write("other", rows=[a_row(1)])),
        lambda store: store.delete("case"),
        lambda store: store.forget("case"),
    ],
)
async def test_after_the_crash_the_store_answers_no_call(call):
    inner = MemoryStore()
    store = wrap(CrashingStore, inner, trigger=lambda *_: True)
    with pytest.raises(Crashed):
        await store.write(a_write("case", rows=[called("look")]))
    with pytest.raises(Crashed):
        await call(store)
    assert await inner.counts() == {}


def called(name, what="tool"):
    """The row of a call that has ended."""
    return Row(kind=Kind.CALL, n=1, data=encode_record(CallRow(path="p", what=what, key="k", spent=0, at=0, name=name)))


async def test_a_write_that_is_under_way_at_the_crash_is_not_acknowledged():
    going, go = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def write(self, write):
            if write.session == "slow":
                going.set()
                await go.wait()
            return await super().write(write)

    inner = Slow()
    store = wrap(CrashingStore, inner, trigger=lambda points, _: points[0].write == "look")
    slow = asyncio.create_task(store.write(a_write("slow", rows=[called("pay")])))
    await going.wait()
    with pytest.raises(Crashed):
        await store.write(a_write("case", rows=[called("look")]))
    go.set()
    with pytest.raises(Crashed, match='before="look"'):
        await slow
    assert await inner.head("slow") is not None


async def test_a_look_at_the_tools_is_no_write_of_its_own():
    store = wrap(CrashingStore, MemoryStore(), trigger=lambda *_: True)
    await store.write(a_write("case", rows=[called("", "tools")]))
    assert store.written == []


async def test_calls_that_end_together_are_reached_by_each_of_their_names(url):
    both = asyncio.Barrier(2)

    def together(name):
        async def tool() -> str:
            await both.wait()
            return f"{name} seen"

        return midturn.tool(effect="read")(midturn_named(tool, name))

    def build():
        script = {"seen": "Done.", "": [ToolCall("look"), ToolCall("listen")]}
        tools = [together("look"), together("listen")]
        return AssistantAgent("clerk", ScriptedModel(script), tools=tools, reflect_on_tool_use=True)

    for name in ("look", "listen"):
        async with crash_at(url, before=name) as store:
            await store.session(name, build).run(task="Go.")
        async with midturn.open(url) as store:
            assert (await store.info(name)).status == "interrupted"


def midturn_named(tool, name):
    tool.__name__, tool.__doc__ = name, "Notice."
    return tool


async def test_a_lease_is_as_long_as_the_url_says_and_the_store_is_closed(url):
    async with crash_at(f"{url}?lease=1000", after="task") as store:
        case = store.session("case", build)
        with pytest.raises(Crashed):
            await case.run(task="Go.")
        inner = store.store.inner
        head = await inner.head("case")
        assert 900 < head.expires - head.now <= 1000
    with pytest.raises(midturn.StoreUnavailable, match="closed"):
        await inner.counts()


async def test_the_end_of_the_process_frees_only_what_is_its_own():
    inner = MemoryStore()
    store = wrap(CrashingStore, inner, trigger=lambda *_: False, closes=False)
    await store.write(a_write("mine", owner="me", lease=60))
    taken = await store.write(a_write("taken", owner="me", lease=0))
    await inner.write(a_write("taken", taken.seq, owner="another", lease=60))
    await store.close()
    assert (await inner.head("mine")).owner is None
    assert (await inner.head("taken")).owner == "another"


async def test_the_record_of_a_failure_is_a_point(url):
    def failing():
        return AssistantAgent("clerk", ScriptedModel({"Go": "Never said."}))

    async with crash_at(url, before="failure") as store:
        await store.session("case", failing).run(task="Stop.")
    async with midturn.open(url) as store:
        assert (await store.info("case")).status == "interrupted"
    async with crash_at(url, after="failure") as store:
        await store.session("case", failing).resume()
    async with midturn.open(url) as store:
        assert (await store.info("case")).status == "failed"


async def test_a_crash_that_never_comes_is_told_with_what_was_written(url):
    with pytest.raises(
        AssertionError, match=r'never reached before="refund"; it has written task, model, look, commit'
    ):
        async with crash_at(url, before="refund") as store:
            await store.session("case", build).run(task="Go.")
    with pytest.raises(AssertionError, match=r'never reached after="task"; it has written nothing'):
        async with crash_at(url, after="task"):
            pass


async def test_an_error_of_the_test_is_not_hidden(url):
    with pytest.raises(ZeroDivisionError):
        async with crash_at(url, after="task"):
            raise ZeroDivisionError
    with pytest.raises(midturn.NotFound):
        async with crash_at(url, after="task") as store:
            await store.info("nobody")


async def test_what_cannot_crash_is_refused(url):
    with pytest.raises(midturn.InvalidArgument, match="use sqlite:///"):
        async with crash_at("memory://", before="task"):
            pass
    for wrong in ({}, {"before": "task", "after": "task"}):
        with pytest.raises(midturn.InvalidArgument, match="give the name of a write"):
            async with crash_at(url, **wrong):
                pass


@pytest.mark.parametrize("point", [{"before": "look"}, {"after": "look"}, {"after": "commit"}], ids=str)
async def test_a_sealed_store_crashes_at_the_same_points(url, point, monkeypatch):
    monkeypatch.setenv("MIDTURN_KEYS", new_key("2026-11"))
    async with crash_at(url, **point) as store:
        await store.session("case", build).run(task="Go.", key="k")
    async with midturn.open(url) as store:
        result = await store.session("case", build, busy="raise").run(task="Go.", key="k")
        assert result.messages[-1].content == "Done."
        assert (await store.key_counts()).sessions == {"2026-11": 1}
