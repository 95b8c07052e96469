"""Ctrl-C and SIGTERM: cancel and record the turn, leave the prompt, and always end the process."""

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
"""Seconds that the process has to end after a signal."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run work to its end. After a signal it ends soon, even if a thread of the agent does not."""
    give_back = _terminal()

    async def watched() -> T:
        try:
            return await work
        except Stopped as stop:
            # AutoGen's UserProxyAgent asks in a thread. Python would wait for it, and it has changed the terminal.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
            hurry = threading.Timer(GRACE, os._exit, [stop.exit_code])
            hurry.daemon = True
            hurry.start()
            give_back()
            raise

    return asyncio.run(watched())


async def stoppable(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``. A signal cancels it. A second signal ends the process at once, like a crash.

    Raises:
        Stopped: a signal came. ``work`` was cancelled unless it had already ended.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    caught = 0

    def stop(number: int, _frame: object) -> None:
        nonlocal caught
        caught = number
        signal.signal(number, signal.SIG_DFL)
        loop.call_soon_threadsafe(task.cancel)

    # Not the loop's own signal handlers: they would wait while a tool blocks the loop.
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
    """Return whether a thread of the agent waits for a line from the terminal. Nothing can stop such a thread."""
    return any(isinstance(found, partial) and input in found.args for found in functions_in_threads())


def ask(prompt: str = "") -> str | None:
    """Return a line from the terminal or a pipe, or ``None`` at the end.

    It blocks the event loop, where nothing else of ours runs meanwhile. Line editing needs the main thread, so that it
    can restore the terminal when a signal comes.

    Raises:
        Stopped: a signal came.
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
        if not sys.stdout.isatty():  # else input() would print the prompt among the answers
            click.echo(prompt, nl=False, err=True)
            prompt = ""
        try:
            return input(prompt)
        except (EOFError, Stopped) as end:
            click.echo(err=True)  # the next output starts on a new line
            if isinstance(end, Stopped):
                raise
            return None


@contextmanager
def handling(handler: Callable[[int, object], None]) -> Generator[None]:
    """Handle Ctrl-C and SIGTERM with ``handler``, unless the process ignores them."""
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
    """Return a function that restores the terminal to its present settings."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        return lambda: None
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def give_back() -> None:
        if os.tcgetpgrp(terminal) == os.getpgrp():  # else another program has it, and a change would stop us
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)

    return give_back
