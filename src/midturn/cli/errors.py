"""Errors on the command line: a line for people or an object for scripts, and the exit code.

The library's errors end with a hint that names Python methods. The command line leaves this hint out. :func:`_commands`
chooses commands to type in its place.
"""

from __future__ import annotations

import signal
import traceback
from typing import Any

import click

from midturn.cli.options import GIVEN, Given, command_line
from midturn.cli.output import clean, complain, print_json
from midturn.errors import (
    Conflict,
    HistoryLost,
    InDoubt,
    InvalidArgument,
    MidturnError,
    MigrationFailed,
    Misfit,
    NotFound,
    ReplayDiverged,
    SessionBusy,
    SessionDeleted,
    TurnFailed,
    TurnTimeout,
)
from midturn.history.json_view import error_json, sentence
from midturn.stores.secrets import hidden


class AppInvalid(click.UsageError):
    """APP does not name something that can run. If the app raised, its exception is the ``__cause__``."""


class Stopped(Exception):
    """A signal stopped the command."""

    def __init__(self, number: int, message: str = "interrupted", *, session: str | None = None) -> None:
        super().__init__(message)
        self.number = signal.Signals(number)
        self.session = session

    @property
    def exit_code(self) -> int:
        """Return the exit code that a shell gives to a process which the signal ended."""
        return 128 + self.number


def report(error: BaseException, *, as_json: bool, trace: bool = False) -> int:
    """Print an error on stderr and return the exit code. An error of no known kind is raised again."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        error = Stopped(signal.SIGINT)
    code, message = _meaning(error)
    if as_json:
        print_json({"error": {name: _safe(value) for name, value in facts(error, trace=trace).items()}}, err=True)
        return code
    if cause := _trace(error, trace=trace):
        click.echo(clean(hidden(cause)), err=True)
    first, _, more = message.partition("\n")
    others = error.differences[1:] if isinstance(error, Misfit) else ()
    lines = [*more.splitlines(), *map(": ".join, others), *_hints(error)]
    complain(hidden(first), *map(hidden, lines), title="" if isinstance(error, Stopped) else "error: ")
    return code


def _safe(value: Any) -> Any:
    """Return a value without the passwords of URLs: somebody may have given a URL as another argument."""
    return hidden(value) if isinstance(value, str) else value


def facts(error: BaseException, *, trace: bool = False) -> dict[str, Any]:
    """Return an error for scripts."""
    if isinstance(error, MidturnError):
        found = error_json(error)
    else:
        found = {"type": type(error).__name__, "message": _meaning(error)[1]}
        found |= {"session": error.session} if isinstance(error, Stopped) and error.session else {}
    found |= {"hint": "; ".join(hints)} if (hints := _hints(error)) else {}
    found |= {"traceback": cause} if (cause := _trace(error, trace=trace)) else {}
    return found


def _trace(error: BaseException, *, trace: bool) -> str:
    """Return the traceback of the agent's own code."""
    cause = error.__cause__
    return "".join(traceback.format_exception(cause)).rstrip() if trace and cause is not None else ""


def _meaning(error: BaseException) -> tuple[int, str]:
    """Return the exit code, and what happened without the library's hint."""
    match error:
        case Stopped():
            return error.exit_code, str(error)
        case click.ClickException():
            return error.exit_code, error.format_message()
        case MidturnError():
            return _exit_code(error), sentence(error)
        case OSError():
            return 1, f"{error.filename}: {error.strerror}" if error.filename else str(error)
        case _:
            raise error


def _exit_code(error: MidturnError) -> int:
    match error:
        case SessionBusy() | InDoubt():
            return 4
        case NotFound() | SessionDeleted():
            return 3
        case InvalidArgument():
            return 2
        case _:
            return 1


def _hints(error: BaseException) -> list[str]:
    """Return the notes of an error and what to type next."""
    notes: list[str] = getattr(error, "__notes__", [])
    match error:
        case MidturnError(session=str(session)) if given := GIVEN.get():
            return [*notes, *_commands(error, session, given)]
        case click.UsageError(ctx=click.Context() as context):
            return [*notes, f"see {context.command_path} -h"]
        case _:
            return notes


def _commands(error: MidturnError, session: str, given: Given) -> list[str]:  # noqa: C901, PLR0911 - one for each kind
    """Return what to type next. The type of an error decides, and for some types whether the library has a hint."""
    resume = command_line("resume", given.app, session, url=given.url)
    look = f"see the questions: {command_line('answer', session, url=given.url)}"
    discard = f"give the turn up: {command_line('discard', session, url=given.url)}"
    match error:
        case SessionBusy(owner=SessionBusy.A_HUMAN) | InDoubt():
            return [look, discard]
        case SessionBusy():
            return ["try again later, or wait longer: --timeout SECONDS" if given.waits else "try again later"]
        case TurnFailed(__cause__=None):  # no agent raised: an open turn is in the way
            return [f"finish the turn: {resume}", discard]
        case TurnFailed():
            return [f"try it again: {resume}"]
        case TurnTimeout():
            return [f"continue it: {resume}", discard]
        case ReplayDiverged():
            anyway = command_line("resume", given.app, session, url=given.url, flags=["--continue"])
            return [f"continue all the same, knowing that this is done: {anyway}", discard]
        case InvalidArgument(path="question") if error.hint:
            line = command_line("answer", session, "ANSWER", url=given.url, flags=["--question", "ID"])
            return [f"name one: {line}"]
        case Conflict() if error.hint:
            return [f"continue the turn: {resume}"]
        case MigrationFailed() if error.hint:
            return [discard]
        case HistoryLost():
            show = command_line("show", session, url=given.url)
            return [f"restore the store, or see what it has now: {show}", "the next command accepts what it has"]
        case NotFound() if error.hint:
            return [f"list the sessions: {command_line('ls', url=given.url)}"]
        case _:
            return []
