"""Ctrl-C and SIGTERM: a turn is cancelled and recorded, a prompt is left, and the process always ends."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from midturn.cli.errors import Stopped
from midturn.python_private import functions_in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

T = TypeVar("T")

GRACE = 2.0
"""Seconds that the process gets to end after an interruption."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run``, which ends soon after an interruption even if a thread of the agent does not."""
    give_back = _terminal()

    async def watched() -> T:
        try:
            return await work
        except Stopped as stop:
            # AutoGen's UserProxyAgent asks in a thread that Python would wait for, and that has changed the terminal.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
            hurry = threading.Timer(GRACE, os._exit, [stop.exit_code])
            hurry.daemon = True
            hurry.start()
            give_back()
            raise

    return asyncio.run(watched())


async def stoppable(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; a signal cancels it, and a second one ends the process at once, like a crash.

    Raises:
        Stopped: there was a signal, and ``work`` was cancelled unless it was done by then.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    caught = 0

    def stop(number: int, _frame: object) -> None:
        nonlocal caught
        caught = number
        signal.signal(number, signal.SIG_DFL)
        loop.call_soon_threadsafe(task.cancel)

    # Not the loop's own signal handlers: those wait until a tool that blocks the loop comes back.
    with handling(stop):
        try:
            result = await task
        except asyncio.CancelledError:
            if not caught:
                raise
        else:
            if not caught:
                return result
    if sys.stderr.isatty():
        click.echo(err=True)  # the terminal has written ^C
    raise Stopped(caught)


def someone_else_reads() -> bool:
    """Return whether a thread of the agent's waits for a line from the terminal; nothing can make it give that up."""
    return any(isinstance(found, partial) and input in found.args for found in functions_in_threads())


def ask(prompt: str = "") -> str | None:
    """A line from the terminal, or from a pipe if stdin is one; ``None`` at the end.

    It blocks the event loop, where nothing of ours runs meanwhile: line editing needs the main thread to give the
    terminal back when a signal comes.

    Raises:
        Stopped: by a signal.
    """

    def stop(number: int, _frame: object) -> NoReturn:
        raise Stopped(number)

    with handling(stop):
        if not sys.stdin.isatty():
            try:
                return sys.stdin.readline() or None
            except UnicodeDecodeError as error:
                raise click.UsageError(f"stdin is not text: {error}") from None
        with suppress(ImportError):
            importlib.import_module("readline")  # input() edits lines with it
        if not sys.stdout.isatty():  # there, input() would put the prompt among the answers
            click.echo(prompt, nl=False, err=True)
            prompt = ""
        try:
            return input(prompt)
        except (EOFError, Stopped) as end:
            click.echo(err=True)  # what follows does not stand in the prompt's line
            if isinstance(end, Stopped):
                raise
            return None


@contextmanager
def handling(handler: Callable[[int, object], None]) -> Generator[None]:
    """Handle signals that way, but those that the process was told to ignore."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _terminal() -> Callable[[], None]:
    """A function that makes the terminal what it is now."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        return lambda: None
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def give_back() -> None:
        if os.tcgetpgrp(terminal) == os.getpgrp():  # otherwise another program has it, and to touch it would stop us
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)

    return give_back
