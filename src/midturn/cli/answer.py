"""``midturn answer`` and ``midturn discard``: answer what an open turn asks, or give the turn up."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from midturn.cli.app_argument import load_app
from midturn.cli.calls import print_calls
from midturn.cli.conversation import Conversation
from midturn.cli.options import busy_option, by_option, command_line, common, timeout_option, traceback_option
from midturn.cli.output import clean, note, print_json, say
from midturn.cli.questions import open_questions, print_questions, print_ways, waits
from midturn.cli.session_argument import existing, find_session, reader
from midturn.cli.signals import run, stoppable
from midturn.errors import Conflict, InvalidArgument, StateInvalid
from midturn.history.json_view import calls_json, questions_json
from midturn.record.codec import decode_foreign, is_object

if TYPE_CHECKING:
    from midturn import SessionInfo
    from midturn.history.turns import StoredTurn
    from midturn.questions import Question
    from midturn.turns.session_options import Busy

_WHY = {
    "waiting": "waits for an answer",
    "running": "runs",
    "interrupted": "was interrupted",
    "failed": "failed",
    "cancelled": "was cancelled",
}
"""Words for the open turn of a session, by status."""


def _arguments(_context: click.Context, _parameter: click.Parameter, value: str | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        found = decode_foreign(value.encode("utf-8", "surrogatepass"), "--arguments")
    except StateInvalid as error:
        raise click.BadParameter(error.differences[0][1]) from None
    if not is_object(found):
        raise click.BadParameter("not a JSON object")
    return found


@click.command()
@click.argument("session")
@click.argument("answer", required=False)
@click.option("--question", metavar="ID", help="The question to answer; required if there are several.")
@click.option(
    "--arguments", metavar="JSON", callback=_arguments, help="With approve: arguments to change, as an object."
)
@by_option
@click.option("--app", metavar="APP", help="Continue the turn at once with APP, as in `midturn chat`.")
@timeout_option
@busy_option
@traceback_option
@common
def answer(
    *,
    session: str,
    answer: str | None,
    question: str | None,
    arguments: dict[str, Any] | None,
    by: str | None,
    app: str | None,
    timeout: float,
    busy: Busy,
    url: str,
    as_json: bool,
    trace: bool,  # noqa: ARG001 - main() reads it
) -> None:
    """Answer a question of a session's open turn.

    Without ANSWER: show what the turn has done, its questions, who asks them, and the possible answers.

    ANSWER depends on the question. For an agent that stands for a human: any text. For a tool that needs approval:
    approve or deny: REASON. For a call that a crash interrupted: retry, done: RESULT or fail.

    With --app, the turn continues and is printed. Without it, the answer is recorded, and `midturn resume` continues.
    """
    if answer is None and (question is not None or arguments is not None or app is not None):
        raise click.UsageError("--question, --arguments and --app need an ANSWER")
    what = None if app is None else load_app(app)

    async def reply(text: str) -> None:
        async with existing(url) as store:
            info = await find_session(store, session)
            case = store.session(session, what, busy=busy, timeout=timeout)
            try:
                if app is None:
                    await stoppable(case.answer(text, question=question, arguments=arguments, by=by))
                    left = await open_questions(reader(store, session))
                    _recorded(await find_session(store, session), left, url=url, as_json=as_json)
                else:
                    conversation = Conversation(store, case, app=app, url=url, as_json=as_json, by=by)
                    conversation.announce(info, timeout if busy == "wait" else 0.0)
                    await conversation.answer(text, question=question, arguments=arguments)
            except (InvalidArgument, Conflict) as error:
                if (isinstance(error, Conflict) or error.path in ("question", "answer", "arguments")) and not as_json:
                    error.add_note(f"see the questions: {command_line('answer', session, url=url)}")
                raise

    if answer is None:
        _look(session, url=url, as_json=as_json)
    else:
        run(reply(answer))


@click.command()
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask.")
@by_option
@timeout_option
@busy_option
@common
def discard(*, session: str, yes: bool, by: str | None, timeout: float, busy: Busy, url: str, as_json: bool) -> int:
    """Give up the open turn of a session.

    The turn may be waiting, failed, cancelled or interrupted. The session is then as it was before the turn. What the
    tools have done stays done.
    """

    async def look() -> SessionInfo:
        async with existing(url) as store:
            return await find_session(store, session)

    async def give_up() -> bool:
        async with existing(url) as store:
            return await stoppable(store.session(session, busy=busy, timeout=timeout).discard(by=by))

    info = run(look())
    turn, opened = info.turns, info.status in _WHY
    if opened and not yes:
        if not sys.stdin.isatty():
            words = command_line("discard", session, url=url, flags=("--yes",))
            raise click.UsageError(f"there is no terminal to confirm this; type {words}")
        if not click.confirm(clean(f"Give up turn {turn} of {session}, which {_WHY[info.status]}?"), err=True):
            note("gave nothing up")
            return 1
    given = opened and run(give_up())
    if as_json:
        print_json({"session": session, "turn": turn if given else None})
    elif given:
        say(f"gave up turn {turn} of {session}; the session is as it was before it")
    else:
        say(f"nothing to give up: no turn of {session} is open")
    return 0


def _look(session: str, *, url: str, as_json: bool) -> None:
    """Print the questions of the open turn."""

    async def read() -> StoredTurn | None:
        async with existing(url) as store:
            info = await find_session(store, session)
            return await reader(store, session).open_turn() if info.status == "waiting" else None

    turn = run(read())
    questions = turn.questions if turn is not None else ()
    if as_json:
        asked = {"turn": turn.number if turn is not None else None, "questions": questions_json(questions)}
        print_json({"session": session} | asked | {"calls": calls_json(turn.calls if turn is not None else ())})
    elif turn is None:
        say(f"no question is open: no turn of {session} waits for an answer")
    else:
        print_calls(turn)
        say(f"turn {turn.number} of {session} waits for {waits(questions)}")
        print_questions(questions)
        print_ways(session, questions, url=url)


def _recorded(info: SessionInfo, left: tuple[Question, ...], *, url: str, as_json: bool) -> None:
    session, turn = info.id, info.turns
    if as_json:
        print_json({"session": session, "turn": turn, "recorded": True, "questions": questions_json(left)})
    elif left:
        say(f"recorded; turn {turn} still waits for {waits(left)}")
        print_questions(left)
        print_ways(session, left, url=url)
    else:
        say("recorded")
        note(f"continue turn {turn}: {command_line('resume', 'APP', session, url=url)}")
