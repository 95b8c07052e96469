"""AutoGen's messages, as JSON, for people."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from midturn.cli.output import clean, console, line


@dataclass(frozen=True, slots=True)
class Said:
    """Who said what; ``aside`` if it is not for the reader: a tool call, its result, a thought."""

    who: str
    text: str
    aside: bool

    def as_text(self) -> Text:
        """All of it."""
        return self._styled(clean(self.text))

    def as_line(self) -> Text:
        """In one line, shortened."""
        return self._styled(line(self.text))

    def _styled(self, text: str) -> Text:
        name, style = ("dim cyan", "dim") if self.aside else ("bold cyan", "")
        return Text.assemble((f"{line(self.who)}: ", name), (text, style))


def said(message: Any) -> Said:
    """What a dumped message says."""
    match message:
        case {"type": str(kind), "source": str(who), "content": content}:
            return Said(who, text_of(content), kind.endswith("Event"))
        case _:
            return Said("?", text_of(message), aside=False)


def text_of(content: Any) -> str:
    """The content of a message, whatever it is made of."""
    match content:
        case str():
            return content
        case {"name": name, "arguments": arguments}:
            return f"{name}({arguments})"
        case {"name": name, "content": result, "call_id": _}:
            return f"{name} returned {result}"
        case {"data": str(), **rest} if not rest:
            return "[image]"
        case [*parts] if parts:
            return "\n".join(text_of(part) for part in parts)
        case _:
            return json.dumps(content, ensure_ascii=False)


def _same(message: Any) -> str:
    """What a message has in common with the one that takes its place when a turn is run again."""
    return json.dumps({name: value for name, value in message.items() if name not in ("id", "created_at", "metadata")})


class Live:
    """Prints the messages of a turn as they come; text that a model streams, piece by piece."""

    def __init__(self, *hidden: str) -> None:
        """``hidden`` are the ids of messages that the reader knows already."""
        self._console = console()
        self._shown = set(hidden)
        self._printed: Counter[str] = Counter()
        self._known: Counter[str] = Counter()
        """What was printed before the turn began again."""
        self._speaker = ""
        """Whose text is being streamed just now."""
        self._streamed = ""
        self.heard = False
        """Whether there was any message."""
        self.asks = False
        """Whether the turn waits for an answer typed at the terminal."""

    def show(self, message: Any) -> None:
        """Print a message, if it was not printed yet."""
        kind, key = message.get("type"), message.get("id")
        self.heard = True
        self.asks = kind == "UserInputRequestedEvent"
        if self.asks or key in self._shown:
            return
        self._shown.add(key)
        same = _same(message)
        if self._known[same]:
            self._known[same] -= 1
            return
        self._printed[same] += 1
        found = said(message)
        if kind == "ModelClientStreamingChunkEvent":
            self._add(found)
        elif found.aside or not self._speaker or not self._streamed.rstrip().endswith(found.text.strip()):
            self.end()
            self._console.print(found.as_line() if found.aside else found.as_text(), soft_wrap=True)
        else:
            self.end()

    def again(self) -> None:
        """Expect the turn from its beginning: what was printed of it, under other ids, is not printed again."""
        self._known = Counter(self._printed)

    def end(self) -> None:
        """End the line that is being streamed."""
        if self._speaker:
            self._console.print()
        self._speaker = self._streamed = ""

    def _add(self, chunk: Said) -> None:
        if chunk.who != self._speaker:
            self.end()
            self._console.print(Said(chunk.who, "", aside=False).as_text(), end="", soft_wrap=True)
            self._speaker = chunk.who
        self._streamed += chunk.text
        self._console.print(Text(clean(chunk.text)), end="", soft_wrap=True)
