"""What went wrong: a line for people or an object for scripts, and the exit code."""

from __future__ import annotations

import signal
import traceback
from typing import Any

import click

from midturn.cli.output import clean, complain, print_json
from midturn.errors import (
    InDoubt,
    MidturnError,
    NotFound,
    ReplayDiverged,
    SessionBusy,
    SessionDeleted,
    StateInvalid,
    TurnFailed,
)

HUMAN = "a human"
"""The owner of a session whose turn waits for an answer."""
FACTS = ("session", "turn", "owner", "question", "tool", "arguments", "recorded", "now")
"""What errors know, by the names of their attributes."""


class AppInvalid(click.UsageError):
    """APP does not name something that can be run; the cause is the app's own exception, if it raised one."""


class Stopped(Exception):
    """A signal stopped the command."""

    def __init__(self, number: int, message: str = "interrupted", *, session: str | None = None) -> None:
        super().__init__(message)
        self.number = signal.Signals(number)
        self.session = session

    @property
    def exit_code(self) -> int:
        """As a shell would say it."""
        return 128 + self.number


def report(error: BaseException, *, as_json: bool, trace: bool = False) -> int:
    """Say on stderr what went wrong; the exit code. What nobody foresaw is raised again."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        error = Stopped(signal.SIGINT)
    code, message = _meaning(error)
    if as_json:
        print_json({"error": facts(error, trace=trace)}, err=True)
        return code
    if cause := _trace(error, trace=trace):
        click.echo(clean(cause), err=True)
    complain(message, *_hints(error), title="" if isinstance(error, Stopped) else "error: ")
    return code


def facts(error: BaseException, *, trace: bool = False) -> dict[str, Any]:
    """An error for scripts."""
    found: dict[str, Any] = {"type": type(error).__name__, "message": _meaning(error)[1]}
    found |= {name: value for name in FACTS if (value := getattr(error, name, None))}
    if isinstance(error, StateInvalid):
        found["differences"] = [{"path": path, "message": message} for path, message in error.differences]
    hints = getattr(error, "__notes__", []) if isinstance(error, StateInvalid) else _hints(error)
    found |= {"hint": "; ".join(hints)} if hints else {}
    found |= {"traceback": cause} if (cause := _trace(error, trace=trace)) else {}
    return found


def _trace(error: BaseException, *, trace: bool) -> str:
    """Where the agent's own code raised."""
    cause = error.__cause__
    return "".join(traceback.format_exception(cause)).rstrip() if trace and cause is not None else ""


def _meaning(error: BaseException) -> tuple[int, str]:  # noqa: PLR0911 - one for each kind
    """The exit code and one line."""
    match error:
        case Stopped():
            return error.exit_code, str(error)
        case click.ClickException():
            return error.exit_code, error.format_message()
        case SessionBusy() if error.owner != HUMAN:
            return 4, f"session {error.session!r} is held by another worker: {error.owner}"
        case SessionBusy() | InDoubt():
            return 4, str(error).partition("\n")[0]
        case NotFound() | SessionDeleted():
            return 3, str(error)
        case TurnFailed() | ReplayDiverged():
            return 1, str(error).partition("\n")[0]
        case StateInvalid():
            return 1, ": ".join(error.differences[0])
        case MidturnError():
            return 1, str(error).partition("\n")[0]
        case OSError():
            return 1, f"{error.filename}: {error.strerror}" if error.filename else str(error)
        case _:
            raise error


def _hints(error: BaseException) -> list[str]:
    """What to do about it."""
    notes: list[str] = getattr(error, "__notes__", [])
    match error:
        case StateInvalid():
            return [*(f"{path}: {message}" for path, message in error.differences[1:]), *notes]
        case SessionBusy() if error.owner != HUMAN:
            return [*notes, "try again later, or wait longer: --timeout SECONDS"]
        case click.UsageError(ctx=click.Context() as context):
            return [*notes, f"see {context.command_path} -h"]
        case MidturnError() if not isinstance(error, TurnFailed | ReplayDiverged):
            return [*str(error).splitlines()[1:], *notes]
        case _:
            return notes
