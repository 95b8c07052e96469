"""``midturn show``: show the turns of a session, or one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from midturn.cli.calls import print_calls
from midturn.cli.messages import as_line, as_text
from midturn.cli.options import common
from midturn.cli.output import cell, line, moment, note, print_json, print_table, say, status_text, table_of
from midturn.cli.questions import print_questions, print_ways
from midturn.cli.session_argument import existing, find, reader
from midturn.cli.signals import run
from midturn.errors import StateInvalid, UnknownVersion
from midturn.history.json_view import calls_json, questions_json, session_json, turn_json
from midturn.history.spoken import origin_of, said

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from midturn import SessionInfo
    from midturn.cli.session_argument import Found
    from midturn.history.turns import StoredTurn


@click.command()
@click.argument("session", metavar="SESSION[@N]")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the last N turns.")
@click.option("--origins", is_flag=True, help="For a fork, also show the turns that led to it in other sessions.")
@common
def show(*, session: str, limit: int | None, origins: bool, url: str, as_json: bool) -> None:
    """Show the turns of a session.

    With @N, show all messages of turn N, its error if it failed, and what the checkpoint keeps beside AutoGen's state.
    For an open turn, also show its calls, and its questions if it waits for an answer.
    """

    async def read() -> tuple[Found, list[StoredTurn], StoredTurn | None, dict[str, Any]]:
        async with existing(url) as store:
            found = await find(store, session)
            info, number = found
            case = reader(store, info.id)
            if number is None:
                turns = [turn async for turn in case.history(last=limit, origins=origins)]
                return found, turns, await _readable(case.open_turn(), info, info.turns), {}
            is_open = number == info.turns and info.status != "idle"
            turn = await _readable(case.open_turn() if is_open else case.turn(number), info, number)
            if turn is None:  # it can still be shown without its calls
                [turn] = [turn async for turn in case.history() if turn.number == number]
            beside = await case.at(number).beside() if turn.status == "done" else {}
            return found, [turn], turn, beside

    (info, number), turns, called, beside = run(read())
    if as_json:
        calls, questions = (called.calls, called.questions) if called else ((), ())
        about = {"calls": calls_json(calls), "questions": questions_json(questions)}
        if number is None:
            print_json(session_json(info) | {"history": [turn_json(turn) for turn in turns]} | about)
        else:
            print_json({"session": info.id} | turn_json(turns[0]) | {"beside": beside} | about)
        return
    if number is None:
        _print_turns(info, turns, origins=origins and (limit is None or len(turns) < limit))
    else:
        _print_turn(info.id, turns[0], beside)
    if called is not None and called.status != "done":
        print_calls(called)
        if called.questions:
            print_questions(called.questions)
            print_ways(info.id, called.questions, url=url)


def _print_turns(info: SessionInfo, turns: list[StoredTurn], *, origins: bool) -> None:
    """Print the turns that were read, with remarks on those that are not shown; ``origins`` if they were all wanted."""
    first = turns[0] if turns else None
    hidden = first.number - max(info.first_turn, 1) if first is not None and first.session == info.id else 0
    print_history(turns, hidden=hidden)
    if origins and first is not None and first.forked_from is not None:
        note(f"{first.forked_from.session} was deleted; the turns that led to the fork are not shown")
    if info.first_turn > 1:
        note(f"what was before turn {info.first_turn} was removed")


async def _readable(
    reading: Coroutine[None, None, StoredTurn | None], info: SessionInfo, number: int
) -> StoredTurn | None:
    """Return a turn, or ``None`` if its calls are damaged; raise if the turn waits, for its questions are needed."""
    try:
        return await reading
    except (StateInvalid, UnknownVersion) as error:
        if info.status == "waiting" and number == info.turns:
            raise
        note(f"the calls of turn {number} cannot be read: {error}")
        return None


def _tokens(turn: StoredTurn) -> str:
    """Return the tokens of a turn as prompt+completion; an empty text if no model was asked."""
    used = turn.usage
    return f"{used.prompt_tokens}+{used.completion_tokens}" if used.prompt_tokens or used.completion_tokens else ""


def print_history(turns: list[StoredTurn], *, hidden: int) -> None:
    """Print a line or two for each turn; ``hidden`` is the number of earlier ones."""
    table = table_of(turn="right", when="", status="", said="flexible", tokens="right")
    own = turns[-1].session if turns else ""
    for turn in turns:
        table.add_row(
            str(turn.number) if turn.session == own else f"{line(turn.session)}@{turn.number}",
            moment(turn.started),
            status_text(turn.status) if turn.left_behind_by is None else Text(turn.status, style="dim"),
            cell(*_summary(turn)),
            _tokens(turn),
        )
    print_table(table)
    if hidden:
        note(f"{hidden} earlier turns are not shown")


def _summary(turn: StoredTurn) -> list[Text]:
    """Return the task and the end of a turn as lines."""
    lines = [as_line(said(message)) for message in turn.task or ()]
    answers = [spoken for message in turn.messages[len(lines) :] if not (spoken := said(message)).aside]
    if len(answers) > 1:
        lines.append(Text(f"… {len(answers) - 1} more", style="dim"))
    lines += [as_line(answer) for answer in answers[-1:]]
    lines += [Text(f"repaired: {line(repair)}", style="yellow") for repair in turn.repairs]
    lines += [Text(f"changed: {line(text)}", style="yellow") for text in (*turn.drift, *turn.notes)]
    lines += [Text(f"decided: {line(text)}", style="cyan") for text in _decided(turn)]
    if turn.error is not None and turn.status == "failed":
        lines.append(Text(line(turn.error), style="red"))
    if origin := origin_of(turn):
        lines.append(Text(line(origin), style="dim"))
    if turn.left_behind_by is not None:
        lines.append(Text(f"left behind by turn {turn.left_behind_by}", style="dim"))
    return lines


def _print_turn(session: str, turn: StoredTurn, beside: dict[str, Any]) -> None:
    facts = [moment(turn.started)]
    if turn.ended is not None and turn.origin == "run":
        facts.append(f"{(turn.ended - turn.started).total_seconds():.1f} s")
    facts += [f"{tokens} tokens"] if (tokens := _tokens(turn)) else []
    facts += [f"key {line(turn.key)}"] if turn.key is not None else []
    facts += [line(turn.stop_reason)] if turn.stop_reason else []
    facts += [line(origin)] if (origin := origin_of(turn)) else []
    facts += [f"left behind by turn {turn.left_behind_by}"] if turn.left_behind_by is not None else []
    title = Text.assemble((f"{line(session)} turn {turn.number}: ", "bold"), status_text(turn.status))
    say(title.append(", " + ", ".join(facts), style="dim"))
    for repair in turn.repairs:
        say(f"repaired: {repair}", style="yellow")
    for text in (*turn.drift, *turn.notes):
        say(f"changed: {text}", style="yellow")
    for text in _decided(turn):
        say(f"decided: {text}", style="cyan")
    for message in turn.messages or turn.task or ():
        say(as_text(said(message)))
    if turn.error is not None and turn.status == "failed":
        say(turn.error, style="red")
    if beside:
        note(f"kept beside AutoGen's state: {', '.join(sorted(beside))}")


def _decided(turn: StoredTurn) -> list[str]:
    """Return the decisions of people about calls. Their texts are among the messages."""
    return [str(decision) for decision in turn.decisions if decision.kind != "human"]
