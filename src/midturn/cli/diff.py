"""``midturn diff``: show what differs between two checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import click
from rich.text import Text

from midturn.cli.options import common
from midturn.cli.output import clean, dump_json, line, note, print_json, say
from midturn.cli.session_argument import existing, find
from midturn.cli.signals import run
from midturn.history.json_view import diff_json
from midturn.record.codec import is_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    import midturn
    from midturn import Checkpoint
    from midturn.history.diff import ConversationChange, MessageChange, StateDiff, ValueChange
    from midturn.record.codec import Json

STYLES = {"-": "red", "+": "green"}
SIGNS = {"added": "+", "removed": "-", "changed": "~"}
MANY = 40
"""Lines of a text that are shown."""
LONG = 200
"""Characters of a line that are shown."""
_Side: TypeAlias = tuple[str, str, str]
"""A message before (``-``) or after a change (``+``), who said it, and its content."""


@click.command()
@click.argument("before", metavar="SESSION[@N]")
@click.argument("after", metavar="SESSION[@N]")
@common
def diff(*, before: str, after: str, url: str, as_json: bool) -> None:
    """Show what differs between two checkpoints.

    They may be of one session, `midturn diff case-42@6 case-42@7`, or of two, such as a fork and its origin. Without
    @N, take the latest checkpoint. The differences are messages that were added, removed or changed, whose turn it is,
    other state such as memories, and prompts and tools. For a team, its thread comes first, and then what each agent
    has beside that; --json has everything.
    """

    async def read() -> StateDiff:
        async with existing(url) as store:
            one, other = await _checkpoint(store, before), await _checkpoint(store, after)
            return await store.session(one.session).diff(one, other)

    found = run(read())
    if as_json:
        print_json(diff_json(found))
    else:
        _print(found)


async def _checkpoint(store: midturn.OpenStore, name: str) -> Checkpoint:
    """Return the checkpoint that ``SESSION`` or ``SESSION@N`` names."""
    info, number = await find(store, name)
    return store.session(info.id).at(info.checkpoint if number is None else number)


def _print(found: StateDiff) -> None:
    say(Text.assemble((clean(str(found.before)), "red"), " → ", (clean(str(found.after)), "green")))
    if not found:
        note("no differences")
    for agent in found.agents:
        _title(f"{agent.text}")
        _print_lines(agent.lines, "  ")
    for turn in found.turns:
        who = [", ".join(names) or "a model chooses" for names in (turn.before, turn.after)]
        where = f" in {turn.team}" if turn.team else ""
        _title(f"next to speak{where}: {who[0]} → {who[1]}")
    shown: set[_Side] = set()
    for conversation in sorted(found.conversations, key=lambda each: each.kind != "thread"):
        _print_conversation(conversation, shown)
    if found.values:
        _title("other state")
    for value in found.values:
        _print_value(value)


def _title(text: str) -> None:
    say(Text(line(text), style="bold"))


def _print_conversation(conversation: ConversationChange, shown: set[_Side]) -> None:
    """Print what changed in a conversation, except what was ``shown`` before: each agent of a team has its own copy."""
    who = conversation.agent
    match conversation.kind:
        case "thread":
            title = f"thread of {who}" if who else "thread of the team"
        case "buffer":
            title = f"not yet received by {who}"
        case _:
            title = f"what the model of {who} sees" if who else "what the model sees"
    _title(title if conversation.change == "changed" else f"{title} ({conversation.change})")
    sides = [_sides_of(message) for message in conversation.messages]
    for message, own in zip(conversation.messages, sides, strict=True):
        if not own <= shown:
            _print_message(message)
    if repeated := sum(own <= shown for own in sides):
        say(f"  … {repeated} as above", style="dim")
    shown.update(*sides)


def _sides_of(message: MessageChange) -> set[_Side]:
    """Return what a change takes away and what it brings, in a form that all conversations of a team have."""
    both = (("-", message.before), ("+", message.after))
    return {(sign, message.who, dump_json(_content(value))) for sign, value in both if value is not None}


def _content(message: Json) -> Json:
    return message.get("content") if is_object(message) else message


def _print_message(message: MessageChange) -> None:
    sign = SIGNS[message.change]
    at = message.before_at if message.after_at is None else message.after_at
    style = STYLES.get(sign, "yellow")
    if message.change == "changed":
        say(Text.assemble((f"  {sign} {at} ", style), (f"{line(message.who)}:", "cyan")))
        _print_lines(message.text, "      ")
        return
    texts = [text[1:] for text in message.text]
    first, *more = texts or [""]
    say(Text.assemble((f"  {sign} {at} ", style), (f"{line(message.who)}: ", "cyan"), (line(first, LONG), style)))
    _print_lines([f"{sign}{text}" for text in more], "      ", signs=False)


def _print_value(value: ValueChange) -> None:
    sign = SIGNS[value.change]
    was, now = (None if each is None else [text[1:] for text in each] for each in _sides(value))
    style = STYLES.get(sign, "yellow")
    if was is not None and now is not None and len(was) <= 1 and len(now) <= 1:
        text = f": {line(''.join(was), LONG)} → {line(''.join(now), LONG)}"
        say(Text.assemble((f"  {sign} ", style), (line(value.path, LONG), "cyan"), text))
        return
    say(Text.assemble((f"  {sign} ", style), (line(value.path, LONG), "cyan")))
    _print_lines(value.text, "      ")


def _sides(value: ValueChange) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """Return the lines before and those after; ``None`` for the side that is absent."""
    removed = [text for text in value.text if not text.startswith("+")]
    added = [text for text in value.text if not text.startswith("-")]
    return None if value.change == "added" else removed, None if value.change == "removed" else added


def _print_lines(lines: Sequence[str], indent: str, *, signs: bool = True) -> None:
    for text in lines[:MANY]:
        sign, rest = text[:1], line(text[1:], LONG)
        say(Text(f"{indent}{sign} {rest}" if signs else f"{indent}{rest}", style=STYLES.get(sign, "dim")))
    if len(lines) > MANY:
        note(f"{indent}… {len(lines) - MANY} more lines; --json has them")
