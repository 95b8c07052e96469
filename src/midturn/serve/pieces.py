"""Pieces of a turn that the protocols share, read from its events: texts, parts of texts, tool calls, results."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from midturn.record.codec import is_array
from midturn.record.odd import stored

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of a text that a model streams. The whole text may follow, with the same id."""

    id: str
    source: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A text that an agent or a human said. Its pieces may have come before."""

    id: str
    source: str
    text: str
    streamed: str | None = None
    """The pieces that came before, together; ``None`` if none came."""
    human: bool = False
    """True if somebody gave this text as the answer to a question."""
    task: bool = False
    """True if this is a part of the turn's task."""
    thought: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that a model asks for. The ids of models repeat; this one is of one call in its session."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The calls that a model asks for together."""

    id: str
    source: str
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a call."""

    id: str
    source: str
    call: ToolCall
    text: str
    failed: bool


Piece: TypeAlias = Chunk | Words | Calls | Result


@dataclass(slots=True)
class _Open:
    """A text of which only pieces have come."""

    id: str
    text: str


@dataclass(slots=True)
class Reading:
    """Reads the events of one turn in their order. Ids have the numbers of events, so they stay when a turn runs again.

    ``given`` are the ids of the messages of the task.
    """

    turn: int
    given: Collection[str] = ()
    waiting: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    """The calls that have no result yet, by the ids that models gave them."""
    _open: dict[str, _Open] = field(default_factory=dict[str, _Open])
    """The texts that are being streamed, by their agents."""
    _asked: set[str] = field(default_factory=set[str])
    """The agents that have asked a human."""

    def read(self, number: int | str, event: Any) -> list[Piece]:
        """Return what an event says. A text of which only pieces came, and that ends with this event, comes first."""
        name = f"{self.turn}.{number}"
        found: list[Piece] = []
        match event:
            case {"type": "ModelClientStreamingChunkEvent", "source": str(source), "content": str(text)}:
                opened = self._open.setdefault(source, _Open(name, ""))
                opened.text += text
                found = [Chunk(id=opened.id, source=source, text=text)]
            case {"type": "UserInputRequestedEvent", "source": str(source)}:
                self._asked.add(source)
            case {"type": "ToolCallRequestEvent", "source": str(source), "content": calls} if is_array(calls):
                found = [*self._ended(source), Calls(id=name, source=source, calls=tuple(self._calls(name, calls)))]
            case {"type": "ToolCallExecutionEvent", "source": str(source), "content": results} if is_array(results):
                found = [*self._ended(source), *self._results(name, source, results)]
            case {"type": "ThoughtEvent", "source": str(source), "content": str(text)}:
                found = [self._words(name, source, text, thought=True)]
            case {"type": str(kind), "source": str(source), "content": content} if not kind.endswith("Event"):
                text = text_of(content)
                if event.get("id") in self.given:
                    return [Words(id=str(event["id"]), source=source, text=text, task=True)]
                found = [self._words(name, source, text, human=source in self._asked)]
                self._asked.discard(source)
            case _:
                pass
        return found

    def end(self) -> list[Piece]:
        """Return the texts of which only pieces came: the turn has ended, or waits."""
        return [piece for source in list(self._open) for piece in self._ended(source)]

    def _words(self, name: str, source: str, text: str, *, human: bool = False, thought: bool = False) -> Words:
        opened = self._open.pop(source, None)
        if opened is None:
            return Words(id=name, source=source, text=text, human=human, thought=thought)
        return Words(id=opened.id, source=source, text=text, streamed=opened.text, thought=thought)

    def _ended(self, source: str) -> list[Piece]:
        opened = self._open.pop(source, None)
        if opened is None:
            return []
        return [Words(id=opened.id, source=source, text=opened.text, streamed=opened.text)]

    def _calls(self, name: str, calls: Iterable[Any]) -> Iterable[ToolCall]:
        for index, call in enumerate(calls, 1):
            match call:
                case {"id": str(theirs), "name": str(tool), "arguments": str(arguments)}:
                    found = ToolCall(id=f"{name}.{index}", name=tool, arguments=arguments)
                    self.waiting[theirs] = found
                    yield found
                case _:
                    pass

    def _results(self, name: str, source: str, results: Iterable[Any]) -> Iterable[Result]:
        for index, result in enumerate(results, 1):
            match result:
                case {"call_id": str(theirs), "content": content}:
                    call = self.waiting.pop(theirs, None)
                    if call is None:  # an agent may show a result whose call it has not shown
                        call = ToolCall(id=f"{name}.{index}", name=str(result.get("name") or ""), arguments="{}")
                    failed = bool(result.get("is_error"))
                    text = text_of(content)
                    yield Result(id=f"{name}.{index}", source=source, call=call, text=text, failed=failed)
                case _:
                    pass


def text_of(content: Any) -> str:
    """Return the content of a message as text."""
    match content:
        case str():
            return content
        case {"data": str(), **rest} if not rest:
            return "[image]"
        case [*parts] if parts and all(isinstance(part, str | dict) for part in parts):
            return "\n".join(text_of(part) for part in parts)
        case _:
            return json.dumps(stored(content, "$"), ensure_ascii=False)
