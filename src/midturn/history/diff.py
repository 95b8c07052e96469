"""The differences between two checkpoints: messages, whose turn it is, other state, prompts and tools."""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from typing import TYPE_CHECKING, Literal, TypeAlias

from midturn.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from midturn.framework import Conversation, Outline, Place, Utterance
    from midturn.record.codec import Json

ChangeKind: TypeAlias = Literal["added", "removed", "changed"]

ALIKE = 0.6
"""Two messages without an id are the same message with another text if at least this part of their texts is equal."""
COMPARED = 1_000
"""Characters of a text that are compared for that."""
NEAR = 5
"""Number of earlier messages with which a changed message is compared."""
COMPARISONS = 200
"""Largest number of comparisons for one conversation: each can take a millisecond."""
AROUND = 2
"""Equal lines that a text diff shows before and after a changed line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointName:
    """A checkpoint of a session."""

    session: str
    checkpoint: int

    def __str__(self) -> str:
        return f"{self.session}@{self.checkpoint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChange:
    """A message that was added to a conversation, removed from it, or changed in it."""

    change: ChangeKind
    who: str
    """The name of the speaker."""
    before_at: int | None = None
    """The position of the message before; ``None`` if it was added."""
    after_at: int | None = None
    """The position of the message after; ``None`` if it was removed."""
    before: Json = None
    after: Json = None
    text: tuple[str, ...]
    """The lines of the text, each after one character: ``-`` for a removed line, ``+`` for an added one, and a space
    for a line that stayed. Lines far from any change are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationChange:
    """The changes in one list of messages: what an agent's model sees, or the thread of a team."""

    change: ChangeKind
    """``added`` or ``removed`` if one of the states has no such conversation."""
    agent: str
    """The agent or team, by its path (``inner/ann``); empty for the outermost."""
    kind: str
    """``context``: what the agent's model sees. ``thread``: what a team has said. ``buffer``: what a participant of a
    team has not received yet."""
    messages: tuple[MessageChange, ...]

    def apply(self, messages: Sequence[Json]) -> list[Json]:
        """Return the messages of the conversation after the changes, given those before.

        Raises:
            InvalidArgument: these are not the messages before.
        """
        gone: set[int] = set()
        for each in self.messages:
            if each.before_at is not None:
                if each.before_at >= len(messages) or messages[each.before_at] != each.before:
                    raise InvalidArgument(f"message {each.before_at} is not the one that changed", path="messages")
                gone.add(each.before_at)
        found = [message for at, message in enumerate(messages) if at not in gone]
        added = ((each.after_at, each.after) for each in self.messages if each.after_at is not None)
        for at, message in sorted(added, key=lambda each: each[0]):
            found.insert(at, message)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """A value outside the conversations that was added, removed or changed: a memory, a counter, a tool's state."""

    change: ChangeKind
    path: str
    before: Json = None
    after: Json = None
    text: tuple[str, ...]
    """The lines of the value as text, each after ``-``, ``+`` or a space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnChange:
    """A team in which it is somebody else's turn. Without a name, a model chooses who speaks."""

    team: str
    """The path of the team; empty for the outermost."""
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChange:
    """Something that is configured differently: a prompt, a tool, a model, a participant."""

    path: str
    agent: str
    """The name of the agent or team."""
    what: str
    """``prompt``, ``tool``, ``agent``, ``team``, ``model`` and so on."""
    text: str
    """One line for people."""
    before: Json = None
    after: Json = None
    lines: tuple[str, ...] = ()
    """The lines of the value as text, each after ``-``, ``+`` or a space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDiff:
    """The differences between two checkpoints; false if there are none."""

    before: CheckpointName
    after: CheckpointName
    conversations: tuple[ConversationChange, ...] = ()
    turns: tuple[TurnChange, ...] = ()
    values: tuple[ValueChange, ...] = ()
    agents: tuple[AgentChange, ...] = ()
    """Changes of prompts, tools and participants. Empty if a checkpoint does not know how its agents were built."""

    def __bool__(self) -> bool:
        return bool(self.conversations or self.turns or self.values or self.agents)


def conversation_changes(before: Outline, after: Outline) -> Iterator[ConversationChange]:
    """Yield the changes of each conversation that differs."""
    for place in {**before.conversations, **after.conversations}:
        one, other = before.conversations.get(place), after.conversations.get(place)
        known = other or one
        messages = tuple(_message_changes(_said(one), _said(other)))
        if known is not None and (messages or one is None or other is None):
            yield ConversationChange(change=_kind(one, other), agent=known.agent, kind=known.kind, messages=messages)


def turn_changes(before: Outline, after: Outline) -> Iterator[TurnChange]:
    """Yield the teams in which it is somebody else's turn."""
    for team in {**before.speakers, **after.speakers}:
        one, other = tuple(before.speakers.get(team, ())), tuple(after.speakers.get(team, ()))
        if one != other:
            yield TurnChange(team=team, before=one, after=other)


def value_changes(before: Mapping[Place, Json], after: Mapping[Place, Json]) -> Iterator[ValueChange]:
    """Yield the values that differ."""
    for place in {**before, **after}:
        one, other = before.get(place, _ABSENT), after.get(place, _ABSENT)
        if one is _ABSENT or other is _ABSENT or not _equal(one, other):
            was, now = (None if each is _ABSENT else each for each in (one, other))
            yield ValueChange(
                change="added" if one is _ABSENT else "removed" if other is _ABSENT else "changed",
                path=".".join(("$", *place)),
                before=was,
                after=now,
                text=text_diff(*("" if each is _ABSENT else readable(each) for each in (one, other))),
            )


def text_diff(before: str, after: str) -> tuple[str, ...]:
    """Return the lines that differ and those around them, each after ``-``, ``+`` or a space."""
    lines = unified_diff(_lines(before), _lines(after), lineterm="", n=AROUND)
    return tuple(line for number, line in enumerate(lines) if number > 1 and not line.startswith("@@"))


def readable(value: Json) -> str:
    """Return a value as text of several lines."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


_ABSENT: Json = "midturn.history.diff.absent"  # compared by identity


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []


def _kind(before: object, after: object) -> ChangeKind:
    return "added" if before is None else "removed" if after is None else "changed"


def _said(conversation: Conversation | None) -> Sequence[Utterance]:
    return () if conversation is None else conversation.messages


def _message_changes(before: Sequence[Utterance], after: Sequence[Utterance]) -> Iterator[MessageChange]:
    """Yield the changes of a list of messages in the order of their positions after, the removed ones in between."""
    old, new = ([_exact(each.message) for each in messages] for messages in (before, after))
    start, stop = _common(old, new)
    left = iter(range(COMPARISONS))
    # With its heuristic for elements that are frequent: a clerk may have said "Noted." thousands of times.
    matcher = SequenceMatcher(None, old[start : len(old) - stop], new[start : len(new) - stop])
    for what, i, j, k, m in matcher.get_opcodes():
        if what != "equal":
            yield from _replaced(before, after, range(start + i, start + j), range(start + k, start + m), left)


def _common(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return how many messages at the beginning, and how many others at the end, are the same."""
    short = min(len(old), len(new))
    start = next((at for at in range(short) if old[at] != new[at]), short)
    stop = next((at for at in range(short - start) if old[-1 - at] != new[-1 - at]), short - start)
    return start, stop


def _replaced(
    before: Sequence[Utterance],
    after: Sequence[Utterance],
    old: Sequence[int],
    new: Sequence[int],
    comparisons: Iterator[int],
) -> Iterator[MessageChange]:
    """Yield the changes of messages that are not equal: each was removed, was added, or has another text."""
    partners = _partners(before, after, old, new, comparisons)
    found = {*partners.values()}
    left = [at for at in old if at not in found]
    for at in new:
        partner = partners.get(at)
        while left and (partner is None or left[0] < partner):
            yield _removed(before, left.pop(0))
        if partner is None:
            message = after[at]
            yield MessageChange(
                change="added", who=message.who, after_at=at, after=message.message, text=text_diff("", message.text)
            )
        else:
            one, other = before[partner], after[at]
            text = text_diff(one.text, other.text) or text_diff(readable(one.message), readable(other.message))
            yield MessageChange(
                change="changed",
                who=other.who,
                before_at=partner,
                after_at=at,
                before=one.message,
                after=other.message,
                text=text,
            )
    for at in left:
        yield _removed(before, at)


def _removed(before: Sequence[Utterance], at: int) -> MessageChange:
    message = before[at]
    return MessageChange(
        change="removed", who=message.who, before_at=at, before=message.message, text=text_diff(message.text, "")
    )


def _partners(
    before: Sequence[Utterance],
    after: Sequence[Utterance],
    old: Sequence[int],
    new: Sequence[int],
    comparisons: Iterator[int],
) -> dict[int, int]:
    """Find the earlier form of changed messages, by id or by a similar text. Return positions: after to before."""
    partners: dict[int, int] = {}
    known = {before[at].id: at for at in old if before[at].id is not None}
    for at in new:
        if after[at].id is not None and (found := known.pop(after[at].id, None)) is not None:
            partners[at] = found
    free = [at for at in old if before[at].id is None]
    for at in new:
        if after[at].id is not None:
            continue
        near = (each for each, _ in zip(free[:NEAR], comparisons, strict=False))
        found = next((each for each in near if _is_alike(before[each], after[at])), None)
        if found is not None:
            partners[at] = found
            free = free[free.index(found) + 1 :]  # messages that changed are still in their order
    return partners


def _is_alike(one: Utterance, other: Utterance) -> bool:
    if (one.kind, one.who) != (other.kind, other.who):
        return False
    matcher = SequenceMatcher(None, one.text[:COMPARED], other.text[:COMPARED], autojunk=False)
    return matcher.real_quick_ratio() >= ALIKE and matcher.quick_ratio() >= ALIKE and matcher.ratio() >= ALIKE


def _equal(one: Json, other: Json) -> bool:
    return one is other or _exact(one) == _exact(other)


def _exact(value: Json) -> str:
    """Return a text that is the same for equal JSON only: 1, 1.0 and true differ."""
    return json.dumps(value, sort_keys=True)
