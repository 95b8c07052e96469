"""Every private name of Python itself that midturn reads is there, and only one file reads it."""

import asyncio
import sys
import threading
from functools import partial
from pathlib import Path

import midturn
from midturn import python_private

PACKAGE = Path(midturn.__file__).parent


def files_with(text):
    return [path for path in PACKAGE.rglob("*.py") if text in path.read_text()]


async def test_an_event_loop_has_what_it_is_about_to_run():
    loop = asyncio.get_running_loop()
    assert python_private.ready(loop) is loop._ready
    assert files_with('_ready"') == [Path(python_private.__file__)]


def test_an_event_loop_without_the_name_seems_busy():
    assert python_private.ready(object())


async def test_what_a_thread_of_a_pool_waits_in_is_found():
    lock = threading.Lock()
    lock.acquire()
    function = partial(lock.acquire)
    waiting = asyncio.get_running_loop().run_in_executor(None, function)
    while function not in python_private.functions_in_threads():  # noqa: ASYNC110 - a thread tells nobody
        await asyncio.sleep(0.001)
    lock.release()
    await waiting
    assert function not in python_private.functions_in_threads()
    assert files_with("_current_frames") == [Path(python_private.__file__)]


def test_a_python_that_does_not_tell_of_threads_has_none(monkeypatch):
    monkeypatch.delattr(sys, "_current_frames")
    assert python_private.functions_in_threads() == []
