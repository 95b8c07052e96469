"""A crash at one point: nothing is written after it, and another process continues."""

import pytest
from autogen_agentchat.agents import AssistantAgent

import midturn
from midturn.testing import Crashed, ScriptedModel, ToolCall, crash_at

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


async def test_what_cannot_crash_is_refused(url):
    with pytest.raises(midturn.InvalidArgument, match="use sqlite:///"):
        async with crash_at("memory://", before="task"):
            pass
    for wrong in ({}, {"before": "task", "after": "task"}):
        with pytest.raises(midturn.InvalidArgument, match="give the name of a write"):
            async with crash_at(url, **wrong):
                pass
