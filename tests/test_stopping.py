"""Work that is stopped has ended, and nothing of it goes unheard."""

import asyncio
import gc
import threading
from contextlib import aclosing, nullcontext
from types import SimpleNamespace

import pytest

from midturn.autogen.calls import run_stream
from midturn.framework import Input
from midturn.stopping import settled, stop_of, unless


class Work:
    """Something that takes time, knows how it went, and may be slow or unwilling to stop."""

    def __init__(self, *, result=None, error=None, slow_to_stop=0.0, on_stop=None):
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.ended = False
        self.cancels = 0
        self._result, self._error, self._slow, self._on_stop = result, error, slow_to_stop, on_stop

    async def __call__(self):
        self.started.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancels += 1
            await asyncio.sleep(self._slow)
            if self._on_stop is not None:
                raise self._on_stop from None
            raise
        finally:
            self.ended = True
        if self._error is not None:
            raise self._error
        return self._result


@pytest.fixture(autouse=True)
async def unheard():
    """Nothing may be left for asyncio to complain about, and no task left running."""
    loop, complaints = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
    yield
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert complaints == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


def new_stop():
    return asyncio.get_running_loop().create_future()


async def test_unless_returns_the_result_of_the_work():
    assert await unless(asyncio.sleep(0, "done"), new_stop()) == "done"


async def test_unless_needs_no_stop():
    assert await unless(asyncio.sleep(0, "done")) == "done"


async def test_unless_raises_the_error_of_the_work():
    work = Work(error=ValueError("work"))
    work.go.set()
    with pytest.raises(ValueError, match="work"):
        await unless(work(), new_stop(), new_stop())


async def test_unless_raises_the_cancellation_of_the_work():
    work = asyncio.ensure_future(Work()())
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unless(work, new_stop())


@pytest.mark.parametrize("which", [0, 1])
async def test_a_stop_with_an_error_cancels_the_work_and_is_raised(which):
    work, stops = Work(slow_to_stop=0.01), [new_stop(), new_stop()]
    running = asyncio.create_task(unless(work(), *stops))
    await work.started.wait()
    stops[which].set_exception(KeyError("stop"))
    with pytest.raises(KeyError, match="stop"):
        await running
    assert work.ended
    assert work.cancels == 1


async def test_a_cancelled_stop_cancels_the_work():
    work, stop = Work(slow_to_stop=0.01), new_stop()
    running = asyncio.create_task(unless(work(), stop))
    await work.started.wait()
    stop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert work.ended


async def test_a_stop_that_came_before_leaves_no_work_running():
    work, stop = Work(), new_stop()
    stop.set_exception(KeyError("stop"))
    with pytest.raises(KeyError):
        await unless(work(), stop)
    assert work.ended or not work.started.is_set()


async def test_a_stop_wins_over_a_result_of_the_same_moment():
    work, stop = Work(result="done"), new_stop()
    running = asyncio.create_task(unless(work(), stop))
    await work.started.wait()
    work.go.set()
    stop.set_exception(KeyError("stop"))
    with pytest.raises(KeyError):
        await running
    assert work.ended


async def test_a_stop_wins_over_an_error_of_the_same_moment():
    failed, stop = asyncio.get_running_loop().create_future(), new_stop()
    running = asyncio.create_task(unless(failed, stop))
    await asyncio.sleep(0)
    failed.set_exception(ValueError("work"))
    stop.set_exception(KeyError("stop"))
    with pytest.raises(KeyError):
        await running
    del failed, running


async def test_the_error_of_work_that_fails_while_it_is_stopped_is_not_reported_as_unheard():
    work, stop = Work(on_stop=ValueError("while stopping")), new_stop()
    running = asyncio.create_task(unless(work(), stop))
    await work.started.wait()
    stop.set_exception(KeyError("stop"))
    with pytest.raises(KeyError):
        await running
    assert work.ended


async def test_cancelling_unless_cancels_the_work_and_waits_for_its_end():
    work = Work(slow_to_stop=0.01)
    running = asyncio.create_task(unless(work(), new_stop()))
    await work.started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert work.ended
    assert work.cancels == 1


async def test_cancelling_unless_twice_still_waits_for_the_end_of_the_work():
    work = Work(slow_to_stop=0.05)
    running = asyncio.create_task(unless(work(), new_stop()))
    await work.started.wait()
    running.cancel()
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert work.ended


async def test_cancelling_while_a_stop_ends_the_work_waits_for_its_end():
    work, stop = Work(slow_to_stop=0.05), new_stop()
    running = asyncio.create_task(unless(work(), stop))
    await work.started.wait()
    stop.set_exception(KeyError("stop"))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert work.ended


async def test_work_that_fails_while_unless_is_cancelled_is_a_cancellation():
    work = Work(on_stop=ValueError("while stopping"))
    running = asyncio.create_task(unless(work(), new_stop()))
    await work.started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


class Said:
    """A message, as far as a run looks at it. It equals the words in it, and is as true."""

    def __init__(self, what):
        self.what, self.source, self.id = what, "ann", f"{what}"

    def __eq__(self, other):
        return self.what == other

    __hash__ = None

    def __bool__(self):
        return bool(self.what)


async def stream(work, *, first=("a", "b")):
    """Some items, and what the work gives."""
    for item in first:
        yield Said(item)
    yield Said(await work())


def run(items, *stops):
    """The run of an agent that yields these items."""
    agent = SimpleNamespace(run_stream=lambda **_: items)
    calls = SimpleNamespace(replaying=False, quiet=lambda: asyncio.sleep(0))
    intercepted = SimpleNamespace(
        redaction=None,
        live=agent,
        calls=calls,
        installed=nullcontext,
        handling=set(),
        ended=False,
        mark=None,
        resting=None,
        resting_rivals=list,
        forget_stand_ins=lambda: None,
    )
    return run_stream.stream(intercepted, Input(streamed=True), None, stops)


async def read(items, seen):
    async with aclosing(items):
        async for item in items:
            seen.append(item)


async def test_a_run_gives_the_items_in_their_order_and_ends():
    work, seen = Work(result="c"), []
    work.go.set()
    await read(run(stream(work), new_stop()), seen)
    assert seen == ["a", "b", "c"]


async def test_a_run_needs_no_stop_and_no_items():
    work, seen = Work(result="c"), []
    work.go.set()
    await read(run(stream(work, first=())), seen)
    assert seen == ["c"]


async def test_a_run_gives_the_items_before_its_error():
    work, seen = Work(error=ValueError("work")), []
    work.go.set()
    with pytest.raises(ValueError, match="work"):
        await read(run(stream(work), new_stop()), seen)
    assert seen == ["a", "b"]


async def test_a_run_gives_what_is_false_and_what_is_nothing():
    async def nothing():
        for item in (None, 0, ""):
            yield Said(item)

    seen = []
    await read(run(nothing(), new_stop()), seen)
    assert seen == [None, 0, ""]


@pytest.mark.parametrize("which", [0, 1])
async def test_a_stop_ends_a_run_and_is_raised(which):
    work, stops, seen = Work(slow_to_stop=0.01), [new_stop(), new_stop()], []
    running = asyncio.create_task(read(run(stream(work), *stops), seen))
    await work.started.wait()
    stops[which].set_exception(KeyError("stop"))
    with pytest.raises(KeyError, match="stop"):
        await running
    assert work.ended
    assert work.cancels == 1


async def test_a_cancelled_stop_ends_a_run():
    work, stop = Work(slow_to_stop=0.01), new_stop()
    running = asyncio.create_task(read(run(stream(work), stop), []))
    await work.started.wait()
    stop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert work.ended


async def test_a_stop_ends_a_run_that_waits_for_its_reader():
    work, stop = Work(), new_stop()
    async with aclosing(run(stream(work, first="abc"), stop)) as items:
        assert await anext(items) == "a"
        stop.set_exception(KeyError("stop"))
        with pytest.raises(KeyError):
            await read(items, [])
    assert work.ended or not work.started.is_set()


async def test_a_stop_that_came_before_ends_a_run_at_once():
    work, stop, seen = Work(), new_stop(), []
    stop.set_exception(KeyError("stop"))
    with pytest.raises(KeyError):
        await read(run(stream(work, first=()), stop), seen)
    assert seen == []
    assert work.ended or not work.started.is_set()


@pytest.mark.parametrize("on_stop", [None, ValueError("while stopping")])
async def test_closing_a_run_ends_it_and_leaves_the_stops_alone(on_stop):
    ended, stop = asyncio.Event(), new_stop()

    async def talking():
        try:
            yield Said("a")
        finally:
            await asyncio.sleep(0.01)
            ended.set()
            if on_stop is not None:
                raise on_stop

    async with aclosing(run(talking(), stop)) as items:
        assert await anext(items) == "a"
    assert ended.is_set()
    assert not stop.done()
    stop.set_result(None)


@pytest.mark.parametrize("times", [1, 2])
async def test_cancelling_a_run_waits_for_its_end(times):
    work = Work(slow_to_stop=0.05)
    running = asyncio.create_task(read(run(stream(work), new_stop()), []))
    await work.started.wait()
    for _ in range(times):
        running.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert work.ended
    assert work.cancels == 1


async def test_settled_returns_the_result_of_the_work():
    assert await settled(asyncio.sleep(0, "done")) == "done"


async def test_settled_raises_the_error_of_the_work():
    work = Work(error=ValueError("work"))
    work.go.set()
    with pytest.raises(ValueError, match="work"):
        await settled(work())


async def test_settled_raises_the_cancellation_of_the_work():
    work = asyncio.ensure_future(Work()())
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settled(work)


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("error", [None, ValueError("work")])
async def test_settled_lets_the_work_end_however_often_it_is_cancelled(times, error):
    work = Work(error=error)
    running = asyncio.create_task(settled(work()))
    await work.started.wait()
    for _ in range(times):
        running.cancel()
        await asyncio.sleep(0.002)
    assert not running.done()
    work.go.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert work.ended
    assert work.cancels == 0


async def test_settled_under_a_timeout_ends_the_work_and_then_times_out():
    work = Work()
    asyncio.get_running_loop().call_later(0.05, work.go.set)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await settled(work())
    assert work.ended
    assert work.cancels == 0
    assert asyncio.current_task().cancelling() == 0


async def test_settled_work_that_is_done_already_is_not_waited_for():
    done = asyncio.get_running_loop().create_future()
    done.set_result("done")
    assert await settled(done) == "done"


class Token:
    """A cancellation token as frameworks have them."""

    def __init__(self):
        self._cancelled, self._callbacks = False, []

    def is_cancelled(self):
        return self._cancelled

    def add_callback(self, callback):
        self._callbacks.append(callback)

    def cancel(self):
        self._cancelled = True
        for callback in self._callbacks:
            callback()


async def test_a_stop_without_a_token_never_comes():
    stop = stop_of(None)
    await asyncio.sleep(0.01)
    assert not stop.done()


async def test_a_stop_is_cancelled_with_its_token():
    token, work = Token(), Work()
    running = asyncio.create_task(unless(work(), stop_of(token)))
    await work.started.wait()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert work.ended


async def test_a_stop_is_cancelled_with_its_token_from_another_thread():
    token, work = Token(), Work()
    running = asyncio.create_task(unless(work(), stop_of(token)))
    await work.started.wait()
    thread = threading.Thread(target=token.cancel)
    thread.start()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 60)
    thread.join()
    assert work.ended


async def test_a_token_that_is_cancelled_already_stops_at_once():
    token = Token()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        stop_of(token)
    await asyncio.sleep(0)
