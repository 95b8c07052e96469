"""``midturn ls`` and ``midturn show``: what is in a store."""

from __future__ import annotations

import dataclasses
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast, get_args

import click
from rich import box
from rich.table import Table
from rich.text import Text

from midturn.cli.calls import Done, open_turn, print_calls
from midturn.cli.failures import NotFound
from midturn.cli.messages import said
from midturn.cli.options import command_line, common, label_option
from midturn.cli.output import ago, clean, iso, line, moment, note, print_json, print_table, say
from midturn.cli.places import existing, find
from midturn.cli.questions import print_questions, print_ways, questions_json
from midturn.cli.signals import run
from midturn.errors import StateInvalid, UnknownVersion
from midturn.history.checkpoints import Checkpoint
from midturn.history.turns import history
from midturn.lease.ledger import holder
from midturn.record.head import Status

if TYPE_CHECKING:
    from midturn import SessionInfo, Turn
    from midturn.cli.places import Found
    from midturn.lease.ledger import Ledger
    from midturn.questions import Question

STYLES = {"done": "green", "idle": "green", "running": "yellow", "waiting": "magenta"}
"""Everything else is red."""

ORIGINS = {"save": "saved by hand", "import": "imported", "migration": "migrated", "rollback": "rolled back"}
"""What made a checkpoint that no turn made."""


@click.command()
@click.option("--status", type=click.Choice([*get_args(Status), "interrupted"]), help="Only sessions with this status.")
@label_option("Only sessions with this label; may be given several times.")
@click.option("--prefix", default="", help="Only sessions whose id begins so.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The first N sessions.")
@common
def ls(*, status: str | None, labels: dict[str, str], prefix: str, limit: int | None, url: str, as_json: bool) -> None:
    """List the sessions of a store.

    A session is "interrupted" if a turn was running and its worker is gone, or was answered and nobody has gone on with
    it: the next turn finishes it first, or `midturn resume` does. It is "waiting" if its turn needs an answer from a
    human: `midturn answer`.
    """

    async def read() -> list[tuple[SessionInfo, str | None]]:
        listed: list[tuple[SessionInfo, str | None]] = []
        stored = cast("Status | None", "running" if status == "interrupted" else status)
        async with (
            existing(url) as store,
            aclosing(store.sessions(status=stored, labels=labels, prefix=prefix)) as all_,
        ):
            async for listed_ in all_:
                info, owner = listed_, None
                if info.status == "running":  # once more, so that the status and the owner are of the same moment
                    head = await store.store.head(info.id)
                    if head is None or head.status == "deleted":
                        continue
                    info, owner = dataclasses.replace(info, status=head.status), holder(head)
                if status in (None, _current(info.status, owner)):
                    listed.append((info, owner))
                if len(listed) == limit:
                    break
        return listed

    found = run(read())
    if as_json:
        print_json([_session_json(info, owner) for info, owner in found])
    elif found:
        _print_sessions(found, url)
    elif status or labels or prefix:
        say("no session matches")
    else:
        say("no sessions yet")
        note(f"begin one: {command_line('chat', 'APP', 'SESSION', url=url)}")


@click.command()
@click.argument("session", metavar="SESSION[@N]")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The last N turns.")
@common
def show(*, session: str, limit: int | None, url: str, as_json: bool) -> None:
    """Show the turns of a session.

    With @N: all that was said in turn N, the error if it failed, and what the checkpoint has beside AutoGen's state.
    What a turn without a result has done is shown below it, and what it asks if it waits for an answer.
    """

    async def read() -> tuple[Found, list[Turn], dict[str, Any], list[Done], tuple[Question, ...]]:
        async with existing(url) as store:
            found = await find(store, session)
            first, after = (1, None) if found.number is None else (found.number, found.number + 1)
            if limit is not None and found.number is None:
                first = max(1, found.ledger.progress.turn + 1 - limit)
            turns = [turn async for turn in history(found.ledger, start=first, stop=after)]
            beside: dict[str, Any] = {}
            if found.number is not None and turns and turns[0].status == "done":
                beside = await Checkpoint(found.ledger, found.number).beside()
            last = bool(turns) and turns[-1].number == found.ledger.progress.turn
            calls, questions = await _opened(found.ledger) if last else ([], ())
            return found, turns, beside, calls, questions

    found, turns, beside, calls, questions = run(read())
    if found.number is not None and not turns:
        raise NotFound(
            f"session {found.session!r} has no turn {found.number}; the latest is {found.ledger.progress.turn}",
            session=found.session,
        )
    owner = found.ledger.busy()
    if as_json:
        opened = {"calls": [dataclasses.asdict(call) for call in calls], "questions": questions_json(questions)}
        if found.number is None:
            print_json(_history_json(found, turns, owner) | opened)
        else:
            print_json({"session": found.session} | _turn_json(turns[0], owner) | {"beside": beside} | opened)
        return
    if found.number is None:
        _print_history(turns, owner, hidden=found.ledger.progress.turn - len(turns))
    else:
        _print_turn(found.session, turns[0], beside, owner)
    print_calls(found.ledger.progress.turn, calls)
    if questions:
        print_questions(questions)
        print_ways(found.session, questions, url=url)


async def _opened(ledger: Ledger) -> tuple[list[Done], tuple[Question, ...]]:
    """The same as ``open_turn``, but a turn that does not wait can be looked at also if its calls are damaged."""
    try:
        return await open_turn(ledger)
    except (StateInvalid, UnknownVersion) as error:
        if ledger.progress.open == "waiting":
            raise
        note(f"what turn {ledger.progress.turn} has done cannot be read: {error}")
        return [], ()


def _session_json(info: SessionInfo, owner: str | None) -> dict[str, Any]:
    facts = dataclasses.asdict(info)
    status = _current(info.status, owner)
    return facts | {"status": status, "created": iso(info.created), "updated": iso(info.updated), "owner": owner}


def _history_json(found: Found, turns: list[Turn], owner: str | None) -> dict[str, Any]:
    return {
        "id": found.session,
        "status": _current(found.head.status, owner),
        "checkpoint": found.ledger.progress.checkpoint,
        "labels": dict(found.head.labels),
        "created": iso(found.head.created),
        "updated": iso(found.head.updated),
        "owner": owner,
        "turns": [_turn_json(turn, owner) for turn in turns],
    }


def _turn_json(turn: Turn, owner: str | None) -> dict[str, Any]:
    prompt, completion = turn.usage
    return dataclasses.asdict(turn) | {
        "status": _current(turn.status, owner),
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
        "started": iso(turn.started),
        "ended": iso(turn.ended),
    }


def _print_sessions(found: list[tuple[SessionInfo, str | None]], url: str) -> None:
    table = _table(session="flexible", status="", turns="right", updated="", labels="flexible")
    now = time.time()
    shown: set[str] = set()
    for info, owner in found:
        status = _status("unusable" if info.problem else info.status, owner)
        shown.add(status.plain)
        labels = ", ".join(f"{name}={value}" for name, value in sorted(info.labels.items()))
        table.add_row(
            _cell(Text(clean(info.id).replace("\n", "\\n"), style="bold")),
            status,
            str(info.turns),
            ago(info.updated, now),
            _cell(Text(line(labels), style="dim")),
        )
    print_table(table)
    for info, _ in found:
        if info.problem:
            note(info.problem)
    if "interrupted" in shown:
        note(f"finish what was interrupted: {command_line('resume', 'APP', url=url, flags=['--all'])}")
    if "waiting" in shown:
        note(f"see what is asked: {command_line('answer', 'SESSION', url=url)}")


def _print_history(turns: list[Turn], owner: str | None, *, hidden: int) -> None:
    table = _table(turn="right", when="", status="", said="flexible", tokens="right")
    for turn in turns:
        table.add_row(
            str(turn.number),
            moment(turn.started),
            _status(turn.status, owner),
            _cell(*_summary(turn)),
            f"{turn.usage[0]}+{turn.usage[1]}" if any(turn.usage) else "",
        )
    print_table(table)
    if hidden:
        note(f"{hidden} earlier turns are not shown")


def _summary(turn: Turn) -> list[Text]:
    """What was asked, and how it ended."""
    lines = [said(message).as_line() for message in turn.task or ()]
    answers = [spoken for message in turn.messages[len(lines) :] if not (spoken := said(message)).aside]
    if len(answers) > 1:
        lines.append(Text(f"… {len(answers) - 1} more", style="dim"))
    lines += [answer.as_line() for answer in answers[-1:]]
    lines += [Text(f"repaired: {line(repair)}", style="yellow") for repair in turn.repairs]
    lines += [Text(f"changed: {line(text)}", style="yellow") for text in (*turn.drift, *turn.notes)]
    lines += [Text(f"decided: {line(text)}", style="cyan") for text in _decided(turn)]
    if turn.error is not None and turn.status == "failed":
        lines.append(Text(line(turn.error), style="red"))
    if turn.origin != "run":
        lines.append(Text(ORIGINS[turn.origin], style="dim"))
    return lines


def _print_turn(session: str, turn: Turn, beside: dict[str, Any], owner: str | None) -> None:
    facts = [moment(turn.started)]
    facts += [f"{turn.ended - turn.started:.1f} s"] if turn.ended is not None and turn.origin == "run" else []
    facts += [f"{turn.usage[0]}+{turn.usage[1]} tokens"] if any(turn.usage) else []
    facts += [f"key {line(turn.key)}"] if turn.key is not None else []
    facts += [line(turn.stop_reason)] if turn.stop_reason else []
    title = Text.assemble((f"{line(session)} turn {turn.number}: ", "bold"), _status(turn.status, owner))
    say(title.append(", " + ", ".join(facts), style="dim"))
    for repair in turn.repairs:
        say(f"repaired: {repair}", style="yellow")
    for text in (*turn.drift, *turn.notes):
        say(f"changed: {text}", style="yellow")
    for text in _decided(turn):
        say(f"decided: {text}", style="cyan")
    for message in turn.messages or turn.task or ():
        say(said(message).as_text())
    if turn.error is not None and turn.status == "failed":
        say(turn.error, style="red")
    if beside:
        note(f"kept beside AutoGen's state: {', '.join(sorted(beside))}")


def _decided(turn: Turn) -> list[str]:
    """Return what people decided about calls; what they said is among the messages."""
    return [str(decision) for decision in turn.decisions if decision.kind != "human"]


def _status(status: str, owner: str | None) -> Text:
    shown = _current(status, owner)
    return Text(shown, style=STYLES.get(shown, "red"))


def _current(status: str, owner: str | None) -> str:
    """A status as it is shown: what nobody runs any more was interrupted."""
    return "interrupted" if status == "running" and owner is None else status


def _table(**columns: str) -> Table:
    """A table whose flexible columns give way when the terminal is narrow."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for name, kind in columns.items():
        table.add_column(name, justify="right" if kind == "right" else "left", no_wrap=kind != "flexible")
    return table


def _cell(*lines: Text) -> Text:
    """Lines in a flexible column; those that are too long are cut, not wrapped."""
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)
