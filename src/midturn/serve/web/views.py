"""Turns, calls and messages as the page shows them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midturn.history.spoken import origin_of, result_text, said
from midturn.record.codec import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from midturn.history.calls import Call
    from midturn.history.turns import StoredTurn
    from midturn.questions import Decision, Question

LARGEST = 1_000_000
"""Characters of a picture as base64 that the page shows. A larger one is named."""
PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
"""Kinds of pictures that the page shows, by their first bytes. An SVG could carry code."""
LONGEST = 20_000
"""Characters of a text in a list of turns. The rest is on the page of the turn."""
SHORT = 60
"""Characters of arguments that are shown in one line."""
PEOPLE = ("human", "approval", "doubt")
"""Kinds of calls that people answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubble:
    """A message of a conversation."""

    who: str
    text: str
    aside: bool
    mine: bool
    """True for what people said."""
    pictures: tuple[str, ...] = ()
    """Addresses that begin with ``data:``."""
    cut: int = 0
    """Number of characters that are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLine:
    """A call in a timeline."""

    kind: str
    agent: str
    name: str | None
    effect: str
    arguments: str
    result: str
    at: datetime
    seconds: float
    """The time since the step before, or since the turn began."""
    share: int
    """That time, in percent of the longest one of the turn."""
    recorded: bool
    """True if the last attempt got the result from the record."""
    earlier: bool
    """True if an earlier turn with the same key made the call."""
    attempt: int
    takes_over: bool
    """True for the first call of a later attempt."""
    tokens: tuple[int, int] | None
    by_people: bool
    cut: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnView:
    """A turn with its conversation and its timeline."""

    turn: StoredTurn
    bubbles: tuple[Bubble, ...]
    calls: tuple[CallLine, ...] | None
    origin: str
    seconds: float | None
    decisions: tuple[Decision, ...]
    questions: tuple[Question, ...]
    tokens: tuple[int, int] | None
    latest: bool = False

    @property
    def number(self) -> int:
        return self.turn.number


def turn_view(turn: StoredTurn, *, whole: bool = False, latest: bool = False) -> TurnView:
    """Return a turn as the page shows it; ``whole`` for all of its texts."""
    limit = None if whole else LONGEST
    calls = None if turn.calls is None else tuple(_lines(turn, turn.calls, limit))
    used = [call.tokens for call in calls or () if call.tokens is not None]
    total = (turn.usage.prompt_tokens, turn.usage.completion_tokens)
    if not any(total) and used:  # an open turn has no total
        total = (sum(each[0] for each in used), sum(each[1] for each in used))
    return TurnView(
        turn=turn,
        bubbles=tuple(_bubbles(turn, limit)),
        calls=calls,
        origin=origin_of(turn),
        seconds=(turn.ended - turn.started).total_seconds() if turn.ended is not None else None,
        decisions=tuple(turn.decisions),
        questions=tuple(turn.questions),
        tokens=total if any(total) else None,
        latest=latest,
    )


def bubble_of(message: Any, *, mine: bool = False, limit: int | None = None) -> Bubble:
    """Return a message as the page shows it."""
    found = said(message)
    content: Any = message.get("content") if is_object(message) else None
    text, cut = _cut(found.text, limit)
    return Bubble(
        who=found.who,
        text=text,
        aside=found.aside,
        mine=mine or found.who == "user",
        pictures=tuple(_pictures(content)),
        cut=cut,
    )


def last_words(turn: StoredTurn) -> Bubble | None:
    """Return the last message of a turn that is for readers; for an open turn, the last that its calls tell."""
    for message in reversed(turn.messages):
        if not (found := bubble_of(message, limit=LONGEST)).aside:
            return found
    for call in reversed(turn.calls or ()):
        if call.kind == "model" and is_object(call.result) and isinstance(call.result.get("content"), str):
            return Bubble(who=call.agent or "model", text=str(call.result["content"]), aside=False, mine=False)
    task = turn.task or ()
    return bubble_of(task[-1], mine=True, limit=LONGEST) if task else None


def _bubbles(turn: StoredTurn, limit: int | None) -> Iterator[Bubble]:
    tasks = len(turn.task or ())
    for number, message in enumerate(turn.messages or turn.task or ()):
        yield bubble_of(message, mine=number < tasks, limit=limit)
    if turn.messages:
        return
    for call in turn.calls or ():  # an open turn has no messages yet: its calls tell what was said
        match call:
            case _ if call.kind == "model" and is_object(call.result) and isinstance(call.result.get("content"), str):
                text, cut = _cut(str(call.result["content"]), limit)
                yield Bubble(who=call.agent or "model", text=text, aside=False, mine=False, cut=cut)
            case _ if call.kind == "human":
                yield Bubble(who="human", text=result_text(call.kind, call.result), aside=False, mine=True)
            case _:
                pass


def _lines(turn: StoredTurn, calls: Iterable[Call], limit: int | None) -> Iterator[CallLine]:
    shown = [call for call in calls if call.kind != "memory" or call.effect != "read"]
    spans, later = list[float](), list[bool]()
    before, attempt = turn.started, 1
    for call in shown:
        spans.append(max((call.at - before).total_seconds(), 0.0))
        later.append(call.attempt > attempt)
        before, attempt = max(before, call.at), max(attempt, call.attempt)
    timed = [call.kind not in PEOPLE and not over for call, over in zip(shown, later, strict=True)]
    longest = max((span for span, is_timed in zip(spans, timed, strict=True) if is_timed), default=0.0)
    for call, span, over, is_timed in zip(shown, spans, later, timed, strict=True):
        result, cut = _cut(result_text(call.kind, call.result), limit)
        yield CallLine(
            kind=call.kind,
            agent=call.path or call.agent,
            name=call.name,
            effect=call.effect,
            arguments=_indented(call.arguments),
            result=result,
            at=call.at,
            seconds=span,
            share=max(round(100 * span / longest), 1) if is_timed and longest else 0,
            recorded=0 < call.attempt < turn.attempts,
            earlier=call.attempt == 0,
            attempt=call.attempt,
            takes_over=over,
            tokens=_tokens(call),
            by_people=call.kind in PEOPLE,
            cut=cut,
        )


def _tokens(call: Call) -> tuple[int, int] | None:
    match call.kind, call.result:
        case "model", {"usage": {"prompt_tokens": int(prompt), "completion_tokens": int(completion)}}:
            return prompt, completion
        case _:
            return None


def _cut(text: str, limit: int | None) -> tuple[str, int]:
    return (text, 0) if limit is None or len(text) <= limit else (text[:limit], len(text) - limit)


def _indented(arguments: str) -> str:
    """Return the arguments of a call as JSON of several lines, if they are JSON."""
    try:
        found = json.loads(arguments)
    except ValueError:
        return arguments
    line = json.dumps(found, ensure_ascii=False)
    return "" if found == {} else line if len(line) <= SHORT else json.dumps(found, indent=2, ensure_ascii=False)


def _pictures(content: Any) -> Iterator[str]:
    """Yield the pictures of a message that the page can show, as addresses that begin with ``data:``."""
    for each in content if is_array(content) else ():
        if not is_object(each) or each.keys() != {"data"}:
            continue
        data = each["data"]
        if isinstance(data, str) and len(data) <= LARGEST and (kind := _kind(data)) is not None:
            yield f"data:{kind};base64,{data}"


def _kind(data: str) -> str | None:
    """Return the kind of a picture; ``None`` if the page does not show it."""
    try:
        found = base64.b64decode(data, validate=True)
    except ValueError:
        return None
    if found[:4] == b"RIFF" and found[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in PICTURES.items() if found.startswith(begin)), None)
