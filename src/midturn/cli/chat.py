"""``midturn chat``: one turn, or a conversation."""

from __future__ import annotations

import re
import signal
import sys
from typing import TYPE_CHECKING

import click

from midturn.cli.app_argument import load_app
from midturn.cli.conversation import Conversation
from midturn.cli.errors import AppInvalid, Stopped, report
from midturn.cli.key_argument import opened
from midturn.cli.options import busy_option, by_option, common, label_option, timeout_option, traceback_option
from midturn.cli.output import note
from midturn.cli.questions import prompt
from midturn.cli.session_argument import look_up
from midturn.cli.signals import ask, run, someone_else_reads
from midturn.errors import Conflict, HistoryLost, InvalidArgument, MidturnError
from midturn.record.head import NO_LABELS

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Any

    from midturn.questions import Question
    from midturn.turns.session_options import Busy

HELP = """\
/history     show what was said so far
/exit /quit  leave, as Ctrl-D does; the session can continue later
/help        show this"""
COMMAND = re.compile(r"/[A-Za-z][\w-]*")
"""A word that looks like a command. A path has another slash."""


@click.command()
@click.argument("app")
@click.argument("session")
@click.argument("task", required=False)
@label_option("Label the session; repeatable.")
@click.option("--key", help="A name for the turn. The same key and TASK return the recorded answer.")
@by_option
@timeout_option
@busy_option
@traceback_option
@common
def chat(
    *,
    app: str,
    session: str,
    task: str | None,
    labels: dict[str, str],
    key: str | None,
    by: str | None,
    timeout: float,
    busy: Busy,
    url: str,
    as_json: bool,
    trace: bool,
) -> None:
    """Talk to APP in a session that remembers.

    APP is module:attribute. It names a Blueprint, a function that builds an agent or a team, or an agent or a team. The
    current directory is searched first.

    With TASK, run one turn. Without it, hold a conversation until /exit or the end of the input; /help lists the other
    commands. From a pipe, each line is a task. Ctrl-C stops the turn and leaves the session as it was before the turn.
    If stdout is not a terminal, it gets nothing but the answers. Tool calls and what other agents say go to stderr.

    A turn that needs an answer from a human asks at the terminal. The turn is stored while it waits. Leave with /exit,
    Ctrl-D or Ctrl-C, and answer later with `midturn chat` or `midturn answer`. Where there is no terminal to ask at,
    TASK answers the question of an agent that stands for a human. It never approves a tool.
    """
    if task is None and key is not None:
        raise click.UsageError("--key names one turn and needs a TASK")
    if task is not None and not task.strip():
        raise click.UsageError("TASK is empty")
    if task is None and as_json and sys.stdin.isatty():
        raise click.UsageError("--json needs a TASK, or a pipe with one task per line")
    what = load_app(app)

    async def talk() -> None:
        async with opened(url) as store:
            info = await look_up(store, session)
            merged = {**(info.labels if info is not None else NO_LABELS), **labels} if labels else None
            case = store.session(session, what, labels=merged, busy=busy, timeout=timeout)
            asks = sys.stdin.isatty() and not as_json
            alone = not (sys.stdout.isatty() or as_json)
            conversation = Conversation(store, case, app=app, url=url, as_json=as_json, by=by, asks=asks, alone=alone)
            patience = timeout if busy == "wait" else 0.0
            if task is not None:
                await conversation.catch_up(patience)
                if await _answer(conversation):
                    await conversation.turn(task, key)
                    await _answer(conversation)
            elif sys.stdin.isatty():
                turns = info.turns if info is not None else 0
                plural = "" if turns == 1 else "s"
                note(f"session {session}, {turns} turn{plural} so far; /exit or Ctrl-D ends, /help lists the commands")
                await _converse(conversation, patience, trace=trace)
            else:
                await conversation.catch_up(patience)
                while (line := ask()) is not None:
                    if line.strip():
                        await conversation.turn(line.strip())

    run(talk())


async def _converse(conversation: Conversation, patience: float, *, trace: bool) -> None:
    """Converse with a person at a terminal. After a turn that is stopped or fails, prompt again."""

    async def attempt(work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Stopped as stop:
            if stop.number != signal.SIGINT or conversation.live.asks or someone_else_reads():
                raise  # the agent still reads the terminal: the next line would go to it
            report(stop, as_json=False)
        except HistoryLost:
            raise  # this conversation has seen the lost history, and can only be refused from now on
        except (MidturnError, AppInvalid) as error:
            report(error, as_json=False, trace=trace)

    await attempt(conversation.catch_up(patience))
    while True:
        questions = await conversation.asked()
        line = await _typed(conversation, questions)
        if line is None:
            return
        if questions:
            await attempt(conversation.answer(line, question=questions[0].id))
        else:
            await attempt(conversation.turn(line))


async def _answer(conversation: Conversation) -> bool:
    """Ask for answers at the terminal until nothing is asked. Return false if the person leaves before."""
    while questions := await conversation.asked():
        line = await _typed(conversation, questions)
        if line is None:
            return False
        try:
            await conversation.answer(line, question=questions[0].id)
        except (InvalidArgument, Conflict) as error:
            if not await conversation.asked():
                raise
            report(error, as_json=False)
    return True


async def _typed(conversation: Conversation, questions: Sequence[Question]) -> str | None:
    """Return a line that somebody typed, or ``None`` if they leave. Then print how to continue later.

    Raises:
        Stopped: a signal came. Its notes have how to continue later.
    """
    ways = conversation.ways(questions) if questions else []
    line: str | None = ""
    while line is not None and not line:
        try:
            line = ask(prompt(questions) if questions else "> ")
            line = line if line is None else await _without_command(conversation, line.strip())
        except Stopped as stop:
            left = Stopped(stop.number, conversation.next_line)
            for way in ways:
                left.add_note(way)
            raise left from None
    if line is None:
        for text in (conversation.next_line, *ways):
            note(text)
    return line


async def _without_command(conversation: Conversation, line: str) -> str | None:
    """Return a line for the agent; an empty string if it was a command, and ``None`` if that leaves."""
    match line.split(maxsplit=1):
        case ["/exit" | "/quit"]:
            return None
        case ["/help"]:
            note(HELP)
            return ""
        case ["/history"]:
            await conversation.history()
            return ""
        case [word, *_] if COMMAND.fullmatch(word):
            answer = ask(f"{word} is not a command; /help lists them. Send the line to the agent? [y/N] ")
            return line if (answer or "").strip().lower() in ("y", "yes") else ""
        case _:
            return line
