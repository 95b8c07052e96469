"""Print AutoGen's messages for people."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from midturn.cli.output import clean, console, line


@dataclass(frozen=True, slots=True)
class Said:
    """A speaker and a text. ``aside`` marks a text that is not for the reader: a tool call, its result, a thought."""

    who: str
    text: str
    aside: bool

    def as_text(self) -> Text:
        """Return the whole text."""
        return self._styled(clean(self.text))

    def as_line(self) -> Text:
        """Return the text as one line, shortened."""
        return self._styled(line(self.text))

    def _styled(self, text: str) -> Text:
        name, style = ("dim cyan", "dim") if self.aside else ("bold cyan", "")
        return Text.assemble((f"{line(self.who)}: ", name), (text, style))


def said(message: Any) -> Said:
    """Return who says what in a dumped message."""
    match message:
        case {"type": str(kind), "source": str(who), "content": content}:
            return Said(who, text_of(content), kind.endswith("Event"))
        case _:
            return Said("?", text_of(message), aside=False)


def text_of(content: Any) -> str:
    """Return the content of a message, of any kind, as text."""
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
    """Return the part of a message that stays the same when its turn is run again."""
    return json.dumps({name: value for name, value in message.items() if name not in ("id", "created_at", "metadata")})


class Live:
    """Prints the messages of a turn as they arrive. Text that a model streams is printed piece by piece."""

    def __init__(self, *hidden: str) -> None:
        """Start without output. ``hidden`` are the ids of messages that the reader already knows."""
        self._console = console()
        self._shown = set(hidden)
        self._printed: Counter[str] = Counter()
        self._known: Counter[str] = Counter()
        """Messages that were printed before the turn was run again."""
        self._speaker = ""
        """The name of the agent whose text is being streamed."""
        self._streamed = ""
        self.heard = False
        """True after the first message."""
        self.asks = False
        """True while the agent waits for a line from the terminal."""

    def show(self, message: Any) -> None:
        """Print a message that was not printed yet."""
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
        """Expect the turn from its beginning: messages come again with other ids, and are not printed twice."""
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
